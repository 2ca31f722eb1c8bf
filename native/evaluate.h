#pragma once
#include <stdint.h>

typedef struct {
    int64_t low, high;
    int32_t feature, left, right, label;
} evaluate_node;

typedef struct {
    int32_t op, target, a, b;
    int64_t x, y;
} evaluate_step;

void evaluate_labels(const evaluate_node *nodes, const int64_t *positions, int64_t rows, int64_t features,
                     int64_t *labels);

void evaluate_truths(const evaluate_node *nodes, const evaluate_step *steps, const uint8_t *label_sets, int32_t wide,
                     int32_t registers, const int64_t *positions, int64_t rows, int64_t features, int32_t outputs,
                     uint8_t *truths);

void evaluate_known(const int64_t *labels, const int64_t *scores, int64_t score_count, const evaluate_step *steps,
                    const uint8_t *label_sets, int32_t wide, int32_t registers, const int64_t *positions, int64_t rows,
                    int64_t features, int32_t outputs, uint8_t *truths);

void evaluate_range(const evaluate_node *nodes, const evaluate_step *steps, const uint8_t *label_sets, int32_t wide,
                    int32_t registers, const int64_t *low, const int64_t *high, const int32_t *order, int32_t used,
                    int64_t *positions, int64_t points, int32_t outputs, uint64_t *counts, int64_t *first);
