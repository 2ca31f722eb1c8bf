#pragma once
#include <stdint.h>

/* Activations of a layer. */
enum { BRANCH_NONE = 0, BRANCH_RELU = 1, BRANCH_LEAKY = 2, BRANCH_SIGN = 3, BRANCH_FLOOR = 4 };

/* Kinds of predicate nodes. Truth values are pairs of label masks: labels for which the node is true, and false.
   Numbers are intervals of 128-bit integers. Operands of a node come before it. */
enum {
    BRANCH_ALWAYS = 0,  /* x: 0 or 1 */
    BRANCH_LABEL = 1,   /* x: mask of labels */
    BRANCH_WITHIN = 2,  /* a: input, x <= position < y */
    BRANCH_NOT = 3,     /* a: node */
    BRANCH_ALL = 4,     /* links a .. b-1: nodes */
    BRANCH_ANY = 5,
    BRANCH_ROW = 6,     /* a: row, b: comparison with 0 */
    BRANCH_COMPARE = 7, /* a: number node, b: comparison with 0 */
    BRANCH_LINEAR = 8,  /* links a .. b-1: pairs (input, place in constants); x: place of the constant */
    BRANCH_PLUS = 9,    /* links a .. b-1 */
    BRANCH_TIMES = 10,  /* a, b: nodes */
    BRANCH_FLOORDIV = 11, /* a: node, x: place of the divisor in constants */
    BRANCH_MIN = 12,    /* links a .. b-1 */
    BRANCH_MAX = 13,
    BRANCH_COUNT = 14   /* links a .. b-1: truth nodes that do not read the label */
};

/* Comparisons with zero. */
enum { BRANCH_LESS = 0, BRANCH_AT_MOST = 1, BRANCH_EQUAL = 2, BRANCH_UNEQUAL = 3 };

typedef struct {
    int32_t op, a, b, reads; /* reads: whether the node reads positions or scores */
    int64_t x, y;
} branch_node;

/* One hidden layer. Doubles are the integers times a power of two, rounded to nearest. */
typedef struct {
    int32_t inputs, outputs, activation, capped;
    double positive, negative;  /* leaky: slopes on the two sides */
    double low, high;           /* floor: clamp; relu: high is the cap; sign: values below and above zero */
    double zero;                /* sign: value at zero */
    double factor, slack;       /* floor: scale of the argument, and the most that flooring takes off */
    double point_error;         /* bound on |computed - true| argument at any point of the region; 0 when exact */
    const double *weights;      /* outputs x inputs */
    const double *packed;       /* blocks of 8 outputs x inputs x 8 */
    const double *bias;         /* blocks * 8 */
    const int64_t *exact;       /* outputs x inputs, or NULL without closed form */
    const int64_t *exact_bias;  /* outputs x 2 words */
    int64_t exact_positive, exact_negative, exact_low, exact_high;
} branch_layer;

/* Affine functions of the last hidden vector and the inputs, in blocks of 8. */
typedef struct {
    const double *packed;       /* blocks x hidden x 8 */
    const double *inputs;       /* blocks x dims x 8; NULL when no row reads an input */
    const double *bias;         /* blocks x 8 */
} branch_rows;

typedef struct {
    int32_t dims, layers, hidden, labels, queries, rows, nodes, widest;
    int32_t exact_points;       /* doubles at points are exact */
    int32_t whole;              /* all doubles are whole numbers, rounded where they are beyond 2^53 */
    int32_t closed_form;        /* words of the exact forms: 0 (none), 1 or 2 */
    int32_t recording;          /* keep the split tree; nothing is inherited from parents then */
    int32_t leaf_points;        /* boxes of at most so many points are enumerated */
    double reduced_work;        /* most instructions for a box whose network is reduced first */
    double descent_points;      /* boxes of at most so many points are counted by splitting their reduced networks */
    int32_t sketch_levels;      /* levels of parts by which waiting boxes are bounded; 0: by their volumes alone */
    double loop_work;           /* most floor sums for one half-space count */
    double credit_points;       /* boxes of at least so many points get volume bounds */
    double local_points;        /* boxes of at most so many points are finished at once */
    int64_t most_waiting;       /* boxes in order of weight; beyond, new ones are finished first */
    int32_t workers, isa;
    const branch_layer *layer;
    const double *score_weights; /* labels x hidden */
    const double *score_bias;
    double score_error;
    branch_rows pair;           /* for each label i, whole blocks of rows: j holds score i - score j */
    double unit;                /* scores are multiples of it */
    branch_rows row;            /* rows that predicates compare with 0 */
    const double *row_weights;  /* rows x hidden */
    const double *row_inputs;   /* rows x dims */
    const double *row_bias;     /* rows */
    const double *row_unit;     /* rows: every value is a multiple of it */
    const double *row_error;    /* rows: as point_error */
    const int64_t *pair_exact;  /* labels x hidden: exact weights of the scores, or NULL */
    const int64_t *pair_exact_bias; /* labels x 2 words */
    const branch_node *node;
    const int32_t *link;
    const int64_t *constant;    /* 2 words each */
    const int32_t *root;        /* node of each query */
    const uint64_t *static_true; /* per label: queries that hold for it; used when `label_only` */
    int32_t label_only;
} branch_plan;

enum { BRANCH_DONE = 0, BRANCH_MORE = 1, BRANCH_IDLE = 2, BRANCH_DOUBTS = 3, BRANCH_NO_MEMORY = 4 };
enum { BRANCH_STATS = 8 };

typedef struct branch_engine branch_engine;

/* NULL when memory or the instruction set (isa: 0 best, 1 portable, 2 avx2, 3 avx512) is lacking. The plan and all it points to
   must stay. */
branch_engine *branch_new(const branch_plan *plan);
void branch_free(branch_engine *engine);

/* Queues a box (low <= position < high) with the queries still open on it and the labels still possible. 0: no memory. */
int32_t branch_add(branch_engine *engine, const int64_t *low, const int64_t *high, uint64_t open, uint64_t labels);

/* Works for about `seconds`; each worker number from one thread at a time. */
int32_t branch_run(branch_engine *engine, int32_t worker, double seconds);

/* Points proven in and proven out, two words per query, low word first. */
void branch_totals(branch_engine *engine, uint64_t *in, uint64_t *out);
int64_t branch_waiting(branch_engine *engine);
void branch_stats(branch_engine *engine, uint64_t *numbers);

/* Points that doubles could not decide: positions (dims each) and the queries open on them; at most `room`, taken out. */
int64_t branch_doubts(branch_engine *engine, int64_t *positions, uint64_t *open, int64_t room);

/* With every worker at rest: all waiting boxes, and the totals without what is credited to them. Returns the number of boxes. */
int64_t branch_export(branch_engine *engine, int64_t *low, int64_t *high, uint64_t *open, uint64_t *labels, int64_t room,
                      uint64_t *in, uint64_t *out);

/* The split tree in pre-order; NULL when memory is lacking. */
uint8_t *branch_record(branch_engine *engine, int64_t *length);
void branch_record_free(uint8_t *record);

/* For tests: points of [0, width_k)^dims with sum(a_k x_k) <= bound (two words each); status 0 when too much work. */
int32_t branch_lattice(int32_t dims, const int64_t *a, const int64_t *width, const int64_t *bound, double work,
                       uint64_t *count);
/* For tests: upper bound on the share, in units of 2^-62 of the unit cube, where sum(a_k t_k) <= bound. */
uint64_t branch_volume(int32_t dims, const double *a, double bound);
