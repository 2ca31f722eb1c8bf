/* Counting by fixing inputs one after the other until the rest fits a block of bit slices.
 *
 * A task walks a binary tree depth first. Every node holds the program that is left once the inputs on the path are
 * fixed (residual.c). When its outputs are constant, the node's volume is added as it stands; when few enough inputs
 * still matter, all their values are run at once in bit slices (slices.inc). Inputs are the bits of the features,
 * fixed from each feature's highest bit down, so that what is open of a feature is one aligned range of positions;
 * positions beyond the feature's width are skipped, or masked in the block.
 *
 * A network's answer comes in as further inputs, one for each set of labels that is asked for. They are never fixed:
 * while they occur, every open bit matters, and a block starts by running the network on all its points.
 */
#include "enumerate.h"

#include <stdlib.h>
#include <string.h>

#include "network.h"
#include "residual.h"
#include "slices.h"

typedef unsigned __int128 u128;

#define FALSE_LITERAL 0xFFFFFFFEu
#define TRUE_LITERAL 0xFFFFFFFFu
#define NO_LANE 0xFFFFFFFFu
/* A leaf may have EXTRA_LANES more inputs than a block has lanes: its steps are then run once for each of their values.
 * It does when the last input fixed left at least SLOW in 16 of the gates, so that fixing more would gain little.
 */
enum { CELL_BITS = 9, CELL = 64, SPARE_SLOTS = 3, EXTRA_LANES = 3, SLOW = 15 };

typedef struct {
    int64_t start, count; /* of the gates, in the arena */
    int64_t live;         /* gates that some output needs */
    int32_t feature;      /* whose highest open bit is fixed below this node */
    int32_t next;         /* value to try next: 0, 1, or 2 when both are done */
} level;

typedef struct {
    int64_t width, base; /* positions, and the first one still open */
    int32_t bits, open;  /* bits in all, and bits not fixed yet */
    int32_t first;       /* input id of bit 0 */
} feature;

struct enumerate_task {
    feature *features;
    level *levels;
    residual_gate *arena;
    uint32_t *outputs; /* of every level */
    uint32_t *map, *occurrences, *lane_of, *slot_of, *free_slots;
    slices_step *steps;
    uint8_t *memory;
    const slices_kernel *kernel;
    u128 *counts, visited;
    int64_t *found, arena_size, step_limit, slot_limit;
    uint64_t prefix;
    double probe_cost;
    enumerate_labels labels;
    uint64_t **label_masks;
    int64_t *low, *high; /* the block as the network sees it */
    int32_t bit_inputs;  /* inputs that are bits of features */
    int32_t feature_count, inputs, output_count, lane_bits, prefix_bits, depth, lanes, seek, masks_used;
    int failed;
};

/* --- the state of one node -------------------------------------------------------------------------------------- */
static inline int64_t span(const feature *f)
{
    int64_t open = (int64_t)1 << f->open, rest = f->width - f->base;
    return open < rest ? open : rest;
}

static inline int partial(const feature *f) { return ((int64_t)1 << f->open) > f->width - f->base; }

/* Whether the network's answer occurs in the program that was marked last. */
static int asks_network(const enumerate_task *task)
{
    for (int32_t j = task->bit_inputs; j < task->inputs; j++)
        if (task->occurrences[j]) return 1;
    return 0;
}

/* How many inputs must be in lanes for the node's program to run; notes the most used feature. */
static int32_t lanes_needed(enumerate_task *task, int32_t *best)
{
    int32_t needed = 0, all = asks_network(task), chosen = 0;
    uint32_t most = 0;
    for (int32_t k = 0; k < task->feature_count; k++) {
        const feature *f = task->features + k;
        uint32_t used = 0;
        int32_t matter = 0;
        for (int32_t j = 0; j < f->open; j++) {
            uint32_t occurs = task->occurrences[f->first + j];
            used += occurs;
            matter += occurs != 0;
        }
        if (!(all ? f->open : matter)) continue;
        needed += all || partial(f) ? f->open : matter;
        if (!chosen || used > most) most = used, *best = k;
        chosen = 1;
    }
    return needed;
}

