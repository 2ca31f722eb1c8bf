/* Integer points of a box in a half-space: exactly by floor sums, and bounded by volumes. */
#include "branch_types.inc"

/* Sum over 0 <= i < n of floor((a i + b) / m), a and b non-negative, m positive; the caller has proven that a n + b and
   the sum fit 127 bits. */
static u128 floor_sum_wide(u128 n, u128 m, u128 a, u128 b)
{
    u128 total = 0;
    while (n) {
        if (a >= m) {
            total += (n & 1 ? n * ((n - 1) / 2) : (n / 2) * (n - 1)) * (a / m);
            a %= m;
        }
        if (b >= m) {
            total += n * (b / m);
            b %= m;
        }
        u128 last = a * n + b;
        if (last < m) break;
        n = last / m;
        b = last % m;
        u128 swap = m;
        m = a;
        a = swap;
    }
    return total;
}

static uint64_t floor_sum(uint64_t n, uint64_t m, uint64_t a, uint64_t b)
{
    uint64_t total = 0;
    while (n) {
        if (a >= m) {
            total += (n & 1 ? n * ((n - 1) / 2) : (n / 2) * (n - 1)) * (a / m);
            a %= m;
        }
        if (b >= m) {
            total += n * (b / m);
            b %= m;
        }
        uint64_t last = a * n + b;
        if (last < m) break;
        n = last / m;
        b = last % m;
        uint64_t swap = m;
        m = a;
        a = swap;
    }
    return total;
}

typedef struct {
    int32_t dims;
    int narrow;                /* everything fits 62 bits */
    i128 a[MAX_DIMS];          /* non-negative */
    int64_t width[MAX_DIMS];   /* ascending */
    i128 reach[MAX_DIMS + 1];  /* largest sum of the first k terms */
    u128 points[MAX_DIMS + 1]; /* product of the first k widths */
} lattice;

/* Points (x, y) of [0, n) x [0, m) with a x + b y <= bound, 0 <= bound < a (n - 1) + b (m - 1). */
static u128 plane(const lattice *s, i128 bound)
{
    i128 a = s->a[0], b = s->a[1], n = s->width[0], m = s->width[1];
    if (a == 0) return (u128)n * (u128)(bound / b + 1);
    if (b == 0) return (u128)m * (u128)(bound / a + 1);
    i128 last = bound / a < n - 1 ? bound / a : n - 1;
    i128 rest = bound - b * (m - 1);
    i128 full = rest < 0 ? 0 : rest / a + 1; /* columns that lie inside altogether */
    if (full > last + 1) full = last + 1;
    i128 columns = last + 1 - full;
    u128 inside = (u128)full * (u128)m + (u128)columns;
    if (s->narrow)
        return inside + floor_sum((uint64_t)columns, (uint64_t)b, (uint64_t)a, (uint64_t)(bound - a * last));
    return inside + floor_sum_wide((u128)columns, (u128)b, (u128)a, (u128)(bound - a * last));
}

/* Points of the first `dims` inputs with sum <= bound; the outermost is the last. */
static u128 below(const lattice *s, int32_t dims, i128 bound)
{
    if (bound < 0) return 0;
    if (bound >= s->reach[dims]) return s->points[dims];
    if (dims == 1) return (u128)(bound / s->a[0]) + 1;
    if (dims == 2) return plane(s, bound);
    u128 total = 0;
    i128 a = s->a[dims - 1];
    if (a == 0) return (u128)s->width[dims - 1] * below(s, dims - 1, bound);
    for (int64_t x = 0; x < s->width[dims - 1] && bound >= 0; x++, bound -= a) total += below(s, dims - 1, bound);
    return total;
}

/* Counts sum(a_k x_k) <= bound over the box of widths; 0 when it would take more than `work` floor sums. */
static int count_below(int32_t dims, const i128 *a, const int64_t *width, i128 bound, double work, u128 *count)
{
    int32_t order[MAX_DIMS];
    for (int32_t k = 0; k < dims; k++) {
        int32_t at = k;
        for (; at > 0 && width[order[at - 1]] < width[k]; at--) order[at] = order[at - 1];
        order[at] = k;
    }
    lattice s = {.dims = dims};
    double loops = 1;
    s.points[0] = 1;
    double size = 1;
    for (int32_t k = 0; k < dims; k++) {
        int64_t n = width[order[k]];
        i128 by = a[order[k]];
        if (by < 0) { /* x -> n - 1 - x */
            bound -= by * (n - 1);
            by = -by;
        }
        s.a[k] = by;
        s.width[k] = n;
        s.reach[k + 1] = s.reach[k] + by * (n - 1);
        s.points[k + 1] = s.points[k] * (u128)n;
        size *= (double)n;
        if (k >= 2) loops *= (double)n;
    }
    if (loops > work) return 0;
    /* Floor sums form a n + b and at most (points of the plane) times one: 62 bits for the narrow path. */
    double top = 0;
    for (int32_t k = 0; k < dims; k++) top += (double)s.a[k] * (double)s.width[k];
    double area = (double)s.width[0] * (dims > 1 ? (double)s.width[1] : 1);
    if (top > 0x1p124 || size > 0x1p124) return 0;
    s.narrow = top < 0x1p61 && area < 0x1p61;
    *count = below(&s, dims, bound);
    return 1;
}

