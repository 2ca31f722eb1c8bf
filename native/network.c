/* Walking a box of inputs tile by tile through an integer network.
 *
 * Points follow each other in mixed radix, the last feature fastest. A tile is a run of them in which the fastest
 * features (and, of the next one, some values) take all values; what these add to the sums of layer 0 is tabulated
 * once, and what the slower features add is one number a unit for the whole tile. All arithmetic wraps round: sums
 * are proven to fit their width in the end, whatever happens on the way.
 */
#include "network.h"

#include <stdlib.h>
#include <string.h>

#include "network_kernel.inc"

enum { LINE = 64, TABLE_BYTES = 16384, WIDE_TABLE_BYTES = 262144, MOST_POINTS = 8192, TALLIED = 24 };

struct network_task {
    network_shape shape;
    const network_kernel *kernel;
    uint8_t **buffers; /* one a layer: its inputs; and at last the scores */
    uint8_t *table;
    int64_t stride, unit_bytes; /* points a row of the table has room for, bytes a unit takes a point (pairs: halved) */
    uint64_t *base;
    uint32_t *base_now; /* `base` in the storage of the table */
    uint64_t *masks;
    int32_t *labels;
    int64_t *low, *width, *offset, *tabled; /* of every feature; tabled: its values in the table */
    int64_t full, step, chunks, chunk;      /* of the split feature: points a value, values a tile, tiles */
    int32_t split;                          /* −1: the whole box is one tile */
};

/* 0: the best that this processor has; 1 to 4: portable, AVX2, AVX-512, AVX-512 with VNNI; NULL when it lacks that. */
static const network_kernel *choose(int32_t isa)
{
    const network_kernel *kernel = NULL;
    if (isa == 4 || isa == 0) kernel = network_vnni();
    if (isa == 3 || (isa == 0 && !kernel)) kernel = network_avx512();
    if (isa == 2 || (isa == 0 && !kernel)) kernel = network_avx2();
    if (isa == 1 || (isa == 0 && !kernel)) kernel = network_portable();
    return kernel;
}

int32_t network_has(int32_t isa) { return choose(isa) != NULL; }

static void *lines(int64_t bytes)
{
    void *memory = aligned_alloc(LINE, (size_t)((bytes + 2 * LINE - 1) / LINE * LINE));
    if (memory) memset(memory, 0, (size_t)((bytes + 2 * LINE - 1) / LINE * LINE));
    return memory;
}

static int64_t storage_bytes(int32_t storage, int32_t units)
{
    return storage == NETWORK_PAIRS ? (units + 1) / 2 * 4 : (int64_t)units * (storage == NETWORK_32 ? 4 : 8);
}

static int32_t table_storage(const network_shape *s)
{
    return s->pairs ? NETWORK_PAIRS : s->layers[0].wide ? NETWORK_64 : NETWORK_32;
}

static inline uint32_t pair_of(uint64_t low, uint64_t high) { return (uint32_t)(low & 0xFFFF) | (uint32_t)high << 16; }

static int open_walk(network_task *task)
{
    const network_shape *s = &task->shape;
    int32_t units = s->layers[0].outputs;
    int64_t point = storage_bytes(table_storage(s), units), room = s->inputs > 0 ? s->inputs : 1;
    int64_t budget = s->fused ? TABLE_BYTES : WIDE_TABLE_BYTES;
    int64_t points = budget / (point > 0 ? point : 1) / NETWORK_STRIP * NETWORK_STRIP;
    task->stride = points < NETWORK_STRIP ? NETWORK_STRIP : points > MOST_POINTS ? MOST_POINTS : points;
    task->table = lines(task->stride * point);
    task->base = lines(units * 8);
    task->base_now = lines(units * 8);
    task->masks = lines(task->stride / 8);
    task->low = lines(4 * room * 8);
    if (!task->table || !task->base || !task->base_now || !task->masks || !task->low) return 0;
    for (int32_t row = 0; s->lifted && row < (units + 1) / 2; row++)
        ((uint32_t *)task->table)[row * task->stride] = pair_of(NETWORK_LIFT, NETWORK_LIFT);
    task->width = task->low + room;
    task->offset = task->width + room;
    task->tabled = task->offset + room;
    return 1;
}