static int constant_outputs(const enumerate_task *task, const uint32_t *outputs)
{
    for (int32_t i = 0; i < task->output_count; i++)
        if (outputs[i] < FALSE_LITERAL) return 0;
    return 1;
}

/* Points below a node for which the lanes do not stand, and all points below it. */
static void volumes(enumerate_task *task, u128 *outside_lanes, u128 *all)
{
    *outside_lanes = *all = 1;
    for (int32_t k = 0; k < task->feature_count; k++) {
        const feature *f = task->features + k;
        if (!f->open) continue;
        int32_t lanes = 0;
        for (int32_t j = 0; j < f->open; j++) lanes += task->lane_of[f->first + j] != NO_LANE;
        *all *= (u128)span(f);
        *outside_lanes *= lanes == 0 ? (u128)span(f) : partial(f) ? 1 : (u128)1 << (f->open - lanes);
    }
}

static void assign_lanes(enumerate_task *task, int any)
{
    task->lanes = 0;
    for (int32_t i = 0; i < task->bit_inputs; i++) task->lane_of[i] = NO_LANE;
    if (!any) return;
    int all = asks_network(task);
    for (int32_t k = 0; k < task->feature_count; k++) {
        const feature *f = task->features + k;
        int32_t matter = 0;
        for (int32_t j = 0; j < f->open; j++) matter += task->occurrences[f->first + j] != 0;
        if (!matter && !all) continue;
        for (int32_t j = 0; j < f->open; j++)
            if (all || partial(f) || task->occurrences[f->first + j]) task->lane_of[f->first + j] = task->lanes++;
    }
}

static inline int64_t slot_cells(const enumerate_task *task)
{
    return task->lane_bits > CELL_BITS ? (int64_t)1 << (task->lane_bits - CELL_BITS) : 1;
}

/* The leaf's lanes within a block, the cells of a slot that they fill, and how often the steps are run over them. */
static inline int32_t block_lanes(const enumerate_task *task)
{
    return task->lanes < task->lane_bits ? task->lanes : task->lane_bits;
}

static inline int64_t used_cells(const enumerate_task *task)
{
    return block_lanes(task) > CELL_BITS ? (int64_t)1 << (block_lanes(task) - CELL_BITS) : 1;
}

static inline int64_t runs(const enumerate_task *task)
{
    return task->lanes > task->lane_bits ? (int64_t)1 << (task->lanes - task->lane_bits) : 1;
}

/* --- a block of bit slices -------------------------------------------------------------------------------------- */
static inline uint32_t take_slot(const enumerate_task *task, int64_t *free_count, int64_t *fresh)
{
    return *free_count ? task->free_slots[--*free_count] : (uint32_t)(*fresh)++;
}

/* Slots: one pattern a lane, all ones, the mask and its scratch, then registers. */
static uint32_t pattern_slots(const enumerate_task *task) { return (uint32_t)task->lane_bits + EXTRA_LANES; }
static uint32_t ones_slot(const enumerate_task *task) { return pattern_slots(task); }
static uint32_t mask_slot(const enumerate_task *task) { return pattern_slots(task) + 1; }

static int make_memory(enumerate_task *task)
{
    int64_t stride = slot_cells(task);
    task->memory = aligned_alloc(CELL, (size_t)(task->slot_limit * stride) * CELL);
    if (!task->memory) return 0;
    memset(task->memory, 0, (size_t)((pattern_slots(task) + SPARE_SLOTS) * stride) * CELL);
    for (int32_t lane = 0; lane < task->lane_bits; lane++) {
        uint64_t *words = (uint64_t *)(task->memory + lane * stride * CELL);
        for (int64_t w = 0; w < stride * (CELL / 8); w++)
            for (int b = 0; b < 64; b++)
                if (((uint64_t)w * 64 + (uint64_t)b) >> lane & 1) words[w] |= (uint64_t)1 << b;
    }
    memset(task->memory + ones_slot(task) * stride * CELL, 0xFF, (size_t)stride * CELL);
    return 1;
}

