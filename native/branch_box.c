/* One box: bounds, labels ruled out, queries decided; then counted, enumerated, or given a split and a weight. */
#include "branch_types.inc"

static inline void add_points(uint64_t queries, u128 *total, u128 points)
{
    for (; queries; queries &= queries - 1) total[__builtin_ctzll(queries)] += points;
}

/* Per label, the open queries that are known to hold and known not to hold for it on this box. */
static void label_truths(worker *w, const box *b)
{
    const branch_plan *plan = w->plan;
    if (plan->label_only) {
        for (int32_t i = 0; i < plan->labels; i++) {
            w->true_for[i] = plan->static_true[i] & b->open;
            w->false_for[i] = ~plan->static_true[i] & b->open;
        }
        return;
    }
    for (int32_t i = 0; i < plan->labels; i++) {
        w->true_for[i] = w->false_for[i] = 0;
        for (uint64_t left = b->open; left; left &= left - 1) {
            int32_t q = __builtin_ctzll(left);
            const u128 *value = w->value + 2 * plan->root[q];
            w->true_for[i] |= (uint64_t)((uint64_t)value[0] >> i & 1) << q;
            w->false_for[i] |= (uint64_t)((uint64_t)value[1] >> i & 1) << q;
        }
    }
}

static inline int same(const worker *w, int32_t i, int32_t k)
{
    return w->true_for[i] == w->true_for[k] && w->false_for[i] == w->false_for[k];
}

/* The margin score[i] - score[k] (i < k): rules out one of the labels or is kept as undecided. */
static int compare_labels(worker *w, box *b, int32_t i, int32_t k, margin *m)
{
    const branch_plan *plan = w->plan;
    if (i > k) {
        int32_t swap = i;
        i = k;
        k = swap;
    }
    int32_t index = i * plan->labels + k;
    w->kernel->row(w, &plan->pair, index, b, m);
    if (m->low > -plan->pair.unit[index]) { /* at least 0: ties go to the lower label */
        b->labels &= ~(1ULL << k);
        w->winner[k] = (int8_t)i;
        return 1;
    }
    if (m->high < 0) {
        b->labels &= ~(1ULL << i);
        w->winner[i] = (int8_t)k;
        return 1;
    }
    return 0;
}

static void keep(worker *w, int32_t *kept, int32_t i, int32_t k)
{
    w->pairs[*kept] = i < k ? i * w->plan->labels + k : k * w->plan->labels + i;
    ++*kept;
}

/* Rules labels out; returns how many undecided pairs of labels with different answers are in w->margins. */
static int32_t rule_out(worker *w, box *b, int32_t *reference)
{
    const branch_plan *plan = w->plan;
    const forms *hidden = w->hidden;
    double best = -INFINITY;
    int32_t ref = 0, kept = 0;
    for (uint64_t left = b->labels; left; left &= left - 1) {
        int32_t i = __builtin_ctzll(left);
        double score = plan->score_bias[i];
        for (int32_t k = 0; k < hidden->lives; k++) {
            int32_t j = hidden->live[k];
            score += plan->score_weights[(size_t)i * plan->hidden + j] * ((const double *)(hidden->centre + (size_t)j * w->vectors))[0];
        }
        if (score > best) best = score, ref = i;
    }
    uint64_t before = b->labels;
    for (uint64_t left = before; left; left &= left - 1) {
        int32_t i = __builtin_ctzll(left);
        if (i == ref || same(w, i, ref)) continue;
        if (!compare_labels(w, b, ref, i, w->margins + kept)) keep(w, &kept, ref, i);
    }
    for (uint64_t left = b->labels & ~(1ULL << ref); left; left &= left - 1) {
        int32_t i = __builtin_ctzll(left);
        for (uint64_t others = left & (left - 1); others; others &= others - 1) {
            int32_t k = __builtin_ctzll(others);
            if (!(b->labels >> i & 1) || !(b->labels >> k & 1) || same(w, i, k)) continue;
            if (!compare_labels(w, b, i, k, w->margins + kept)) keep(w, &kept, i, k);
        }
    }
    *reference = b->labels >> ref & 1 ? ref : __builtin_ctzll(b->labels);
    return kept;
}

