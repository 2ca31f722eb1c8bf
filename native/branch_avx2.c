/* The kernels of `branch` in 256-bit registers. */
#pragma GCC diagnostic ignored "-Wpsabi"
#include <stddef.h>
#if defined(__x86_64__)
#define WIDE 1
#define LANES 4
#define KERNEL(part) avx2_##part
#define TARGET __attribute__((target("avx2")))
#include "branch_kernel.inc"

const branch_kernel *branch_avx2(void) { return __builtin_cpu_supports("avx2") ? &avx2_kernel : NULL; }
#else
#include "branch_types.inc"
const branch_kernel *branch_avx2(void) { return NULL; }
#endif
