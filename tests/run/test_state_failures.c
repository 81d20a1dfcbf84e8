/* The state of a graph on devices that are not CPUs when something fails: a run at any point, room
 * that cannot be had, the run of another graph. What a variable is worth is what the last good run
 * made it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine.h"

#define LARGE   1000
#define SMALL   4
#define SAMPLES 2

/* Two variables that are made less by what is fed, together or the small one alone. */
typedef struct pair {
    ls_graph *graph;
    ls_tensor *large, *small, *both, *alone, *sum;
    ls_feed feeds[2];
    float large_fed[SAMPLES * LARGE], small_fed[SAMPLES * SMALL];
} pair;

static void pair_create(ls_context *ctx, pair *p)
{
    float large[LARGE], small[SMALL];
    for (int i = 0; i < LARGE; i++)
        large[i] = (float)i;
    for (int i = 0; i < SMALL; i++)
        small[i] = (float)-i;
    OK(ls_graph_create(ctx, &p->graph));
    OK(ls_graph_set_lanes(p->graph, SAMPLES));
    ls_tensor *a = ls_op_input(p->graph, "a", LS_F32, LS_SHAPE(LS_BATCH, LARGE));
    ls_tensor *b = ls_op_input(p->graph, "b", LS_F32, LS_SHAPE(LS_BATCH, SMALL));
    p->large = ls_op_variable(p->graph, "large", LS_F32, LS_SHAPE(LARGE), .data = large);
    p->small = ls_op_variable(p->graph, "small", LS_F32, LS_SHAPE(SMALL), .data = small);
    ls_tensor *rate = ls_op_scalar(p->graph, LS_F32, 8);
    ls_tensor *parts[] = { ls_op_apply(p->large, ls_op_reduce_sum(a, LS_AXES(0), false), LS_APPLY_SGD, rate),
                           ls_op_apply(p->small, ls_op_reduce_sum(b, LS_AXES(0), false), LS_APPLY_SGD, rate) };
    p->both = ls_op_group(parts, 2);
    p->alone = ls_op_group(parts + 1, 1);
    p->sum = ls_op_add(ls_op_reduce_sum(p->large, LS_ALL_AXES, false), ls_op_reduce_sum(p->small, LS_ALL_AXES, false));
    p->feeds[0] = (ls_feed){ a, ls_array_of(LS_F32, LS_SHAPE(SAMPLES, LARGE), p->large_fed) };
    p->feeds[1] = (ls_feed){ b, ls_array_of(LS_F32, LS_SHAPE(SAMPLES, SMALL), p->small_fed) };
}

/* Feeds this number everywhere: 16 of it go off each element. */
static ls_status pair_run(pair *p, ls_tensor *fetch, float fed)
{
    for (int i = 0; i < SAMPLES * LARGE; i++)
        p->large_fed[i] = fed;
    for (int i = 0; i < SAMPLES * SMALL; i++)
        p->small_fed[i] = fed;
    return fetch == p->both ? ls_eval(p->graph, p->feeds, 2, &fetch, 1) : ls_eval(p->graph, p->feeds + 1, 1, &fetch, 1);
}

static void pair_is(pair *p, float large_less, float small_less)
{
    float large[LARGE], small[SMALL];
    OK(ls_variable_get(p->large, large, sizeof(large)));
    OK(ls_variable_get(p->small, small, sizeof(small)));
    for (int i = 0; i < LARGE; i++)
        assert_true(large[i] == (float)i - large_less);
    for (int i = 0; i < SMALL; i++)
        assert_true(small[i] == (float)-i - small_less);
}

/* As a program on the device sees it. */
static void pair_sums_to(pair *p, float large_less, float small_less)
{
    float found, sum = LARGE * (LARGE - 1) / 2 - LARGE * large_less - SMALL * (SMALL - 1) / 2 - SMALL * small_less;
    OK(ls_eval(p->graph, NULL, 0, &p->sum, 1));
    OK(ls_read(p->sum, &found, sizeof(found)));
    assert_true(found == sum);
}

static void open_machine(machine *m, int devices, bool copies)
{
    machine_create(m, (machine_settings){ .gpu = { .devices = devices, .memory = LS_MIB(8), .copies = copies },
                                          .options = { .threads = 2 } });
}

/* The small variable's newest value is in one vector, the large one's in the other; the run that
 * reads both overwrites the vector that the small one came from, and then fails. */
