/* The promise on devices of several kinds: the same bits for equal kinds, on any number of devices
 * of each, wherever layers are placed among them, with copies made by the backend or by way of the
 * host. Compared are SHA-256 of losses and variables, and the list (node, kernel, layout,
 * micro-batch).
 *
 * For each network, batches of 1, 7 and 33 with 1, 3 and 8 lanes, SPREAD choices of devices and
 * places, taken in turn so that neighbours differ: only on GPUs (1, 2, 3, 5, physical or parts of
 * one), only on CPUs (1, 2, 3, 8), and with some layers on CPUs and some on GPUs. Then every place
 * for a few spots, GPUs that lack ops, and an empty batch. Fit on devices:
 * test_device_training.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "amount.h"
#include "lockstep.h"
#include "machine.h"
#include "networks.h"

#define STEPS 2

static const int64_t batches[] = { 1, 7, 33 };
static const int lane_counts[] = { 1, 3, 8 };
static const int gpu_numbers[] = { 1, 2, 3, 5 };
static const int cpu_numbers[] = { 1, 2, 3, 8 };
#define SPREAD (SANITIZED ? 1u : test_is_sample() ? 2u : 3u)

static int layers_of(network_kind kind)
{
    return kind == NETWORK_RESIDUAL ? 7 : 3;
}

/* ---- Places: the instance of a kind that a layer goes to ---- */

static int on_the_last(int layer, int layers, int devices)
{
    (void)layer, (void)layers;
    return devices - 1;
}

static int in_turn(int layer, int layers, int devices)
{
    (void)layers;
    return layer % devices;
}

static int pipeline(int layer, int layers, int devices)
{
    return layer * devices / layers;
}

static int backwards(int layer, int layers, int devices)
{
    return devices - 1 - layer * devices / layers;
}

static int cut_in_the_middle(int layer, int layers, int devices)
{
    return layer < layers / 2 ? 0 : devices - 1;
}

static int only_the_second(int layer, int layers, int devices)
{
    (void)layers;
    return layer == 1 ? devices - 1 : -1;
}

static int every_other(int layer, int layers, int devices)
{
    (void)layers;
    return layer % 2 ? layer / 2 % devices : -1;
}

static const struct {
    const char *name;
    int (*instance)(int layer, int layers, int devices); /* -1: nothing is said */
} places[] = {
    { "nothing said", NULL },
    { "all on the last", on_the_last },
    { "in turn", in_turn },
    { "pipeline", pipeline },
    { "backwards", backwards },
    { "cut in the middle", cut_in_the_middle },
    { "only the second", only_the_second },
    { "every other", every_other },
};

/* Which layers are for CPUs: these decide the bits. */
typedef enum mix { GPUS, CPUS, CPU_FIRST, CPU_EVEN, CPU_LAST, MIXES } mix;
static const char *const mix_names[] = { "GPUs", "CPUs", "the first on CPUs", "even ones on CPUs", "the last on CPUs" };

static bool is_for_cpu(mix m, int layer, int layers)
{
    switch (m) {
    case CPU_FIRST:
        return layer == 0;
    case CPU_EVEN:
        return layer % 2 == 0;
    case CPU_LAST:
        return layer == layers - 1;
    default:
        return m == CPUS;
    }
}

/* ---- One training ---- */

typedef struct job {
    network_kind kind;
    int64_t batch;
    int lanes;
    mix mix;
    int gpus, cpus, threads;
    bool parts; /* the GPUs are parts of one */
    bool copies, picked;
    const char *deny; /* ops that the GPUs have not; NULL: as gpu.h says */
    size_t place;
    int delay;
    char name[16]; /* a layer's device */
} job;

static const char *describe(const job *j)
{
    static char text[512];
    snprintf(text, sizeof(text), "%s on %s, batch %lld, %d lanes, %d GPUs%s, %d CPUs with %d threads, \"%s\"%s%s%s%s",
             network_name(j->kind), mix_names[j->mix], (long long)j->batch, j->lanes, j->gpus,
             j->parts ? " (parts of one)" : "", j->cpus, j->threads, places[j->place].name, j->copies ? ", copies" : "",
             j->picked ? ", picked rows" : "", j->deny ? ", without " : "", j->deny ? j->deny : "");
    return text;
}

