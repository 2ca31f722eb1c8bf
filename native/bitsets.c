/* Families of sets of rows: intersections enumerated, equal ones found, subsets that are nearly the whole. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "bitsets.h"

#define BITS(part) bits_portable_##part
#define TARGET
/* Without an instruction for it: sums of neighbouring bits, which the compiler can do for several words at once. */
static inline uint64_t counted(uint64_t word)
{
    word -= (word >> 1) & 0x5555555555555555;
    word = (word & 0x3333333333333333) + ((word >> 2) & 0x3333333333333333);
    word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0f;
    word += word >> 8;
    word += word >> 16;
    return (word + (word >> 32)) & 0x7f;
}
#define COUNT(word) counted(word)
#include "bitsets.inc"

enum { DEEPEST = 16, COUNT_MASK = 31 };

const bits_kernel *bits_portable(void) { return &bits_portable_kernel; }

/* 0: the best that this processor has; 1, 2: portable, AVX2, or NULL when the processor lacks it. */
const bits_kernel *bits_choose(int32_t isa)
{
    const bits_kernel *kernel = NULL;
    if (isa == 2 || isa == 0) kernel = bits_avx2();
    if (isa == 1 || (isa == 0 && !kernel)) kernel = bits_portable();
    return kernel;
}

/* --- families ---------------------------------------------------------------------------------------------------- */
/* A family of at most `most` sets: more is as when memory ran out. */
bits_family *bits_new(int32_t depth, int64_t most)
{
    bits_family *family = depth >= 1 && depth <= DEEPEST ? calloc(1, sizeof *family) : NULL;
    if (!family) return NULL;
    family->depth = depth;
    family->most = most;
    return family;
}

void bits_free(bits_family *family)
{
    if (!family) return;
    free(family->members);
    free(family->size);
    free(family->samples);
    free(family->hits);
    free(family->low);
    free(family->sum);
    free(family->hash);
    free(family);
}

static int grown(void **array, int64_t capacity, size_t width)
{
    void *bigger = realloc(*array, (size_t)capacity * width);
    if (bigger) *array = bigger;
    return bigger != NULL;
}

static int has_room(bits_family *f, int with_sums)
{
    if (f->length >= f->most) return 0;
    if (f->length < f->capacity) return 1;
    int64_t capacity = f->capacity ? f->capacity + f->capacity / 2 : 256;
    if (!grown((void **)&f->members, capacity * f->depth, sizeof *f->members) ||
        !grown((void **)&f->size, capacity, sizeof *f->size) ||
        !grown((void **)&f->samples, capacity, sizeof *f->samples) ||
        !grown((void **)&f->hits, capacity, sizeof *f->hits) ||
        !grown((void **)&f->low, 2 * capacity, sizeof *f->low) ||
        !grown((void **)&f->hash, capacity, sizeof *f->hash) ||
        (with_sums && !grown((void **)&f->sum, capacity, sizeof *f->sum)))
        return 0;
    f->capacity = capacity;
    return 1;
}

/* First row at or after `from`, or `rows` when there is none. */
static uint32_t first_row(const bits_space *space, const uint64_t *set, int64_t from)
{
    int64_t at = from >> 6;
    if (at >= space->words) return (uint32_t)space->rows;
    uint64_t word = set[at] & (~(uint64_t)0 << (from & 63));
    while (!word) {
        if (++at == space->words) return (uint32_t)space->rows;
        word = set[at];
    }
    return (uint32_t)(64 * at + __builtin_ctzll(word));
}

static double sum_of(const bits_space *space, const uint64_t *set)
{
    double total = 0;
    for (int64_t at = 0; at < space->words; at++)
        for (uint64_t word = set[at] & space->within[at]; word; word &= word - 1)
            total += space->values[64 * at + __builtin_ctzll(word)];
    return total;
}