static void a_run_that_fails_late_leaves_both_vectors_right(void **state)
{
    (void)state;
    for (int devices = 1; devices <= 2; devices++)
        for (int copies = 0; copies < 2; copies++) {
            machine m;
            pair p;
            open_machine(&m, devices, copies);
            pair_create(m.ctx, &p);
            OK(pair_run(&p, p.both, 1));
            OK(pair_run(&p, p.alone, 1));
            FAILS(pair_run(&p, p.both, 1e38f), LS_ERR_NOT_FINITE, "would leave", "not finite");
            pair_sums_to(&p, 16, 32);
            pair_is(&p, 16, 32);
            OK(pair_run(&p, p.both, 1));
            FAILS(pair_run(&p, p.alone, 1e38f), LS_ERR_NOT_FINITE, "would leave", "not finite");
            pair_sums_to(&p, 32, 48);
            OK(pair_run(&p, p.alone, 1));
            FAILS(pair_run(&p, p.both, 1e38f), LS_ERR_NOT_FINITE, "would leave", "not finite");
            OK(pair_run(&p, p.both, 1));
            pair_sums_to(&p, 48, 80);
            pair_is(&p, 48, 80);
            ls_graph_destroy(p.graph);
            machine_close(&m);
        }
}

/* The same run, failing at its first call of a kind, its second, ... */
static void a_run_that_fails_anywhere_leaves_both_vectors_right(void **state)
{
    (void)state;
    static const gpu_call calls[] = { GPU_UPLOAD, GPU_DOWNLOAD, GPU_COPY, GPU_JOIN, GPU_FINITE, GPU_RUN, GPU_SYNC };
    int failed = 0;
    for (size_t c = 0; c < LENGTH(calls); c++)
        for (int late = 0; late < 2; late++)
            for (int nth = 1, ended = 0; !ended; nth++) {
                machine m;
                pair p;
                open_machine(&m, 2, true);
                pair_create(m.ctx, &p);
                OK(pair_run(&p, p.both, 1));
                OK(pair_run(&p, p.alone, 1));
                (late ? gpu_fail_late : gpu_fail_next)(m.g, calls[c], nth);
                ended = pair_run(&p, p.both, 1) == LS_OK;
                gpu_fail_next(m.g, calls[c], 0);
                gpu_fail_late(m.g, calls[c], 0);
                failed += !ended;
                pair_sums_to(&p, ended ? 32 : 16, ended ? 48 : 32);
                pair_is(&p, ended ? 32 : 16, ended ? 48 : 32);
                OK(pair_run(&p, p.both, 1));
                pair_is(&p, ended ? 48 : 32, ended ? 64 : 48);
                ls_graph_destroy(p.graph);
                machine_close(&m);
            }
    assert_true(failed >= 30);
}

/* A small trained part beside a large frozen one moves from one vector to the other: after a few
 * steps nothing is copied. */
static void a_frozen_part_is_copied_once(void **state)
{
    (void)state;
    machine m;
    pair p;
    open_machine(&m, 1, true);
    pair_create(m.ctx, &p);
    ls_tensor *fetches[] = { p.alone, p.sum };
    for (int i = 0; i < SAMPLES * SMALL; i++)
        p.small_fed[i] = 1;
    for (int i = 0; i < 4; i++)
        OK(ls_eval(p.graph, p.feeds + 1, 1, fetches, 2));
    int64_t before = gpu_counted(m.g).calls[GPU_COPY];
    for (int i = 0; i < 3; i++)
        OK(ls_eval(p.graph, p.feeds + 1, 1, fetches, 2));
    assert_int_equal(gpu_counted(m.g).calls[GPU_COPY], before);
    pair_is(&p, 0, 7 * 16);
    ls_graph_destroy(p.graph);
    machine_close(&m);
}

/* A plan that needs larger vectors gives the old ones back first; when there is no memory for new
 * ones, plans that were made before take theirs again, or fail, and run when there is memory. */
