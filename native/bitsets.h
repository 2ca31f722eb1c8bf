#pragma once
#include <stdint.h>

typedef struct {
    uint64_t (*meet)(uint64_t *out, const uint64_t *a, const uint64_t *b, int64_t words);
    uint64_t (*both)(const uint64_t *a, const uint64_t *b, int64_t words);
    uint64_t (*digest)(const uint64_t *a, const uint64_t *keys, int64_t words);
    int32_t (*inside)(const uint64_t *const *members, int32_t count, const uint64_t *whole, int64_t words);
} bits_kernel;

typedef struct {
    int64_t rows, words;
    const uint64_t *sets, *hits, *within, *keys;
    const double *values;
    const bits_kernel *kernel;
} bits_space;

typedef struct {
    int64_t length, capacity, most;
    int32_t depth;
    int32_t *members;
    uint32_t *size, *samples, *hits, *low;
    double *sum;
    uint64_t *hash;
} bits_family;

typedef struct {
    int64_t count;
    int32_t depth;
    const int32_t *members;
    const uint32_t *size;
    const double *value;
    const int64_t *identity;
    const int64_t *row_start;
    const uint32_t *group_low;
    const int64_t *group_start;
} bits_index;

const bits_kernel *bits_choose(int32_t isa);
const bits_kernel *bits_portable(void);
const bits_kernel *bits_avx2(void);
bits_family *bits_new(int32_t depth, int64_t most);
void bits_free(bits_family *family);
int32_t bits_enumerate(const bits_space *space, bits_family *family, int32_t first, int32_t sets, int64_t least);
int32_t bits_merge(const bits_space *space, const bits_family *family, const int64_t *order, int64_t *same);
int32_t bits_inconsistency(const bits_space *space, const bits_index *index, const int64_t *places, int64_t count,
                           int64_t k, double *most, int64_t *attained);