/* The number of members is in the lowest bits of the hash, so that of equal sets the plainest is sorted first. */
static int append(const bits_space *space, bits_family *f, const uint64_t *set, uint64_t size, const int32_t *members,
                  int32_t count)
{
    if (!has_room(f, space->values != NULL)) return 0;
    int64_t at = f->length++;
    for (int32_t i = 0; i < f->depth; i++) f->members[at * f->depth + i] = i < count ? members[i] : -1;
    f->size[at] = (uint32_t)size;
    f->samples[at] = (uint32_t)(space->within ? space->kernel->both(set, space->within, space->words) : size);
    f->hits[at] = (uint32_t)(space->values ? 0 : space->kernel->both(set, space->hits, space->words));
    if (space->values) f->sum[at] = sum_of(space, set);
    f->hash[at] = (space->kernel->digest(set, space->keys, space->words) & ~(uint64_t)COUNT_MASK) | (uint64_t)count;
    f->low[2 * at] = first_row(space, set, 0);
    f->low[2 * at + 1] = first_row(space, set, (int64_t)f->low[2 * at] + 1);
    return 1;
}

static uint64_t *scratch(int64_t words, int64_t sets)
{
    return aligned_alloc(64, (size_t)(words * sets) * sizeof(uint64_t));
}

/* Depth first: an intersection with fewer than `least` rows has none below it with more. */
static int deepen(const bits_space *space, bits_family *family, const uint64_t *set, int32_t *members, int32_t count,
                  int32_t sets, int64_t least, uint64_t *room)
{
    for (int32_t next = members[count - 1] + 1; next < sets; next++) {
        uint64_t size = space->kernel->meet(room, set, space->sets + next * space->words, space->words);
        if ((int64_t)size < least) continue;
        members[count] = next;
        if (!append(space, family, room, size, members, count + 1)) return 0;
        if (count + 1 < family->depth &&
            !deepen(space, family, room, members, count + 1, sets, least, room + space->words))
            return 0;
    }
    return 1;
}

/* Every intersection of 1 to `depth` of the sets 0 … sets-1 whose first is `first`, with at least `least` rows;
 * -1 when memory ran out. */
int32_t bits_enumerate(const bits_space *space, bits_family *family, int32_t first, int32_t sets, int64_t least)
{
    const uint64_t *set = space->sets + first * space->words;
    uint64_t size = space->kernel->both(set, set, space->words);
    int32_t members[DEEPEST] = {first};
    if ((int64_t)size < least) return 0;
    if (!append(space, family, set, size, members, 1)) return -1;
    if (family->depth == 1) return 0;
    uint64_t *room = scratch(space->words, family->depth);
    int good = room && deepen(space, family, set, members, 1, sets, least, room);
    free(room);
    return good ? 0 : -1;
}

static void intersect(const bits_space *space, const int32_t *members, int32_t depth, uint64_t *out)
{
    memcpy(out, space->sets + members[0] * space->words, (size_t)space->words * sizeof *out);
    for (int32_t i = 1; i < depth && members[i] >= 0; i++) {
        const uint64_t *set = space->sets + members[i] * space->words;
        for (int64_t at = 0; at < space->words; at++) out[at] &= set[at];
    }
}

/* --- equal sets -------------------------------------------------------------------------------------------------- */
/* `order` sorts the family by hash; same[i] becomes the one that stands for i: the first in that order with the same
 * rows. A hash is no proof: rows are compared. */
int32_t bits_merge(const bits_space *space, const bits_family *family, const int64_t *order, int64_t *same)
{
    uint64_t *room = scratch(space->words, 2);
    if (!room) return -1;
    uint64_t *other = room + space->words;
    for (int64_t from = 0, to; from < family->length; from = to) {
        uint64_t hash = family->hash[order[from]] & ~(uint64_t)COUNT_MASK;
        for (to = from; to < family->length && (family->hash[order[to]] & ~(uint64_t)COUNT_MASK) == hash; to++) {
            int64_t one = order[to];
            same[one] = one;
            if (to > from) intersect(space, family->members + one * family->depth, family->depth, room);
            for (int64_t before = from; before < to; before++) {
                int64_t two = order[before];
                if (same[two] != two || family->size[one] != family->size[two]) continue;
                intersect(space, family->members + two * family->depth, family->depth, other);
                if (!memcmp(room, other, (size_t)space->words * sizeof *room)) {
                    same[one] = two;
                    break;
                }
            }
        }
    }
    free(room);
    return 0;
}

