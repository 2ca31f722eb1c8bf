#pragma once
#include <stdint.h>

typedef struct {
    uint32_t a, b, c, table, uses;
} residual_gate;

uint32_t residual_fix(const residual_gate *gates, int64_t count, uint32_t inputs, uint32_t input, uint32_t value,
                      residual_gate *out, uint32_t *map);
uint32_t residual_follow(uint32_t literal, uint32_t inputs, uint32_t input, uint32_t value, const uint32_t *map);
int64_t residual_mark(residual_gate *gates, int64_t count, uint32_t inputs, const uint32_t *outputs,
                      int32_t output_count, uint32_t *occurrences);
