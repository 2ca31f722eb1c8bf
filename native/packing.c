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

typedef struct {
    int32_t *open;       /* first fit: room of the bins that some item still fits into, in the order of opening */
    int32_t *with_room;  /* best fit: number of bins by their room; bins with equal room are alike */
    uint64_t *any;       /* bit r: with_room[r] is not 0 */
    int64_t words;
    int64_t squares;     /* so far */
    int32_t bins;
} packing;

/* An item into a bin with this much room: the bin's square grows. Returns the room that is left. */
static inline int32_t put(packing *p, int32_t room, int32_t size, int32_t capacity)
{
    int64_t before = capacity - room, after = before + size;
    p->squares += after * after - before * before;
    return room - size;
}

/* Each item into the bin with the least room that is enough. */
static void best_fit(packing *p, const int32_t *items, int64_t length, int32_t capacity)
{
    memset(p->with_room, 0, sizeof(int32_t) * ((size_t)capacity + 1));
    memset(p->any, 0, sizeof(uint64_t) * (size_t)p->words);
    for (int64_t i = 0; i < length; i++) {
        int32_t size = items[i], room = capacity;
        int64_t word = size >> 6;
        uint64_t enough = p->any[word] & (~UINT64_C(0) << (size & 63));
        while (enough == 0 && ++word < p->words) enough = p->any[word];
        if (enough) {
            room = (int32_t)(word << 6) + __builtin_ctzll(enough);
            if (--p->with_room[room] == 0) p->any[room >> 6] &= ~(UINT64_C(1) << (room & 63));
        } else {
            p->bins++;
        }
        room = put(p, room, size, capacity);
        if (p->with_room[room]++ == 0) p->any[room >> 6] |= UINT64_C(1) << (room & 63);
    }
}

/* Each item into the first bin, in the order of opening, with enough room. */
static void first_fit(packing *p, const int32_t *items, int64_t length, int32_t capacity)
{
    int32_t smallest = capacity;
    for (int64_t i = 0; i < length; i++) smallest = items[i] < smallest ? items[i] : smallest;
    int64_t count = 0;
    for (int64_t i = 0; i < length; i++) {
        int32_t size = items[i], *open = p->open;
        int64_t bin = 0;
        while (bin < count && open[bin] < size) bin++;
        if (bin == count) {
            open[count++] = capacity;
            p->bins++;
        }
        open[bin] = put(p, open[bin], size, capacity);
        if (open[bin] < smallest) {
            count--;
            for (; bin < count; bin++) open[bin] = open[bin + 1];
        }
    }
}

/* sizes: count rows of length items, each from 1 to capacity < 2^20, length < 2^20, so that sums of squares stay below
 * 2^60. squares, bins: [count], what `solver` makes of each row. Returns -1 without memory. */
int32_t packing_pack(const int32_t *sizes, int64_t count, int64_t length, int32_t capacity, int32_t solver,
                     int64_t *squares, int32_t *bins)
{
    packing p = {.words = (capacity >> 6) + 1};
    p.open = malloc(sizeof(int32_t) * (size_t)(length + 1));
    p.with_room = malloc(sizeof(int32_t) * ((size_t)capacity + 1));
    p.any = malloc(sizeof(uint64_t) * (size_t)p.words);
    int32_t failed = !p.open || !p.with_room || !p.any;
    for (int64_t row = 0; row < count && !failed; row++) {
        p.squares = 0;
        p.bins = 0;
        (solver == BEST_FIT ? best_fit : first_fit)(&p, sizes + row * length, length, capacity);
        squares[row] = p.squares;
        bins[row] = p.bins;
    }
    free(p.open);
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