/* NULL: no memory, or the processor lacks the instruction set. What `shape` points to must outlive the task. */
network_task *network_open(const network_shape *shape, int32_t isa)
{
    const network_kernel *kernel = choose(isa);
    network_task *task = kernel ? calloc(1, sizeof *task) : NULL;
    if (!task) return NULL;
    task->shape = *shape;
    task->kernel = kernel;
    task->shape.lifted = shape->lifted && kernel->lifts;
    task->buffers = calloc((size_t)shape->count + 1, sizeof *task->buffers);
    task->labels = lines(NETWORK_STRIP * 4);
    int ready = task->buffers && task->labels;
    for (int32_t k = 0; ready && k <= shape->count; k++) {
        const network_layer *before = shape->layers + k - 1;
        int64_t bytes = 0;
        if (k) bytes = storage_bytes(before->out, before->outputs);
        else if (!shape->first) bytes = storage_bytes(shape->layers[0].in, shape->inputs);
        task->buffers[k] = lines(bytes * NETWORK_STRIP);
        ready = task->buffers[k] != NULL;
    }
    if (ready && shape->first) ready = open_walk(task);
    if (ready) return task;
    network_close(task);
    return NULL;
}

void network_close(network_task *task)
{
    if (!task) return;
    for (int32_t k = 0; task->buffers && k <= task->shape.count; k++) free(task->buffers[k]);
    free(task->buffers), free(task->labels), free(task->table), free(task->base), free(task->base_now);
    free(task->masks), free(task->low);
    free(task);
}

/* --- rows of positions ------------------------------------------------------------------------------------------ */
/* Class and, unless `scores` is NULL, scores of every row of `positions`. */
int32_t network_rows(network_task *task, const int64_t *positions, int64_t rows, int64_t *labels, int64_t *scores)
{
    const network_shape *s = &task->shape;
    const network_layer *last = s->layers + s->count - 1;
    for (int64_t at = 0; at < rows; at += NETWORK_STRIP) {
        int64_t n = rows - at < NETWORK_STRIP ? rows - at : NETWORK_STRIP;
        for (int32_t f = 0; f < s->inputs; f++) {
            const int64_t *from = positions + at * s->inputs + f;
            if (s->layers[0].in == NETWORK_32) {
                int32_t *to = (int32_t *)task->buffers[0] + (int64_t)f * NETWORK_STRIP;
                for (int64_t i = 0; i < n; i++) to[i] = (int32_t)from[i * s->inputs];
            } else {
                int64_t *to = (int64_t *)task->buffers[0] + (int64_t)f * NETWORK_STRIP;
                for (int64_t i = 0; i < n; i++) to[i] = from[i * s->inputs];
            }
        }
        task->kernel->layers(s, task->buffers, 0);
        const uint8_t *found = task->buffers[s->count];
        task->kernel->labels(s, found, task->labels);
        for (int64_t i = 0; i < n; i++) labels[at + i] = task->labels[i];
        for (int64_t i = 0; scores && i < n; i++)
            for (int32_t k = 0; k < last->outputs; k++)
                scores[(at + i) * last->outputs + k] = last->out == NETWORK_64
                                                           ? ((const int64_t *)found)[k * NETWORK_STRIP + i]
                                                           : ((const int32_t *)found)[k * NETWORK_STRIP + i];
    }
    return 0;
}

/* --- the table -------------------------------------------------------------------------------------------------- */
static inline uint32_t add_halves(uint32_t a, uint32_t b)
{
    return ((a & 0x7FFF7FFF) + (b & 0x7FFF7FFF)) ^ ((a ^ b) & 0x80008000);
}