/* Steps that leave in the mask slot which positions of the features cut by their width exist. */
static int64_t write_mask(enumerate_task *task, uint32_t stride)
{
    enum { OR_NOT_B = 0xF3, AND_NOT_B = 0x30, NOT_B = 0x33, B = 0xCC, BOTH = 0xC0 };
    int64_t made = 0;
    uint32_t mask = mask_slot(task) * stride, below = mask + stride;
    for (int32_t k = 0; k < task->feature_count; k++) {
        const feature *f = task->features + k;
        if (!f->open || !partial(f) || task->lane_of[f->first] == NO_LANE) continue;
        int64_t limit = f->width - f->base;
        uint32_t start = 0;
        for (int32_t j = 0; j < f->open; j++) {
            uint32_t bit = task->lane_of[f->first + j] * stride, table = limit >> j & 1 ? OR_NOT_B : AND_NOT_B;
            /* Nothing is below the empty limit: the first step starts from the constant 0. */
            if (!start) table = table == OR_NOT_B ? NOT_B : 0;
            task->steps[made++] = (slices_step){below, below, bit, bit, table};
            start = 1;
        }
        uint32_t both = task->masks_used ? BOTH : B;
        task->steps[made++] = (slices_step){mask, mask, below, below, both};
        task->masks_used = 1;
    }
    return made;
}

/* Run the network on the block, whose lanes are all open bits, the first feature's lowest. */
static void run_network(enumerate_task *task)
{
    int32_t count = task->feature_count;
    for (int32_t k = 0; k < count; k++) {
        const feature *f = task->features + k;
        int32_t at = count - 1 - k;
        task->low[at] = task->labels.lows[at] + f->base;
        task->high[at] = task->low[at] + ((int64_t)1 << f->open);
    }
    network_masks(task->labels.network, task->low, task->high, task->labels.sets, task->labels.count,
                  task->label_masks);
    if (task->lanes >= CELL_BITS) return;
    /* Fewer points than a cell has bits: repeat them. */
    for (int32_t j = 0; j < task->labels.count; j++) {
        uint64_t *words = task->label_masks[j];
        int32_t lanes = task->lanes;
        for (; lanes < 6; lanes++) words[0] |= words[0] << (1 << lanes);
        for (; lanes < CELL_BITS; lanes++)
            memcpy(words + (1 << (lanes - 6)), words, (size_t)8 << (lanes - 6));
    }
}

/* Write the program of a leaf as steps over slots; returns their number. */
static int64_t write_steps(enumerate_task *task, const level *at)
{
    uint32_t stride = (uint32_t)slot_cells(task);
    uint32_t inputs = (uint32_t)task->inputs;
    const residual_gate *gates = task->arena + at->start;
    int64_t free_count = 0, fresh = pattern_slots(task) + SPARE_SLOTS + task->labels.count;
    task->masks_used = 0;
    int64_t made = write_mask(task, stride);
    for (int64_t i = 0; i < at->count; i++) task->map[i] = gates[i].uses;
    for (int64_t i = 0; i < at->count; i++) {
        if (!gates[i].uses) continue;
        const uint32_t ids[3] = {gates[i].a, gates[i].b, gates[i].c};
        uint32_t slots[3];
        for (int k = 0; k < 3; k++) {
            if (ids[k] < inputs) {
                slots[k] = task->lane_of[ids[k]];
            } else {
                uint32_t gate = ids[k] - inputs;
                slots[k] = task->slot_of[gate];
                if (!--task->map[gate]) task->free_slots[free_count++] = slots[k];
            }
        }
        uint32_t target = take_slot(task, &free_count, &fresh);
        task->slot_of[i] = target;
        task->steps[made++] = (slices_step){target * stride, slots[0] * stride, slots[1] * stride, slots[2] * stride,
                                            gates[i].table};
    }
    return made;
}

