#pragma once
#include <stdint.h>

typedef struct {
    uint32_t a, b, c, table;
} enumerate_gate;

/* Inputs that stand for "the network's label is in set j", after the bits of the features. */
typedef struct {
    void *network;       /* network_task whose inputs are the features in reverse */
    const int64_t *lows; /* first position of every input of the network */
    const uint8_t *sets; /* (count × labels), 0 or 1 */
    int32_t count, classes;
    double nanoseconds;  /* a point takes, roughly */
} enumerate_labels;

typedef struct enumerate_task enumerate_task;

enum { ENUMERATE_DONE = 0, ENUMERATE_MORE = 1, ENUMERATE_FOUND = 2, ENUMERATE_NO_MEMORY = 3 };

enumerate_task *enumerate_open(const enumerate_gate *gates, int64_t count, const uint32_t *outputs,
                               int32_t output_count, const int64_t *widths, const int32_t *bits, int32_t features,
                               int32_t lane_bits, int32_t isa, int32_t prefix_bits, uint64_t prefix);
enumerate_task *enumerate_open_labelled(const enumerate_gate *gates, int64_t count, const uint32_t *outputs,
                                        int32_t output_count, const int64_t *widths, const int32_t *bits,
                                        int32_t features, int32_t lane_bits, int32_t isa, int32_t prefix_bits,
                                        uint64_t prefix, const enumerate_labels *labels);
int32_t enumerate_run(enumerate_task *task, int64_t work, int32_t seek);
void enumerate_read(const enumerate_task *task, uint64_t *counts, uint64_t *visited);
void enumerate_found(const enumerate_task *task, int64_t *positions);
double enumerate_probe(enumerate_task *task, uint64_t seed);
void enumerate_close(enumerate_task *task);
