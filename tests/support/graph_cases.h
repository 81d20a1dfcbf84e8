/* Help for tests of graphs: data, leaves made from a short spec, runs that can be repeated,
 * comparing; and test_case, a row of a table of expressions, with builders that many rows share.
 * Linked into every test program. */
#ifndef TESTS_GRAPH_CASES_H
#define TESTS_GRAPH_CASES_H

#include "graph/attention.h"
#include "graph/recurrent.h"
#include "lockstep/device.h"
#include "lockstep/run.h"

/* ---- Data ---- */

/* n numbers in [low, high), the same for the same stream: Philox. */
void test_random(double *out, size_t n, uint32_t stream, double low, double high);

/* n numbers between -2 and 2 in random order, no two alike and none near 0: safe for kinks and
 * ties. */
void test_random_apart(double *out, size_t n, uint32_t stream);

/* Fails the running test unless |a - b| <= tolerance max(1, |b|) for every element, so NaN fails.
 * `what` names the pair. */
void test_assert_near(const char *what, const double *a, const double *b, size_t n, double tolerance);
bool test_is_near(double a, double b, double tolerance);

/* An element of any type, as a number; the type of that name. */
double test_number(const void *data, ls_dtype dtype, size_t i);
void test_put_number(void *data, ls_dtype dtype, size_t i, double value);
ls_dtype test_dtype(const char *name);

/* Fails the running test unless the call was refused with these words. */
void test_refused(const ls_tensor *result, const char *words);

/* ---- Leaves and graphs ---- */

typedef enum test_kind {
    TEST_CONSTANT,
    TEST_VARIABLE,
    TEST_FED,      /* an input; per-sample when its spec has N in front */
    TEST_GATHERED, /* the same through ls_op_gather_batch, where its spec has N in front */
} test_kind;

typedef struct test_leaf {
    test_kind kind;
    ls_tensor *tensor; /* the value that expressions use */
    ls_tensor *source; /* the value that is fed or differentiated: `tensor`, or the input of the gathered batch */
    ls_dtype dtype;
    ls_shape shape; /* every size known */
    size_t count;
    void *data; /* row-major; a test may change it between runs */
} test_leaf;

#define TEST_LEAVES 16
typedef struct test_graph {
    ls_context *ctx;
    bool shared; /* the context is the caller's */
    bool blank;  /* leaves have no numbers: the test copies them from another graph's */
    ls_dtype real;
    ls_graph *graph;
    int64_t batch;
    int count;
    test_leaf leaf[TEST_LEAVES];
} test_graph;

/* With a context of its own and reals in float64; or in the given context, with reals of that
 * type. */
void test_graph_open(test_graph *t, int64_t batch);
void test_graph_open_in(test_graph *t, ls_context *ctx, int64_t batch, ls_dtype real);
void test_graph_close(test_graph *t);

/* Adds a leaf described by a spec: what the numbers are, then sizes ("" is a scalar; N: the batch;
 * n: as many, but no batch axis). "N,7" test_random_apart; "+N,7" 0.5 to 2.5; "~N,7" 0.05 to 0.95;
 * "#N,7" multiples of 1/64; "i5:N" int64, "j5:N" int32, "u5:N" uint8, all from 0 to 4; "b:N,7"
 * bool. */
test_leaf *test_add(test_graph *t, const char *spec, test_kind kind);

/* Adds a leaf for the cotangent of y: of y's type, shape and batch axis. */
test_leaf *test_add_like(test_graph *t, const ls_tensor *y);

bool test_spec_is_real(const char *spec);
bool test_spec_has_batch(const char *spec);

/* Runs with the leaves' data as it is now. Every run has the run counter 0: random numbers stay the
 * same. */
ls_status test_run(test_graph *t, ls_tensor *const *fetches, size_t count);

/* The value a tensor holds, as doubles; free() it. */
double *test_values(ls_tensor *tensor, size_t *count);
double test_scalar(ls_tensor *tensor);

/* A copy of a fetched value; free() it. */
void *test_copy_value(ls_tensor *tensor, size_t *bytes);

/* Is there a node of this op in the graph? */
bool test_has_op(const ls_graph *graph, const char *op);

/* ---- Rows of tables ---- */

#define TEST_INPUTS 5
typedef struct test_case test_case;
typedef ls_tensor *(*test_builder)(const test_case *c, ls_tensor *const *x);

struct test_case {
    const char *op;      /* a name of ops.def: the expression has a node of it */
    const char *variant; /* special features of the row */
    const char *in[TEST_INPUTS];
    test_builder build; /* or one of the next two */
    ls_tensor *(*one)(ls_tensor *);
    ls_tensor *(*two)(ls_tensor *, ls_tensor *);
    const void *options; /* parameters of the builder: one of these three */
    int number;
    double real;
    int64_t batch; /* samples; 0: the test's own choice */

