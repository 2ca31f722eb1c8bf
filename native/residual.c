/* Three-input gates with one input fixed: the smaller program that is left.
 *
 * Operands are ids: inputs first, then gates in order. A literal is id << 1 | complemented; the last two numbers are
 * the constants. Bit 4a+2b+c of a gate's table is its answer.
 */
#include "residual.h"

#define FALSE_LITERAL 0xFFFFFFFEu
enum { TABLE_A = 0xF0, TABLE_B = 0xCC, TABLE_C = 0xAA, NEEDS_A = 4, NEEDS_B = 2, NEEDS_C = 1 };

static inline uint32_t needs(uint32_t t)
{
    return (((t >> 4) ^ t) & 0x0F ? NEEDS_A : 0) | (((t >> 2) ^ t) & 0x33 ? NEEDS_B : 0) |
           (((t >> 1) ^ t) & 0x55 ? NEEDS_C : 0);
}

/* The table with one operand (of weight `shift` in the index, `low` masking its zeros) replaced by a literal. */
static inline uint32_t substitute(uint32_t t, uint32_t literal, int shift, uint32_t low)
{
    uint32_t zero = t & low, one = (t >> shift) & low;
    if (literal >= FALSE_LITERAL) {
        uint32_t kept = literal & 1 ? one : zero;
        return kept | kept << shift;
    }
    return literal & 1 ? one | zero << shift : t;
}

static inline uint32_t follow(uint32_t literal, uint32_t inputs, uint32_t input, uint32_t value, const uint32_t *map)
{
    if (literal >= FALSE_LITERAL) return literal;
    uint32_t id = literal >> 1;
    uint32_t now = id >= inputs ? map[id - inputs] : id == input ? FALSE_LITERAL | value : id << 1;
    return now ^ (literal & 1);
}

/* The literal that `literal` has become after the fixing that filled `map`. */
uint32_t residual_follow(uint32_t literal, uint32_t inputs, uint32_t input, uint32_t value, const uint32_t *map)
{
    return follow(literal, inputs, input, value, map);
}

/* Fix `input` to `value` in the gates in use: writes what remains to `out`, returns its length, and leaves in `map`
 * the literal that every gate has become.
 */
uint32_t residual_fix(const residual_gate *gates, int64_t count, uint32_t inputs, uint32_t input, uint32_t value,
                      residual_gate *out, uint32_t *map)
{
    uint32_t made = 0;
    for (int64_t i = 0; i < count; i++) {
        const residual_gate *g = gates + i;
        if (!g->uses) continue;
        uint32_t a = follow(g->a << 1, inputs, input, value, map);
        uint32_t b = follow(g->b << 1, inputs, input, value, map);
        uint32_t c = follow(g->c << 1, inputs, input, value, map);
        if (!((a | b | c) & 1) && a < FALSE_LITERAL && b < FALSE_LITERAL && c < FALSE_LITERAL &&
            (a == b) == (g->a == g->b) && (a == c) == (g->a == g->c) && (b == c) == (g->b == g->c)) {
            /* Only the operands' numbers have changed. */
            out[made] = (residual_gate){a >> 1, b >> 1, c >> 1, g->table, 0};
            map[i] = (inputs + made++) << 1;
            continue;
        }
        uint32_t t = substitute(g->table, a, 4, 0x0F);
        t = substitute(t, b, 2, 0x33);
        t = substitute(t, c, 1, 0x55);
        a >>= 1, b >>= 1, c >>= 1;
        if (a == b) t = (t & 0x03) | (t & 0x03) << 2 | (t & 0xC0) | (t & 0xC0) >> 2;
        if (a == c) t = (t & 0x05) | (t & 0x05) << 1 | (t & 0xA0) | (t & 0xA0) >> 1;
        if (b == c) t = (t & 0x11) | (t & 0x11) << 1 | (t & 0x88) | (t & 0x88) >> 1;
        uint32_t literal;
        switch (needs(t)) {
        case 0: literal = FALSE_LITERAL | (t & 1); break;
        case NEEDS_A: literal = a << 1 | (t != TABLE_A); break;
        case NEEDS_B: literal = b << 1 | (t != TABLE_B); break;
        case NEEDS_C: literal = c << 1 | (t != TABLE_C); break;
        case NEEDS_A | NEEDS_B: c = a; goto emit;
        case NEEDS_A | NEEDS_C: b = a; goto emit;
        case NEEDS_B | NEEDS_C: a = b; goto emit;
        default:
        emit:
            out[made] = (residual_gate){a, b, c, t, 0};
            literal = (inputs + made++) << 1;
        }
        map[i] = literal;
    }
    return made;
}

/* Count the uses of every gate from the outputs down (0 before, and 0 after: dead), and the
 * occurrences of every input among live gates. Returns the number of live gates.
 */
int64_t residual_mark(residual_gate *gates, int64_t count, uint32_t inputs, const uint32_t *outputs,
                      int32_t output_count, uint32_t *occurrences)
{
    int64_t live = 0;
    for (uint32_t i = 0; i < inputs; i++) occurrences[i] = 0;
    for (int32_t i = 0; i < output_count; i++) {
        if (outputs[i] >= FALSE_LITERAL) continue;
        uint32_t id = outputs[i] >> 1;
        if (id < inputs) occurrences[id]++;
        else gates[id - inputs].uses++;
    }
    for (int64_t i = count - 1; i >= 0; i--) {
        if (!gates[i].uses) continue;
        live++;
        const uint32_t operands[3] = {gates[i].a, gates[i].b, gates[i].c};
        for (int k = 0; k < 3; k++) {
            if (operands[k] < inputs) occurrences[operands[k]]++;
            else gates[operands[k] - inputs].uses++;
        }
    }
    return live;
}
