#pragma once
#include <stdint.h>
#include "evaluate.h"

enum { NETWORK_STRIP = 64 };
/* What a lifted table holds beside the sums, so that they are unsigned and what a tile subtracts is so too. */
enum { NETWORK_LIFT = 0x7FFF };
enum {
    NETWORK_NONE, NETWORK_RELU, NETWORK_LEAKY, NETWORK_SIGN, NETWORK_SHIFT, NETWORK_MAX, NETWORK_REQUANTISE
};
/* How values lie in memory between layers: two 16-bit units in one word, 32 bits, or 64. */
enum { NETWORK_PAIRS, NETWORK_32, NETWORK_64 };

typedef struct {
    int32_t outputs, in, wide, out; /* storage of its inputs, whether it computes in 64 bits, storage of its results */
    int32_t activation, at_zero, shift, single, window;
    const int32_t *start, *columns, *members;
    const int32_t *narrow; /* weights modulo 2^32, or pairs of 16-bit ones */
    const int64_t *weights, *bias, *multiplier, *shifts;
    int64_t cap, positive, negative, low, high, zero_point;
} network_layer;

typedef struct {
    const network_layer *layers;
    int32_t count, inputs;
    int32_t labels; /* number of classes */
    int32_t difference;   /* the last layer is score 0 − score 1 alone: label 1 iff negative */
    int32_t pairs;        /* layer 0 fits 16 bits before and after a ReLU or nothing, and leaves pairs */
    int32_t lifted;       /* pairs, a ReLU, and the sums of layer 0 fit 15 bits; cleared where the kernel cannot lift */
    int32_t fused;        /* pairs, and the only other layer is a difference */
    const int64_t *first; /* weights of layer 0, (inputs × outputs); NULL when no box will be walked */
} network_shape;

typedef struct network_task network_task;

network_task *network_open(const network_shape *shape, int32_t isa);
void network_close(network_task *task);
int32_t network_has(int32_t isa);
int32_t network_rows(network_task *task, const int64_t *positions, int64_t rows, int64_t *labels, int64_t *scores);
int64_t network_box(network_task *task, const int64_t *low, const int64_t *high);
int64_t network_start(const network_task *task, int64_t tile);
void network_count(network_task *task, int64_t first, int64_t tiles, uint64_t *counts);
void network_masks(network_task *task, const int64_t *low, const int64_t *high, const uint8_t *sets, int32_t count,
                   uint64_t *const *masks);
int32_t network_truths(network_task *task, int64_t first, int64_t tiles, const evaluate_step *steps,
                       const uint8_t *label_sets, int32_t wide, int32_t registers, const int32_t *ids,
                       int64_t *positions, int32_t outputs, uint64_t *counts, int32_t seek);
