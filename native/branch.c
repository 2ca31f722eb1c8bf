/* The boxes still open, best first over all workers, and the totals proven so far.
 *
 * A box is bounded when it is made. What stays open waits in a heap by the number of points not yet credited; small boxes,
 * and all boxes while the heap is full, are finished depth first on the worker's own stack. Totals, heap and tree nodes
 * belong to the mutex; a worker adds what it proved and what it leaves open in one step, so that nothing is ever
 * counted twice or lost.
 */
#define _POSIX_C_SOURCE 200809L
#include "branch_types.inc"
#include <time.h>

enum { POOL_BITS = 12, NODE_BITS = 14, NODE_BLOCKS = 1 << 17, FLUSH = 256 };

typedef struct {
    double weight;
    uint32_t place;
} heap_entry;

/* A node of the recorded split tree: inner when `child` is set, else a leaf with a payload, else open. */
typedef struct {
    uint32_t child;
    int32_t split;
    int64_t value;   /* cut, or start of the payload in the worker's arena */
    int32_t length, worker;
} tree_node;

struct branch_engine {
    branch_plan plan;
    size_t stride;
    pthread_mutex_t lock;
    pthread_cond_t more;
    uint8_t **pool;
    int64_t pools, pool_room, free_count, free_room;
    uint32_t *free_place;
    heap_entry *heap;
    int64_t heaped, heap_room;
    u128 in[MAX_QUERIES], out[MAX_QUERIES];
    uint64_t stats[BRANCH_STATS];
    tree_node **nodes; /* blocks; the table never moves, because it is read without the lock */
    int64_t node_blocks;
    worker *workers;
    int32_t busy;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */
static void *aligned(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 64 + 63) / 64 * 64);
    if (memory) memset(memory, 0, (bytes + 64 + 63) / 64 * 64);
    return memory;
}

/* Makes room for `wanted` items of `size` bytes; 0 when memory is lacking. */
static int grow(void **items, int64_t *room, int64_t wanted, size_t size)
{
    if (wanted <= *room) return 1;
    int64_t bigger = *room * 2 > wanted ? *room * 2 : wanted + 64;
    void *moved = aligned_alloc(64, ((size_t)bigger * size + 63) / 64 * 64);
    if (!moved) return 0;
    if (*items) memcpy(moved, *items, (size_t)*room * size);
    free(*items);
    *items = moved;
    *room = bigger;
    return 1;
}

static box *pooled(const branch_engine *e, uint32_t place)
{
    return (box *)(e->pool[place >> POOL_BITS] + (size_t)(place & ((1u << POOL_BITS) - 1)) * e->stride);
}

static int take_place(branch_engine *e, uint32_t *place)
{
    if (e->free_count == 0) {
        if (e->pools >= 1LL << (32 - POOL_BITS)) return 0;
        if (!grow((void **)&e->pool, &e->pool_room, e->pools + 1, sizeof *e->pool)) return 0;
        if (!grow((void **)&e->free_place, &e->free_room, (e->pools + 1) << POOL_BITS, sizeof *e->free_place)) return 0;
        uint8_t *block = aligned_alloc(64, (e->stride << POOL_BITS));
        if (!block) return 0;
        e->pool[e->pools] = block;
        for (uint32_t k = 0; k < 1u << POOL_BITS; k++)
            e->free_place[e->free_count++] = (uint32_t)e->pools << POOL_BITS | ((1u << POOL_BITS) - 1 - k);
        e->pools++;
    }
    *place = e->free_place[--e->free_count];
    return 1;
}

static int heap_push(branch_engine *e, const box *b)
{
    uint32_t place;
    if (!take_place(e, &place)) return 0;
    if (!grow((void **)&e->heap, &e->heap_room, e->heaped + 1, sizeof *e->heap)) {
        e->free_place[e->free_count++] = place;
        return 0;
    }
    memcpy(pooled(e, place), b, e->stride);
    int64_t at = e->heaped++;
    for (; at > 0 && e->heap[(at - 1) / 2].weight < b->weight; at = (at - 1) / 2) e->heap[at] = e->heap[(at - 1) / 2];
    e->heap[at] = (heap_entry){b->weight, place};
    return 1;
}

