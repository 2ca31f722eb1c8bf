/* Recurrent networks on any processor, in vectors of 128 bits. */
#include <stdint.h>

#define RECURRENT(part) recurrent_portable_##part
#define TARGET
#define WORD_BYTES 16
/* 3 × 4 sums and four inputs: 16 registers. */
#define TILE 3
#define ALL(x) recurrent_all(x)
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#define LEAST(limit, x) recurrent_chosen((x) > (limit), limit, x)
#define MOST(limit, x) recurrent_chosen((x) < (limit), limit, x)

typedef float recurrent_floats __attribute__((vector_size(16), may_alias));
typedef int32_t recurrent_mask __attribute__((vector_size(16), may_alias));

static inline __attribute__((always_inline)) recurrent_floats recurrent_all(float x)
{
    return (recurrent_floats){x, x, x, x};
}

static inline __attribute__((always_inline)) recurrent_floats recurrent_chosen(recurrent_mask mask, recurrent_floats a,
                                                                              recurrent_floats b)
{
    return (recurrent_floats)((mask & (recurrent_mask)a) | (~mask & (recurrent_mask)b));
}

#include "recurrent.inc"

const recurrent_kernel *recurrent_portable(void) { return &recurrent_portable_kernel; }
