/* Trees and predicates, one input at a time: the general path, and the yardstick of the fast ones. */
#include "evaluate.h"

#include <stddef.h>

typedef struct {
    const evaluate_node *nodes;
    const int64_t *positions, *scores;
    int64_t label;
} row;

static inline int64_t walk(const evaluate_node *nodes, const int64_t *positions)
{
    const evaluate_node *node = nodes;
    while (node->feature >= 0) {
        int64_t p = positions[node->feature];
        node = nodes + (p >= node->low && p < node->high ? node->right : node->left);
    }
    return node->label;
}

static inline int64_t row_label(row *at)
{
    if (at->label < 0) at->label = walk(at->nodes, at->positions);
    return at->label;
}

#define CONTEXT row *at
#define POSITION(f) (at->positions[f])
#define LABEL() row_label(at)
#define SCORE(k) (at->scores[k])

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

static inline void run(row *at, const evaluate_step *steps, const uint8_t *label_sets, int32_t wide, __int128 *wides,
                       int64_t *narrows, int32_t outputs, uint8_t *truths)
{
    if (wide) {
        wide_run(at, steps, label_sets, wides);
        for (int32_t i = 0; i < outputs; i++) truths[i] = wides[i] != 0;
    } else {
        narrow_run(at, steps, label_sets, narrows);
        for (int32_t i = 0; i < outputs; i++) truths[i] = narrows[i] != 0;
    }
}

/* labels[k] = class of row k of `positions` (rows × features). */
void evaluate_labels(const evaluate_node *nodes, const int64_t *positions, int64_t rows, int64_t features,
                     int64_t *labels)
{
    for (int64_t k = 0; k < rows; k++) labels[k] = walk(nodes, positions + k * features);
}

/* truths[k][i] = register i after running the program on row k. */
void evaluate_truths(const evaluate_node *nodes, const evaluate_step *steps, const uint8_t *label_sets, int32_t wide,
                     int32_t registers, const int64_t *positions, int64_t rows, int64_t features, int32_t outputs,
                     uint8_t *truths)
{
    __int128 wides[wide ? registers : 1];
    int64_t narrows[wide ? 1 : registers];
    for (int64_t k = 0; k < rows; k++) {
        row at = {nodes, positions + k * features, NULL, -1};
        run(&at, steps, label_sets, wide, wides, narrows, outputs, truths + k * outputs);
    }
}

/* The same where label and `score_count` scores of every row are known already. */
void evaluate_known(const int64_t *labels, const int64_t *scores, int64_t score_count, const evaluate_step *steps,
                    const uint8_t *label_sets, int32_t wide, int32_t registers, const int64_t *positions, int64_t rows,
                    int64_t features, int32_t outputs, uint8_t *truths)
{
    __int128 wides[wide ? registers : 1];
    int64_t narrows[wide ? 1 : registers];
    for (int64_t k = 0; k < rows; k++) {
        row at = {NULL, positions + k * features, scores + k * score_count, labels[k]};
        run(&at, steps, label_sets, wide, wides, narrows, outputs, truths + k * outputs);
    }
}

/* Walk `points` successive points of the box [low, high) from `positions` on, which is left at the point after the
 * last (the first one again after a full round). Only the `used` features named by `order` move, order[0] fastest.
 * counts[i] grows by the points where output i is true; first[i] is the offset of the first such point, −1 if none.
 */
void evaluate_range(const evaluate_node *nodes, const evaluate_step *steps, const uint8_t *label_sets, int32_t wide,
                    int32_t registers, const int64_t *low, const int64_t *high, const int32_t *order, int32_t used,
                    int64_t *positions, int64_t points, int32_t outputs, uint64_t *counts, int64_t *first)
{
    __int128 wides[wide ? registers : 1];
    int64_t narrows[wide ? 1 : registers];
    uint8_t truths[outputs > 0 ? outputs : 1];
    for (int32_t i = 0; i < outputs; i++) first[i] = -1;
    for (int64_t k = 0; k < points; k++) {
        row at = {nodes, positions, NULL, -1};
        run(&at, steps, label_sets, wide, wides, narrows, outputs, truths);
        for (int32_t i = 0; i < outputs; i++) {
            counts[i] += truths[i];
            if (truths[i] && first[i] < 0) first[i] = k;
        }
        for (int32_t j = 0; j < used; j++) {
            int32_t feature = order[j];
            if (++positions[feature] < high[feature]) break;
            positions[feature] = low[feature];
        }
    }
}