/* Give the lanes beyond a block's their values in run number `run`. */
static void set_extra_lanes(enumerate_task *task, int64_t run)
{
    size_t bytes = (size_t)slot_cells(task) * CELL;
    for (int32_t lane = task->lane_bits; lane < task->lanes; lane++)
        memset(task->memory + (size_t)lane * bytes, run >> (lane - task->lane_bits) & 1 ? 0xFF : 0, bytes);
}

/* Position of the first point of the run's block where the output is true. */
static void note_found(enumerate_task *task, const uint8_t *block, const uint8_t *mask, int flip, int64_t run)
{
    uint64_t index = (uint64_t)run << task->lane_bits;
    if (block) {
        const uint64_t *a = (const uint64_t *)block, *b = (const uint64_t *)mask;
        uint64_t w = 0, turn = flip ? ~(uint64_t)0 : 0;
        while (!((a[w] ^ turn) & b[w])) w++;
        index |= w * 64 + (uint64_t)__builtin_ctzll((a[w] ^ turn) & b[w]);
    }
    for (int32_t k = 0; k < task->feature_count; k++) {
        const feature *f = task->features + k;
        task->found[k] = f->base;
        for (int32_t j = 0; j < f->open; j++) {
            uint32_t lane = task->lane_of[f->first + j];
            if (lane != NO_LANE && index >> lane & 1) task->found[k] |= (int64_t)1 << j;
        }
    }
}

/* Add what all outputs are on a node where they are constant; returns whether a sought point was found. */
static int harvest_constants(enumerate_task *task, const uint32_t *outputs)
{
    u128 outside, all;
    assign_lanes(task, 0);
    volumes(task, &outside, &all);
    task->visited += all;
    for (int32_t i = 0; i < task->output_count; i++) {
        if (outputs[i] == FALSE_LITERAL) continue;
        task->counts[i] += all;
        if (task->seek) {
            note_found(task, NULL, NULL, 0, 0);
            return 1;
        }
    }
    return 0;
}

/* Add what one run of a leaf's steps has left in the slots; likewise. */
static int harvest_run(enumerate_task *task, const uint32_t *outputs, u128 outside, int64_t run)
{
    int64_t slot_bytes = slot_cells(task) * CELL, cells = used_cells(task);
    int repeats = block_lanes(task) < CELL_BITS ? CELL_BITS - block_lanes(task) : 0;
    const uint8_t *mask = task->memory + (task->masks_used ? mask_slot(task) : ones_slot(task)) * slot_bytes;
    for (int32_t i = 0; i < task->output_count; i++) {
        uint32_t literal = outputs[i], id = literal >> 1;
        if (literal == FALSE_LITERAL) continue;
        uint32_t slot = literal == TRUE_LITERAL        ? ones_slot(task)
                        : id < (uint32_t)task->inputs ? task->lane_of[id]
                                                      : task->slot_of[id - (uint32_t)task->inputs];
        int flip = literal != TRUE_LITERAL && literal & 1;
        const uint8_t *block = task->memory + slot * slot_bytes;
        uint64_t hits = task->kernel->count(block, mask, cells);
        if (flip) hits = task->kernel->count(mask, mask, cells) - hits;
        task->counts[i] += (u128)(hits >> repeats) * outside;
        if (task->seek && hits) {
            note_found(task, block, mask, flip, run);
            return 1;
        }
    }
    return 0;
}

/* Run a leaf's program on all values of its lanes and add what comes out; likewise. */
static int harvest_block(enumerate_task *task, const level *at, const uint32_t *outputs)
{
    u128 outside, all;
    assign_lanes(task, 1);
    volumes(task, &outside, &all);
    task->visited += all;
    if (asks_network(task)) run_network(task);
    int64_t steps = write_steps(task, at);
    int found = 0;
    for (int64_t run = 0; run < runs(task) && !found; run++) {
        set_extra_lanes(task, run);
        task->kernel->run(task->steps, steps, task->memory, used_cells(task));
        found = harvest_run(task, outputs, outside, run);
    }
    return found;
}

