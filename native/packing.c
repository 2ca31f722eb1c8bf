/* Online bin packing: best fit and first fit, and the Falkenauer metric of what they pack as a pair of integers.
 *
 * The metric (Falkenauer, "A hybrid grouping genetic algorithm for bin packing", 1996, with exponent 2) is
 * sum((fill / capacity)^2) / bins. With one capacity, packings are ordered by sum(fill^2) / bins, and two such
 * fractions by their cross products: no rounding.
 */
#include "packing.h"

#include <stdlib.h>
#include <string.h>

enum { BEST_FIT, FIRST_FIT };
/* Bins are looked through in blocks that know the most room in them. */
enum { BLOCK = 16 };

typedef struct {
    int32_t *room;       /* of each bin, in the order of opening */
    int32_t *most;       /* of each block of bins */
    int32_t *with_room;  /* number of bins by their room */
    uint64_t *any;       /* bit r: some bin has room r */
    int64_t words;
} packing;

/* The bin with the least room that is enough. Bins with equal room are alike: what matters is only the room left. */
static int32_t best_fit(packing *p, int32_t size, int32_t capacity, int32_t bins)
{
    int64_t word = size >> 6;
    uint64_t left = p->any[word] & (~UINT64_C(0) << (size & 63));
    while (left == 0 && ++word < p->words) left = p->any[word];
    int32_t room = capacity;
    if (left) {
        room = (int32_t)(word << 6) + __builtin_ctzll(left);
        if (--p->with_room[room] == 0) p->any[room >> 6] &= ~(UINT64_C(1) << (room & 63));
    } else {
        bins++;
    }
    room -= size;
    if (p->with_room[room]++ == 0) p->any[room >> 6] |= UINT64_C(1) << (room & 63);
    return bins;
}

/* The first bin, in the order of opening, with enough room. */
static int32_t first_fit(packing *p, int32_t size, int32_t capacity, int32_t bins)
{
    int32_t block = 0, blocks = (bins + BLOCK - 1) / BLOCK;
    while (block < blocks && p->most[block] < size) block++;
    int32_t bin = bins;
    if (block < blocks) {
        bin = block * BLOCK;
        while (p->room[bin] < size) bin++;
    } else {
        block = bins / BLOCK;
        p->room[bins++] = capacity;
    }
    p->room[bin] -= size;
    int32_t most = 0, end = (block + 1) * BLOCK < bins ? (block + 1) * BLOCK : bins;
    for (int32_t i = block * BLOCK; i < end; i++) most = p->room[i] > most ? p->room[i] : most;
    p->most[block] = most;
    return bins;
}

static int64_t squares_of(const packing *p, int32_t solver, int32_t capacity, int32_t bins)
{
    int64_t sum = 0;
    if (solver == FIRST_FIT) {
        for (int32_t i = 0; i < bins; i++) sum += (int64_t)(capacity - p->room[i]) * (capacity - p->room[i]);
        return sum;
    }
    for (int64_t word = 0; word < p->words; word++) {
        for (uint64_t left = p->any[word]; left; left &= left - 1) {
            int32_t room = (int32_t)(word << 6) + __builtin_ctzll(left);
            sum += (int64_t)(capacity - room) * (capacity - room) * p->with_room[room];
        }
    }
    return sum;
}

/* sizes: count rows of length items, each from 1 to capacity < 2^20, length < 2^20, so that sums of squares stay below
 * 2^60. squares, bins: [count], what `solver` makes of each row. Returns -1 without memory. */
int32_t packing_pack(const int32_t *sizes, int64_t count, int64_t length, int32_t capacity, int32_t solver,
                     int64_t *squares, int32_t *bins)
{
    packing p = {.words = (capacity >> 6) + 1};
    p.room = malloc(sizeof(int32_t) * (size_t)(length + 1));
    p.most = malloc(sizeof(int32_t) * (size_t)(length / BLOCK + 1));
    p.with_room = calloc((size_t)capacity + 1, sizeof(int32_t));
    p.any = calloc((size_t)p.words, sizeof(uint64_t));
    int32_t failed = !p.room || !p.most || !p.with_room || !p.any;
    for (int64_t row = 0; row < count && !failed; row++) {
        const int32_t *items = sizes + row * length;
        int32_t opened = 0;
        if (solver == BEST_FIT) {
            memset(p.with_room, 0, sizeof(int32_t) * ((size_t)capacity + 1));
            memset(p.any, 0, sizeof(uint64_t) * (size_t)p.words);
            for (int64_t i = 0; i < length; i++) opened = best_fit(&p, items[i], capacity, opened);
        } else {
            for (int64_t i = 0; i < length; i++) opened = first_fit(&p, items[i], capacity, opened);
        }
        bins[row] = opened;
        squares[row] = squares_of(&p, solver, capacity, opened);
    }
    free(p.room);
    free(p.most);
    free(p.with_room);
    free(p.any);
    return failed ? -1 : 0;
}

/* winners: [count], 0 or 1 for the larger of squares/bins, -1 where they are equal. */
void packing_compare(const int64_t *squares0, const int32_t *bins0, const int64_t *squares1, const int32_t *bins1,
                     int64_t count, int8_t *winners)
{
    for (int64_t i = 0; i < count; i++) {
        __int128 left = (__int128)squares0[i] * bins1[i], right = (__int128)squares1[i] * bins0[i];
        winners[i] = left > right ? 0 : left < right ? 1 : -1;
    }
}

/* How each row of `perturbed` differs from `instance`: number of changed elements, the longest runs of changed and of
 * increased ones, and the difference of the sums. */
void packing_changes(const int64_t *instance, const int64_t *perturbed, int64_t count, int64_t length,
                     int32_t *changes, int32_t *longest, int32_t *longest_up, int64_t *difference)
{
    for (int64_t row = 0; row < count; row++) {
        const int64_t *changed = perturbed + row * length;
        int32_t number = 0, run = 0, up = 0, most = 0, most_up = 0;
        int64_t sum = 0;
        for (int64_t i = 0; i < length; i++) {
            int64_t by = changed[i] - instance[i];
            sum += by;
            number += by != 0;
            run = by != 0 ? run + 1 : 0;
            up = by > 0 ? up + 1 : 0;
            most = run > most ? run : most;
            most_up = up > most_up ? up : most_up;
        }
        changes[row] = number;
        longest[row] = most;
        longest_up[row] = most_up;
        difference[row] = sum;
    }
}
