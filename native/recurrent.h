#pragma once
#include <stdint.h>

/* GRU with its reset gate after the product with the recurrent kernel, GRU with it before, LSTM, dense. */
enum { RECURRENT_GRU_AFTER, RECURRENT_GRU_BEFORE, RECURRENT_LSTM, RECURRENT_DENSE };
enum { RECURRENT_LINEAR, RECURRENT_RELU, RECURRENT_TANH, RECURRENT_SIGMOID };

typedef struct {
    int32_t kind, activation; /* the activation: of dense layers only */
    int32_t inputs, units;
    const float *kernel; /* (inputs + units) × columns, the recurrent kernel below the kernel; dense: inputs × units */
    const float *bias;   /* columns */
    const float *candidate_bias; /* units; GRU_AFTER: what the reset gate multiplies, else unused */
} recurrent_layer;

typedef struct {
    const recurrent_layer *layers; /* recurrent layers first */
    int32_t count, recurrent;
    int32_t features, outputs; /* of a time step; of the last layer */
} recurrent_shape;

int32_t recurrent_has(int32_t isa);
int32_t recurrent_scores(const recurrent_shape *shape, const float *inputs, int64_t rows, int64_t steps, int32_t isa,
                         float *scores);
void recurrent_probabilities(const float *scores, int64_t rows, int32_t outputs, int32_t sigmoid, double *found);
