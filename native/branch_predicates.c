/* Three-valued truth of predicates on a box, for all labels at once, or on a single point. */
#include "branch_types.inc"

static i128 constant_at(const branch_plan *plan, int64_t place)
{
    return (i128)((u128)(uint64_t)plan->constant[2 * place] | (u128)(uint64_t)plan->constant[2 * place + 1] << 64);
}

static i128 floor_div(i128 value, i128 divisor)
{
    i128 quotient = value / divisor;
    return quotient * divisor > value ? quotient - 1 : quotient;
}

/* Truth of (value op 0) for a value in [low, high]. */
static void compare(int32_t op, int below, int at_most, int above, int at_least, u128 *yes, u128 *no)
{
    int zero = at_most && at_least, apart = below || above;
    *yes = *no = 0;
    switch (op) {
    case BRANCH_LESS: *yes = below, *no = at_least; break;
    case BRANCH_AT_MOST: *yes = at_most, *no = above; break;
    case BRANCH_EQUAL: *yes = zero, *no = apart; break;
    default: *yes = apart, *no = zero; break;
    }
    *yes = *yes ? ~(uint64_t)0 : 0;
    *no = *no ? ~(uint64_t)0 : 0;
}

static void junction(const branch_plan *plan, const branch_node *node, const u128 *value, u128 *yes, u128 *no)
{
    uint64_t both = ~(uint64_t)0, any = 0;
    int every = node->op == BRANCH_ALL;
    for (int32_t k = node->a; k < node->b; k++) {
        const u128 *part = value + 2 * plan->link[k];
        both &= (uint64_t)part[every ? 0 : 1];
        any |= (uint64_t)part[every ? 1 : 0];
    }
    *yes = every ? both : any;
    *no = every ? any : both;
}

static void product(i128 a, i128 b, i128 c, i128 d, i128 *low, i128 *high)
{
    i128 corner[4] = {a * c, a * d, b * c, b * d};
    *low = *high = corner[0];
    for (int i = 1; i < 4; i++) {
        if (corner[i] < *low) *low = corner[i];
        if (corner[i] > *high) *high = corner[i];
    }
}

static void number(const branch_plan *plan, const branch_node *node, const u128 *value, const int64_t *low,
                   const int64_t *high, i128 *from, i128 *to)
{
    int first = 1;
    i128 l, h;
    *from = *to = 0;
    switch (node->op) {
    case BRANCH_LINEAR:
        *from = *to = constant_at(plan, node->x);
        for (int32_t k = node->a; k < node->b; k += 2) {
            int32_t input = plan->link[k];
            i128 by = constant_at(plan, plan->link[k + 1]);
            *from += by * (by > 0 ? low[input] : high[input] - 1);
            *to += by * (by > 0 ? high[input] - 1 : low[input]);
        }
        break;
    case BRANCH_TIMES:
        product((i128)value[2 * node->a], (i128)value[2 * node->a + 1], (i128)value[2 * node->b],
                (i128)value[2 * node->b + 1], from, to);
        break;
    case BRANCH_FLOORDIV:
        *from = floor_div((i128)value[2 * node->a], constant_at(plan, node->x));
        *to = floor_div((i128)value[2 * node->a + 1], constant_at(plan, node->x));
        break;
    default:
        for (int32_t k = node->a; k < node->b; k++, first = 0) {
            const u128 *part = value + 2 * plan->link[k];
            l = (i128)part[0];
            h = (i128)part[1];
            if (node->op == BRANCH_COUNT) {
                *from += l != 0;
                *to += h == 0;
            } else if (node->op == BRANCH_PLUS) {
                *from += l;
                *to += h;
            } else {
                int least = node->op == BRANCH_MIN;
                if (first || (least ? l < *from : l > *from)) *from = l;
                if (first || (least ? h < *to : h > *to)) *to = h;
            }
        }
    }
}

/* Fills w->value: (true mask, false mask) or (low, high) per node. Rows have values in [row_low, row_high]. */
void branch_truths(worker *w, const int64_t *low, const int64_t *high, const double *row_low, const double *row_high)
{
    const branch_plan *plan = w->plan;
    for (int32_t k = 0; k < plan->nodes; k++) {
        const branch_node *node = plan->node + k;
        u128 *value = w->value + 2 * k;
        i128 from, to;
        switch (node->op) {
        case BRANCH_ALWAYS:
            value[0] = node->x ? ~(uint64_t)0 : 0;
            value[1] = node->x ? 0 : ~(uint64_t)0;
            break;
        case BRANCH_LABEL:
            value[0] = (uint64_t)node->x;
            value[1] = ~(uint64_t)node->x;
            break;
        case BRANCH_WITHIN:
            value[0] = node->x <= low[node->a] && high[node->a] <= node->y ? ~(uint64_t)0 : 0;
            value[1] = high[node->a] <= node->x || node->y <= low[node->a] ? ~(uint64_t)0 : 0;
            break;
        case BRANCH_NOT:
            value[0] = w->value[2 * node->a + 1];
            value[1] = w->value[2 * node->a];
            break;
        case BRANCH_ALL:
        case BRANCH_ANY: junction(plan, node, w->value, value, value + 1); break;
        case BRANCH_ROW: {
            double unit = plan->row_unit[node->a], l = row_low[node->a], h = row_high[node->a];
            compare(node->b, h < 0, h < unit, l > 0, l > -unit, value, value + 1);
            break;
        }
        case BRANCH_COMPARE:
            from = (i128)w->value[2 * node->a];
            to = (i128)w->value[2 * node->a + 1];
            compare(node->b, to < 0, to <= 0, from > 0, from >= 0, value, value + 1);
            break;
        default:
            number(plan, node, w->value, low, high, &from, &to);
            value[0] = (u128)from;
            value[1] = (u128)to;
        }
    }
}