/* Keeps the pairs of labels that are both possible and answer open queries differently. */
static int32_t relevant(worker *w, const box *b, int32_t kept)
{
    int32_t labels = w->plan->labels, left = 0;
    for (int32_t p = 0; p < kept; p++) {
        int32_t i = w->pairs[p] / labels, k = w->pairs[p] % labels;
        if (!(b->labels >> i & 1) || !(b->labels >> k & 1) || same(w, i, k)) continue;
        if (left != p) {
            w->margins[left] = w->margins[p];
            w->pairs[left] = w->pairs[p];
        }
        left++;
    }
    return left;
}

/* Pairs with equal answers too, so that two labels may remain for a half-space. */
static void rule_out_equals(worker *w, box *b)
{
    margin *scratch = w->margins + w->plan->labels * w->plan->labels;
    for (uint64_t left = b->labels; left; left &= left - 1) {
        int32_t i = __builtin_ctzll(left);
        for (uint64_t others = left & (left - 1); others; others &= others - 1) {
            int32_t k = __builtin_ctzll(others);
            if ((b->labels >> i & 1) && (b->labels >> k & 1) && same(w, i, k)) compare_labels(w, b, i, k, scratch);
        }
    }
}

/* Queries that all remaining labels answer alike are closed with `points`. */
static void close_queries(worker *w, box *b, u128 points)
{
    uint64_t yes = b->open, no = b->open;
    for (uint64_t left = b->labels; left; left &= left - 1) {
        int32_t i = __builtin_ctzll(left);
        yes &= w->true_for[i];
        no &= w->false_for[i];
    }
    if (w->plan->recording && (yes | no) != b->open) return; /* a leaf proves all queries by itself */
    add_points(yes, w->in, points);
    add_points(no, w->out, points);
    b->open &= ~(yes | no);
}

/* --- small boxes -------------------------------------------------------------------------------------------------- */
static void doubt(worker *w, const int64_t *position, uint64_t open)
{
    memcpy(w->doubt + w->doubts * w->plan->dims, position, (size_t)w->plan->dims * sizeof *position);
    w->doubt_open[w->doubts++] = open;
}

/* One point with its label: every open query by the full predicate. */
static int settle_point(worker *w, const box *b, const int64_t *position, int32_t label, int32_t p)
{
    const branch_plan *plan = w->plan;
    int64_t end[MAX_DIMS];
    double low[plan->rows + 1], high[plan->rows + 1];
    for (int32_t k = 0; k < plan->dims; k++) end[k] = position[k] + 1;
    for (int32_t r = 0; r < plan->rows; r++) {
        double value = w->row[(size_t)r * CHUNK + p];
        if (plan->row.inputs)
            for (int32_t k = 0; k < plan->dims; k++)
                value += plan->row.inputs[(size_t)r * plan->dims + k] * (double)position[k];
        low[r] = value - plan->row.point_error[r];
        high[r] = value + plan->row.point_error[r];
    }
    branch_truths(w, position, end, low, high);
    uint64_t yes = 0, no = 0;
    for (uint64_t left = b->open; left; left &= left - 1) {
        int32_t q = __builtin_ctzll(left);
        const u128 *value = w->value + 2 * plan->root[q];
        if ((uint64_t)value[0] >> label & 1) yes |= 1ULL << q;
        else if ((uint64_t)value[1] >> label & 1) no |= 1ULL << q;
    }
    if ((yes | no) != b->open) return 0;
    add_points(yes, w->in, 1);
    add_points(no, w->out, 1);
    return 1;
}

/* The label with the largest score at point p, or -1 where the error leaves it open. */
static int32_t label_at(const worker *w, uint64_t labels, int32_t p)
{
    double best = -INFINITY;
    int32_t label = -1;
    for (uint64_t left = labels; left; left &= left - 1) {
        int32_t i = __builtin_ctzll(left);
        if (w->score[(size_t)i * CHUNK + p] > best) best = w->score[(size_t)i * CHUNK + p], label = i;
    }
    if (w->plan->exact_points) return label;
    for (uint64_t left = labels & ~(1ULL << label); left; left &= left - 1)
        if (w->score[(size_t)__builtin_ctzll(left) * CHUNK + p] >= best - 2.5 * w->plan->score_error) return -1;
    return label;
}