static void heap_pop(branch_engine *e, box *b)
{
    uint32_t place = e->heap[0].place;
    memcpy(b, pooled(e, place), e->stride);
    e->free_place[e->free_count++] = place;
    heap_entry last = e->heap[--e->heaped];
    int64_t at = 0, child;
    while ((child = 2 * at + 1) < e->heaped) {
        if (child + 1 < e->heaped && e->heap[child + 1].weight > e->heap[child].weight) child++;
        if (e->heap[child].weight <= last.weight) break;
        e->heap[at] = e->heap[child];
        at = child;
    }
    e->heap[at] = last;
}

static box *stacked(const branch_engine *e, const worker *w, int64_t place)
{
    return (box *)((uint8_t *)w->stack + (size_t)place * e->stride);
}

static int stack_push(branch_engine *e, worker *w, const box *b)
{
    if (!grow((void **)&w->stack, &w->stack_room, w->stacked + 1, e->stride)) return 0;
    memcpy(stacked(e, w, w->stacked++), b, e->stride);
    return 1;
}

/* --- totals ------------------------------------------------------------------------------------------------------- */
static void credit(const box *b, u128 *in, u128 *out, int add)
{
    for (int s = 0; s < MAX_REDUCED_LABELS; s++) {
        u128 points = add ? b->credit[s] : -b->credit[s];
        if (points == 0) continue;
        for (uint64_t left = b->credit_true[s]; left; left &= left - 1) in[__builtin_ctzll(left)] += points;
        for (uint64_t left = b->credit_false[s]; left; left &= left - 1) out[__builtin_ctzll(left)] += points;
    }
}

static void flush(branch_engine *e, worker *w)
{
    for (int32_t q = 0; q < e->plan.queries; q++) {
        e->in[q] += w->in[q];
        e->out[q] += w->out[q];
        w->in[q] = w->out[q] = 0;
    }
    for (int s = 0; s < BRANCH_STATS; s++) {
        e->stats[s] += w->stats[s];
        w->stats[s] = 0;
    }
}

/* --- the recorded tree -------------------------------------------------------------------------------------------- */
static tree_node *tree_at(const branch_engine *e, uint32_t node)
{
    return &e->nodes[node >> NODE_BITS][node & ((1u << NODE_BITS) - 1)];
}

/* A fresh block of nodes for a worker; with the lock. */
static int take_nodes(branch_engine *e, worker *w)
{
    if (e->node_blocks >= NODE_BLOCKS) return 0;
    tree_node *block = aligned(sizeof(tree_node) << NODE_BITS);
    if (!block) return 0;
    e->nodes[e->node_blocks] = block;
    w->next_node = (uint32_t)e->node_blocks << NODE_BITS;
    w->last_node = w->next_node + (1u << NODE_BITS);
    if (w->next_node == 0) w->next_node = 2; /* node 0 is no child, node 1 the root */
    e->node_blocks++;
    return 1;
}

static int put(worker *w, const void *bytes, size_t count)
{
    if (w->arena_size + count > w->arena_room) {
        size_t room = w->arena_room * 2 + count + (1 << 16);
        uint8_t *moved = realloc(w->arena, room);
        if (!moved) return 0;
        w->arena = moved;
        w->arena_room = room;
    }
    memcpy(w->arena + w->arena_size, bytes, count);
    w->arena_size += count;
    return 1;
}

static int put_number(worker *w, u128 number)
{
    uint8_t bytes[19];
    size_t count = 0;
    do {
        bytes[count++] = (uint8_t)((number & 127) | (number >> 7 ? 128 : 0));
        number >>= 7;
    } while (number);
    return put(w, bytes, count);
}

