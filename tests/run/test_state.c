/* State has owners: variables and slots stay on the devices that train with them, and of gradients
 * only complete subtrees of the tree travel. ls_list_copies is asked what moved, the test GPU how
 * much. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "amount.h"
#include "lockstep.h"
#include "machine.h"
#include "networks.h"

#define BATCH 32
/* A GPU that has casts: without them the gradients of batch norm's scales end on the host, and so
 * do the scales. */
#define DENY "assign,assign_add,group,gather_batch,scatter_batch"

typedef struct bed {
    machine m;
    network n;
    int gpus, lanes;
} bed;

static void open_bed(bed *b, network_kind kind, int gpus, int lanes, bool copies)
{
    *b = (bed){ .gpus = gpus, .lanes = lanes };
    machine_create(&b->m,
                   (machine_settings){ .gpu = { .devices = gpus, .copies = copies, .delay = -1, .deny = DENY } });
    OK(network_create(b->m.ctx, kind, &b->n));
    OK(ls_graph_set_lanes(b->n.graph, lanes));
}

static void close_bed(bed *b)
{
    network_destroy(&b->n);
    machine_close(&b->m);
}

/* ---- What moved ---- */

static size_t listed(const bed *b, bool (*counts)(const bed *, const ls_copy_info *))
{
    ls_copy_info *list;
    size_t count, bytes = 0;
    OK(ls_list_copies(b->m.ctx, &list, &count));
    for (size_t i = 0; i < count; i++)
        bytes += counts(b, &list[i]) ? list[i].bytes : 0;
    free(list);
    return bytes;
}

/* Devices: the CPU is 0. Moments of batch norm, losses and scalars are small, and counted apart: by
 * their shape. */
static bool is_weight(const bed *b, const char *tensor)
{
    for (size_t i = 0; i < b->n.graph->variable_count; i++) {
        char label[LS_NODE_TEXT];
        if (strcmp(ls_node_label(b->n.graph->variables[i]->node, label), tensor) == 0)
            return b->n.graph->variables[i]->trainable;
    }
    for (size_t i = 0; i < b->n.trained_count; i++) {
        char label[LS_NODE_TEXT];
        if (strcmp(ls_node_label(b->n.gradients[i], label), tensor) == 0)
            return true;
    }
    return false;
}

static bool between_gpus(const bed *b, const ls_copy_info *c)
{
    return c->from > 0 && c->to > 0 && is_weight(b, c->tensor);
}

static bool with_the_host(const bed *b, const ls_copy_info *c)
{
    return (c->from == 0 || c->to == 0) && is_weight(b, c->tensor);
}

static bool everything(const bed *b, const ls_copy_info *c)
{
    (void)b, (void)c;
    return true;
}

static size_t parameters(const bed *b)
{
    size_t bytes = 0;
    for (size_t i = 0; i < b->n.trained_count; i++)
        bytes += b->n.trained[i]->attr.variable.variable->bytes;
    return bytes;
}

/* The maximal complete subtrees of all devices' ranges together. */
static size_t subtrees(bed *b)
{
    ls_executor *executor = NULL;
    size_t count = 0;
    OK(network_executor(&b->n, BATCH, &executor));
    const ls_plan *plan = ls_executor_plan(executor);
    int segment = 0; /* one that reduces, on GPUs: lanes are shared in the same way in all of them */
    while (plan->segments[segment].slot_bytes == 0 || plan->segments[segment].kind == LS_CPU)
        segment++;
    for (int d = 1; d <= b->gpus; d++)
        count += (size_t)ls_placement_blocks(ls_executor_placement(executor), segment, d);
    return count;
}

/* ---- Tests ---- */

static void only_complete_subtrees_travel(void **state)
{
    (void)state;
    static const int lane_counts[] = { 4, 8, 13, 32 };
    for (network_kind kind = 0; kind < NETWORK_KINDS; kind++)
        for (int gpus = 1; gpus <= (SANITIZED ? 3 : 5); gpus += test_is_sample() ? 2 : 1)
            for (size_t v = 0; v < LENGTH(lane_counts); v++) {
                bed b;
                open_bed(&b, kind, gpus, lane_counts[v], true);
                for (uint64_t step = 0; step < 3; step++)
                    OK(network_step(&b.n, BATCH, step));
                size_t before = listed(&b, between_gpus), host = listed(&b, with_the_host);
                OK(network_step(&b.n, BATCH, 3));
                size_t bytes = listed(&b, between_gpus) - before, devices = (size_t)gpus;
                size_t most = (devices - 1) * (subtrees(&b) + devices) * parameters(&b) / devices;
                if (bytes > most || (gpus > 1 && bytes == 0))
                    fail_msg("%s on %d GPUs, %d lanes: %zu bytes of weights and gradients, at most %zu",
                             network_name(kind), gpus, lane_counts[v], bytes, most);
                assert_int_equal(listed(&b, with_the_host), host); /* neither a weight nor a gradient */
                close_bed(&b);
            }
}