static void enumerate_box(worker *w, box *b)
{
    const branch_plan *plan = w->plan;
    int32_t dims = plan->dims;
    int64_t position[MAX_DIMS], found[CHUNK][MAX_DIMS];
    memcpy(position, b->range, (size_t)dims * sizeof *position);
    int by_point = !plan->label_only;
    if (by_point) { /* the predicates' positions and scores may be decided on the whole box */
        uint64_t known = b->open;
        for (uint64_t left = b->labels; left; left &= left - 1) {
            int32_t i = __builtin_ctzll(left);
            known &= w->true_for[i] | w->false_for[i];
        }
        by_point = known != b->open;
    }
    uint64_t counts[MAX_LABELS] = {0};
    int64_t left = (int64_t)box_size(b, dims);
    w->stats[4] += (uint64_t)left;
    while (left > 0) {
        int32_t count = left < CHUNK ? (int32_t)left : CHUNK;
        left -= count;
        for (int32_t p = 0; p < CHUNK; p++) {
            for (int32_t k = 0; k < dims; k++) w->points[0][(size_t)k * CHUNK + p] = (double)position[k];
            if (p >= count) continue;
            memcpy(found[p], position, sizeof position);
            for (int32_t k = dims - 1; k >= 0; k--) {
                if (++position[k] < b->range[dims + k]) break;
                position[k] = b->range[k];
            }
        }
        uint64_t doubtful = w->kernel->points(w, b->labels, by_point);
        for (int32_t p = 0; p < count; p++) {
            int32_t label = doubtful >> p & 1 ? -1 : label_at(w, b->labels, p);
            if (label >= 0 && !by_point) counts[label]++;
            else if (label < 0 || !settle_point(w, b, found[p], label, p)) doubt(w, found[p], b->open);
        }
    }
    for (int32_t i = 0; i < plan->labels; i++) {
        if (counts[i] == 0) continue;
        add_points(w->true_for[i] & b->open, w->in, counts[i]);
        add_points(w->false_for[i] & b->open, w->out, counts[i]);
    }
}

/* --- splitting ---------------------------------------------------------------------------------------------------- */
/* A bound of a range in an undecided predicate that cuts the box; the ends of ranges come before the middles of boxes. */
static int range_end(const worker *w, box *b)
{
    const branch_plan *plan = w->plan;
    for (int32_t k = 0; k < plan->nodes; k++) {
        const branch_node *node = plan->node + k;
        if (node->op != BRANCH_WITHIN || (uint64_t)w->value[2 * k] || (uint64_t)w->value[2 * k + 1]) continue;
        int64_t low = b->range[node->a], high = b->range[plan->dims + node->a];
        int64_t cut = low < node->x && node->x < high ? node->x : node->y;
        if (low < cut && cut < high) {
            b->split = node->a;
            b->cut = cut;
            return 1;
        }
    }
    return 0;
}

static void choose_split(worker *w, box *b, int32_t undecided)
{
    const branch_plan *plan = w->plan;
    int32_t dims = plan->dims;
    if (!plan->label_only && range_end(w, b)) return;
    double weight[8 * MAX_VECTORS] = {0};
    for (int32_t p = 0; p < undecided; p++) {
        const double *centre = (const double *)w->margins[p].centre, *radius = (const double *)w->margins[p].radius;
        for (int32_t k = 0; k < dims; k++) weight[k] += fabs(centre[k + 1]) + fabs(radius[k + 1]);
    }
    if (!plan->label_only) {
        for (int32_t r = 0; r < plan->rows; r++) {
            const margin *m = w->row_margin + r;
            if (m->low > 0 || m->high < 0) continue;
            const double *centre = (const double *)m->centre, *radius = (const double *)m->radius;
            for (int32_t k = 0; k < dims; k++) weight[k] += fabs(centre[k + 1]) + fabs(radius[k + 1]);
        }
        double all = 0;
        for (int32_t k = 0; k < dims; k++) all += weight[k];
        for (int32_t n = 0; n < plan->nodes; n++) {
            const branch_node *node = plan->node + n;
            if (node->op != BRANCH_LINEAR) continue;
            double span = (double)((i128)w->value[2 * n + 1] - (i128)w->value[2 * n]);
            for (int32_t k = node->a; k < node->b && span > 0; k += 2) {
                int32_t input = plan->link[k];
                const int64_t *by = plan->constant + 2 * plan->link[k + 1];
                double width = (double)(b->range[dims + input] - 1 - b->range[input]);
                double size = fabs((double)by[1] * 0x1p64 + (double)(uint64_t)by[0]);
                weight[input] += (all + 1) * size * width / span;
            }
        }
    }
    int32_t best = -1, widest = 0;
    const double *blame = (const double *)w->blame;
    for (int pass = 0; pass < 2 && best < 0; pass++)
        for (int32_t k = 0; k < dims; k++) {
            int64_t width = b->range[dims + k] - b->range[k];
            if (width > b->range[dims + widest] - b->range[widest]) widest = k;
            double value = pass ? blame[k + 1] : weight[k];
            if (width > 1 && value > 0 && (best < 0 || value > (pass ? blame[best + 1] : weight[best]))) best = k;
        }
    b->split = best < 0 ? widest : best;
    b->cut = b->range[b->split] + (b->range[dims + b->split] - b->range[b->split]) / 2;
}

