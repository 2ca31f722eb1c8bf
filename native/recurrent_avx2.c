/* Recurrent networks in 256-bit registers with fused multiply-adds. */
#include <stddef.h>

#if defined(__x86_64__)
#include <immintrin.h>

#define RECURRENT(part) recurrent_avx2_##part
#define TARGET __attribute__((target("avx2,fma")))
#define WORD_BYTES 32
/* 6 × 2 sums, two inputs and a weight fill 15 of 16 registers. */
#define TILE 6
#define ALL(x) (V)_mm256_set1_ps(x)
#define MULTIPLY_ADD(a, b, c) (V)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c))
/* Of a number and a NaN these instructions return the second operand. */
#define LEAST(limit, x) (V)_mm256_min_ps((__m256)(limit), (__m256)(x))
#define MOST(limit, x) (V)_mm256_max_ps((__m256)(limit), (__m256)(x))
#include "recurrent.inc"

const recurrent_kernel *recurrent_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &recurrent_avx2_kernel : NULL;
}
#else
#include "recurrent_kernel.inc"
const recurrent_kernel *recurrent_avx2(void) { return NULL; }
#endif
