#pragma once
#include <stdint.h>

int32_t packing_pack(const int32_t *sizes, int64_t count, int64_t length, int32_t capacity, int32_t solver,
                     int64_t *squares, int32_t *bins);
void packing_compare(const int64_t *squares0, const int32_t *bins0, const int64_t *squares1, const int32_t *bins1,
                     int64_t count, int8_t *winners);
void packing_changes(const int64_t *instance, const int64_t *perturbed, int64_t count, int64_t length,
                     int32_t *changes, int32_t *longest, int32_t *longest_up, int64_t *difference);