/* The payload of a leaf; see quantify/engines/branch_record.py for the format. */
static int record_leaf(branch_engine *e, worker *w, const box *b, int verdict)
{
    const branch_plan *plan = w->plan;
    tree_node *node = tree_at(e, b->node);
    size_t start = w->arena_size;
    uint8_t kind = (uint8_t)(0x40 + verdict);
    int ok = put(w, &kind, 1);
    if (verdict != ENUMERATED) {
        for (int32_t i = 0; i < plan->labels; i++) {
            uint8_t winner = b->labels >> i & 1 ? 0xFF : (uint8_t)w->winner[i];
            ok &= put(w, &winner, 1);
        }
    }
    if (verdict == COUNTED) ok &= put_number(w, w->counted);
    if (verdict == SETTLED) {
        int32_t base = 0, last = 0, steps = 0;
        for (int pass = 0; pass < 2; pass++, base = 0) {
            if (pass) ok &= put_number(w, (u128)steps);
            for (int32_t l = 0; l < plan->layers; l++) {
                for (int32_t s = 0; s < 2 * plan->layer[l].outputs; s++) {
                    uint32_t slope = w->slope[l][s];
                    if (!(slope & 1)) continue;
                    if (!pass) {
                        steps++;
                        continue;
                    }
                    ok &= put_number(w, (u128)(base + s - last)) & put_number(w, slope >> 1);
                    last = base + s;
                }
                base += 2 * plan->layer[l].outputs;
            }
        }
    }
    node->value = (int64_t)start;
    node->length = (int32_t)(w->arena_size - start);
    node->worker = (int32_t)(w - e->workers);
    return ok;
}

/* --- work --------------------------------------------------------------------------------------------------------- */
/* Bounds a box; an open one goes to the stack or comes back for the heap. 0 when memory is lacking. */
static int handle(branch_engine *e, worker *w, box *b, int to_stack, int *for_heap)
{
    *for_heap = 0;
    int verdict = branch_settle(w, b);
    if (verdict != OPEN) return !e->plan.recording || record_leaf(e, w, b, verdict);
    credit(b, w->in, w->out, 1);
    if (to_stack || (double)box_size(b, e->plan.dims) <= e->plan.local_points) return stack_push(e, w, b);
    *for_heap = 1;
    return 1;
}

/* Takes a box apart, or bounds it when that has not been done; `full`: open parts stay with the worker. */
static int expand(branch_engine *e, worker *w, box *b, int full, int *for_heap)
{
    int32_t dims = e->plan.dims;
    memset(for_heap, 0, sizeof *for_heap * CHILDREN);
    if (b->split < 0) {
        memcpy(w->child[0], b, e->stride);
        return handle(e, w, w->child[0], full, for_heap);
    }
    credit(b, w->in, w->out, 0);
    uint32_t first = 0;
    if (e->plan.recording) {
        first = w->next_node;
        w->next_node += 2;
        tree_node *node = tree_at(e, b->node);
        node->child = first;
        node->split = b->split;
        node->value = b->cut;
    }
    int32_t parts = b->also[0] < 0 ? 2 : b->also[1] < 0 ? 4 : 8;
    for (int32_t part = 0; part < parts; part++) {
        box *c = w->child[part];
        memcpy(c, b, e->stride);
        c->range[part & 1 ? b->split : dims + b->split] = b->cut;
        for (int n = 0; n < 2 && 2 << n < parts; n++) {
            int32_t k = b->also[n];
            int64_t cut = c->range[k] + (c->range[dims + k] - c->range[k]) / 2;
            c->range[part >> (n + 1) & 1 ? k : dims + k] = cut;
        }
        c->node = first + (uint32_t)part;
        if (e->plan.recording) { /* a leaf must be proven by itself */
            c->labels = e->plan.labels < 64 ? (1ULL << e->plan.labels) - 1 : ~0ULL;
            c->open = e->plan.queries < 64 ? (1ULL << e->plan.queries) - 1 : ~0ULL;
        }
        if (!handle(e, w, c, full, for_heap + part)) return 0;
    }
    return 1;
}

