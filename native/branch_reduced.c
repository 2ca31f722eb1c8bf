/* What is left of the network on a box: stable neurons folded, unstable ones and margins as forms, evaluated at every point.
 *
 * Sums of whole numbers below 2^53 are exact in doubles, in any order. Where a bound on all partial sums is larger (or numbers are
 * scaled), rows and forms carry an error, and a point where the two best scores are closer than it spoils the count.
 * A sum of n products is within (n + 3) 2^-53 of the sum of absolute values; at least four times that is charged.
 */
#include "branch_types.inc"

#define EXACT_LIMIT 0x1p51
#define CHARGE 0x1p-50
#define LEAST_CHARGE 0x1p-900
#define MOST_REACH 0x1p1000 /* no sum overflows below it */

/* A folded row: constant, coefficients of the inputs (from the box's low corner), weights of the relus so far. */
size_t branch_reduced_row(int32_t dims) { return sizeof(double) * (size_t)(1 + dims + MAX_RELUS); }

static inline int32_t stride(const worker *w) { return 1 + w->plan->dims + MAX_RELUS; }

/* Bound on the row's size over the box, and on each of its numbers. */
static double norm_of(const worker *w, const reduced *r, const box *b, const double *row)
{
    int32_t dims = w->plan->dims;
    double norm = fabs(row[0]);
    for (int32_t k = 0; k < dims; k++) norm += fabs(row[1 + k]) * (double)(b->range[dims + k] - b->range[k] - 1);
    for (int32_t j = 0; j < r->relus; j++) norm += fabs(row[1 + dims + j]) * r->reach[j];
    return norm;
}

/* row = bias + sum of weights (`step` apart) times rows; returns the error that it may have over the box. */
static double fold(const worker *w, const double *weight, int32_t step, double bias, int32_t relus, double *row)
{
    int32_t length = stride(w), terms = 1 + w->plan->dims + relus;
    double reach = fabs(bias), error = 0;
    memset(row, 0, (size_t)length * sizeof *row);
    row[0] = bias;
    for (int32_t k = 0; k < w->folded_live; k++) {
        int32_t j = w->folded_column[k];
        double by = weight[(size_t)j * step];
        const double *from = w->folded[0] + (size_t)j * length;
        for (int32_t s = 0; s < terms; s++) row[s] += by * from[s];
        reach += fabs(by) * w->folded_norm[j];
        error += fabs(by) * w->folded_error[j];
    }
    if (w->plan->whole && error == 0 && reach < EXACT_LIMIT) return 0;
    return error * (1 + CHARGE) + (w->folded_live + 8) * CHARGE * reach + LEAST_CHARGE;
}

/* Appends a form; 0 when there is no room. */
static int append(const worker *w, reduced *r, const box *b, const double *row, double error)
{
    int32_t dims = w->plan->dims, f = r->forms, terms = 0;
    if (f >= MAX_FORMS) return 0;
    double reach = norm_of(w, r, b, row);
    memcpy(r->row[f], row, sizeof *row * (size_t)(1 + dims + r->relus));
    for (int32_t j = 0; j < r->relus; j++) {
        double by = row[1 + dims + j];
        terms += by != 0;
        error += fabs(by) * r->error[j];
    }
    if (!w->plan->whole || error > 0 || !(reach < EXACT_LIMIT)) {
        error += (dims + terms + 8) * CHARGE * reach + LEAST_CHARGE;
    }
    r->error[f] = error;
    r->reach[f] = reach > 1 ? reach : 1;
    r->forms++;
    return reach < MOST_REACH && error < MOST_REACH;
}

static double scaled(const worker *w, double *row, double by, double error)
{
    for (int32_t s = 0; s < stride(w) && by != 1; s++) row[s] *= by;
    return error * fabs(by);
}

/* One neuron's argument as a row becomes its value; its error too. 0 when this is not possible. */
static int become_value(worker *w, reduced *r, const box *b, const branch_layer *layer, int64_t state, double *row, double *error)
{
    int leaky = layer->activation == BRANCH_LEAKY;
    double by = !leaky ? 1 : state == PASS ? layer->positive : layer->negative;
    if (state == UNSTABLE) {
        if (layer->capped || (!leaky && layer->activation != BRANCH_RELU) || r->relus >= MAX_RELUS) return 0;
        if (!append(w, r, b, row, *error)) return 0;
        if (leaky) {
            *error = scaled(w, row, by, *error);
        } else {
            memset(row, 0, (size_t)stride(w) * sizeof *row);
            *error = 0;
        }
        /* negative z + (positive - negative) max(z, 0) */
        row[1 + w->plan->dims + r->relus++] = leaky ? layer->positive - layer->negative : 1;
    } else if (leaky) {
        *error = scaled(w, row, by, *error);
    }
    double norm = norm_of(w, r, b, row);
    if (leaky && !(w->plan->whole && *error == 0 && norm < EXACT_LIMIT)) *error += 8 * CHARGE * norm + LEAST_CHARGE;
    return 1;
}