static void vectors_that_cannot_grow_come_back(void **state)
{
    (void)state;
    for (int again = 0; again < 2; again++) {
        machine m;
        pair p;
        open_machine(&m, 1, true);
        OK(ls_set_memory_growth(m.ctx, "gpu:0", true));
        pair_create(m.ctx, &p);
        ls_tensor *heavy = ls_op_variable(p.graph, "heavy", LS_F32, LS_SHAPE(512, 1024));
        ls_tensor *heavier = ls_op_variable(p.graph, "heavier", LS_F32, LS_SHAPE(384, 1024));
        ls_tensor *one = ls_op_reduce_sum(heavy, LS_ALL_AXES, false);
        ls_tensor *two = ls_op_reduce_sum(heavier, LS_ALL_AXES, false);
        OK(pair_run(&p, p.both, 1));
        OK(ls_eval(p.graph, NULL, 0, &one, 1)); /* 2 vectors of 2 MiB, of 8 */
        gpu_fail_next(m.g, GPU_ALLOC, 2);
        FAILS(ls_eval(p.graph, NULL, 0, &two, 1), LS_ERR_MEMORY, GPU(0)); /* it would need 3.5 */
        gpu_fail_next(m.g, GPU_ALLOC, again);
        ls_status status = pair_run(&p, p.both, 1);
        gpu_fail_next(m.g, GPU_ALLOC, 0);
        assert_true(status == LS_OK || again);
        float less = status == LS_OK ? 32 : 16;
        pair_is(&p, less, less);
        OK(pair_run(&p, p.both, 1));
        OK(ls_eval(p.graph, NULL, 0, &one, 1));
        pair_is(&p, less + 16, less + 16);
        ls_graph_destroy(p.graph);
        machine_close(&m);
    }
}

/* The value of an update is the variable's new one, wherever it was made. */
static void a_fetched_update_is_the_new_value(void **state)
{
    (void)state;
    for (int copies = 0; copies < 2; copies++) {
        machine m;
        pair p;
        open_machine(&m, 2, copies);
        pair_create(m.ctx, &p);
        ls_tensor *b = p.feeds[1].input;
        ls_tensor *update = ls_op_apply(p.small, ls_op_reduce_sum(b, LS_AXES(0), false), LS_APPLY_SGD,
                                        ls_op_scalar(p.graph, LS_F32, 8));
        for (int step = 1; step <= 3; step++) {
            float found[SMALL];
            OK(pair_run(&p, update, 1));
            OK(ls_read(update, found, sizeof(found)));
            for (int i = 0; i < SMALL; i++)
                assert_true(found[i] == (float)-i - 16 * (float)step);
            pair_is(&p, 0, 16 * (float)step);
        }
        ls_graph_destroy(p.graph);
        machine_close(&m);
    }
}

/* Two graphs, each in a thread: a failure is reported to the run that asked for the work, and to no
 * other. */
#define ROUNDS 40
typedef struct life {
    pair p;
    int failed, wrong;
    float less;
} life;

static void *train(void *argument)
{
    life *l = argument;
    for (int i = 0; i < ROUNDS; i++) {
        float large[LARGE], small[SMALL];
        ls_status status = pair_run(&l->p, l->p.both, 1);
        l->failed += status != LS_OK;
        l->less += status == LS_OK ? 16 : 0;
        l->wrong += ls_variable_get(l->p.large, large, sizeof(large)) != LS_OK;
        l->wrong += ls_variable_get(l->p.small, small, sizeof(small)) != LS_OK;
        for (int k = 0; k < LARGE; k++)
            l->wrong += !(large[k] == (float)k - l->less);
        for (int k = 0; k < SMALL; k++)
            l->wrong += !(small[k] == (float)-k - l->less);
    }
    return NULL;
}

static void failures_of_two_graphs_are_kept_apart(void **state)
{
    (void)state;
    static const gpu_call calls[] = { GPU_UPLOAD, GPU_RUN, GPU_JOIN };
    for (size_t c = 0; c < LENGTH(calls); c++)
        for (int nth = 1; nth <= 40; nth += 4) {
            machine m;
            life lives[2] = { { .failed = 0 }, { .failed = 0 } };
            pthread_t threads[2];
            open_machine(&m, 1, true);
            for (int i = 0; i < 2; i++)
                pair_create(m.ctx, &lives[i].p);
            gpu_fail_late(m.g, calls[c], nth);
            for (int i = 0; i < 2; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, train, &lives[i]), 0);
            for (int i = 0; i < 2; i++)
                pthread_join(threads[i], NULL);
            for (int i = 0; i < 2; i++)
                assert_int_equal(lives[i].wrong, 0);
            assert_int_equal(lives[0].failed + lives[1].failed, 1);
            for (int i = 0; i < 2; i++)
                ls_graph_destroy(lives[i].p.graph);
            machine_close(&m);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_that_fails_late_leaves_both_vectors_right),
        cmocka_unit_test(a_run_that_fails_anywhere_leaves_both_vectors_right),
        cmocka_unit_test(a_frozen_part_is_copied_once),
        cmocka_unit_test(vectors_that_cannot_grow_come_back),
        cmocka_unit_test(a_fetched_update_is_the_new_value),
        cmocka_unit_test(failures_of_two_graphs_are_kept_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