/* Row r of the table at `points` further on: what is there, plus what one more of feature f adds. */
static void extend_row(network_task *task, int32_t row, int32_t f, int64_t from, int64_t points)
{
    const network_shape *s = &task->shape;
    int32_t units = s->layers[0].outputs;
    const int64_t *w = s->first + (int64_t)f * units;
    if (table_storage(s) == NETWORK_64) {
        uint64_t *t = (uint64_t *)task->table + row * task->stride + from, add = (uint64_t)w[row];
        for (int64_t p = 0; p < points; p++) t[points + p] = t[p] + add;
    } else if (table_storage(s) == NETWORK_32) {
        uint32_t *t = (uint32_t *)task->table + row * task->stride + from, add = (uint32_t)w[row];
        for (int64_t p = 0; p < points; p++) t[points + p] = t[p] + add;
    } else {
        uint32_t *t = (uint32_t *)task->table + row * task->stride + from;
        uint32_t add = pair_of((uint64_t)w[2 * row], 2 * row + 1 < units ? (uint64_t)w[2 * row + 1] : 0);
        for (int64_t p = 0; p < points; p++) t[points + p] = add_halves(t[p], add);
    }
}

static void fill_table(network_task *task)
{
    const network_shape *s = &task->shape;
    int32_t rows = s->pairs ? (s->layers[0].outputs + 1) / 2 : s->layers[0].outputs;
    for (int32_t row = 0; row < rows; row++) {
        int64_t points = 1;
        for (int32_t f = s->inputs - 1; f >= 0; f--) {
            for (int64_t v = 1; v < task->tabled[f]; v++) extend_row(task, row, f, (v - 1) * points, points);
            points *= task->tabled[f];
        }
    }
}

/* Choose the box low ≤ position < high (not empty, at most 2^62 points); returns its number of tiles. */
int64_t network_box(network_task *task, const int64_t *low, const int64_t *high)
{
    const network_shape *s = &task->shape;
    int changed = 0;
    int32_t f = s->inputs - 1;
    for (int32_t k = 0; k < s->inputs; k++) task->low[k] = low[k], task->width[k] = high[k] - low[k];
    task->full = task->step = task->chunks = 1;
    for (; f >= 0 && task->width[f] <= task->stride / task->full; f--) {
        changed |= task->tabled[f] != task->width[f];
        task->tabled[f] = task->width[f];
        task->full *= task->width[f];
    }
    task->split = f;
    int64_t tiles = 1;
    if (f >= 0) {
        int64_t most = task->stride / task->full;
        task->chunks = (task->width[f] - 1) / most + 1;
        task->step = (task->width[f] - 1) / task->chunks + 1;
        task->chunks = (task->width[f] - 1) / task->step + 1;
        changed |= task->tabled[f] != task->step;
        task->tabled[f] = task->step;
        tiles = task->chunks;
        while (--f >= 0) {
            changed |= task->tabled[f] != 1;
            task->tabled[f] = 1;
            tiles *= task->width[f];
        }
    }
    if (changed) fill_table(task);
    return tiles;
}

/* Points of the box before a tile. */
int64_t network_start(const network_task *task, int64_t tile)
{
    int64_t round = task->split < 0 ? task->full : task->full * task->width[task->split];
    return tile / task->chunks * round + tile % task->chunks * task->full * task->step;
}

/* --- the walk --------------------------------------------------------------------------------------------------- */
static inline void add_weights(network_task *task, int32_t f, int64_t times)
{
    int32_t units = task->shape.layers[0].outputs;
    const int64_t *w = task->shape.first + (int64_t)f * units;
    uint64_t *base = task->base;
    if (times == 1)
        for (int32_t u = 0; u < units; u++) base[u] += (uint64_t)w[u];
    else if (times == -1)
        for (int32_t u = 0; u < units; u++) base[u] -= (uint64_t)w[u];
    else
        for (int32_t u = 0; u < units; u++) base[u] += (uint64_t)w[u] * (uint64_t)times;
}

static void seek(network_task *task, int64_t tile)
{
    const network_layer *l = task->shape.layers;
    for (int32_t u = 0; u < l->outputs; u++) task->base[u] = (uint64_t)l->bias[u];
    for (int32_t f = 0; f < task->shape.inputs; f++) task->offset[f] = 0;
    task->chunk = tile % task->chunks;
    if (task->split >= 0) task->offset[task->split] = task->chunk * task->step;
    tile /= task->chunks;
    for (int32_t f = task->split - 1; f >= 0; f--) {
        task->offset[f] = tile % task->width[f];
        tile /= task->width[f];
    }
    for (int32_t f = 0; f < task->shape.inputs; f++) add_weights(task, f, task->low[f] + task->offset[f]);
}