/* --- nearly the whole -------------------------------------------------------------------------------------------- */
typedef struct {
    const bits_space *space;
    const bits_index *index;
    const uint64_t *whole;
    int64_t size, k;
    double value, most;
    int64_t place, best;
} search;

static int beats(const search *s, double difference, int64_t at)
{
    if (difference != s->most) return difference > s->most;
    if (difference == 0) return 0;
    const bits_index *x = s->index;
    if (x->size[at] != x->size[s->best]) return x->size[at] > x->size[s->best];
    return x->identity[at] < x->identity[s->best];
}

static void try_group(search *s, int64_t group)
{
    const bits_index *x = s->index;
    int64_t low = x->group_start[group], end = x->group_start[group + 1], high = end;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if ((int64_t)x->size[middle] < s->size - s->k) low = middle + 1;
        else high = middle;
    }
    for (int64_t at = low; at < end && (int64_t)x->size[at] <= s->size; at++) {
        double difference = s->value - x->value[at];
        if (difference < 0) difference = -difference;
        if (!(difference >= s->most) || !beats(s, difference, at)) continue;
        const uint64_t *members[DEEPEST];
        int32_t count = 0;
        for (; count < x->depth && x->members[at * x->depth + count] >= 0; count++)
            members[count] = s->space->sets + x->members[at * x->depth + count] * s->space->words;
        if (!s->space->kernel->inside(members, count, s->whole, s->space->words)) continue;
        s->most = difference;
        s->best = at;
    }
}

static int64_t group_of(const bits_index *x, uint32_t row, uint32_t low)
{
    int64_t from = x->row_start[row], to = x->row_start[row + 1];
    while (from < to) {
        int64_t middle = (from + to) / 2;
        if (x->group_low[middle] < low) from = middle + 1;
        else to = middle;
    }
    return from < x->row_start[row + 1] && x->group_low[from] == low ? from : -1;
}

/* V ⊆ U without at most k rows of U: the first two rows of V are among the first k+2 of U. */
static void search_from(search *s, uint32_t *rows)
{
    const bits_space *space = s->space;
    const bits_index *x = s->index;
    int64_t most = s->k + 2 < s->size ? s->k + 2 : s->size, count = 0;
    for (int64_t from = 0; count < most; count++) {
        rows[count] = first_row(space, s->whole, from);
        from = (int64_t)rows[count] + 1;
    }
    for (int64_t i = 0; i < count && i <= s->k; i++) {
        int64_t from = x->row_start[rows[i]], to = x->row_start[rows[i] + 1];
        if (to - from < 8 * (count - i)) {
            for (int64_t group = from; group < to; group++) {
                uint32_t low = x->group_low[group];
                if (low == space->rows || (s->whole[low >> 6] >> (low & 63) & 1)) try_group(s, group);
            }
            continue;
        }
        for (int64_t j = i + 1; j <= count; j++) {
            int64_t group = group_of(x, rows[i], j < count ? rows[j] : (uint32_t)space->rows);
            if (group >= 0) try_group(s, group);
        }
    }
}

/* For each place in the index the largest difference of values to a set inside it that lacks at most k of its rows, and
 * that set's place; ties go to the larger set, then to the smaller identity. NaN for a set without a value; sets
 * without one are passed over. */
int32_t bits_inconsistency(const bits_space *space, const bits_index *index, const int64_t *places, int64_t count,
                           int64_t k, double *most, int64_t *attained)
{
    uint64_t *room = scratch(space->words, 1);
    uint32_t *rows = malloc((size_t)(space->rows + 2) * sizeof *rows);
    for (int64_t i = 0; i < count && room && rows; i++) {
        int64_t at = places[i];
        search s = {space, index, room, index->size[at], k, index->value[at], 0, at, at};
        if (s.value == s.value) {
            intersect(space, index->members + at * index->depth, index->depth, room);
            search_from(&s, rows);
        } else s.most = s.value;
        most[i] = s.most;
        attained[i] = s.best;
    }
    int good = room && rows;
    free(room);
    free(rows);
    return good ? 0 : -1;
}