/* Next box of a worker: its stack, else the heaviest of all. With the lock. */
static int next_box(branch_engine *e, worker *w, box *b)
{
    if (w->stacked) memcpy(b, stacked(e, w, --w->stacked), e->stride);
    else if (e->heaped) heap_pop(e, b);
    else return 0;
    if (!w->busy) e->busy++;
    w->busy = 1;
    return 1;
}

static void rest(branch_engine *e, worker *w)
{
    if (w->busy && w->stacked == 0) {
        w->busy = 0;
        e->busy--;
        pthread_cond_broadcast(&e->more);
    }
}

static int wait_for_work(branch_engine *e, double until)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    double left = until - now();
    if (left <= 0) return BRANCH_IDLE;
    t.tv_nsec += (long)((left < 0.02 ? left : 0.02) * 1e9);
    if (t.tv_nsec >= 1000000000L) {
        t.tv_nsec -= 1000000000L;
        t.tv_sec++;
    }
    pthread_cond_timedwait(&e->more, &e->lock, &t);
    return BRANCH_MORE;
}

static int any_of(const int *flags)
{
    int any = 0;
    for (int k = 0; k < CHILDREN; k++) any |= flags[k];
    return any;
}

int32_t branch_run(branch_engine *e, int32_t number, double seconds)
{
    worker *w = e->workers + number;
    box *b = w->taken;
    double until = now() + seconds;
    int32_t status = BRANCH_MORE;
    pthread_mutex_lock(&e->lock);
    while (status == BRANCH_MORE) {
        if (w->doubts >= DOUBT_ROOM) {
            status = BRANCH_DOUBTS;
            break;
        }
        if (e->plan.recording && w->next_node + 2 * (FLUSH + 2) >= w->last_node && !take_nodes(e, w)) {
            status = BRANCH_NO_MEMORY;
            break;
        }
        if (!next_box(e, w, b)) {
            status = e->busy == 0 ? BRANCH_DONE : wait_for_work(e, until);
            continue;
        }
        int full = e->heaped + CHILDREN > e->plan.most_waiting, for_heap[CHILDREN], ok;
        pthread_mutex_unlock(&e->lock);
        ok = expand(e, w, b, full, for_heap);
        /* What is small is finished without the lock; in memory-bound runs a deep stack must let go now and then. */
        int64_t rounds = 0;
        while (ok && w->stacked && !any_of(for_heap) && rounds++ < FLUSH && w->doubts < DOUBT_ROOM) {
            memcpy(b, stacked(e, w, --w->stacked), e->stride);
            int small = (double)box_size(b, e->plan.dims) <= e->plan.local_points;
            ok = expand(e, w, b, full || small, for_heap);
        }
        pthread_mutex_lock(&e->lock);
        for (int part = 0; part < CHILDREN; part++)
            if (for_heap[part]) ok &= heap_push(e, w->child[part]);
        flush(e, w);
        rest(e, w);
        if (e->heaped) pthread_cond_signal(&e->more);
        if (!ok) status = BRANCH_NO_MEMORY;
        else if (now() >= until) break;
    }
    if (!w->failed && status == BRANCH_NO_MEMORY) w->failed = 1;
    pthread_mutex_unlock(&e->lock);
    return w->failed ? BRANCH_NO_MEMORY : status;
}

