#pragma once
#include <stdint.h>

/* One node of a prepared tree. Inner: feature >= 0, go right iff low <= position < high. Leaf: feature < 0, label. */
typedef struct {
    int64_t low;
    int64_t high;
    int32_t feature;
    int32_t left;
    int32_t right;
    int32_t label;
} qbox_node;

/* A pending piece of the descent: set the range of `feature`, then visit `node` (node < 0: restore only). */
typedef struct {
    int64_t low;
    int64_t high;
    int32_t feature;
    int32_t node;
} qbox_frame;

/* What one box came to. */
enum {
    QBOX_OK = 0,
    QBOX_OVERFLOW = 1,  /* the product over the touched features needs more than 128 bits */
    QBOX_STACK = 2,     /* the stack is shorter than the tree is deep */
    QBOX_BUDGET = 3     /* more node visits than allowed (shared children) */
};

typedef struct {
    const qbox_node *nodes;
    int32_t features;          /* features that the tree reads */
    int32_t labels;
    const uint64_t *prefix;    /* prefix sums of weights, or NULL when every width counts points */
    const int64_t *offset;     /* per feature: where its prefix sums start, -1 = weight 1 everywhere; NULL with prefix */
    int64_t budget;            /* most node visits of one box, per pass */
    int64_t stack_length;
    qbox_frame *stack;         /* scratch */
    int64_t *ranges;           /* scratch: 2 * features */
    int32_t *touched_list;     /* scratch: features */
} qbox_tree;

/* Counts `boxes` boxes, each row of low/high holding `features` non-empty ranges. Per box: residual (2 words a label,
   low word first) is the number of points per label over the touched features only, touched marks these features,
   status is one of the codes above; residual and touched mean nothing unless it is QBOX_OK. */
void qbox_count(const qbox_tree *tree, int64_t boxes, const int64_t *low, const int64_t *high, uint64_t *residual,
                uint8_t *touched, uint8_t *status);
