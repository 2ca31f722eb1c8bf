/* One box: bounds, labels ruled out, queries decided; then counted, enumerated, or given a split and a weight. */
#include "branch_types.inc"

/* Of a recorded leaf whose points are evaluated: whoever checks it folds stable neurons where labels are all that is asked. */
enum { RECORDED_POINTS = 512, RECORDED_LABELS = 1 << 15 };

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

/* Takes what eight margins score[ref] - score[i] say about label i: rules out one of the two, or keeps the margin. */
static void compare_labels(worker *w, box *b, int32_t ref, int32_t i, int32_t *kept)
{
    const margins *m = &w->eight;
    int32_t lane = i & 7;
    double unit = w->plan->unit;
    /* Scores are multiples of the unit, and ties go to the lower label. */
    if (ref < i ? m->low[lane] > -unit : m->low[lane] > 0) {
        b->labels &= ~(1ULL << i);
        w->winner[i] = (int8_t)ref;
    } else if (ref < i ? m->high[lane] < 0 : m->high[lane] < unit) {
        b->labels &= ~(1ULL << ref);
        w->winner[ref] = (int8_t)i;
    } else {
        margin *out = w->undecided + (*kept)++;
        out->first = ref;
        out->second = i;
        out->error = m->error[lane];
        out->low = m->low[lane];
        out->high = m->high[lane];
        for (int32_t s = 0; s <= w->plan->dims; s++) {
            out->centre[s] = ((const double *)(m->centre + s))[lane];
            out->radius[s] = ((const double *)(m->radius + s))[lane];
        }
    }
}

/* Compares `ref` with the labels of `others` that answer differently (or alike, with `alike`). */
static void compare_with(worker *w, box *b, int32_t ref, uint64_t others, int alike, int32_t *kept)
{
    int32_t blocks = (w->plan->labels + 7) / 8;
    for (int32_t block = 0; block < blocks; block++) {
        uint64_t wanted = 0;
        for (uint64_t left = others >> (8 * block) & 0xFF; left; left &= left - 1) {
            int32_t i = 8 * block + __builtin_ctzll(left);
            if (i != ref && same(w, i, ref) == alike) wanted |= 1ULL << i;
        }
        if (!wanted) continue;
        w->kernel->rows(w, &w->plan->pair, ref * blocks + block, (uint32_t)(wanted >> (8 * block)), b, &w->eight);
        for (; wanted; wanted &= wanted - 1) compare_labels(w, b, ref, __builtin_ctzll(wanted), kept);
    }
}

static int32_t best_at_centre(const worker *w, uint64_t labels)
{
    const branch_plan *plan = w->plan;
    const forms *hidden = w->hidden;
    double best = -INFINITY;
    int32_t found = __builtin_ctzll(labels);
    for (; labels; labels &= labels - 1) {
        int32_t i = __builtin_ctzll(labels);
        double score = plan->score_bias[i];
        for (int32_t k = 0; k < hidden->lives; k++) {
            int32_t j = hidden->live[k];
            const double *centre = (const double *)(hidden->centre + (size_t)(j >> 3) * w->slots);
            score += plan->score_weights[(size_t)i * plan->hidden + j] * centre[j & 7];
        }
        if (score > best) best = score, found = i;
    }
    return found;
}

/* Rules labels out; returns how many margins are kept in w->undecided. Afterwards every pair of possible labels that answer an
   open query differently is among them. */
static int32_t rule_out(worker *w, box *b, int32_t *reference)
{
    int32_t kept = 0, ref = best_at_centre(w, b->labels);
    compare_with(w, b, ref, b->labels, 0, &kept);
    for (uint64_t left = b->labels & ~(1ULL << ref); left & (left - 1); left &= left - 1) {
        int32_t i = __builtin_ctzll(left);
        if (b->labels >> i & 1) compare_with(w, b, i, left & (left - 1) & b->labels, 0, &kept);
    }
    *reference = b->labels >> ref & 1 ? ref : __builtin_ctzll(b->labels);
    return kept;
}