/* --- in and out --------------------------------------------------------------------------------------------------- */
int32_t branch_add(branch_engine *e, const int64_t *low, const int64_t *high, uint64_t open, uint64_t labels)
{
    box *b = e->workers[0].child[0];
    int32_t dims = e->plan.dims;
    memset(b, 0, e->stride);
    memcpy(b->range, low, (size_t)dims * sizeof *low);
    memcpy(b->range + dims, high, (size_t)dims * sizeof *high);
    b->open = open;
    b->labels = labels;
    b->split = -1;
    b->node = 1;
    b->weight = (double)box_size(b, dims);
    pthread_mutex_lock(&e->lock);
    int ok = heap_push(e, b);
    pthread_mutex_unlock(&e->lock);
    return ok;
}

static void store(const u128 *totals, int32_t queries, uint64_t *words)
{
    for (int32_t q = 0; q < queries; q++) {
        words[2 * q] = (uint64_t)totals[q];
        words[2 * q + 1] = (uint64_t)(totals[q] >> 64);
    }
}

void branch_totals(branch_engine *e, uint64_t *in, uint64_t *out)
{
    pthread_mutex_lock(&e->lock);
    store(e->in, e->plan.queries, in);
    store(e->out, e->plan.queries, out);
    pthread_mutex_unlock(&e->lock);
}

int64_t branch_waiting(branch_engine *e)
{
    pthread_mutex_lock(&e->lock);
    int64_t waiting = e->heaped;
    for (int32_t k = 0; k < e->plan.workers; k++) waiting += e->workers[k].stacked;
    pthread_mutex_unlock(&e->lock);
    return waiting;
}

void branch_stats(branch_engine *e, uint64_t *numbers)
{
    pthread_mutex_lock(&e->lock);
    memcpy(numbers, e->stats, sizeof e->stats);
    pthread_mutex_unlock(&e->lock);
}

int64_t branch_doubts(branch_engine *e, int64_t *positions, uint64_t *open, int64_t room)
{
    int64_t taken = 0;
    for (int32_t k = 0; k < e->plan.workers; k++) {
        worker *w = e->workers + k;
        while (w->doubts && taken < room) {
            w->doubts--;
            memcpy(positions + taken * e->plan.dims, w->doubt + w->doubts * e->plan.dims,
                   (size_t)e->plan.dims * sizeof *positions);
            open[taken++] = w->doubt_open[w->doubts];
        }
    }
    return taken;
}

int64_t branch_export(branch_engine *e, int64_t *low, int64_t *high, uint64_t *open, uint64_t *labels, int64_t room,
                      uint64_t *in, uint64_t *out)
{
    u128 settled_in[MAX_QUERIES], settled_out[MAX_QUERIES];
    memcpy(settled_in, e->in, sizeof settled_in);
    memcpy(settled_out, e->out, sizeof settled_out);
    int64_t at = 0;
    size_t row = (size_t)e->plan.dims * sizeof *low;
    for (int32_t k = -1; k < e->plan.workers; k++) {
        int64_t count = k < 0 ? e->heaped : e->workers[k].stacked;
        for (int64_t place = 0; place < count && at < room; place++, at++) {
            const box *b = k < 0 ? pooled(e, e->heap[place].place) : stacked(e, e->workers + k, place);
            memcpy(low + at * e->plan.dims, b->range, row);
            memcpy(high + at * e->plan.dims, b->range + e->plan.dims, row);
            open[at] = b->open;
            labels[at] = b->labels;
            credit(b, settled_in, settled_out, 0);
        }
    }
    store(settled_in, e->plan.queries, in);
    store(settled_out, e->plan.queries, out);
    return at;
}

uint8_t *branch_record(branch_engine *e, int64_t *length)
{
    worker text = {0};
    uint32_t *stack = NULL;
    int64_t room = 0, depth = 1;
    if (!grow((void **)&stack, &room, 1, sizeof *stack)) return NULL;
    stack[0] = 1;
    int ok = e->node_blocks > 0;
    while (ok && depth) {
        const tree_node *node = tree_at(e, stack[--depth]);
        if (node->child) {
            uint8_t split = (uint8_t)node->split;
            ok = put(&text, &split, 1) && put_number(&text, (u128)node->value)
                 && grow((void **)&stack, &room, depth + 2, sizeof *stack);
            if (!ok) break;
            stack[depth++] = node->child + 1;
            stack[depth++] = node->child;
        } else if (node->length) {
            ok = put(&text, e->workers[node->worker].arena + node->value, (size_t)node->length);
        } else {
            uint8_t kind = 0x40 + OPEN;
            ok = put(&text, &kind, 1);
        }
    }
    free(stack);
    if (!ok) {
        free(text.arena);
        return NULL;
    }
    *length = (int64_t)text.arena_size;
    return text.arena;
}