static void next_tile(network_task *task)
{
    int32_t f = task->split;
    if (f < 0) return;
    if (++task->chunk < task->chunks) {
        task->offset[f] += task->step;
        add_weights(task, f, task->step);
        return;
    }
    task->chunk = 0;
    add_weights(task, f, -task->offset[f]);
    task->offset[f] = 0;
    while (--f >= 0) {
        if (++task->offset[f] < task->width[f]) {
            add_weights(task, f, 1);
            return;
        }
        add_weights(task, f, 1 - task->width[f]);
        task->offset[f] = 0;
    }
}

/* Make the base ready for this tile, and a fused network's masks; returns the tile's points. */
static int64_t begin_tile(network_task *task)
{
    const network_shape *s = &task->shape;
    int32_t units = s->layers[0].outputs;
    int64_t values = task->step;
    if (task->split >= 0) {
        int64_t rest = task->width[task->split] - task->chunk * task->step;
        values = rest < values ? rest : values;
    }
    int64_t points = task->full * values;
    if (s->pairs) {
        uint64_t turn = s->lifted ? (uint64_t)-1 : 1, lift = s->lifted ? NETWORK_LIFT : 0;
        for (int32_t u = 0; u < units; u += 2) {
            uint64_t other = u + 1 < units ? task->base[u + 1] : 0;
            task->base_now[u / 2] = pair_of(lift + turn * task->base[u], lift + turn * other);
        }
    } else if (!s->layers[0].wide) {
        for (int32_t u = 0; u < units; u++) task->base_now[u] = (uint32_t)task->base[u];
    }
    if (s->fused)
        task->kernel->fused(s, (const uint32_t *)task->table, task->stride, task->base_now,
                            (points - 1) / NETWORK_STRIP + 1, task->masks);
    return points;
}

/* Labels (−1 beyond the tile's end) of the strip at `at`, and its scores unless the network is fused. */
static void strip(network_task *task, int64_t at, int64_t points)
{
    const network_shape *s = &task->shape;
    if (s->fused) {
        uint64_t mask = task->masks[at / NETWORK_STRIP];
        for (int i = 0; i < NETWORK_STRIP; i++) task->labels[i] = mask >> i & 1;
    } else {
        if (s->pairs)
            task->kernel->pairs(s, (const uint32_t *)task->table, task->stride, at, task->base_now, task->buffers[1]);
        else
            task->kernel->first(s, task->table, task->stride, at,
                                s->layers[0].wide ? (const void *)task->base : (const void *)task->base_now,
                                task->buffers[1]);
        task->kernel->layers(s, task->buffers, 1);
        task->kernel->labels(s, task->buffers[s->count], task->labels);
    }
    for (int64_t i = points - at; i < NETWORK_STRIP; i++) task->labels[i] = -1;
}

/* counts[k] grows by the points of class k in the given tiles of the box. */
void network_count(network_task *task, int64_t first, int64_t tiles, uint64_t *counts)
{
    int32_t classes = task->shape.labels;
    seek(task, first);
    for (int64_t t = 0; t < tiles; t++) {
        int64_t points = begin_tile(task);
        if (task->shape.fused) {
            uint64_t ones = task->kernel->ones(task->masks, points);
            counts[0] += (uint64_t)points - ones;
            counts[1] += ones;
        } else {
            for (int64_t at = 0; at < points; at += NETWORK_STRIP) {
                strip(task, at, points);
                if (classes <= TALLIED)
                    task->kernel->tally(task->labels, classes, counts);
                else
                    for (int i = 0; i < NETWORK_STRIP && task->labels[i] >= 0; i++) counts[task->labels[i]]++;
            }
        }
        next_tile(task);
    }
}