    /* For the gradient test. */
    unsigned none;    /* bit i: input i has no gradient (NULL), and moving it changes nothing */
    unsigned fixed;   /* bit i: input i is not moved */
    bool fed_only;    /* the expression needs a batch axis */
    bool many;        /* one sample is not enough */
    bool once;        /* no rule for the second derivative */
    bool mostly_zero; /* few elements have a gradient */
    double step;      /* step of the differences; 0: the test's own */

    /* For the batch-axis test. */
    bool reduces;             /* the result is whole */
    const char *refused;      /* with every N a batch axis: what the message says */
    const char *named;        /* beginning of the message, if it is not the op */
    const char *not_gathered; /* with every N a gathered batch: what the message says */
    bool never;               /* refused in any case */
    bool alone;               /* only with every N a batch axis */
    bool values_only;         /* no gradient is compared */
    test_builder whole;       /* the same computation without a batch axis, where `build` cannot be it */
};

/* Options of rows. */
typedef struct test_cut {
    ls_axes begin, end, step; /* no step: end is the size */
} test_cut;

typedef struct test_reduction {
    const char *op, *name;
    ls_tensor *(*make)(ls_tensor *, ls_axes, bool);
} test_reduction;

/* clang-format off */
#define POOL(...) &(const ls_pool2d_op){ __VA_ARGS__ }
#define CONV(...) &(const ls_conv2d_op){ __VA_ARGS__ }
#define WARP(...) &(const ls_warp_op){ __VA_ARGS__ }
#define CELL(of, gate, inner, from_the_end) &(const ls_recurrent){ .cell = LS_CELL_##of, \
    .activation = LS_GATE_##gate, .recurrent_activation = LS_GATE_##inner, .reverse = from_the_end }
#define AXES(...) &(const ls_axes)EACH(__VA_ARGS__)
#define TO(...) &(const ls_shape){ .rank = LS_COUNT_(__VA_ARGS__), .dims = { __VA_ARGS__ } }
#define EACH(...) { .count = LS_COUNT_(__VA_ARGS__), .axis = { __VA_ARGS__ } }
#define CUT(from, to) &(const test_cut){ .begin = from, .end = to }
#define CUT_BY(from, to, by) &(const test_cut){ .begin = from, .end = to, .step = by }
/* clang-format on */

ls_tensor *test_build(const test_case *c, ls_tensor *const *x);

/* The gradient of x, given y's: an expression like any other. NULL and the last error when
 * refused. */
ls_tensor *test_pull_back(ls_tensor *y, ls_tensor *x, ls_tensor *dy);

/* Builders. Each lists the parameters that it takes from the row beside its inputs. */
ls_tensor *test_matmul(const test_case *c, ls_tensor *const *x);   /* number: 1 transposes a, 2 transposes b */
ls_tensor *test_conv2d(const test_case *c, ls_tensor *const *x);   /* options: ls_conv2d_op */
ls_tensor *test_max_pool(const test_case *c, ls_tensor *const *x); /* options: ls_pool2d_op */
#define HEADS(...)                                                                                                     \
    &(const ls_attention_op)                                                                                           \
    {                                                                                                                  \
        .ls_first = 0, __VA_ARGS__                                                                                     \
    }
/* options: ls_attention_op; number: 1 splits q, k and v from the first input, 2 has a mask after
 * them, 4 drops some */
ls_tensor *test_attention(const test_case *c, ls_tensor *const *x);
ls_tensor *test_attention_grad(const test_case *c, ls_tensor *const *x);
/* An op of C functions: the first input times the second, which repeats. */
ls_tensor *test_custom(const test_case *c, ls_tensor *const *x);
ls_tensor *test_custom_grad(const test_case *c, ls_tensor *const *x); /* the output's gradient is the last input */
/* options: ls_recurrent; number: 1 has a bias, 2 a mask, after p and kernel */
ls_tensor *test_recurrent(const test_case *c, ls_tensor *const *x);
ls_tensor *test_average_pool(const test_case *c, ls_tensor *const *x); /* options: ls_pool2d_op */
ls_tensor *test_warp(const test_case *c, ls_tensor *const *x);         /* options: ls_warp_op without the matrix */
ls_tensor *test_transpose(const test_case *c, ls_tensor *const *x);    /* options: ls_axes */
ls_tensor *test_concat(const test_case *c, ls_tensor *const *x);       /* number: axis; all inputs */
ls_tensor *test_softmax(const test_case *c, ls_tensor *const *x);      /* number: axis */
ls_tensor *test_log_softmax(const test_case *c, ls_tensor *const *x);  /* number: axis */
ls_tensor *test_top_k(const test_case *c, ls_tensor *const *x);        /* number: k */
ls_tensor *test_gather(const test_case *c, ls_tensor *const *x);       /* number: axis */
ls_tensor *test_clip(const test_case *c, ls_tensor *const *x);         /* -0.7 to 0.9 */
ls_tensor *test_leaky_relu(const test_case *c, ls_tensor *const *x);   /* real: slope */
ls_tensor *test_elu(const test_case *c, ls_tensor *const *x);          /* real: alpha */
ls_tensor *test_gelu(const test_case *c, ls_tensor *const *x);         /* number: 1 the tanh form */
ls_tensor *test_select(const test_case *c, ls_tensor *const *x);
ls_tensor *test_cast(const test_case *c, ls_tensor *const *x);       /* to the other real type and back */
ls_tensor *test_huber(const test_case *c, ls_tensor *const *x);      /* real: delta */
ls_tensor *test_layer_norm(const test_case *c, ls_tensor *const *x); /* number: axes; gamma and beta if given */
ls_tensor *test_batch_norm_training(const test_case *c, ls_tensor *const *x);  /* gamma and beta if given */
ls_tensor *test_batch_norm_inference(const test_case *c, ls_tensor *const *x); /* gamma, beta, mean, variance */

