#pragma once
#include <stdint.h>

typedef struct {
    uint32_t target, a, b, c, table;
} slices_step;

typedef struct {
    void (*run)(const slices_step *steps, int64_t count, uint8_t *memory, int64_t cells);
    uint64_t (*count)(const uint8_t *block, const uint8_t *mask, int64_t cells);
} slices_kernel;

const slices_kernel *slices_choose(int32_t isa);
const slices_kernel *slices_portable(void);
const slices_kernel *slices_avx2(void);
const slices_kernel *slices_avx512(void);