static const char *device_of(void *user, int layer)
{
    job *j = user;
    int layers = layers_of(j->kind);
    bool cpu = is_for_cpu(j->mix, layer, layers), pure = j->mix == GPUS || j->mix == CPUS;
    int instance = places[j->place].instance ? places[j->place].instance(layer, layers, cpu ? j->cpus : j->gpus) : -1;
    if (instance < 0 && (pure || !cpu))
        return NULL;
    snprintf(j->name, sizeof(j->name), "%s:%d", cpu ? "cpu" : "gpu", instance < 0 ? 0 : instance);
    return j->name;
}

static machine_settings settings_of(const job *j)
{
    machine_settings s = { .options = { .cpu_devices = j->cpus, .threads = j->threads } };
    if (j->mix != CPUS) {
        s.gpu = (gpu_settings){ .devices = j->parts ? 1 : j->gpus, .copies = j->copies, .deny = j->deny };
        s.gpu.memory = LS_MIB(16 * (j->parts ? j->gpus : 1)); /* small ones: a GPU's new memory is written */
        s.gpu.delay = j->delay ? j->delay : -1;
        s.parts = j->parts ? j->gpus : 0;
    }
    return s;
}

typedef struct result {
    char hash[65];
    char *list;
} result;

static result run(job *j)
{
    machine m;
    network n;
    result r = { .list = NULL };
    machine_create(&m, settings_of(j));
    OK(network_create_placed(m.ctx, j->kind, &(network_places){ device_of, j }, &n));
    assert_int_equal(n.layers, layers_of(j->kind));
    n.picked = j->picked;
    OK(ls_graph_set_lanes(n.graph, j->lanes));
    ls_status status = network_train(&n, j->batch, STEPS, r.hash);
    if (status != LS_OK)
        fail_msg("%s: %s", describe(j), ls_last_error());
    OK(network_list(&n, j->batch, &r.list));
    network_destroy(&n);
    machine_close(&m);
    return r;
}

/* One device of each kind, nothing said, no copies. */
static result alone(network_kind kind, int64_t batch, int lanes, mix mix)
{
    return run(&(job){ kind, batch, lanes, mix, .gpus = 1, .cpus = 1, .threads = 1 });
}

static void must_equal(const result *expected, job *j)
{
    result r = run(j);
    if (strcmp(r.hash, expected->hash) != 0)
        fail_msg("%s: %s, one device alone: %s", describe(j), r.hash, expected->hash);
    if (strcmp(r.list, expected->list) != 0)
        fail_msg("%s: the list is\n%s\nof one device alone:\n%s", describe(j), r.list, expected->list);
    free(r.list);
}

/* Choice c of all: what can change does so at paces that have no common factor. */
static job choose(network_kind kind, int64_t batch, int lanes, mix mix, size_t c)
{
    return (job){ .kind = kind,
                  .batch = batch,
                  .lanes = lanes,
                  .mix = mix,
                  .gpus = gpu_numbers[(c + c / 4) % 4],
                  .cpus = mix == GPUS ? 1 + (int)(c % 2) : cpu_numbers[(c * 3 + c / 5) % 4],
                  .threads = 1 + (int)(c * 5 % 4),
                  .parts = c / 3 % 2 != 0,
                  .copies = c / 2 % 2 != 0,
                  .picked = c % 5 == 0,
                  .place = c % LENGTH(places),
                  .delay = c % 7 == 0 ? 50 : 0 };
}

/* ---- Any batch, lanes and devices ---- */

static void bits_are_equal_on(mix first, mix last)
{
    size_t choice = 0;
    for (mix m = first; m <= last; m++)
        for (network_kind kind = 0; kind < NETWORK_KINDS; kind++)
            for (size_t b = 0; b < LENGTH(batches); b++)
                for (size_t v = 0; v < LENGTH(lane_counts); v++) {
                    if ((test_is_sample() || m != GPUS) && (b + v + (size_t)kind + (size_t)m) % 3 != 0)
                        continue;
                    result expected = alone(kind, batches[b], lane_counts[v], m);
                    for (size_t i = 0; i < SPREAD; i++) {
                        job j = choose(kind, batches[b], lane_counts[v], m, ++choice);
                        must_equal(&expected, &j);
                    }
                    free(expected.list);
                }
}

static void bits_are_equal_on_any_gpus(void **state)
{
    (void)state;
    bits_are_equal_on(GPUS, GPUS);
}

static void bits_are_equal_on_any_cpus(void **state)
{
    (void)state;
    bits_are_equal_on(CPUS, CPUS);
}

