#pragma once
#include <stdint.h>
#include "evaluate.h"

typedef struct {
    int64_t low, width;
    const uint64_t *weights;
} sample_feature;

typedef struct {
    int32_t l0;
    int64_t radius;
    const int64_t *centre, *weights;
    const uint64_t *ways;
} sample_ball;

int32_t sample_block(const evaluate_node *nodes, const evaluate_step *steps, const uint8_t *label_sets, int32_t wide,
                     int32_t registers, const sample_feature *features, int32_t feature_count, const sample_ball *ball,
                     uint64_t seed, uint64_t stream, uint64_t block, int64_t draws, int32_t outputs, uint64_t *hits);
int32_t sample_points(const sample_feature *features, int32_t feature_count, const sample_ball *ball, uint64_t seed,
                      uint64_t stream, uint64_t block, int64_t draws, int64_t *positions);
void sample_words(uint64_t seed, uint64_t stream, uint64_t block, int64_t count, uint64_t *words);