/* --- the walk --------------------------------------------------------------------------------------------------- */
static inline uint32_t *outputs_at(const enumerate_task *task, int32_t depth)
{
    return task->outputs + (int64_t)depth * task->output_count;
}

/* Reserve room for the gates of the next level. */
static int reserve(enumerate_task *task, int64_t size)
{
    if (size <= task->arena_size) return 1;
    int64_t wanted = size + size / 2;
    residual_gate *arena = realloc(task->arena, (size_t)wanted * sizeof *arena);
    if (!arena) return 0;
    task->arena = arena;
    task->arena_size = wanted;
    return 1;
}

/* Enter the node at `depth`, whose gates and outputs are in place: 1 when it has children, 0 for a leaf. */
static int is_inner(enumerate_task *task, int32_t depth, int *constant)
{
    level *at = task->levels + depth;
    const uint32_t *outputs = outputs_at(task, depth);
    *constant = constant_outputs(task, outputs);
    if (*constant) return 0;
    if (depth == 0)
        for (int64_t i = 0; i < at->count; i++) task->arena[i].uses = 0;
    at->live = residual_mark(task->arena + at->start, at->count, (uint32_t)task->inputs, outputs, task->output_count,
                             task->occurrences);
    int32_t best = 0, needed = lanes_needed(task, &best);
    if (needed <= task->lane_bits) return 0;
    /* A network is run once on a block's points, so it takes no lanes beyond a block's. */
    if (!asks_network(task) && needed <= task->lane_bits + EXTRA_LANES && depth && 16 * at->live >= SLOW * at[-1].live) return 0;
    at->feature = best;
    at->next = 0;
    return 1;
}

/* Fix the highest open bit of the node's feature to `value`; false when no position is left. */
static int descend(enumerate_task *task, int32_t depth, int32_t value)
{
    const level *at = task->levels + depth;
    feature *f = task->features + at->feature;
    int32_t bit = f->open - 1;
    if (f->base + ((int64_t)value << bit) >= f->width) return 0;
    int64_t start = at->start + at->count;
    if (!reserve(task, start + at->count)) {
        task->failed = 1;
        return 0;
    }
    f->base += (int64_t)value << bit;
    f->open = bit;
    uint32_t input = (uint32_t)(f->first + bit), inputs = (uint32_t)task->inputs;
    level *below = task->levels + depth + 1;
    below->start = start;
    below->count = residual_fix(task->arena + at->start, at->count, inputs, input, (uint32_t)value,
                                task->arena + start, task->map);
    const uint32_t *outputs = outputs_at(task, depth);
    for (int32_t i = 0; i < task->output_count; i++)
        outputs_at(task, depth + 1)[i] = residual_follow(outputs[i], inputs, input, (uint32_t)value, task->map);
    return 1;
}

static void ascend(enumerate_task *task, int32_t depth, int32_t value)
{
    feature *f = task->features + task->levels[depth].feature;
    f->base -= (int64_t)value << f->open;
    f->open++;
}

/* Nanoseconds, roughly: what entering a node costs, and what running it as a block does. */
static inline int64_t node_cost(const level *at) { return 150 + 20 * at->count; }

static inline int64_t block_cost(const enumerate_task *task, const level *at)
{
    int64_t run = at->live * (5 + used_cells(task) * 5 / 4) + task->output_count * used_cells(task) * 4;
    int64_t network = 0;
    if (asks_network(task)) network = (int64_t)((double)((int64_t)1 << task->lanes) * task->labels.nanoseconds);
    return 100 + at->live * 10 + runs(task) * run + network;
}