ls_tensor *test_dropout(const test_case *c, ls_tensor *const *x); /* real: the rate, or input 1 is */
ls_tensor *test_one_hot(const test_case *c, ls_tensor *const *x); /* depth 3 */
ls_tensor *test_slice(const test_case *c, ls_tensor *const *x);   /* options: test_cut */
ls_tensor *test_pad(const test_case *c, ls_tensor *const *x);     /* options: test_cut, before and after; real */
ls_tensor *test_reduce(const test_case *c, ls_tensor *const *x);  /* reduces squares; options: test_reduction; number:
                                                                     the  axes  as bits, and 64 to keep them */

/* Ops of gradients. The last input is the cotangent; the other inputs and the parameters are those
 * of the builder whose gradient it is. */
ls_tensor *test_capped_relu_grad(const test_case *c, ls_tensor *const *x); /* inputs dy and x; real: limit */
ls_tensor *test_silu_grad(const test_case *c, ls_tensor *const *x);        /* inputs dy and x */
ls_tensor *test_relu_grad(const test_case *c, ls_tensor *const *x);        /* inputs dy and x; real: slope */
ls_tensor *test_slice_grad(const test_case *c, ls_tensor *const *x);
ls_tensor *test_gather_grad(const test_case *c, ls_tensor *const *x);
ls_tensor *test_conv2d_grad_input(const test_case *c, ls_tensor *const *x);
ls_tensor *test_conv2d_grad_kernel(const test_case *c, ls_tensor *const *x);
ls_tensor *test_max_pool_grad(const test_case *c, ls_tensor *const *x);
ls_tensor *test_recurrent_grad(const test_case *c, ls_tensor *const *x);
ls_tensor *test_average_pool_grad(const test_case *c, ls_tensor *const *x);
ls_tensor *test_warp_grad(const test_case *c, ls_tensor *const *x);
ls_tensor *test_batch_norm_grad(const test_case *c, ls_tensor *const *x); /* number: of which input */
ls_tensor *test_sparse_cross_entropy_grad(const test_case *c, ls_tensor *const *x);

/* number: 0 from logits, 1 from probabilities, 2 from probabilities made by softmax or sigmoid */
ls_tensor *test_sparse_cross_entropy(const test_case *c, ls_tensor *const *x);
ls_tensor *test_ctc(const test_case *c, ls_tensor *const *x); /* logits, labels */
ls_tensor *test_ctc_grad(const test_case *c, ls_tensor *const *x);
ls_tensor *test_cross_entropy(const test_case *c, ls_tensor *const *x);
ls_tensor *test_binary_cross_entropy(const test_case *c, ls_tensor *const *x);

/* Families of ops: rows to be finished. `in` has the beginning of a spec, before the sizes, that
 * the op needs. */
extern const test_case test_unary[], test_binary[];
extern const size_t test_unary_count, test_binary_count;

extern const test_reduction test_reductions[];
extern const size_t test_reduction_count;

/* ---- Suites: a test for every row, and others ---- */

extern test_case test_cases[];
extern size_t test_case_count;
void test_cases_add(const test_case *rows, size_t count);
bool test_cases_have(const test_case *rows, size_t count, const char *op);

/* Names for made rows: printf to memory that is never given back. */
char *test_text(const char *format, ...) LS_PRINTF(1, 2);

void test_suite_add(const char *name, void (*run)(void **state));
void test_suite_add_cases(void (*run)(void **state)); /* one test a row; *state is the test_case */
int test_suite_run(const char *name);
#define TEST_SUITE_ADD(test) test_suite_add(#test, test)

#endif
