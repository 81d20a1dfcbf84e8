#include "overflow.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "machine.h"

#define ELEMENTS  40000 /* several tiles */
#define SAMPLES   4
#define VARIABLES 2
#define STATE     (VARIABLES * 3) /* variables and slots */

typedef struct rule_case {
    ls_apply_rule rule;
    int slots;
    float bad;          /* fed gradient of one element: finite, and not what comes of it */
    const char *broken; /* name in the message */
} rule_case;

static const rule_case cases[] = {
    { LS_APPLY_SGD, 0, 1e38f, "wild" },
    { LS_APPLY_MOMENTUM, 1, 1e38f, "wild" },
    { LS_APPLY_NESTEROV, 1, 1e38f, "wild" },
    { LS_APPLY_ADAM, 2, 1e30f, "wild/slot_1" },
    { LS_APPLY_RMSPROP, 2, 1e30f, "wild/slot_0" },
    { LS_APPLY_RMSPROP_TF1, 2, 1e30f, "wild/slot_0" },
    { LS_APPLY_ADAGRAD, 1, 1e30f, "wild/slot_0" },
    { LS_APPLY_SUM, 0, 1e38f, "wild" },
    { LS_APPLY_ADADELTA, 2, 1e30f, "wild/slot_0" },
    { LS_APPLY_ADAMAX, 2, 3e38f, "wild" },
    { LS_APPLY_NADAM, 2, 1e30f, "wild/slot_1" },
    { LS_APPLY_FTRL, 2, 1e30f, "wild" }, /* Lion overflows with no gradient */
};

typedef struct job {
    ls_graph *graph;
    ls_tensor *state[STATE]; /* NULL: the rule has no such slot */
    ls_tensor *step;
    ls_feed feeds[VARIABLES];
    float *fed[VARIABLES];
} job;

static void begin(ls_context *ctx, ls_strategy strategy, const rule_case *c, job *j)
{
    static const char *names[STATE] = { "calm", "calm/slot_0", "calm/slot_1", "wild", "wild/slot_0", "wild/slot_1" };
    ls_tensor *updates[VARIABLES];
    memset(j, 0, sizeof(*j));
    OK(ls_graph_create(ctx, &j->graph));
    OK(ls_graph_set_lanes(j->graph, SAMPLES));
    OK(ls_graph_set_strategy(j->graph, strategy));
    ls_tensor *rate = ls_op_scalar(j->graph, LS_F32, 8), *one = ls_op_scalar(j->graph, LS_F32, 1);
    for (int v = 0; v < VARIABLES; v++) {
        ls_tensor **state = j->state + v * 3;
        for (int i = 0; i <= c->slots; i++)
            state[i] = ls_op_variable(j->graph, names[v * 3 + i], LS_F32, LS_SHAPE(ELEMENTS),
                                      .initializer = { .kind = LS_INIT_CONSTANT, .a = 0.5 });
        ls_tensor *x = ls_op_input(j->graph, v ? "b" : "a", LS_F32, LS_SHAPE(LS_BATCH, ELEMENTS));
        updates[v] = ls_op_apply(state[0], ls_op_reduce_sum(x, LS_AXES(0), false), c->rule, rate, .step = one,
                                 .slots = { state[1], state[2] }, .momentum = c->slots ? 0.5 : 0, .beta_1 = 0.9,
                                 .beta_2 = 0.999, .rho = 0.9, .epsilon = 1e-7);
        j->fed[v] = calloc(SAMPLES * ELEMENTS, sizeof(float));
        assert_non_null(j->fed[v]);
        j->feeds[v] = (ls_feed){ x, ls_array_of(LS_F32, LS_SHAPE(SAMPLES, ELEMENTS), j->fed[v]) };
    }
    j->step = ls_op_group(updates, VARIABLES);
}

static void end(job *j)
{
    for (int v = 0; v < VARIABLES; v++)
        free(j->fed[v]);
    ls_graph_destroy(j->graph);
}

/* bad 0: a step as any other. */
static ls_status make_step(job *j, float bad)
{
    for (int v = 0; v < VARIABLES; v++)
        for (int i = 0; i < SAMPLES * ELEMENTS; i++)
            j->fed[v][i] = (float)(i % 7 - 3) / 16;
    if (bad != 0)
        j->fed[1][SAMPLES * ELEMENTS - 1] = bad;
    return ls_eval(j->graph, j->feeds, VARIABLES, &j->step, 1);
}

static void read_state(const job *j, float *to)
{
    for (int i = 0; i < STATE; i++)
        if (j->state[i])
            OK(ls_variable_get(j->state[i], to + (size_t)i * ELEMENTS, ELEMENTS * sizeof(float)));
}

static void same_state(const job *j, const float *expected, const char *when)
{
    float *found = calloc((size_t)STATE * ELEMENTS, sizeof(*found));
    assert_non_null(found);
    read_state(j, found);
    for (int i = 0; i < STATE; i++)
        if (memcmp(found + (size_t)i * ELEMENTS, expected + (size_t)i * ELEMENTS, ELEMENTS * sizeof(float)) != 0)
            fail_msg("%s: variable %d has other values", when, i);
    free(found);
}

static void try_rule(ls_context *ctx, ls_strategy strategy, const rule_case *c)
{
    float *before = calloc((size_t)STATE * ELEMENTS, sizeof(*before));
    assert_non_null(before);
    for (int good = 0; good < 3; good++) { /* the first step knows nothing of its state, later ones do */
        job j, never;
        begin(ctx, strategy, c, &j);
        begin(ctx, strategy, c, &never);
        for (int i = 0; i < good; i++) {
            OK(make_step(&j, 0));
            OK(make_step(&never, 0));
        }
        read_state(&j, before);
        FAILS(make_step(&j, c->bad), LS_ERR_NOT_FINITE, "would leave", c->broken, "no variable was changed");
        same_state(&j, before, "after the bad step");
        FAILS(make_step(&j, c->bad), LS_ERR_NOT_FINITE, "would leave", c->broken, "no variable was changed");
        same_state(&j, before, "after the second bad step");
        for (int i = 0; i < 2; i++) {
            OK(make_step(&j, 0));
            OK(make_step(&never, 0));
        }
        read_state(&never, before);
        same_state(&j, before, "after good steps");
        end(&never);
        end(&j);
    }
    free(before);
}

void overflow_changes_nothing(ls_context *ctx, ls_strategy strategy)
{
    for (size_t i = 0; i < LENGTH(cases); i++)
        try_rule(ctx, strategy, &cases[i]);
}