/* Go on for about `work` nanoseconds, or to the first point that satisfies some output when `seek` is set. */
int32_t enumerate_run(enumerate_task *task, int64_t work, int32_t seek)
{
    task->seek = seek;
    while (task->depth >= 0) {
        if (task->failed) return ENUMERATE_NO_MEMORY;
        if (work <= 0) return ENUMERATE_MORE;
        level *at = task->levels + task->depth;
        int entered = at->next >= 0, constant = 0;
        if (!entered) {
            work -= node_cost(at);
            if (is_inner(task, task->depth, &constant)) continue;
            /* Of the tasks that share the path to an early leaf, the one with zeros further on counts it. */
            int mine = task->depth >= task->prefix_bits || task->prefix >> task->depth == 0;
            const uint32_t *outputs = outputs_at(task, task->depth);
            int found = mine && (constant ? harvest_constants(task, outputs) : harvest_block(task, at, outputs));
            if (mine && !constant) work -= block_cost(task, at);
            task->depth--;
            if (task->depth >= 0) ascend(task, task->depth, task->levels[task->depth].next - 1);
            if (found) return ENUMERATE_FOUND;
            continue;
        }
        if (at->next == 2) {
            task->depth--;
            if (task->depth >= 0) ascend(task, task->depth, task->levels[task->depth].next - 1);
            continue;
        }
        int32_t value = at->next++;
        if (task->depth < task->prefix_bits && (task->prefix >> task->depth & 1) != (uint64_t)value) continue;
        if (!descend(task, task->depth, value)) continue;
        task->depth++;
        task->levels[task->depth].next = -1;
    }
    return task->failed ? ENUMERATE_NO_MEMORY : ENUMERATE_DONE;
}

/* One random path from the root: its cost, every node weighted by the inverse of the chance to come by (Knuth 1975).
 * The mean over many seeds is the cost of the whole walk, in nanoseconds. Only for a task that has not run.
 */
double enumerate_probe(enumerate_task *task, uint64_t seed)
{
    double cost = 0, weight = 1;
    int32_t depth = 0;
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 0xD1B54A32D192ED03u;
    int constant = 0;
    int32_t values[128];
    for (;;) {
        level *at = task->levels + depth;
        cost += weight * (double)node_cost(at);
        if (!is_inner(task, depth, &constant)) {
            assign_lanes(task, !constant);
            if (!constant) cost += weight * (double)block_cost(task, at);
            break;
        }
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        int32_t value = (int32_t)(state >> 40 & 1);
        feature *f = task->features + at->feature;
        int both = f->base + ((int64_t)1 << (f->open - 1)) < f->width;
        if (!both) value = 0;
        if (!descend(task, depth, value)) break;
        if (both) weight *= 2;
        values[depth++] = value;
    }
    while (depth-- > 0) ascend(task, depth, values[depth]);
    task->levels[0].next = -1;
    return cost;
}

/* --- life of a task --------------------------------------------------------------------------------------------- */
/* counts: low and high 64 bits of each output's count so far; visited: likewise of the points decided. */
void enumerate_read(const enumerate_task *task, uint64_t *counts, uint64_t *visited)
{
    for (int32_t i = 0; i < task->output_count; i++) {
        counts[2 * i] = (uint64_t)task->counts[i];
        counts[2 * i + 1] = (uint64_t)(task->counts[i] >> 64);
    }
    visited[0] = (uint64_t)task->visited;
    visited[1] = (uint64_t)(task->visited >> 64);
}

/* Offsets of the features of the point that `enumerate_run` stopped at. */
void enumerate_found(const enumerate_task *task, int64_t *positions)
{
    memcpy(positions, task->found, (size_t)task->feature_count * sizeof *positions);
}

void enumerate_close(enumerate_task *task)
{
    if (!task) return;
    free(task->features), free(task->levels), free(task->arena), free(task->outputs), free(task->map);
    free(task->occurrences), free(task->lane_of), free(task->slot_of), free(task->free_slots), free(task->steps);
    free(task->memory), free(task->counts), free(task->found), free(task->label_masks), free(task->low);
    free(task);
}

static void *room(int64_t count, size_t size) { return calloc((size_t)(count > 0 ? count : 1), size); }

