/* Uniform (or weighted) draws from a box or a ball, counted against predicates; positions are drawn when first read.
 *
 * Random words come from Philox4x64-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3",
 * SC 2011), a bijection of a counter under a key: key = (seed, stream), counter = (1, 2, …; block; 0; 0). Blocks can
 * therefore never overlap, and the draws do not depend on who makes them. Every bounded draw takes just enough bits
 * and rejects what lies beyond the bound, so that no value is favoured.
 */
#include "sample.h"

#include <stdlib.h>

typedef unsigned __int128 u128;

/* --- random bits ------------------------------------------------------------------------------------------------ */
enum { WORDS = 256 };

typedef struct {
    uint64_t seed, stream, block, counter, word;
    int left, next;
    uint64_t words[WORDS];
} source;

static inline void philox(uint64_t key0, uint64_t key1, uint64_t counter, uint64_t block, uint64_t *out)
{
    uint64_t c0 = counter, c1 = block, c2 = 0, c3 = 0;
    for (int round = 0; round < 10; round++) {
        u128 first = (u128)0xD2E7470EE14C6C93u * c0, second = (u128)0xCA5A826395121157u * c2;
        c0 = (uint64_t)(second >> 64) ^ c1 ^ key0;
        c2 = (uint64_t)(first >> 64) ^ c3 ^ key1;
        c1 = (uint64_t)second;
        c3 = (uint64_t)first;
        key0 += 0x9E3779B97F4A7C15u;
        key1 += 0xBB67AE8584CAA73Bu;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

static uint64_t refill(source *s)
{
    for (int i = 0; i < WORDS; i += 4) philox(s->seed, s->stream, ++s->counter, s->block, s->words + i);
    s->next = 1;
    return s->words[0];
}

static inline uint64_t next_word(source *s) { return s->next < WORDS ? s->words[s->next++] : refill(s); }

/* The next `bits` random bits, 1 to 64. */
static inline uint64_t take(source *s, int bits)
{
    if (s->left < bits) s->word = next_word(s), s->left = 64;
    uint64_t value = s->word & ~(uint64_t)0 >> (64 - bits);
    s->word = bits < 64 ? s->word >> bits : 0;
    s->left -= bits;
    return value;
}

static inline uint64_t below(source *s, uint64_t bound)
{
    if (bound <= 1) return 0;
    int bits = 64 - __builtin_clzll(bound - 1);
    uint64_t value;
    do value = take(s, bits);
    while (value >= bound);
    return value;
}

static u128 below_wide(source *s, u128 bound)
{
    uint64_t high = (uint64_t)((bound - 1) >> 64);
    if (!high) return bound - 1 == ~(uint64_t)0 ? take(s, 64) : below(s, (uint64_t)bound);
    int bits = 64 - __builtin_clzll(high);
    u128 value;
    do value = (u128)take(s, bits) << 64 | take(s, 64);
    while (value >= bound);
    return value;
}

/* --- one point -------------------------------------------------------------------------------------------------- */
typedef struct {
    const evaluate_node *nodes;
    const sample_feature *features;
    int64_t *positions;
    uint64_t *drawn_at; /* number of the point for which a position was drawn */
    uint64_t point;
    int64_t label;
    source bits;
} draw;

static inline int64_t choose(source *s, const sample_feature *f)
{
    if (!f->weights) return f->low + (int64_t)below(s, (uint64_t)f->width);
    /* weights[i] is the weight of the first i + 1 positions together. */
    uint64_t value = below(s, f->weights[f->width - 1]);
    int64_t first = 0, last = f->width - 1;
    while (first < last) {
        int64_t middle = first + (last - first) / 2;
        if (f->weights[middle] > value) last = middle;
        else first = middle + 1;
    }
    return f->low + first;
}

static inline int64_t position(draw *d, int32_t feature)
{
    if (d->drawn_at[feature] != d->point) {
        d->drawn_at[feature] = d->point;
        d->positions[feature] = choose(&d->bits, d->features + feature);
    }
    return d->positions[feature];
}

static inline int64_t label(draw *d)
{
    if (d->label < 0) {
        const evaluate_node *node = d->nodes;
        while (node->feature >= 0) {
            int64_t p = position(d, node->feature);
            node = d->nodes + (p >= node->low && p < node->high ? node->right : node->left);
        }
        d->label = node->label;
    }
    return d->label;
}

static inline u128 ways(const sample_ball *ball, int32_t feature, int64_t rest)
{
    const uint64_t *entry = ball->ways + 2 * ((int64_t)feature * (ball->radius + 1) + rest);
    return (u128)entry[1] << 64 | entry[0];
}

/* A uniform point of the ball, feature by feature: ways(k, r) points of the features from k on lie within r. */
static void draw_in_ball(draw *d, const sample_ball *ball, int32_t feature_count)
{
    int64_t rest = ball->radius;
    for (int32_t k = 0; k < feature_count; k++) {
        const sample_feature *f = d->features + k;
        int64_t centre = ball->centre[k], high = f->low + f->width;
        d->drawn_at[k] = d->point;
        if (f->width == 1 || (rest == 0 && centre >= f->low && centre < high)) {
            d->positions[k] = f->width == 1 ? f->low : centre;
            int64_t away = llabs(d->positions[k] - centre);
            rest -= ball->l0 ? away != 0 : away * ball->weights[k];
            continue;
        }
        u128 value = below_wide(&d->bits, ways(ball, k, rest));
        if (ball->l0) {
            int inside = centre >= f->low && centre < high;
            u128 stay = inside ? ways(ball, k + 1, rest) : 0;
            if (value < stay) {
                d->positions[k] = centre;
                continue;
            }
            int64_t p = f->low + (int64_t)((value - stay) / ways(ball, k + 1, rest - 1));
            d->positions[k] = p + (inside && p >= centre);
            rest--;
            continue;
        }
        for (int64_t away = 0;; away++) {
            u128 each = ways(ball, k + 1, rest - away * ball->weights[k]);
            int below_centre = centre - away >= f->low && centre - away < high;
            int above_centre = away && centre + away >= f->low && centre + away < high;
            if (below_centre && value < each) {
                d->positions[k] = centre - away;
            } else if (above_centre && value - (below_centre ? each : 0) < each) {
                d->positions[k] = centre + away;
            } else {
                value -= each * (u128)(below_centre + above_centre);
                continue;
            }
            rest -= away * ball->weights[k];
            break;
        }
    }
}

#define CONTEXT draw *d
#define POSITION(f) position(d, f)
#define LABEL() label(d)
#define SCORE(k) 0 /* trees have none */

#define VALUE int64_t
#define MACHINE_NAME(part) narrow_##part
#include "machine.inc"
#undef VALUE
#undef MACHINE_NAME

#define VALUE __int128
#define MACHINE_NAME(part) wide_##part
#include "machine.inc"
#undef VALUE
#undef MACHINE_NAME

/* --- blocks ----------------------------------------------------------------------------------------------------- */
static int open_draw(draw *d, const evaluate_node *nodes, const sample_feature *features, int32_t feature_count,
                     uint64_t seed, uint64_t stream, uint64_t block)
{
    size_t room = (size_t)(feature_count > 0 ? feature_count : 1);
    *d = (draw){.nodes = nodes, .features = features, .label = -1};
    d->bits.seed = seed, d->bits.stream = stream, d->bits.block = block, d->bits.next = WORDS;
    d->positions = calloc(room, sizeof *d->positions);
    d->drawn_at = calloc(room, sizeof *d->drawn_at);
    return d->positions && d->drawn_at;
}

static void close_draw(draw *d) { free(d->positions), free(d->drawn_at); }

/* hits[i] grows by the draws of this block for which output i is true; `ball` NULL: the whole box. 1: no memory. */
int32_t sample_block(const evaluate_node *nodes, const evaluate_step *steps, const uint8_t *label_sets, int32_t wide,
                     int32_t registers, const sample_feature *features, int32_t feature_count, const sample_ball *ball,
                     uint64_t seed, uint64_t stream, uint64_t block, int64_t draws, int32_t outputs, uint64_t *hits)
{
    draw d;
    __int128 wides[wide ? registers : 1];
    int64_t narrows[wide ? 1 : registers];
    int ready = open_draw(&d, nodes, features, feature_count, seed, stream, block);
    for (int64_t k = 0; ready && k < draws; k++) {
        d.point++;
        d.label = -1;
        if (ball) draw_in_ball(&d, ball, feature_count);
        if (wide) {
            wide_run(&d, steps, label_sets, wides);
            for (int32_t i = 0; i < outputs; i++) hits[i] += wides[i] != 0;
        } else {
            narrow_run(&d, steps, label_sets, narrows);
            for (int32_t i = 0; i < outputs; i++) hits[i] += narrows[i] != 0;
        }
    }
    close_draw(&d);
    return !ready;
}

/* The points themselves (draws × features), every feature drawn in order. 1: no memory. */
int32_t sample_points(const sample_feature *features, int32_t feature_count, const sample_ball *ball, uint64_t seed,
                      uint64_t stream, uint64_t block, int64_t draws, int64_t *positions)
{
    draw d;
    int ready = open_draw(&d, NULL, features, feature_count, seed, stream, block);
    for (int64_t k = 0; ready && k < draws; k++) {
        d.point++;
        if (ball) draw_in_ball(&d, ball, feature_count);
        for (int32_t f = 0; f < feature_count; f++) positions[k * feature_count + f] = position(&d, f);
    }
    close_draw(&d);
    return !ready;
}

/* The raw words of a block, for comparison with other implementations of the generator. */
void sample_words(uint64_t seed, uint64_t stream, uint64_t block, int64_t count, uint64_t *words)
{
    source s = {.seed = seed, .stream = stream, .block = block, .next = WORDS};
    for (int64_t i = 0; i < count; i++) words[i] = next_word(&s);
}