static void note(worker *w, const reduced *r, const box *b, int32_t i, double error)
{
    w->folded_error[i] = error;
    w->folded_norm[i] = norm_of(w, r, b, w->folded[0] + (size_t)i * stride(w));
}

static int hidden_rows(worker *w, const box *b, reduced *r)
{
    const branch_plan *plan = w->plan;
    for (int32_t l = 0; l < plan->layers; l++) {
        const branch_layer *layer = plan->layer + l;
        int32_t live = 0, *next = w->folded_next;
        double *errors = w->folded_fresh;
        for (int32_t i = 0; i < layer->outputs; i++) {
            int64_t state = w->state[l][i];
            double *row = w->folded[1] + (size_t)i * stride(w);
            errors[i] = 0;
            if (state == AT_LOW || state == AT_HIGH) {
                double value = state == AT_HIGH ? layer->high : layer->activation == BRANCH_RELU ? 0 : layer->low;
                if (value == 0) continue;
                memset(row, 0, (size_t)stride(w) * sizeof *row);
                row[0] = value;
                if (!plan->whole || fabs(value) > EXACT_LIMIT) errors[i] = CHARGE * fabs(value) + LEAST_CHARGE;
            } else {
                const double *weight = layer->packed + (size_t)(i & ~7) * layer->inputs + (i & 7);
                errors[i] = fold(w, weight, 8, layer->bias[i], r->relus, row);
                if (!become_value(w, r, b, layer, state, row, errors + i)) return 0;
            }
            next[live++] = i;
        }
        double *swap = w->folded[0];
        w->folded[0] = w->folded[1];
        w->folded[1] = swap;
        w->folded_live = live;
        for (int32_t k = 0; k < live; k++) {
            w->folded_column[k] = next[k];
            note(w, r, b, next[k], errors[next[k]]);
        }
    }
    return 1;
}

/* The forms of the unstable neurons, and of the margins of the possible labels over the first of them; 0 when the network is not of
   that kind, or too much is left. */
int branch_reduce(worker *w, const box *b, reduced *r)
{
    const branch_plan *plan = w->plan;
    int32_t dims = plan->dims, blocks = (plan->labels + 7) / 8;
    r->forms = r->relus = r->labels = 0;
    r->dims = dims;
    w->folded_live = dims;
    for (int32_t k = 0; k < dims; k++) {
        double *row = w->folded[0] + (size_t)k * stride(w);
        memset(row, 0, (size_t)stride(w) * sizeof *row);
        row[0] = (double)b->range[k];
        row[1 + k] = b->range[dims + k] - b->range[k] > 1;
        w->folded_column[k] = k;
        note(w, r, b, k, 0);
    }
    if (!hidden_rows(w, b, r)) return 0;
    r->doubt = 0;
    int32_t reference = __builtin_ctzll(b->labels);
    for (uint64_t left = b->labels; left; left &= left - 1) {
        int32_t i = __builtin_ctzll(left);
        if (r->labels == MAX_REDUCED_LABELS) return 0;
        r->label[r->labels++] = i;
        if (i == reference) continue;
        size_t block = (size_t)(i * blocks + (reference >> 3));
        double error = fold(w, plan->pair.packed + block * 8 * (size_t)plan->hidden + (reference & 7), 8,
                            plan->pair.bias[8 * block + (size_t)(reference & 7)], r->relus, w->folded[1]);
        if (!append(w, r, b, w->folded[1], error)) return 0;
        double doubt = 4 * r->error[r->forms - 1];
        if (doubt > r->doubt) r->doubt = doubt;
    }
    return 1;
}

/* Instructions for a vector of points, roughly. */
double branch_reduced_work(const reduced *r)
{
    double work = 2;
    for (int32_t f = 0; f < r->forms; f++) {
        int32_t terms = 0;
        for (int32_t j = 0; j < r->relus && (j < f || f >= r->relus); j++) terms += r->row[f][1 + r->dims + j] != 0;
        work += 3 + 2 * terms;
    }
    return work + 3 * r->labels;
}

/* Unstable neurons, at most a layer more than can be kept. */
int32_t branch_unstable(const worker *w)
{
    int32_t found = 0;
    for (int32_t l = 0; l < w->plan->layers && found <= MAX_RELUS; l++)
        for (int32_t i = 0; i < w->plan->layer[l].outputs; i++) found += w->state[l][i] == UNSTABLE;
    return found;
}