/* A task over features of the given widths (positions) and bits (2^bits ≥ width, at most 120 in all). Task `prefix` of
 * the 2^prefix_bits that together are the whole. lane_bits ≥ 9; isa as in `slices_choose`. `labels` may be NULL; what it
 * points to must outlive the task. NULL: no memory, no such isa.
 */
enumerate_task *enumerate_open_labelled(const enumerate_gate *gates, int64_t count, const uint32_t *outputs,
                                        int32_t output_count, const int64_t *widths, const int32_t *bits,
                                        int32_t features, int32_t lane_bits, int32_t isa, int32_t prefix_bits,
                                        uint64_t prefix, const enumerate_labels *labels)
{
    enumerate_task *task = calloc(1, sizeof *task);
    if (!task) return NULL;
    task->kernel = slices_choose(isa);
    task->feature_count = features;
    task->output_count = output_count;
    task->lane_bits = lane_bits;
    task->prefix_bits = prefix_bits;
    task->prefix = prefix;
    task->features = room(features, sizeof *task->features);
    for (int32_t k = 0; task->features && k < features; k++) {
        task->features[k] = (feature){widths[k], 0, bits[k], bits[k], task->inputs};
        task->inputs += bits[k];
    }
    task->bit_inputs = task->inputs;
    if (labels) task->labels = *labels;
    task->inputs += task->labels.count;
    task->label_masks = room(task->labels.count, sizeof *task->label_masks);
    task->low = room(2 * features, sizeof *task->low);
    task->high = task->low ? task->low + features : NULL;
    task->slot_limit = count + pattern_slots(task) + SPARE_SLOTS + task->labels.count;
    task->step_limit = count + 2 * task->inputs;
    task->arena_size = 4 * count + 1;
    task->levels = room(task->inputs + 1, sizeof *task->levels);
    task->arena = room(task->arena_size, sizeof *task->arena);
    task->outputs = room((int64_t)(task->inputs + 1) * output_count, sizeof *task->outputs);
    task->map = room(count, sizeof *task->map);
    task->occurrences = room(task->inputs, sizeof *task->occurrences);
    task->lane_of = room(task->inputs, sizeof *task->lane_of);
    task->slot_of = room(count, sizeof *task->slot_of);
    task->free_slots = room(3 * count, sizeof *task->free_slots);
    task->steps = room(task->step_limit, sizeof *task->steps);
    task->counts = room(output_count, sizeof *task->counts);
    task->found = room(features, sizeof *task->found);
    if (!task->kernel || !task->features || !task->levels || !task->arena || !task->outputs || !task->map ||
        !task->occurrences || !task->lane_of || !task->slot_of || !task->free_slots || !task->steps || !task->counts ||
        !task->found || !task->label_masks || !task->low || !make_memory(task)) {
        enumerate_close(task);
        return NULL;
    }
    int64_t stride = lane_bits > CELL_BITS ? (int64_t)1 << (lane_bits - CELL_BITS) : 1;
    for (int32_t j = 0; j < task->labels.count; j++) {
        int64_t slot = pattern_slots(task) + SPARE_SLOTS + j;
        task->lane_of[task->bit_inputs + j] = (uint32_t)slot;
        task->label_masks[j] = (uint64_t *)(task->memory + slot * stride * CELL);
    }
    for (int64_t i = 0; i < count; i++)
        task->arena[i] = (residual_gate){gates[i].a, gates[i].b, gates[i].c, gates[i].table, 1};
    memcpy(task->outputs, outputs, (size_t)output_count * sizeof *outputs);
    task->levels[0].count = count;
    task->levels[0].next = -1;
    return task;
}

/* The same without a network. */
enumerate_task *enumerate_open(const enumerate_gate *gates, int64_t count, const uint32_t *outputs,
                               int32_t output_count, const int64_t *widths, const int32_t *bits, int32_t features,
                               int32_t lane_bits, int32_t isa, int32_t prefix_bits, uint64_t prefix)
{
    return enumerate_open_labelled(gates, count, outputs, output_count, widths, bits, features, lane_bits, isa,
                                   prefix_bits, prefix, NULL);
}
