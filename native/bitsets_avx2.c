/* Sets of rows with the instructions of 2013: vectors of four words, and one that counts the bits of a word. */
#include <stddef.h>

#if defined(__x86_64__)
#define BITS(part) bits_avx2_##part
#define TARGET __attribute__((target("avx2,popcnt")))
#include "bitsets.inc"

const bits_kernel *bits_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt") ? &bits_avx2_kernel : NULL;
}
#else
#include "bitsets.h"
const bits_kernel *bits_avx2(void) { return NULL; }
#endif
