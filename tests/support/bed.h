/* Fixtures for tests of plans and of failing steps: a graph of its own (a bed), or a network (a
 * lab). */
#ifndef TESTS_BED_H
#define TESTS_BED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "base/philox.h"
#include "networks.h"

/* ---- Small graphs ---- */

typedef struct bed {
    ls_context *ctx;
    ls_graph *graph;
    ls_runs *runs;
} bed;

static inline void open_bed_with(bed *b, const ls_context_options *options)
{
    assert_int_equal(ls_context_open(options, &b->ctx), LS_OK);
    assert_int_equal(ls_graph_create(b->ctx, &b->graph, .seed = 4), LS_OK);
    assert_int_equal(ls_runs_of(b->graph, &b->runs), LS_OK);
}

static inline void open_bed(bed *b)
{
    open_bed_with(b, &(ls_context_options){ .threads = 2 });
}

static inline void close_bed(bed *b)
{
    ls_graph_destroy(b->graph);
    ls_context_close(b->ctx);
}

static inline float uniform(uint32_t stream, size_t i)
{
    ls_philox_key key = ls_random_key(8, LS_RANDOM_TEST, stream, 0);
    return 2 * ls_random_unit_f32(ls_random_block(key, 0, 0, (uint32_t)i).word[0]) - 1;
}

static inline float *numbers(size_t count, uint32_t stream)
{
    float *out = calloc(count + 1, sizeof(*out));
    assert_non_null(out);
    for (size_t i = 0; i < count; i++)
        out[i] = uniform(stream, i);
    return out;
}

static inline size_t shape_count(ls_shape shape)
{
    int64_t n = 0;
    assert_true(ls_shape_count(&shape, 0, &n));
    return (size_t)n;
}

static inline ls_tensor *variable(bed *b, const char *name, ls_shape shape)
{
    float *data = numbers(shape_count(shape), 100 + (uint32_t)b->graph->variable_count);
    ls_tensor *v = ls_op_variable(b->graph, name, LS_F32, shape, .data = data);
    free(data);
    return v;
}

static inline ls_tensor *sum(ls_tensor *x)
{
    return ls_op_reduce_sum(x, LS_ALL_AXES, false);
}

/* ---- Networks ---- */

typedef struct lab {
    ls_context *ctx;
    network n;
} lab;

static inline void open_lab(lab *l, network_kind kind, const ls_context_options *options)
{
    assert_int_equal(ls_context_open(options, &l->ctx), LS_OK);
    if (network_create(l->ctx, kind, &l->n) != LS_OK)
        fail_msg("%s: %s", network_name(kind), ls_last_error());
}

static inline void close_lab(lab *l)
{
    network_destroy(&l->n);
    ls_context_close(l->ctx);
}

static inline const ls_plan *step_plan(lab *l, int64_t batch)
{
    ls_executor *executor = NULL;
    if (network_executor(&l->n, batch, &executor) != LS_OK)
        fail_msg("no plan: %s", ls_last_error());
    return ls_executor_plan(executor);
}

#endif