static void bits_are_equal_on_any_of_both(void **state)
{
    (void)state;
    bits_are_equal_on(CPU_FIRST, CPU_LAST);
}

static void bits_are_equal_for_every_place(void **state)
{
    (void)state;
    static const struct {
        network_kind kind;
        int64_t batch;
        int lanes;
    } spots[] = { { NETWORK_RESIDUAL, 7, 3 }, { NETWORK_MLP, 33, 8 }, { NETWORK_CNN, 7, 8 } };
    for (size_t s = 0; s < (SANITIZED ? 1 : LENGTH(spots)); s++)
        for (mix m = 0; m <= CPUS; m++) {
            result expected = alone(spots[s].kind, spots[s].batch, spots[s].lanes, m);
            for (size_t place = 0; place < LENGTH(places); place++)
                for (size_t d = 1; d < 4; d += SANITIZED ? 2 : 1)
                    must_equal(&expected, &(job){ .kind = spots[s].kind,
                                                  .batch = spots[s].batch,
                                                  .lanes = spots[s].lanes,
                                                  .mix = m,
                                                  .gpus = gpu_numbers[d],
                                                  .cpus = m == CPUS ? cpu_numbers[d] : 1,
                                                  .threads = 2,
                                                  .copies = (place + d) % 2 != 0,
                                                  .place = place });
            free(expected.list);
        }
}

/* GPUs that have everything, and some that lack what is in the middle: then values go to the CPUs
 * and back. */
static void bits_are_equal_whatever_gpus_lack(void **state)
{
    (void)state;
    static const char *const denied[] = { "", GPU_DENY ",relu,max_pool2d_grad", GPU_DENY ",add,batch_norm,matmul",
                                          GPU_DENY ",reduce_mean,conv2d_grad_kernel,dropout" };
    for (size_t d = 0; d < LENGTH(denied); d++)
        for (network_kind kind = 0; kind < NETWORK_KINDS; kind++) {
            job one = { kind, 7, 3, GPUS, .gpus = 1, .cpus = 1, .threads = 1, .deny = denied[d] };
            result expected = run(&one);
            for (size_t c = 3; c < (SANITIZED ? 4 : 7); c++) {
                job j = choose(kind, 7, 3, GPUS, c * 5 + d);
                j.deny = denied[d];
                must_equal(&expected, &j);
            }
            free(expected.list);
        }
}

/* No samples at all: nothing is computed for them, and what is reduced over them is a sum of
 * nothing. */
static void an_empty_batch_is_one(void **state)
{
    (void)state;
    for (int gpus = 0; gpus < 3; gpus++) {
        machine m;
        network n;
        network_batch data;
        ls_array value;
        double sum = 1;
        machine_create(&m, (machine_settings){ .gpu = { .devices = gpus }, .options = { .threads = 2 } });
        OK(network_create(m.ctx, NETWORK_CNN, &n));
        OK(network_batch_make(&n, 0, 0, &data));
        ls_tensor *fetches[] = { n.logits, ls_op_reduce_sum(n.logits, LS_ALL_AXES, false) };
        OK(ls_eval(n.graph, data.feeds, data.feed_count, fetches, 2));
        OK(ls_value(n.logits, &value));
        assert_int_equal(value.shape.dims[0], 0);
        OK(ls_read_scalar(fetches[1], &sum));
        assert_true(sum == 0);
        network_batch_free(&data);
        network_destroy(&n);
        machine_close(&m);
    }
}

/* Without this, equal hashes would say little: lanes, and kinds, make other bits. */
static void the_hash_sees_lanes_and_kinds(void **state)
{
    (void)state;
    for (network_kind kind = 0; kind < NETWORK_KINDS; kind++) {
        result a = alone(kind, 33, 3, GPUS), b = alone(kind, 33, 8, GPUS), c = alone(kind, 33, 3, CPUS);
        assert_string_not_equal(a.hash, b.hash);
        assert_string_not_equal(a.list, c.list);
        free(a.list);
        free(b.list);
        free(c.list);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_equal_on_any_gpus),        cmocka_unit_test(bits_are_equal_on_any_cpus),
        cmocka_unit_test(bits_are_equal_on_any_of_both),     cmocka_unit_test(bits_are_equal_for_every_place),
        cmocka_unit_test(bits_are_equal_whatever_gpus_lack), cmocka_unit_test(an_empty_batch_is_one),
        cmocka_unit_test(the_hash_sees_lanes_and_kinds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
