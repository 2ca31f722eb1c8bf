/* What is left of the network on a small box: stable neurons folded in whole numbers, unstable ones and margins as forms. */
#include "branch_types.inc"

/* Sums of products in 64 bits, and values that doubles hold exactly, each with room to spare. */
#define WHOLE_LIMIT 0x1p61
#define EXACT_LIMIT 0x1p51

/* A folded row: constant, coefficients of the inputs, weights of the relus so far. */
size_t branch_reduced_row(int32_t dims) { return sizeof(int64_t) * (size_t)(1 + dims + MAX_RELUS); }

static inline int32_t stride(const worker *w) { return 1 + w->plan->dims + MAX_RELUS; }

static double size_of(const int64_t *row, int32_t terms)
{
    double most = 0;
    for (int32_t s = 0; s < terms; s++) {
        double size = fabs((double)row[s]);
        most = size > most ? size : most;
    }
    return most;
}

/* row = bias + sum of weights times rows; 0 when 64 bits are not proven enough. */
static int fold(const worker *w, const int64_t *weight, const int64_t *bias, int32_t relus, int64_t *row)
{
    int32_t length = stride(w), terms = 1 + w->plan->dims + relus;
    if (bias[1] != bias[0] >> 63) return 0;
    double reach = fabs((double)bias[0]);
    for (int32_t k = 0; k < w->folded_live; k++) {
        int32_t j = w->folded_column[k];
        reach += fabs((double)weight[j]) * w->folded_size[j];
    }
    if (!(reach < WHOLE_LIMIT)) return 0;
    memset(row, 0, (size_t)length * sizeof *row);
    row[0] = bias[0];
    for (int32_t k = 0; k < w->folded_live; k++) {
        int32_t j = w->folded_column[k];
        const int64_t by = weight[j], *from = w->folded[0] + (size_t)j * length;
        for (int32_t s = 0; s < terms; s++) row[s] += by * from[s];
    }
    return 1;
}

/* Appends a form; 0 when there is no room, or doubles are not proven exact. */
static int append(const worker *w, reduced *r, const box *b, const int64_t *row, int32_t relus)
{
    int32_t dims = w->plan->dims, f = r->forms;
    if (f >= MAX_FORMS) return 0;
    double reach = fabs((double)row[0]);
    const int64_t *relu = row + 1 + dims;
    r->constant[f] = (double)row[0];
    for (int32_t k = 0; k < dims; k++) {
        r->slope[f][k] = (double)row[1 + k];
        reach += fabs(r->slope[f][k]) * (double)(b->range[dims + k] - b->range[k] - 1);
    }
    int32_t terms = 0;
    for (int32_t j = 0; j < relus; j++) {
        double by = (double)relu[j];
        if (by == 0) continue;
        r->from[f][terms] = j;
        r->by[f][terms++] = by;
        reach += fabs(by) * r->reach[j];
    }
    r->terms[f] = terms;
    r->reach[f] = reach;
    r->forms++;
    return reach < EXACT_LIMIT;
}

static void scale(int64_t *row, int32_t length, int64_t by)
{
    for (int32_t s = 0; s < length && by != 1; s++) row[s] *= by;
}

/* One neuron's argument as a row becomes its value. */
static int become_value(worker *w, reduced *r, const box *b, const branch_layer *layer, int64_t state, int64_t *row)
{
    int leaky = layer->activation == BRANCH_LEAKY;
    double steepest = leaky ? (double)layer->exact_positive + 1 : 1;
    if (!(size_of(row, 1 + w->plan->dims + r->relus) * steepest < WHOLE_LIMIT)) return 0;
    if (state != UNSTABLE) {
        if (leaky) scale(row, stride(w), state == BELOW ? layer->exact_negative : layer->exact_positive);
        return 1;
    }
    if (layer->capped || (!leaky && layer->activation != BRANCH_RELU) || r->relus >= MAX_RELUS) return 0;
    if (!append(w, r, b, row, r->relus)) return 0;
    /* negative z + (positive - negative) max(z, 0) */
    if (leaky) scale(row, stride(w), layer->exact_negative);
    else memset(row, 0, (size_t)stride(w) * sizeof *row);
    row[1 + w->plan->dims + r->relus++] = leaky ? layer->exact_positive - layer->exact_negative : 1;
    return 1;
}

/* The forms of the unstable neurons and of the margins of the possible labels over the first of them, in positions counted from the
   low corner; 0 when the network is not of that kind, or too much is left. */
