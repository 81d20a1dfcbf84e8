/* Two graphs of one context, trained by two threads at the same time on the same CPUs and GPUs:
 * each has the bits that it has alone. Also while devices fail: regardless of which thread gets the
 * error, no run that it spoilt counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "amount.h"
#include "clock.h"
#include "lockstep.h"
#include "machine.h"
#include "networks.h"

#define LANES 4

static int steps; /* 30, or a sample of them */

typedef struct trainee {
    gpu *spoilt; /* a device fails every few steps, each kind of call in turn; NULL: never */
    network n;
    network_kind kind;
    int64_t batch;
    ls_status status;
    char message[512], hex[65];
    int failed; /* steps that were made again */
} trainee;

/* One step, again and again while devices fail. */
static ls_status step(trainee *t, int i)
{
    static const gpu_call calls[] = { GPU_UPLOAD, GPU_RUN, GPU_UPLOAD, GPU_COPY, GPU_UPLOAD, GPU_JOIN, GPU_DOWNLOAD };
    if (t->spoilt && i % 3 == (int)t->kind % 3)
        gpu_fail_late(t->spoilt, calls[(size_t)i % LENGTH(calls)], 1 + i * 7 % 30);
    ls_status status = network_step(&t->n, t->batch, (uint64_t)i);
    for (int again = 0; again < 100 && status == LS_ERR_DEVICE; again++, t->failed++)
        status = network_step(&t->n, t->batch, (uint64_t)i);
    return status;
}

/* Values that are set must be copied to the devices again. */
static ls_status halve(trainee *t, int i)
{
    ls_tensor *w = t->n.trained[(size_t)i % t->n.trained_count];
    size_t bytes = w->attr.variable.variable->bytes;
    float *data = malloc(bytes);
    ls_status status = data ? ls_read(w, data, bytes) : LS_ERR_MEMORY;
    for (int again = 0; again < 100 && status == LS_ERR_DEVICE; again++)
        status = ls_read(w, data, bytes);
    for (size_t k = 0; status == LS_OK && k < bytes / sizeof(*data); k++)
        data[k] *= 0.5f;
    if (status == LS_OK)
        status = ls_variable_set(w, data, bytes);
    free(data);
    return status;
}

static void *train(void *user)
{
    trainee *t = user;
    t->status = LS_OK;
    for (int i = 0; i < steps && t->status == LS_OK; i++) {
        t->status = step(t, i);
        if (t->status == LS_OK)
            t->status = halve(t, i);
    }
    snprintf(t->message, sizeof(t->message), "%s", t->status == LS_OK ? "" : ls_last_error());
    return NULL;
}

static void make(machine *m, trainee *t, network_kind kind, int64_t batch)
{
    *t = (trainee){ .kind = kind, .batch = batch };
    OK(network_create(m->ctx, kind, &t->n));
    OK(ls_graph_set_lanes(t->n.graph, LANES));
}

static void finish(trainee *t)
{
    if (t->status != LS_OK)
        fail_msg("%s: %s: %s", network_name(t->kind), ls_status_name(t->status), t->message);
    OK(network_state(&t->n, t->hex));
    network_destroy(&t->n);
}

static const struct {
    network_kind kind;
    int64_t batch;
} jobs[] = { { NETWORK_MLP, 9 }, { NETWORK_RESIDUAL, 6 } };

static void open_machine(machine *m, bool copies, bool updates)
{
    gpu_settings gpu = { .devices = 2, .copies = copies, .delay = -1, .deny = updates ? NULL : GPU_DENY_STATE };
    machine_create(m, (machine_settings){ .gpu = gpu, .options = { .cpu_devices = 2, .threads = 2 } });
}

static void alone(char hex[2][65])
{
    for (int i = 0; i < 2; i++) {
        machine m;
        trainee t;
        open_machine(&m, true, true);
        make(&m, &t, jobs[i].kind, jobs[i].batch);
        train(&t);
        finish(&t);
        memcpy(hex[i], t.hex, sizeof(t.hex));
        machine_close(&m);
    }
}

static void together(bool copies, bool updates, bool spoilt, const char *const expected[2])
{
    machine m;
    trainee t[2];
    pthread_t threads[2];
    open_machine(&m, copies, updates);
    for (int i = 0; i < 2; i++) {
        make(&m, &t[i], jobs[i].kind, jobs[i].batch);
        t[i].spoilt = spoilt ? m.g : NULL;
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, train, &t[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int call = 0; call < GPU_CALLS; call++)
        gpu_fail_next(m.g, (gpu_call)call, 0);
    for (int i = 0; i < 2; i++) {
        finish(&t[i]);
        assert_string_equal(t[i].hex, expected[i]);
        assert_true(!spoilt || t[i].failed > 0);
    }
    machine_close(&m);
}

static void two_graphs_have_their_own_bits(void **state)
{
    (void)state;
    char hex[2][65];
    alone(hex);
    const char *const expected[] = { hex[0], hex[1] };
    for (int i = 0; i < 4; i++)
        together(i % 2, i / 2, false, expected);
}

static void a_failure_spoils_no_other_graph(void **state)
{
    (void)state;
    char hex[2][65];
    alone(hex);
    const char *const expected[] = { hex[0], hex[1] };
    for (int i = 0; i < 4; i++)
        together(i % 2, i / 2, true, expected);
}

/* test_together [STEPS]: more of them than a test has time for. */
int main(int argc, char **argv)
{
    steps = argc > 1 ? atoi(argv[1]) : test_is_sample() ? 18 : 30;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(two_graphs_have_their_own_bits, clock_start, clock_stop),
        cmocka_unit_test_setup_teardown(a_failure_spoils_no_other_graph, clock_start, clock_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
