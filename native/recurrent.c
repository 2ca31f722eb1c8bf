/* Scores of recurrent networks: blocks of instances go through all layers, time step by time step. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "recurrent_kernel.inc"

enum { PORTABLE = 1, AVX2 = 2 };

/* The kernel for an instruction set (0: the best there is; above AVX2 there is no wider one), or NULL. */
static const recurrent_kernel *kernel_for(int32_t isa)
{
    if (isa == PORTABLE) return recurrent_portable();
    const recurrent_kernel *found = recurrent_avx2();
    return found || isa >= AVX2 ? found : recurrent_portable();
}

int32_t recurrent_has(int32_t isa) { return kernel_for(isa) != NULL; }

static int32_t columns_of(const recurrent_layer *l) { return l->kind == RECURRENT_LSTM ? 4 * l->units : 3 * l->units; }

/* Floats of memory a lane: buffers of the recurrent layers, then two that dense layers go back and forth between. */
static size_t floats_needed(const recurrent_shape *shape, size_t *widest)
{
    size_t total = 0;
    *widest = 1;
    for (int32_t k = 0; k < shape->count; k++) {
        const recurrent_layer *l = &shape->layers[k];
        if (k < shape->recurrent)
            total += (size_t)l->inputs + (size_t)columns_of(l) + 2 * (size_t)l->units;
        else if ((size_t)l->units > *widest)
            *widest = (size_t)l->units;
    }
    return total + 2 * *widest;
}

/* One block: `rows` rows of inputs (steps × features each) to as many rows of scores. */
static void block(const recurrent_kernel *kernel, const recurrent_shape *shape, recurrent_buffers *buffers,
                  float *const *between, const float *inputs, int64_t rows, int64_t steps, float *scores)
{
    const int64_t features = shape->features, lanes = rows <= RECURRENT_LANES / 2 ? RECURRENT_LANES / 2 : RECURRENT_LANES;
    for (int32_t k = 0; k < shape->recurrent; k++) {
        const recurrent_layer *l = &shape->layers[k];
        memset(buffers[k].state, 0, ((size_t)l->inputs + (size_t)l->units) * (size_t)lanes * sizeof(float));
        memset(buffers[k].second, 0, (size_t)l->units * (size_t)lanes * sizeof(float));
    }
    for (int64_t t = 0; t < steps; t++) {
        for (int64_t i = 0; i < rows; i++)
            for (int64_t f = 0; f < features; f++)
                buffers[0].state[f * lanes + i] = inputs[(i * steps + t) * features + f];
        for (int32_t k = 0; k < shape->recurrent; k++) {
            const recurrent_layer *l = &shape->layers[k];
            kernel->step(l, &buffers[k], lanes);
            if (k + 1 < shape->recurrent)
                memcpy(buffers[k + 1].state, buffers[k].state + l->inputs * lanes,
                       (size_t)l->units * (size_t)lanes * sizeof(float));
        }
    }
    const recurrent_layer *last = &shape->layers[shape->recurrent - 1];
    const float *now = buffers[shape->recurrent - 1].state + last->inputs * lanes;
    for (int32_t k = shape->recurrent; k < shape->count; k++) {
        kernel->dense(&shape->layers[k], now, between[k & 1], lanes);
        now = between[k & 1];
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t o = 0; o < shape->outputs; o++) scores[i * shape->outputs + o] = now[o * lanes + i];
}

/* Scores (rows × outputs) of inputs (rows × steps × features): what the last layer returns.
 * Returns 0, 1 when memory ran out, 2 when this processor lacks the instruction set. */
int32_t recurrent_scores(const recurrent_shape *shape, const float *inputs, int64_t rows, int64_t steps, int32_t isa,
                         float *scores)
{
    const recurrent_kernel *kernel = kernel_for(isa);
    if (!kernel) return 2;
    size_t widest;
    const size_t bytes = floats_needed(shape, &widest) * RECURRENT_LANES * sizeof(float);
    float *memory = aligned_alloc(64, bytes);
    recurrent_buffers *buffers = malloc((size_t)shape->recurrent * sizeof *buffers);
    if (!memory || !buffers) {
        free(memory);
        free(buffers);
        return 1;
    }
    float *at = memory;
    for (int32_t k = 0; k < shape->recurrent; k++) {
        const recurrent_layer *l = &shape->layers[k];
        const size_t units = (size_t)l->units * RECURRENT_LANES;
        buffers[k].state = at;
        buffers[k].gates = at += (size_t)l->inputs * RECURRENT_LANES + units;
        buffers[k].second = at += (size_t)columns_of(l) * RECURRENT_LANES;
        at += units;
    }
    float *const between[2] = {at, at + widest * RECURRENT_LANES};
    for (int64_t row = 0; row < rows; row += RECURRENT_LANES) {
        const int64_t some = rows - row < RECURRENT_LANES ? rows - row : RECURRENT_LANES;
        block(kernel, shape, buffers, between, inputs + row * steps * shape->features, some, steps,
              scores + row * shape->outputs);
    }
    free(memory);
    free(buffers);
    return 0;
}

/* Softmax of each row of scores (rows × outputs), in double; or, of one output, 1 − σ and σ. NaNs stay. */
void recurrent_probabilities(const float *scores, int64_t rows, int32_t outputs, int32_t sigmoid, double *found)
{
    for (int64_t i = 0; i < rows; i++) {
        if (sigmoid) {
            double score = scores[i], power = exp(-fabs(score)), less = power / (1 + power), more = 1 / (1 + power);
            found[2 * i] = score < 0 ? more : less;
            found[2 * i + 1] = score < 0 ? less : more;
            continue;
        }
        const float *row = scores + i * outputs;
        double largest = row[0], total = 0;
        for (int32_t o = 1; o < outputs; o++) largest = row[o] > largest ? row[o] : largest;
        for (int32_t o = 0; o < outputs; o++) total += found[i * outputs + o] = exp(row[o] - largest);
        for (int32_t o = 0; o < outputs; o++) found[i * outputs + o] /= total;
    }
}