int32_t branch_lattice(int32_t dims, const int64_t *a, const int64_t *width, const int64_t *bound, double work,
                       uint64_t *count)
{
    i128 wide[MAX_DIMS];
    for (int32_t k = 0; k < dims; k++) wide[k] = (i128)((u128)(uint64_t)a[2 * k] | (u128)(uint64_t)a[2 * k + 1] << 64);
    i128 limit = (i128)((u128)(uint64_t)bound[0] | (u128)(uint64_t)bound[1] << 64);
    u128 found = 0;
    int status = count_below(dims, wide, width, limit, work, &found);
    count[0] = (uint64_t)found;
    count[1] = (uint64_t)(found >> 64);
    return status;
}

static i128 word(const int64_t *pair) { return (i128)((u128)(uint64_t)pair[0] | (u128)(uint64_t)pair[1] << 64); }

/* The exact affine map score[first] - score[second] on a box where every neuron is stable: from the last layer back to
   the inputs, by the states of the neurons. The plan proves that nothing here leaves 124 bits. */
static i128 exact_map(worker *w, int32_t first, int32_t second, i128 *coefficient)
{
    const branch_plan *plan = w->plan;
    i128 *by = w->exact[0], *next = w->exact[1];
    for (int32_t j = 0; j < plan->hidden; j++)
        by[j] = (i128)plan->pair_exact[(size_t)first * plan->hidden + j] - plan->pair_exact[(size_t)second * plan->hidden + j];
    i128 constant = word(plan->pair_exact_bias + 2 * first) - word(plan->pair_exact_bias + 2 * second);
    for (int32_t l = plan->layers - 1; l >= 0; l--) {
        const branch_layer *layer = plan->layer + l;
        memset(next, 0, (size_t)layer->inputs * sizeof *next);
        for (int32_t i = 0; i < layer->outputs; i++) {
            i128 g = by[i];
            if (g == 0) continue;
            switch (w->state[l][i]) {
            case AT_LOW: constant += layer->activation == BRANCH_RELU ? 0 : g * layer->exact_low; continue;
            case AT_HIGH: constant += g * layer->exact_high; continue;
            case BELOW: g *= layer->activation == BRANCH_LEAKY ? layer->exact_negative : 0; break;
            default: g *= layer->activation == BRANCH_LEAKY ? layer->exact_positive : 1; break;
            }
            constant += g * word(layer->exact_bias + 2 * i);
            const int64_t *weight = layer->exact + (size_t)i * layer->inputs;
            if (plan->closed_form == 1) {
                int64_t small = (int64_t)g;
                for (int32_t j = 0; j < layer->inputs; j++) next[j] += small * weight[j];
            } else {
                for (int32_t j = 0; j < layer->inputs; j++) next[j] += g * weight[j];
            }
        }
        i128 *swap = by;
        by = next;
        next = swap;
    }
    for (int32_t k = 0; k < plan->dims; k++) coefficient[k] = by[k];
    return constant;
}

/* Points of the box where label `first` (the lower index) beats `second`; 0 when it would take too much work. */
int branch_half_space(worker *w, const box *b, int32_t first, int32_t second, u128 *count)
{
    int32_t dims = w->plan->dims;
    int64_t width[MAX_DIMS];
    double loops = 1;
    int64_t widest = 1, wide = 1;
    for (int32_t k = 0; k < dims; k++) {
        width[k] = b->range[dims + k] - b->range[k];
        loops *= (double)width[k];
        if (width[k] > widest) wide = widest, widest = width[k];
        else if (width[k] > wide) wide = width[k];
    }
    if (loops > w->plan->loop_work * (double)wide * (double)widest) return 0;
    i128 a[MAX_DIMS];
    i128 constant = exact_map(w, first, second, a);
    for (int32_t k = 0; k < dims; k++) {
        constant += a[k] * b->range[k];
        a[k] = -a[k];
    }
    /* a x + constant >= 0 as -a x <= constant. */
    return count_below(dims, a, width, constant, w->plan->loop_work, count);
}