/* Points of the box that the forms already give to labels, counted by volume. */
static void credit(worker *w, box *b, int32_t undecided, int32_t ref, u128 size)
{
    const branch_plan *plan = w->plan;
    int32_t others = 0, other = -1;
    for (uint64_t left = b->labels; left; left &= left - 1) {
        int32_t i = __builtin_ctzll(left);
        if (i != ref && !same(w, i, ref)) others++, other = i;
    }
    u128 lost[2] = {0, 0};
    for (int32_t p = 0; p < undecided; p++) {
        int32_t i = w->pairs[p] / plan->labels, k = w->pairs[p] % plan->labels;
        /* label i fails where the margin is below 0; k where it is 0 or more, that is above -unit. */
        double unit = plan->pair.unit[w->pairs[p]];
        if (i == ref || k == ref)
            lost[0] += branch_failures(w, b, w->margins + p, i == ref ? 1 : -1, i == ref ? 0 : unit, size);
        if (others == 1 && (i == other || k == other))
            lost[1] += branch_failures(w, b, w->margins + p, i == other ? 1 : -1, i == other ? 0 : unit, size);
    }
    u128 left = size;
    const int32_t label[2] = {ref, others == 1 ? other : -1};
    for (int s = 0; s < 2; s++) {
        if (label[s] < 0 || lost[s] >= size) continue;
        b->credit[s] = size - lost[s];
        b->credit_true[s] = w->true_for[label[s]];
        b->credit_false[s] = w->false_for[label[s]];
        left -= b->credit[s] < left ? b->credit[s] : left;
    }
    b->weight = (double)left;
}

/* Bounds the box and does what can be done at once. OPEN: split and weight are set, credits are in the box. */
int branch_settle(worker *w, box *b)
{
    const branch_plan *plan = w->plan;
    u128 size = box_size(b, plan->dims);
    w->stats[0]++;
    w->kernel->bounds(w, b);
    if (plan->recording) memset(w->winner, -1, sizeof w->winner);
    if (!plan->label_only) {
        double low[plan->rows + 1], high[plan->rows + 1];
        for (int32_t r = 0; r < plan->rows; r++) {
            w->kernel->row(w, &plan->row, r, b, w->row_margin + r);
            low[r] = w->row_margin[r].low;
            high[r] = w->row_margin[r].high;
        }
        branch_truths(w, b->range, b->range + plan->dims, low, high);
    }
    label_truths(w, b);
    int32_t ref = 0, undecided = rule_out(w, b, &ref);
    close_queries(w, b, size);
    if (b->open == 0) {
        w->stats[1]++;
        return SETTLED;
    }
    label_truths(w, b);
    undecided = relevant(w, b, undecided);
    if (size <= (u128)plan->leaf_points) {
        w->stats[2]++;
        enumerate_box(w, b);
        return ENUMERATED;
    }
    if (w->affine && plan->closed_form) {
        uint64_t known = b->open;
        for (uint64_t left = b->labels; left; left &= left - 1) {
            int32_t i = __builtin_ctzll(left);
            known &= w->true_for[i] | w->false_for[i];
        }
        if (known == b->open) {
            rule_out_equals(w, b);
            u128 count;
            if (__builtin_popcountll(b->labels) == 2) {
                int32_t i = __builtin_ctzll(b->labels), k = __builtin_ctzll(b->labels & (b->labels - 1));
                if (branch_half_space(w, b, i, k, &count)) {
                    add_points(w->true_for[i], w->in, count);
                    add_points(w->false_for[i], w->out, count);
                    add_points(w->true_for[k], w->in, size - count);
                    add_points(w->false_for[k], w->out, size - count);
                    w->stats[3]++;
                    w->counted = count;
                    return COUNTED;
                }
            }
        }
    }
    choose_split(w, b, undecided);
    b->weight = (double)size;
    b->credit[0] = b->credit[1] = 0;
    if ((double)size >= plan->credit_points) credit(w, b, undecided, ref, size);
    return OPEN;
}
