/* The kernels of `branch` for any processor. */
#pragma GCC diagnostic ignored "-Wpsabi"
#define WIDE 0
#define LANES 2
#define KERNEL(part) portable_##part
#define TARGET
#include "branch_kernel.inc"

const branch_kernel *branch_portable(void) { return &portable_kernel; }