int branch_reduce(worker *w, const box *b, reduced *r)
{
    const branch_plan *plan = w->plan;
    int32_t dims = plan->dims;
    r->forms = r->relus = 0;
    w->folded_live = dims;
    for (int32_t k = 0; k < dims; k++) {
        int64_t *row = w->folded[0] + (size_t)k * stride(w);
        memset(row, 0, (size_t)stride(w) * sizeof *row);
        row[0] = b->range[k];
        row[1 + k] = 1;
        w->folded_column[k] = k;
        w->folded_size[k] = (double)b->range[k] + 1;
    }
    for (int32_t l = 0; l < plan->layers; l++) {
        const branch_layer *layer = plan->layer + l;
        int32_t live = 0, *next = w->folded_next;
        for (int32_t i = 0; i < layer->outputs; i++) {
            int64_t state = w->state[l][i], *row = w->folded[1] + (size_t)i * stride(w);
            if (state == AT_LOW || state == AT_HIGH) {
                int64_t value = state == AT_HIGH ? layer->exact_high
                                                 : layer->activation == BRANCH_RELU ? 0 : layer->exact_low;
                if (value == 0) continue;
                memset(row, 0, (size_t)stride(w) * sizeof *row);
                row[0] = value;
            } else if (!fold(w, layer->exact + (size_t)i * layer->inputs, layer->exact_bias + 2 * i, r->relus, row)
                       || !become_value(w, r, b, layer, state, row)) {
                return 0;
            }
            next[live++] = i;
        }
        int64_t *swap = w->folded[0];
        w->folded[0] = w->folded[1];
        w->folded[1] = swap;
        for (int32_t k = 0; k < live; k++) {
            w->folded_column[k] = next[k];
            w->folded_size[next[k]] = size_of(w->folded[0] + (size_t)next[k] * stride(w), 1 + dims + r->relus);
        }
        w->folded_live = live;
    }
    r->labels = 0;
    int64_t *first = w->folded[1], *row = first + stride(w);
    for (uint64_t left = b->labels; left; left &= left - 1) {
        int32_t i = __builtin_ctzll(left);
        int64_t *into = r->labels ? row : first;
        if (r->labels == MAX_REDUCED_LABELS
            || !fold(w, plan->pair_exact + (size_t)i * plan->hidden, plan->pair_exact_bias + 2 * i, r->relus, into))
            return 0;
        r->label[r->labels++] = i;
        if (into == first) continue;
        for (int32_t s = 0; s < stride(w); s++) row[s] -= first[s];
        if (!append(w, r, b, row, r->relus)) return 0;
    }
    return 1;
}

/* Instructions for a vector of points, roughly. */
double branch_reduced_work(const reduced *r)
{
    double work = 2;
    for (int32_t f = 0; f < r->forms; f++) work += 3 + 2 * r->terms[f];
    return work + 3 * r->labels;
}

/* Unstable neurons, at most one more than can be kept. */
int32_t branch_unstable(const worker *w)
{
    int32_t found = 0;
    for (int32_t l = 0; l < w->plan->layers && found <= MAX_RELUS; l++)
        for (int32_t i = 0; i < w->plan->layer[l].outputs; i++) found += w->state[l][i] == UNSTABLE;
    return found;
}

/* Points of the box per possible label (in the order of r->label). */
void branch_count_reduced(worker *w, const box *b, reduced *r, uint64_t *counts)
{
    int32_t dims = w->plan->dims, outer = dims;
    int64_t width[MAX_DIMS], points = 1, at[MAX_DIMS] = {0};
    for (int32_t k = 0; k < dims; k++) width[k] = b->range[dims + k] - b->range[k];
    while (outer > 0 && points < PLANE_WANTED && points * width[outer - 1] <= PLANE_POINTS) points *= width[--outer];
    r->points = (int32_t)points;
    for (int32_t f = 0; f < r->forms; f++) {
        /* Positions of the plane, the last input fastest. */
        double *table = r->table + (size_t)f * PLANE_POINTS;
        int64_t filled = 1;
        table[0] = 0;
        for (int32_t k = dims - 1; k >= outer; k--) {
            for (int64_t x = 1; x < width[k]; x++) {
                double add = (double)x * r->slope[f][k];
                for (int64_t p = 0; p < filled; p++) table[x * filled + p] = table[p] + add;
            }
            filled *= width[k];
        }
        for (int64_t p = points; p < (points + 7) / 8 * 8; p++) table[p] = table[0];
        r->base[f] = r->constant[f];
    }
    memset(counts, 0, sizeof *counts * (size_t)r->labels);
    for (;;) {
        w->kernel->plane(r, counts);
        int32_t k = outer - 1;
        for (; k >= 0; k--) { /* the next plane: whole numbers, so that nothing is lost */
            if (++at[k] < width[k]) break;
            at[k] = 0;
            for (int32_t f = 0; f < r->forms; f++) r->base[f] -= r->slope[f][k] * (double)(width[k] - 1);
        }
        if (k < 0) return;
        for (int32_t f = 0; f < r->forms; f++) r->base[f] += r->slope[f][k];
    }
}
