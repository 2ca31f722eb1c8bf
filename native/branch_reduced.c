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
    double reach = norm_of(w, r, b, row), low = 0, high = 0;
    r->constant[f] = row[0];
    for (int32_t k = 0; k < dims; k++) r->slope[f][k] = row[1 + k];
    for (int32_t k = w->reduced_outer; k < dims; k++) {
        double most = row[1 + k] * (double)(b->range[dims + k] - b->range[k] - 1);
        if (most < 0) low += most;
        else high += most;
    }
    for (int32_t j = 0; j < r->relus; j++) {
        double by = row[1 + dims + j];
        if (by == 0) continue;
        r->from[f][terms] = j;
        r->by[f][terms++] = by;
        error += fabs(by) * r->error[j];
    }
    if (!w->plan->whole || error > 0 || !(reach < EXACT_LIMIT)) {
        error += (dims + terms + 8) * CHARGE * reach + LEAST_CHARGE;
    }
    r->terms[f] = terms;
    r->error[f] = error;
    r->reach[f] = reach > 1 ? reach : 1;
    r->low[f] = low;
    r->high[f] = high;
    r->forms++;
    return reach < 0x1p1000;
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

/* The last inputs make up a plane. */
static void choose_plane(worker *w, const box *b)
{
    int32_t dims = w->plan->dims, outer = dims;
    int64_t points = 1;
    while (outer > 0) {
        int64_t more = points * (b->range[dims + outer - 1] - b->range[outer - 1]);
        if (points >= PLANE_WANTED || more > PLANE_POINTS) break;
        points = more;
        outer--;
    }
    w->reduced_outer = outer;
    w->reduced->points = (int32_t)points;
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
    choose_plane(w, b);
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
    for (int32_t f = 0; f < r->forms; f++) work += 3 + 2 * r->terms[f];
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

static void fill_tables(const worker *w, const box *b, reduced *r)
{
    int32_t dims = w->plan->dims, points = r->points;
    for (int32_t f = 0; f < r->forms; f++) {
        double *table = r->table + (size_t)f * PLANE_POINTS;
        int64_t filled = 1;
        table[0] = 0;
        for (int32_t k = dims - 1; k >= w->reduced_outer; k--) {
            int64_t width = b->range[dims + k] - b->range[k];
            for (int64_t x = 1; x < width; x++) {
                double add = (double)x * r->slope[f][k];
                for (int64_t p = 0; p < filled; p++) table[x * filled + p] = table[p] + add;
            }
            filled *= width;
        }
        for (int32_t p = points; p < (points + 7) / 8 * 8; p++) table[p] = table[0];
    }
}

/* Ranges of the forms on a plane: relus that are zero all over it and labels that cannot win are left out. 1 when one label has
   all of the plane. */
static int plane_is_decided(reduced *r, int32_t *winner)
{
    double from[MAX_FORMS], to[MAX_FORMS];
    int32_t kept = 0, certain = 0;
    for (int32_t f = 0; f < r->forms; f++) {
        double low = r->base[f] + r->low[f], high = r->base[f] + r->high[f];
        int32_t live = 0;
        for (int32_t t = 0; t < r->terms[f]; t++) {
            int32_t j = r->from[f][t];
            if (to[j] == 0) continue;
            double by = r->by[f][t];
            r->live_from[f][live] = j;
            r->live_by[f][live++] = by;
            low += by * (by > 0 ? from[j] : to[j]);
            high += by * (by > 0 ? to[j] : from[j]);
        }
        r->live[f] = live;
        if (f < r->relus) {
            from[f] = low > 0 ? low : 0;
            to[f] = high > 0 ? high : 0;
            continue;
        }
        /* Ties go to label 0, the lowest; the doubt also covers the rounding of these ranges. */
        if (r->doubt > 0 ? high < -r->doubt : high <= 0) continue;
        r->kept[kept++] = f - r->relus + 1;
        certain = low > r->doubt;
    }
    for (int32_t f = 0; f < r->relus; f++) r->dead[f] = to[f] == 0;
    r->keeps = kept;
    *winner = kept ? r->kept[0] : 0;
    return kept == 0 || (kept == 1 && certain);
}

/* Points of the box per possible label (in the order of r->label); 0 when errors leave a point in doubt. */
int branch_count_reduced(worker *w, const box *b, reduced *r, uint64_t *counts)
{
    int32_t dims = w->plan->dims, outer = w->reduced_outer;
    int64_t at[MAX_DIMS] = {0};
    fill_tables(w, b, r);
    memset(counts, 0, sizeof *counts * (size_t)r->labels);
    for (;;) {
        for (int32_t f = 0; f < r->forms; f++) {
            double base = r->constant[f];
            for (int32_t k = 0; k < outer; k++) base += r->slope[f][k] * (double)at[k];
            r->base[f] = base;
        }
        int32_t winner;
        if (plane_is_decided(r, &winner)) counts[winner] += (uint64_t)r->points;
        else if (!w->kernel->plane(r, counts)) return 0;
        int32_t k = outer - 1;
        for (; k >= 0; k--) {
            if (++at[k] < b->range[dims + k] - b->range[k]) break;
            at[k] = 0;
        }
        if (k < 0) return 1;
    }
}