/* Keeps the margins of labels that are both possible and answer open queries differently. */
static int32_t relevant(worker *w, const box *b, int32_t kept)
{
    int32_t left = 0;
    for (int32_t p = 0; p < kept; p++) {
        const margin *m = w->undecided + p;
        if (!(b->labels >> m->first & 1) || !(b->labels >> m->second & 1) || same(w, m->first, m->second)) continue;
        if (left != p) w->undecided[left] = *m;
        left++;
    }
    return left;
}

/* Pairs with equal answers too, so that two labels may remain for a half-space. */
static void rule_out_equals(worker *w, box *b, int32_t kept)
{
    for (uint64_t left = b->labels; left & (left - 1); left &= left - 1) {
        int32_t i = __builtin_ctzll(left), scratch = kept;
        if (b->labels >> i & 1) compare_with(w, b, i, left & (left - 1) & b->labels, 1, &scratch);
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
        for (int32_t k = 0; k < plan->dims; k++)
            value += plan->row_inputs[(size_t)r * plan->dims + k] * (double)position[k];
        low[r] = value - plan->row_error[r];
        high[r] = value + plan->row_error[r];
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

/* Lays out up to CHUNK points from number `start` on: input k has the digit (number / stride) mod width. */
static void lay_out(worker *w, const box *b, int64_t start)
{
    int32_t dims = w->plan->dims;
    int64_t stride = 1;
    for (int32_t k = dims - 1; k >= 0; k--) {
        int64_t width = b->range[dims + k] - b->range[k], run = stride - start % stride, digit = start / stride % width;
        double *into = w->points[0] + (size_t)k * CHUNK;
        for (int32_t p = 0; p < CHUNK;) {
            double value = (double)(b->range[k] + digit);
            int32_t end = run < CHUNK - p ? p + (int32_t)run : CHUNK;
            for (; p < end; p++) into[p] = value;
            run = stride;
            digit = digit + 1 < width ? digit + 1 : 0;
        }
        stride *= width;
    }
}

static void position_of(const worker *w, const box *b, int64_t number, int64_t *position)
{
    int32_t dims = w->plan->dims;
    for (int32_t k = dims - 1; k >= 0; k--) {
        int64_t width = b->range[dims + k] - b->range[k];
        position[k] = b->range[k] + number % width;
        number /= width;
    }
}

/* Whether the label answers every open query on this box. */
static int labels_decide(const worker *w, const box *b)
{
    uint64_t known = b->open;
    for (uint64_t left = b->labels; left; left &= left - 1) {
        int32_t i = __builtin_ctzll(left);
        known &= w->true_for[i] | w->false_for[i];
    }
    return known == b->open;
}

static void add_labels(worker *w, const box *b, int32_t label, u128 points)
{
    add_points(w->true_for[label] & b->open, w->in, points);
    add_points(w->false_for[label] & b->open, w->out, points);
}

/* Counts a box by what is left of the network, when that is little. */
static int count_reduced(worker *w, box *b, u128 size)
{
    const branch_plan *plan = w->plan;
    uint64_t counts[MAX_REDUCED_LABELS] = {0};
    int32_t labels = __builtin_popcountll(b->labels), unstable = branch_unstable(w);
    /* A form takes three instructions for four points at least. */
    if (labels > MAX_REDUCED_LABELS || unstable > MAX_RELUS) return 0;
    if ((double)size * (3 * unstable + 6 * labels) > 4 * plan->reduced_work) return 0;
    if (plan->recording && size > (u128)(plan->label_only ? RECORDED_LABELS : RECORDED_POINTS)) return 0;
    if (!branch_reduce(w, b, w->reduced)) return 0;
    if (branch_reduced_work(w->reduced) * (double)size > 4 * plan->reduced_work) return 0;
    int64_t width[MAX_DIMS];
    for (int32_t k = 0; k < plan->dims; k++) width[k] = b->range[plan->dims + k] - b->range[k];
    if (!w->kernel->points_of_reduced(w, width, w->reduced, counts)) return 0;
    for (int32_t m = 0; m < w->reduced->labels; m++) add_labels(w, b, w->reduced->label[m], counts[m]);
    w->stats[2]++;
    w->stats[4] += (uint64_t)size;
    return 1;
}

static int is_reducible(const worker *w, const box *b)
{
    return __builtin_popcountll(b->labels) <= MAX_REDUCED_LABELS && branch_unstable(w) <= MAX_RELUS;
}

/* Counts a box by splitting it further with what is left of the network. */
static int count_descended(worker *w, box *b, u128 size)
{
    const branch_plan *plan = w->plan;
    u128 counts[MAX_LABELS] = {0};
    if (plan->recording || (double)size > plan->descent_points) return 0;
    if (!is_reducible(w, b) || !branch_reduce(w, b, w->reduced) || !w->kernel->descend(w, b, counts)) return 0;
    for (uint64_t left = b->labels; left; left &= left - 1) {
        int32_t i = __builtin_ctzll(left);
        if (counts[i]) add_labels(w, b, i, counts[i]);
    }
    w->stats[2]++;
    w->stats[4] += (uint64_t)size;
    return 1;
}

static void enumerate_box(worker *w, box *b)
{
    const branch_plan *plan = w->plan;
    int by_point = !labels_decide(w, b);
    uint64_t counts[MAX_LABELS] = {0};
    int64_t size = (int64_t)box_size(b, plan->dims), position[MAX_DIMS];
    w->stats[4] += (uint64_t)size;
    for (int64_t start = 0; start < size; start += CHUNK) {
        int32_t count = size - start < CHUNK ? (int32_t)(size - start) : CHUNK;
        lay_out(w, b, start);
        uint64_t doubtful = w->kernel->points(w, b->labels, by_point);
        if (!by_point && !doubtful) {
            for (int32_t p = 0; p < count; p++) counts[w->winning[p]]++;
            continue;
        }
        for (int32_t p = 0; p < count; p++) {
            int unsure = doubtful >> p & 1;
            if (!unsure && !by_point) {
                counts[w->winning[p]]++;
                continue;
            }
            position_of(w, b, start + p, position);
            if (unsure || !settle_point(w, b, position, (int32_t)w->winning[p], p)) doubt(w, position, b->open);
        }
    }
    for (int32_t i = 0; i < plan->labels; i++)
        if (counts[i]) add_labels(w, b, i, counts[i]);
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
    b->also[0] = b->also[1] = -1;
    if (!plan->label_only && range_end(w, b)) return;
    double weight[MAX_SLOTS] = {0};
    for (int32_t p = 0; p < undecided; p++) {
        const double *centre = w->undecided[p].centre, *radius = w->undecided[p].radius;
        for (int32_t k = 0; k < dims; k++) weight[k] += fabs(centre[k + 1]) + fabs(radius[k + 1]);
    }
    if (!plan->label_only) {
        for (int32_t r = 0; r < plan->rows; r++) {
            const margin *m = w->row_margin + r;
            if (m->low > 0 || m->high < 0) continue;
            for (int32_t k = 0; k < dims; k++) weight[k] += fabs(m->centre[k + 1]) + fabs(m->radius[k + 1]);
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
    double blame[MAX_SLOTS];
    for (int32_t s = 0; s < w->slots; s++) {
        blame[s] = 0;
        for (int i = 0; i < 8; i++) blame[s] += ((const double *)(w->blame + s))[i];
    }
    for (int pass = 0; pass < 2 && best < 0; pass++)
        for (int32_t k = 0; k < dims; k++) {
            int64_t width = b->range[dims + k] - b->range[k];
            if (width > b->range[dims + widest] - b->range[widest]) widest = k;
            double value = pass ? blame[k + 1] : weight[k];
            if (width > 1 && value > 0 && (best < 0 || value > (pass ? blame[best + 1] : weight[best]))) best = k;
        }
    b->split = best < 0 ? widest : best;
    if (best >= 0 && weight[best] > 0 && !plan->recording) {
        /* The halves are mostly taken apart along the next inputs; large ones at once. */
        double size = (double)box_size(b, dims);
        for (int n = 0; n < 2 && size >= plan->credit_points * CHILDREN; n++) {
            weight[n ? b->also[n - 1] : b->split] *= 0.5;
            int32_t next = 0;
            for (int32_t k = 1; k < dims; k++)
                if (weight[k] > weight[next]) next = k;
            if (b->range[dims + next] - b->range[next] < 2 * CHILDREN) break;
            b->also[n] = (int16_t)next;
        }
    }
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
    double width[MAX_DIMS], form[MAX_SLOTS];
    for (int32_t k = 0; k < plan->dims; k++) width[k] = (double)(b->range[plan->dims + k] - b->range[k]);
    for (int32_t p = 0; p < undecided; p++) {
        const margin *m = w->undecided + p;
        /* The lower label of a pair fails where its margin is below 0, the other one where its margin is below the unit. */
        for (int side = 0; side < 2; side++) {
            int32_t label = side ? m->second : m->first, against = side ? m->first : m->second;
            int slot = label == ref ? 0 : others == 1 && label == other ? 1 : -1;
            if (slot < 0) continue;
            for (int32_t k = 0; k <= plan->dims; k++) form[k] = (side ? -m->centre[k] : m->centre[k]) - m->radius[k];
            lost[slot] += branch_failures(plan->dims, width, form, m->error, label < against ? 0 : plan->unit, size);
        }
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

/* Points of the box that parts of it give to labels. */
static int sketch(worker *w, box *b, u128 size)
{
    const branch_plan *plan = w->plan;
    u128 counts[MAX_LABELS] = {0}, left = size;
    if (plan->recording || plan->sketch_levels < 1 || !is_reducible(w, b) || !branch_reduce(w, b, w->reduced)) return 0;
    w->kernel->sketch(w, b, plan->sketch_levels, counts);
    int s = 0;
    for (uint64_t labels = b->labels; labels; labels &= labels - 1) {
        int32_t i = __builtin_ctzll(labels);
        if (counts[i] == 0) continue;
        b->credit[s] = counts[i];
        b->credit_true[s] = w->true_for[i];
        b->credit_false[s++] = w->false_for[i];
        left -= counts[i];
    }
    b->weight = (double)left;
    return 1;
}

static void row_margin(worker *w, int32_t row)
{
    margin *out = w->row_margin + row;
    const margins *m = &w->eight;
    out->error = m->error[row & 7];
    out->low = m->low[row & 7];
    out->high = m->high[row & 7];
    for (int32_t s = 0; s <= w->plan->dims; s++) {
        out->centre[s] = ((const double *)(m->centre + s))[row & 7];
        out->radius[s] = ((const double *)(m->radius + s))[row & 7];
    }
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
            if ((r & 7) == 0) w->kernel->rows(w, &plan->row, r / 8, 0xFF, b, &w->eight);
            row_margin(w, r);
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
    int known = labels_decide(w, b);
    if (known && (count_descended(w, b, size) || count_reduced(w, b, size))) return ENUMERATED;
    if (size <= (u128)plan->leaf_points) {
        w->stats[2]++;
        enumerate_box(w, b);
        return ENUMERATED;
    }
    if (w->affine && plan->closed_form) {
        if (known) {
            rule_out_equals(w, b, undecided);
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
    memset(b->credit, 0, sizeof b->credit);
    if ((double)size >= plan->credit_points && !(known && sketch(w, b, size))) credit(w, b, undecided, ref, size);
    return OPEN;
}
