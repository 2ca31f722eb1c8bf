/* The path that runs anywhere, and the choice among the paths. */
#include <stddef.h>

#define SLICES(part) portable_##part
#define TARGET
#define WORD_BYTES 16
#include "slices.inc"

const slices_kernel *slices_portable(void) { return &portable_kernel; }

/* 0: the best that this processor has; 1, 2, 3: portable, AVX2, AVX-512, or NULL when the processor lacks it. */
const slices_kernel *slices_choose(int32_t isa)
{
    const slices_kernel *kernel = NULL;
    if (isa == 3 || isa == 0) kernel = slices_avx512();
    if (isa == 2 || (isa == 0 && !kernel)) kernel = slices_avx2();
    if (isa == 1 || (isa == 0 && !kernel)) kernel = slices_portable();
    return kernel;
}
