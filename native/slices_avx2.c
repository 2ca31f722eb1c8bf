/* Bit slices in 256-bit registers. */
#include <stddef.h>

#if defined(__x86_64__)
#define SLICES(part) avx2_##part
#define TARGET __attribute__((target("avx2,popcnt")))
#define WORD_BYTES 32
#include "slices.inc"

const slices_kernel *slices_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt") ? &avx2_kernel : NULL;
}
#else
#include "slices.h"
const slices_kernel *slices_avx2(void) { return NULL; }
#endif