/* Bit i of masks[j] becomes whether the label of point i of the box is in set j (a row of `sets`: 0 or 1 a label). */
void network_masks(network_task *task, const int64_t *low, const int64_t *high, const uint8_t *sets, int32_t count,
                   uint64_t *const *masks)
{
    int32_t classes = task->shape.labels;
    int64_t tiles = network_box(task, low, high), done = 0, all = network_start(task, tiles);
    for (int32_t j = 0; j < count; j++) memset(masks[j], 0, (size_t)((all + 63) / 64) * 8);
    seek(task, 0);
    for (int64_t t = 0; t < tiles; t++) {
        int64_t points = begin_tile(task);
        for (int64_t at = 0; at < points; at += NETWORK_STRIP) {
            int64_t n = points - at < NETWORK_STRIP ? points - at : NETWORK_STRIP;
            uint64_t ones = task->shape.fused ? task->masks[at / NETWORK_STRIP] : 0;
            if (!task->shape.fused) strip(task, at, points);
            for (int32_t j = 0; j < count; j++) {
                const uint8_t *set = sets + (int64_t)j * classes;
                uint64_t found = 0;
                if (task->shape.fused)
                    found = (set[1] ? ones : 0) | (set[0] ? ~ones : 0);
                else
                    for (int64_t i = 0; i < n; i++) found |= (uint64_t)set[task->labels[i]] << i;
                if (n < NETWORK_STRIP) found &= ((uint64_t)1 << n) - 1;
                uint64_t *words = masks[j] + done / 64;
                words[0] |= found << done % 64;
                if (done % 64 + n > 64) words[1] |= found >> (64 - done % 64);
            }
            done += n;
        }
        next_tile(task);
    }
}

/* --- predicates ------------------------------------------------------------------------------------------------- */
typedef struct {
    const int64_t *positions;
    const uint8_t *scores;
    int64_t label, place;
    int32_t wide_scores;
} point;

static inline int64_t score_of(const point *at, int32_t k)
{
    int64_t place = (int64_t)k * NETWORK_STRIP + at->place;
    return at->wide_scores ? ((const int64_t *)at->scores)[place] : ((const int32_t *)at->scores)[place];
}

#define CONTEXT const point *at
#define POSITION(f) (at->positions[f])
#define LABEL() (at->label)
#define SCORE(k) score_of(at, k)

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

/* counts[i] grows by the points of the tiles where output i is true. Feature f of the box is feature ids[f] of
 * `positions`, which the programs read. When `seek_one` is set: stop at the first point where output 0 is true,
 * leave its positions there and return 1.
 */
int32_t network_truths(network_task *task, int64_t first, int64_t tiles, const evaluate_step *steps,
                       const uint8_t *label_sets, int32_t wide, int32_t registers, const int32_t *ids,
                       int64_t *positions, int32_t outputs, uint64_t *counts, int32_t seek_one)
{
    __int128 wides[wide ? registers : 1];
    int64_t narrows[wide ? 1 : registers];
    const network_shape *s = &task->shape;
    point at = {.positions = positions, .scores = task->buffers[s->count]};
    at.wide_scores = s->layers[s->count - 1].out == NETWORK_64;
    seek(task, first);
    for (int32_t f = 0; f < s->inputs; f++) positions[ids[f]] = task->low[f] + task->offset[f];
    for (int64_t t = 0; t < tiles; t++) {
        int64_t points = begin_tile(task);
        for (int64_t p = 0; p < points; p++) {
            at.place = p % NETWORK_STRIP;
            if (!at.place) strip(task, p, points);
            at.label = task->labels[at.place];
            if (wide) {
                wide_run(&at, steps, label_sets, wides);
                for (int32_t i = 0; i < outputs; i++) counts[i] += wides[i] != 0;
                if (seek_one && wides[0]) return 1;
            } else {
                narrow_run(&at, steps, label_sets, narrows);
                for (int32_t i = 0; i < outputs; i++) counts[i] += narrows[i] != 0;
                if (seek_one && narrows[0]) return 1;
            }
            for (int32_t f = s->inputs - 1; f >= 0; f--) {
                if (++positions[ids[f]] < task->low[f] + task->width[f]) break;
                positions[ids[f]] = task->low[f];
            }
        }
        next_tile(task);
    }
    return 0;
}
