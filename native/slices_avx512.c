/* Bit slices in 512-bit registers, where any function of three inputs is one instruction. */
#include <stddef.h>

#if defined(__x86_64__)
#include <immintrin.h>

#define SLICES(part) avx512_##part
#define TARGET __attribute__((target("avx512f,popcnt")))
#define WORD_BYTES 64
#define TERNARY(table, a, b, c) (word) _mm512_ternarylogic_epi64((__m512i)(a), (__m512i)(b), (__m512i)(c), table)
#include "slices.inc"

const slices_kernel *slices_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("popcnt") ? &avx512_kernel : NULL;
}
#else
#include "slices.h"
const slices_kernel *slices_avx512(void) { return NULL; }
#endif
