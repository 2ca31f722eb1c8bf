/* A decision tree over boxes of grid positions: descend with the box, branch only where a test cuts it. */
#include "boxes.h"

#include <stddef.h>
#include <string.h>

typedef unsigned __int128 u128;

static uint64_t width(const qbox_tree *tree, int32_t feature) {
    int64_t low = tree->ranges[2 * feature], high = tree->ranges[2 * feature + 1];
    if (tree->prefix != NULL && tree->offset[feature] >= 0) {
        const uint64_t *sums = tree->prefix + tree->offset[feature];
        return sums[high] - sums[low];
    }
    return (uint64_t)(high - low);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Pushes the up to three pieces into which [cut_low, cut_high) cuts the range of the node's feature, over a frame that
   restores the range. Returns the new height. */
static int64_t push_pieces(const qbox_tree *tree, int64_t top, const qbox_node *node, int64_t low, int64_t high) {
    int64_t cut_low = most(low, node->low), cut_high = least(high, node->high);
    qbox_frame *stack = tree->stack;
    stack[top++] = (qbox_frame){low, high, node->feature, -1};
    if (cut_high < high) stack[top++] = (qbox_frame){cut_high, high, node->feature, node->left};
    stack[top++] = (qbox_frame){cut_low, cut_high, node->feature, node->right};
    if (low < cut_low) stack[top++] = (qbox_frame){low, cut_low, node->feature, node->left};
    return top;
}

static void add_leaf(const qbox_tree *tree, int32_t touched, int narrow, uint64_t *sum) {
    u128 total = ((u128)sum[1] << 64) | sum[0];
    if (narrow) {
        uint64_t product = 1;
        for (int32_t t = 0; t < touched; t++) product *= width(tree, tree->touched_list[t]);
        total += product;
    } else {
        u128 product = 1;
        for (int32_t t = 0; t < touched; t++) product *= width(tree, tree->touched_list[t]);
        total += product;
    }
    sum[0] = (uint64_t)total;
    sum[1] = (uint64_t)(total >> 64);
}

/* One descent. With `marks` it collects the touched features, without it adds up the leaves. */
static int descend(const qbox_tree *tree, uint8_t *marks, int32_t *touched, int narrow, uint64_t *residual) {
    int64_t *ranges = tree->ranges, top = 0, visits = 0;
    tree->stack[top++] = (qbox_frame){0, 0, -1, 0};
    while (top > 0) {
        qbox_frame frame = tree->stack[--top];
        if (frame.feature >= 0) {
            ranges[2 * frame.feature] = frame.low;
            ranges[2 * frame.feature + 1] = frame.high;
        }
        if (frame.node < 0) continue;
        for (int32_t next = frame.node;;) {
            const qbox_node *node = tree->nodes + next;
            if (++visits > tree->budget) return QBOX_BUDGET;
            if (node->feature < 0) {
                if (marks == NULL) add_leaf(tree, *touched, narrow, residual + 2 * node->label);
                break;
            }
            int64_t low = ranges[2 * node->feature], high = ranges[2 * node->feature + 1];
            if (node->low <= low && high <= node->high) {
                next = node->right;
            } else if (high <= node->low || node->high <= low || node->high <= node->low) {
                next = node->left;
            } else {
                if (marks != NULL && !marks[node->feature]) {
                    marks[node->feature] = 1;
                    tree->touched_list[(*touched)++] = node->feature;
                }
                if (top + 4 > tree->stack_length) return QBOX_STACK;
                top = push_pieces(tree, top, node, low, high);
                break;
            }
        }
    }
    return QBOX_OK;
}

/* The leaves partition the box, so every partial sum is at most the product of the touched widths: one check here
   proves that neither a leaf nor a sum overflows. Returns 0, 1 (fits 128 bits) or 2 (fits 64 bits). */
static int room(const qbox_tree *tree, int32_t touched) {
    u128 product = 1;
    for (int32_t t = 0; t < touched; t++) {
        uint64_t factor = width(tree, tree->touched_list[t]);
        if (factor != 0 && product > ~(u128)0 / factor) return 0;
        product *= factor;
        if (product == 0) return 2;
    }
    return product >> 64 ? 1 : 2;
}

static int count_one(const qbox_tree *tree, const int64_t *low, const int64_t *high, uint64_t *residual,
                     uint8_t *marks) {
    int32_t touched = 0;
    memset(marks, 0, (size_t)tree->features);
    memset(residual, 0, 2 * sizeof(uint64_t) * (size_t)tree->labels);
    for (int32_t f = 0; f < tree->features; f++) {
        tree->ranges[2 * f] = low[f];
        tree->ranges[2 * f + 1] = high[f];
    }
    if (tree->stack_length < 1) return QBOX_STACK;
    int status = descend(tree, marks, &touched, 0, NULL);
    if (status != QBOX_OK) return status;
    int bits = room(tree, touched);
    if (bits == 0) return QBOX_OVERFLOW;
    return descend(tree, NULL, &touched, bits == 2, residual);
}

void qbox_count(const qbox_tree *tree, int64_t boxes, const int64_t *low, const int64_t *high, uint64_t *residual,
                uint8_t *touched, uint8_t *status) {
    for (int64_t b = 0; b < boxes; b++) {
        status[b] = (uint8_t)count_one(tree, low + b * tree->features, high + b * tree->features,
                                       residual + 2 * b * tree->labels, touched + b * tree->features);
    }
}