/* --- volumes ------------------------------------------------------------------------------------------------------ */

/* Sum over subsets S of (-1)^|S| max(0, bound - a(S))^power: power! prod(a) times the volume of {sum(a t) <= bound} in the
   unit cube. Arithmetic modulo 2^128; the result is below it. */
static u128 signed_powers(int32_t dims, const uint64_t *a, uint64_t bound, int32_t power)
{
    if (dims == 0) {
        u128 value = 1;
        for (int32_t k = 0; k < power; k++) value *= bound;
        return value;
    }
    u128 value = signed_powers(dims - 1, a, bound, power);
    if (bound > a[dims - 1]) value -= signed_powers(dims - 1, a, bound - a[dims - 1], power);
    return value;
}

/* An upper bound on the share, in units of 2^-62, of the unit cube where sum(a_k t_k) <= bound, for a_k >= 0. Coefficients are
   rounded down and the bound up to integers small enough for 128-bit arithmetic, which only enlarges the share. */
static uint64_t share_below(int32_t dims, const double *a, double bound)
{
    double kept[MAX_DIMS], all = 0;
    int32_t count = 0;
    if (isnan(bound)) return 1ULL << 62;
    for (int32_t k = 0; k < dims; k++) {
        if (!(a[k] > 0)) continue;
        all += a[k];
        int32_t at = count++;
        for (; at > 0 && kept[at - 1] < a[k]; at--) kept[at] = kept[at - 1];
        kept[at] = a[k];
    }
    if (!(bound > 0)) return bound == 0 && count == 0 ? 1ULL << 62 : bound < 0 ? 0 : 1;
    if (bound >= all) return 1ULL << 62;
    if (count > 8) count = 8; /* dropping the smallest ones rounds them down to 0 */
    double top = 0;
    for (int32_t k = 0; k < count; k++) top += kept[k];
    int bits = 124 / (count > 2 ? count : 2);
    if (bits > 60) bits = 60;
    double scale = ldexp(1, bits - 1) / top * (1 - 0x1p-40);
    uint64_t whole[8];
    uint64_t reach = 0;
    int32_t used = 0;
    for (int32_t k = 0; k < count; k++) {
        whole[used] = (uint64_t)(kept[k] * scale * (1 - 0x1p-50));
        reach += whole[used];
        if (whole[used]) used++;
    }
    double limit = ceil(bound * scale * (1 + 0x1p-50)) + 1;
    if (!(limit < (double)reach)) return 1ULL << 62;
    u128 share = signed_powers(used, whole, (uint64_t)limit, used), unit = 1;
    for (int32_t k = 0; k < used; k++) unit *= whole[k] * (uint64_t)(k + 1);
    while (unit >> 62) { /* shares up, unit down */
        share = (share >> 1) + (share & 1);
        unit >>= 1;
    }
    if (share >= unit) return 1ULL << 62;
    return (uint64_t)((share << 62) / unit) + 1;
}

uint64_t branch_volume(int32_t dims, const double *a, double bound) { return share_below(dims, a, bound); }

/* An upper bound on how many of a box's `size` points have value < threshold, where the value is at least form - error. The unit
   cubes round the points fill the box grown by one half, and on a cube the form varies by half the sum of its coefficients. */
u128 branch_failures(int32_t dims, const double *width, const double *form, double error, double threshold, u128 size)
{
    double a[MAX_DIMS], half_sum = 0, cell = 0;
    for (int32_t k = 0; k < dims; k++) {
        double by = fabs(form[k + 1]);
        a[k] = 0;
        if (width[k] < 2) continue;
        a[k] = 2 * by * (width[k] / (width[k] - 1));
        half_sum += a[k] / 2;
        cell += by / (width[k] - 1);
    }
    double bound = threshold + error - form[0] + half_sum + cell;
    bound += 0x1p-44 * (fabs(form[0]) + half_sum + cell + error + fabs(threshold)) + 0x1p-900;
    uint64_t share = share_below(dims, a, bound);
    return branch_share_of(size, share);
}

/* ceil(size * share / 2^62) at least. */
u128 branch_share_of(u128 size, uint64_t share)
{
    if (share == 0) return 0;
    if (share >> 62) return size;
    /* In halves of the size. */
    u128 upper = (size >> 62) * share, lower = (size & ((1ULL << 62) - 1)) * (u128)share;
    u128 points = upper + (lower >> 62) + 1;
    return points < size ? points : size;
}