void branch_record_free(uint8_t *record) { free(record); }

/* --- life --------------------------------------------------------------------------------------------------------- */
static int make_forms(forms *f, int32_t widest, int32_t slots)
{
    f->centre = aligned(sizeof(v8) * (size_t)((widest + 7) / 8) * slots);
    f->radius = aligned(sizeof(v8) * (size_t)((widest + 7) / 8) * slots);
    f->error = aligned(sizeof(double) * (size_t)widest);
    f->live = aligned(sizeof(int32_t) * (size_t)(widest + 1));
    f->wide = aligned(sizeof(int32_t) * (size_t)(widest + 1));
    return f->centre && f->radius && f->error && f->live && f->wide;
}

static int make_worker(branch_engine *e, worker *w)
{
    const branch_plan *plan = &e->plan;
    int32_t slots = plan->dims + 1;
    w->plan = plan;
    w->slots = slots <= 3 ? 3 : slots <= 4 ? 4 : slots <= 6 ? 6 : slots <= 8 ? 8 : slots <= 16 ? 16 : MAX_SLOTS;
    size_t widest = (size_t)plan->widest, pairs = (size_t)plan->labels * (plan->labels + 1);
    int ok = make_forms(&w->a, plan->widest, w->slots) && make_forms(&w->b, plan->widest, w->slots);
    w->state = aligned(sizeof *w->state * (size_t)(plan->layers + 1));
    w->slope = aligned(sizeof *w->slope * (size_t)(plan->layers + 1));
    for (int32_t l = 0; ok && w->state && w->slope && l < plan->layers; l++) {
        size_t padded = (size_t)(plan->layer[l].outputs + 7) / 8 * 8;
        w->state[l] = aligned(sizeof **w->state * padded);
        w->slope[l] = aligned(sizeof **w->slope * 2 * padded);
        ok = w->state[l] && w->slope[l];
    }
    for (int k = 0; k < 2; k++) {
        w->points[k] = aligned(sizeof(double) * widest * CHUNK);
        w->exact[k] = aligned(sizeof(i128) * widest);
        ok = ok && w->points[k] && w->exact[k];
    }
    w->row = aligned(sizeof(double) * (size_t)(plan->rows + 1) * CHUNK);
    /* A box is taken apart while there are fewer than DOUBT_ROOM, and all its parts may be enumerated. */
    size_t doubts = DOUBT_ROOM + CHILDREN * (size_t)plan->leaf_points;
    w->doubt = aligned(sizeof(int64_t) * doubts * (size_t)plan->dims);
    w->doubt_open = aligned(sizeof(uint64_t) * doubts);
    w->undecided = aligned(sizeof(margin) * pairs);
    w->row_margin = aligned(sizeof(margin) * (size_t)(plan->rows + 1));
    w->value = aligned(sizeof(u128) * 2 * (size_t)(plan->nodes + 1));
    w->reduced = aligned(sizeof *w->reduced);
    w->planes = aligned(sizeof *w->planes);
    w->frames = aligned(sizeof *w->frames * DESCENT_LEVELS);
    w->scratch = aligned(sizeof *w->scratch * 2 * MAX_FORMS * MAX_SLOTS);
    for (int k = 0; w->frames && k < DESCENT_LEVELS; k++) w->frames[k].parts.scratch = w->scratch;
    w->folded_norm = aligned(sizeof(double) * widest);
    w->folded_error = aligned(sizeof(double) * widest);
    w->folded_fresh = aligned(sizeof(double) * widest);
    w->folded_column = aligned(sizeof(int32_t) * widest);
    w->folded_next = aligned(sizeof(int32_t) * widest);
    for (int k = 0; k < 2; k++) {
        w->folded[k] = aligned(branch_reduced_row(plan->dims) * widest);
        ok = ok && w->folded[k];
    }
    ok = ok && w->reduced && w->planes && w->frames && w->scratch;
    ok = ok && w->folded_norm && w->folded_error && w->folded_fresh && w->folded_column && w->folded_next;
    w->child[0] = aligned((CHILDREN + 1) * e->stride);
    for (int k = 1; w->child[0] && k < CHILDREN; k++) w->child[k] = (box *)((uint8_t *)w->child[0] + (size_t)k * e->stride);
    w->taken = (box *)((uint8_t *)w->child[0] + CHILDREN * e->stride);
    return ok && w->state && w->slope && w->row && w->doubt && w->doubt_open && w->undecided
           && w->row_margin && w->value && w->child[0];
}

