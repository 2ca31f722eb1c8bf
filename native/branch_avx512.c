/* The kernels of `branch` in 512-bit registers. */
#pragma GCC diagnostic ignored "-Wpsabi"
#include <stddef.h>
#if defined(__x86_64__)
#define WIDE 1
#define LANES 8
#define KERNEL(part) avx512_##part
#define TARGET __attribute__((target("avx512f,avx512dq")))
#include "branch_kernel.inc"

const branch_kernel *branch_avx512(void) { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") ? &avx512_kernel : NULL; }
#else
#include "branch_types.inc"
const branch_kernel *branch_avx512(void) { return NULL; }
#endif