/* An evaluation after a step finds the weights where they are; so does another batch size. */
static void an_evaluation_uploads_no_weights(void **state)
{
    (void)state;
    for (int gpus = 1; gpus <= 2; gpus++) {
        bed b;
        network_batch data;
        open_bed(&b, NETWORK_CNN, gpus, 4, true);
        for (uint64_t step = 0; step < 2; step++)
            OK(network_step(&b.n, BATCH, step));
        OK(network_batch_make(&b.n, 7, 9, &data));
        size_t before = listed(&b, with_the_host) + listed(&b, between_gpus);
        gpu_counts uploads = gpu_counted(b.m.g);
        OK(ls_eval(b.n.graph, data.feeds, data.feed_count, &b.n.loss, 1));
        assert_int_equal(listed(&b, with_the_host) + listed(&b, between_gpus), before);
        size_t fed = (size_t)(7 * (b.n.size * b.n.size * b.n.channels + 1));
        assert_true(gpu_counted(b.m.g).bytes[GPU_UPLOAD] - uploads.bytes[GPU_UPLOAD] <= fed + 4096); /* and scalars */
        network_batch_free(&data);
        close_bed(&b);
    }
}

/* Variables come to the host on request, and only the requested ones. */
static void the_host_gets_what_it_asks_for(void **state)
{
    (void)state;
    bed b;
    open_bed(&b, NETWORK_MLP, 2, 4, true);
    OK(network_step(&b.n, BATCH, 0));
    OK(network_step(&b.n, BATCH, 1));
    size_t before = listed(&b, everything);
    ls_variable *first = b.n.trained[0]->attr.variable.variable;
    float *value = malloc(first->bytes), *again = malloc(first->bytes);
    assert_true(value && again);
    OK(ls_read(b.n.trained[0], value, first->bytes));
    assert_int_equal(listed(&b, everything) - before, first->bytes);
    OK(ls_read(b.n.trained[0], again, first->bytes)); /* it is there now */
    assert_int_equal(listed(&b, everything) - before, first->bytes);
    assert_memory_equal(value, again, first->bytes);
    /* A value that the host writes is the newest on every device. */
    memset(value, 0, first->bytes);
    OK(ls_variable_set(b.n.trained[0], value, first->bytes));
    OK(network_step(&b.n, BATCH, 2));
    OK(ls_read(b.n.trained[0], again, first->bytes));
    assert_memory_not_equal(value, again, first->bytes);
    free(value);
    free(again);
    close_bed(&b);
}

/* A kind that cannot update: the host does, and the bits are the same. */
static void a_kind_without_updates_trains_all_the_same(void **state)
{
    (void)state;
    for (network_kind kind = 0; kind < NETWORK_KINDS; kind++) {
        char hash[2][65];
        for (int denied = 0; denied < 2; denied++) {
            machine m;
            network n;
            gpu_settings gpu = { .devices = 2, .copies = true, .delay = -1, .deny = denied ? GPU_DENY_STATE : NULL };
            machine_create(&m, (machine_settings){ .gpu = gpu });
            OK(network_create(m.ctx, kind, &n));
            OK(ls_graph_set_lanes(n.graph, 4));
            OK(network_train(&n, BATCH, 3, hash[denied]));
            network_destroy(&n);
            machine_close(&m);
        }
        /* Updates are the same formulas on either kind. */
        assert_string_equal(hash[0], hash[1]);
    }
}

/* Variables of an ended scope leave their numbers to others: a stale copy must not be taken for a
 * new variable's. */
static void numbers_of_variables_are_used_again(void **state)
{
    (void)state;
    machine m;
    ls_graph *graph;
    machine_create(&m, (machine_settings){ .gpu = { .devices = 1 } });
    OK(ls_graph_create(m.ctx, &graph));
    for (int i = 0; i < 6; i++)
        LS_SCOPE(graph)
        {
            int64_t size = 3 + i % 3; /* other sizes, and the same again */
            float data[5] = { (float)i, 1, 2, 3, 4 }, value[5];
            ls_tensor *w = ls_op_variable(graph, "w", LS_F32, LS_SHAPE(size), .data = data);
            ls_tensor *y = ls_op_neg(w);
            OK(ls_read(y, value, (size_t)size * sizeof(float)));
            for (int k = 0; k < size; k++)
                assert_true(value[k] == -data[k]);
        }
    ls_graph_destroy(graph);
    machine_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_complete_subtrees_travel),
        cmocka_unit_test(an_evaluation_uploads_no_weights),
        cmocka_unit_test(the_host_gets_what_it_asks_for),
        cmocka_unit_test(a_kind_without_updates_trains_all_the_same),
        cmocka_unit_test(numbers_of_variables_are_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