static void free_worker(worker *w)
{
    forms *both[2] = {&w->a, &w->b};
    for (int k = 0; k < 2; k++) {
        free(both[k]->centre), free(both[k]->radius), free(both[k]->error), free(both[k]->live), free(both[k]->wide);
        free(w->points[k]), free(w->exact[k]), free(w->folded[k]);
    }
    for (int32_t l = 0; w->plan && l < w->plan->layers; l++) {
        if (w->state) free(w->state[l]);
        if (w->slope) free(w->slope[l]);
    }
    free(w->state), free(w->slope), free(w->row), free(w->doubt), free(w->doubt_open), free(w->undecided);
    free(w->reduced), free(w->planes), free(w->frames), free(w->scratch);
    free(w->folded_norm), free(w->folded_error), free(w->folded_fresh), free(w->folded_column), free(w->folded_next);
    free(w->row_margin), free(w->value), free(w->child[0]), free(w->stack), free(w->arena);
}

static const branch_kernel *choose_kernel(int32_t isa)
{
    const branch_kernel *kernel = NULL;
    if (isa == 0 || isa == 3) kernel = branch_avx512();
    if (!kernel && (isa == 0 || isa == 2)) kernel = branch_avx2();
    if (!kernel && (isa == 0 || isa == 1)) kernel = branch_portable();
    return kernel;
}

branch_engine *branch_new(const branch_plan *plan)
{
    const branch_kernel *kernel = choose_kernel(plan->isa);
    branch_engine *e = kernel ? aligned(sizeof *e) : NULL;
    if (!e) return NULL;
    e->plan = *plan;
    e->stride = (sizeof(box) + 2 * sizeof(int64_t) * (size_t)plan->dims + 63) / 64 * 64;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->more, NULL);
    e->workers = aligned(sizeof(worker) * (size_t)plan->workers);
    if (plan->recording) e->nodes = aligned(sizeof *e->nodes * NODE_BLOCKS);
    int ok = e->workers != NULL && (!plan->recording || e->nodes);
    for (int32_t k = 0; ok && k < plan->workers; k++) {
        e->workers[k].kernel = kernel;
        ok = make_worker(e, e->workers + k);
    }
    if (ok) return e;
    branch_free(e);
    return NULL;
}

void branch_free(branch_engine *e)
{
    if (!e) return;
    for (int32_t k = 0; e->workers && k < e->plan.workers; k++) free_worker(e->workers + k);
    for (int64_t k = 0; k < e->pools; k++) free(e->pool[k]);
    for (int64_t k = 0; k < e->node_blocks; k++) free(e->nodes[k]);
    free(e->workers), free(e->pool), free(e->free_place), free(e->heap), free(e->nodes);
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->more);
    free(e);
}
