/* Placement: the log as TensorFlow has it, scopes, soft and hard placement, tables and colours,
 * groups that a scope would cut, and the copies between devices. The GPUs are the tests' own
 * (gpu.h), and have no cast. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine.h"
#include "networks.h"

#define EXECUTING(op, device) "Executing op " op " in device " device "\n"

static const float six[] = { 1, 2, 3, 4, 5, 6 };

typedef struct bed {
    machine m;
    ls_graph *graph;
} bed;

static void open_bed(bed *b, machine_settings settings)
{
    machine_create(&b->m, settings);
    OK(ls_graph_create(b->m.ctx, &b->graph));
}

static void close_bed(bed *b)
{
    ls_graph_destroy(b->graph);
    machine_close(&b->m);
}

static ls_tensor *constant(bed *b, int64_t rows, int64_t columns)
{
    return ls_op_constant(b->graph, LS_F32, LS_SHAPE(rows, columns), six);
}

/* ---- The log ---- */

/* The tutorial's program: constants, and their product. */
static const struct {
    int gpus;
    bool constants, product; /* within "/CPU:0" */
    const char *log;
} programs[] = {
    { 1, false, false, EXECUTING("_EagerConst", GPU(0)) EXECUTING("_EagerConst", GPU(0)) EXECUTING("MatMul", GPU(0)) },
    { 1, true, false, EXECUTING("_EagerConst", CPU(0)) EXECUTING("_EagerConst", CPU(0)) EXECUTING("MatMul", GPU(0)) },
    { 1, true, true, EXECUTING("_EagerConst", CPU(0)) EXECUTING("_EagerConst", CPU(0)) EXECUTING("MatMul", CPU(0)) },
    { 1, false, true, EXECUTING("_EagerConst", GPU(0)) EXECUTING("_EagerConst", GPU(0)) EXECUTING("MatMul", CPU(0)) },
    { 3, false, false, EXECUTING("_EagerConst", GPU(0)) EXECUTING("_EagerConst", GPU(0)) EXECUTING("MatMul", GPU(0)) },
    { 0, false, false, EXECUTING("_EagerConst", CPU(0)) EXECUTING("_EagerConst", CPU(0)) EXECUTING("MatMul", CPU(0)) },
};

static void the_log_is_that_of_tensorflow(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(programs); i++) {
        bed b;
        ls_tensor *x = NULL, *y = NULL, *z = NULL;
        char *text = NULL;
        open_bed(&b, (machine_settings){ .gpu = { .devices = programs[i].gpus } });
        OK(ls_set_log_placement(b.m.ctx, true));
        LS_WITH_DEVICE(b.graph, programs[i].constants ? "/CPU:0" : "")
        {
            x = constant(&b, 2, 3);
            y = constant(&b, 3, 2);
        }
        LS_WITH_DEVICE(b.graph, programs[i].product ? "/CPU:0" : "")
        {
            z = ls_op_matmul(x, y);
        }
        OK(ls_format(z, &text));
        assert_string_equal(text, "[[22. 28.]\n [49. 64.]], shape=(2, 2), dtype=float32");
        assert_string_equal(b.m.log, programs[i].log);
        free(text);
        close_bed(&b);
    }
}

static void the_log_can_be_turned_off(void **state)
{
    (void)state;
    bed b;
    double value;
    open_bed(&b, (machine_settings){ .gpu = { .devices = 1 } });
    OK(ls_read_scalar(ls_op_scalar(b.graph, LS_F32, 1), &value));
    assert_string_equal(b.m.log, "");
    OK(ls_set_log_placement(b.m.ctx, true));
    OK(ls_read_scalar(ls_op_exp(ls_op_scalar(b.graph, LS_F32, 1)), &value));
    assert_string_equal(b.m.log, EXECUTING("Fill", GPU(0)) EXECUTING("Exp", GPU(0)));
    OK(ls_set_log_placement(b.m.ctx, false));
    OK(ls_read_scalar(ls_op_exp(ls_op_scalar(b.graph, LS_F32, 1)), &value));
    assert_int_equal(machine_count(b.m.log, "Executing"), 2);
    close_bed(&b);
}

/* ---- Soft and hard ---- */

#define NO_CAST "cast: no kernel on GPU, the CPU runs it\n"

static void an_op_without_a_kernel_goes_to_the_cpu(void **state)
{
    (void)state;
    for (int scoped = 0; scoped < 2; scoped++)
        for (ls_log_level level = LS_LOG_WARNING; level <= LS_LOG_INFO; level++) {
            bed b;
            ls_tensor *y = NULL, *z = NULL;
            int32_t found[4];
            open_bed(&b, (machine_settings){ .gpu = { .devices = 2 }, .options = { .log_level = level } });
            LS_WITH_DEVICE(b.graph, scoped ? "/gpu:1" : "")
            {
                y = ls_op_cast(ls_op_matmul(constant(&b, 2, 3), constant(&b, 3, 2)), LS_I32);
                z = ls_op_cast(ls_op_cast(y, LS_I64), LS_I32);
            }
            OK(ls_eval(b.graph, NULL, 0, &z, 1));
            OK(ls_read(z, found, sizeof(found)));
            assert_int_equal(found[3], 64);
            assert_int_equal(machine_count(b.m.log, NO_CAST), level == LS_LOG_INFO); /* one line for all of them */
            OK(ls_eval(b.graph, NULL, 0, &z, 1));
            assert_int_equal(machine_count(b.m.log, NO_CAST), level == LS_LOG_INFO);
            close_bed(&b);
        }
}

static void hard_placement_refuses(void **state)
{
    (void)state;
    bed b;
    ls_tensor *y = NULL;
    int32_t found[6];
    open_bed(&b, (machine_settings){ .gpu = { .devices = 2 } });
    LS_WITH_DEVICE(b.graph, "/gpu:1")
    {
        y = ls_named(ls_op_cast(constant(&b, 2, 3), LS_I32), "whole");
    }
    OK(ls_set_hard_placement(b.m.ctx, true));
    FAILS(ls_eval(b.graph, NULL, 0, &y, 1), LS_ERR_UNSUPPORTED, "whole (op cast)", GPU(1), "no kernel",
          "place it on: CPU");
    FAILS(ls_read(y, found, sizeof(found)), LS_ERR_UNSUPPORTED, "whole (op cast)");
    ls_tensor *free_one = ls_op_cast(constant(&b, 2, 3), LS_I32); /* nothing was asked for it */
    OK(ls_read(free_one, found, sizeof(found)));
    OK(ls_set_hard_placement(b.m.ctx, false));
    OK(ls_eval(b.graph, NULL, 0, &y, 1));
    OK(ls_read(y, found, sizeof(found)));
    assert_int_equal(found[5], 6);
    close_bed(&b);
}

/* ---- Scopes ---- */

/* Where a tensor is, by the table. */
static const char *placed(bed *b, ls_tensor *tensor)
{
    static char device[80];
    char *table = NULL, label[LS_NODE_TEXT + 1];
    OK(ls_explain_placement(b->graph, &tensor, 1, -1, &table));
    char node[LS_NODE_TEXT];
    snprintf(label, sizeof(label), "%s ", ls_node_label(tensor, node));
    device[0] = '\0';
    for (char *line = table; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strncmp(line, label, strlen(label)) == 0)
            sscanf(line, "%*s %*s %79s", device);
    free(table);
    return device;
}

static ls_tensor *here(bed *b)
{
    return ls_op_exp(constant(b, 2, 3));
}

static void scopes_may_be_nested(void **state)
{
    (void)state;
    bed b;
    open_bed(&b, (machine_settings){ .gpu = { .devices = 2 }, .options = { .cpu_devices = 2 } });
    LS_WITH_DEVICE(b.graph, "/gpu:1")
    {
        assert_string_equal(placed(&b, here(&b)), GPU(1));
        LS_WITH_DEVICE(b.graph, "cpu:1")
        {
            assert_string_equal(placed(&b, here(&b)), CPU(1));
            LS_WITH_DEVICE(b.graph, "") /* as if there were none */
            {
                assert_string_equal(placed(&b, here(&b)), GPU(0));
            }
            LS_WITH_DEVICE(b.graph, GPU(0))
            {
                assert_string_equal(placed(&b, here(&b)), GPU(0));
            }
            assert_string_equal(placed(&b, here(&b)), CPU(1));
        }
        assert_string_equal(placed(&b, here(&b)), GPU(1));
    }
    assert_string_equal(placed(&b, here(&b)), GPU(0));
    close_bed(&b);
}

static ls_tensor *returns_from_within(bed *b)
{
    LS_WITH_DEVICE(b->graph, "/gpu:1")
    LS_WITH_DEVICE(b->graph, "/cpu:0")
    {
        return here(b);
    }
    return NULL;
}

static void scopes_end_on_every_way_out(void **state)
{
    (void)state;
    bed b;
    open_bed(&b, (machine_settings){ .gpu = { .devices = 2 } });
    assert_string_equal(placed(&b, returns_from_within(&b)), CPU(0));
    assert_string_equal(placed(&b, here(&b)), GPU(0));
    for (int i = 0; i < 3; i++) {
        LS_WITH_DEVICE(b.graph, "/gpu:1")
        {
            if (i == 1)
                break;
            if (i == 2)
                continue;
        }
        assert_string_equal(placed(&b, here(&b)), GPU(0));
    }
    LS_WITH_DEVICE(b.graph, "/cpu:0")
    {
        LS_WITH_DEVICE(b.graph, "/gpu:1")
        {
            goto out;
        }
    }
out:
    assert_string_equal(placed(&b, here(&b)), GPU(0));
    close_bed(&b);
}

static void name_scopes_and_device_scopes_mix(void **state)
{
    (void)state;
    bed b;
    ls_tensor *x = NULL, *y = NULL, *found = NULL;
    open_bed(&b, (machine_settings){ .gpu = { .devices = 2 } });
    LS_NAME_SCOPE(b.graph, "tower")
    LS_WITH_DEVICE(b.graph, "/gpu:1")
    LS_NAME_SCOPE(b.graph, "layer")
    {
        x = ls_named(here(&b), "exp");
    }
    y = ls_named(here(&b), "exp");
    assert_string_equal(ls_tensor_name(x), "tower/layer/exp");
    assert_string_equal(ls_tensor_name(y), "exp");
    OK(ls_graph_find(b.graph, "tower/layer/exp", &found));
    assert_ptr_equal(found, x);
    assert_string_equal(placed(&b, x), GPU(1));
    assert_string_equal(placed(&b, y), GPU(0));
    close_bed(&b);
}

static void scopes_belong_to_their_graph(void **state)
{
    (void)state;
    bed b;
    ls_graph *other = NULL;
    open_bed(&b, (machine_settings){ .gpu = { .devices = 2 } });
    OK(ls_graph_create(b.m.ctx, &other));
    LS_WITH_DEVICE(b.graph, "/gpu:1")
    {
        bed second = { .graph = other };
        assert_string_equal(placed(&second, here(&second)), GPU(0));
    }
    ls_graph_destroy(other);
    close_bed(&b);
}

static void a_bad_name_is_the_graphs_error(void **state)
{
    (void)state;
    static const struct {
        const char *name, *part;
    } rows[] = {
        { "/gpu:7", "gpu:7" },
        { "/tpu:0", "tpu" },
        { "gpu:0-1", "gpu:0-1" },
        { "/job:worker/device:GPU:0", "worker" },
        { "gpu:zero", "zero" },
        { " ", "" },
        { NULL, "" },
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        bed b;
        open_bed(&b, (machine_settings){ .gpu = { .devices = 2 } });
        int times = 0;
        LS_WITH_DEVICE(b.graph, rows[i].name)
        {
            times++;
            here(&b);
        }
        assert_int_equal(times, 1);
        assert_int_not_equal(ls_graph_status(b.graph), LS_OK);
        machine_has(ls_last_error(), "LS_WITH_DEVICE");
        machine_has(ls_last_error(), rows[i].part);
        close_bed(&b);
    }
    LS_WITH_DEVICE(NULL, "/gpu:0")
    {
        fail_msg("a scope without a graph is entered");
    }
}

/* ---- Gradients ---- */

static void gradients_go_where_their_tensors_are(void **state)
{
    (void)state;
    bed b;
    ls_tensor *x = NULL, *y = NULL, *z = NULL, *gradient = NULL, *second = NULL, *after = NULL;
    char *table = NULL;
    open_bed(&b, (machine_settings){ .gpu = { .devices = 3 } });
    ls_tensor *w = ls_op_variable(b.graph, "w", LS_F32, LS_SHAPE(2, 3), .data = six);
    LS_WITH_DEVICE(b.graph, "gpu:1")
    {
        x = ls_op_tanh(w);
    }
    LS_WITH_DEVICE(b.graph, "gpu:2")
    {
        y = ls_op_sigmoid(x);
    }
    LS_WITH_DEVICE(b.graph, "gpu:0")
    {
        z = ls_op_reduce_sum(y, LS_ALL_AXES, false);
        OK(ls_gradients(z, &w, 1, &gradient)); /* the scope around it does not matter */
    }
    OK(ls_explain_placement(b.graph, &gradient, 1, -1, &table));
    LS_WITH_DEVICE(b.graph, "gpu:0")
    {
        OK(ls_gradients(z, &w, 1, &second));
        after = ls_op_tanh(w);
    }
    assert_string_equal(placed(&b, after), GPU(0)); /* the scope holds again after them, */
    after = ls_op_tanh(ls_op_tanh(w));
    assert_int_equal(after->device, LS_ANY_DEVICE); /* and ends */
    size_t lines = 0, on[3] = { 0 };
    for (char *line = strchr(table, '\n') + 1; *line; line = strchr(line, '\n') + 1, lines++)
        for (int d = 0; d < 3; d++) {
            const char *const names[] = { GPU(0), GPU(1), GPU(2) };
            char *found = strstr(line, names[d]);
            on[d] += found && found < strchr(line, '\n');
        }
    assert_true(on[1] >= 2); /* tanh and what undoes it */
    assert_true(on[2] >= 2);
    assert_string_equal(placed(&b, gradient), GPU(1));
    free(table);
    close_bed(&b);
}

/* ---- Tables and colours ---- */

static void the_table_has_the_reasons(void **state)
{
    (void)state;
    static const struct {
        const char *node, *op, *device, *reason;
    } rows[] = {
        { "x", "input", CPU(0), "data" },
        { "w", "variable", CPU(0), "data" },
        { "whole", "cast", CPU(0), "no kernel on GPU" },
        { "product", "matmul", GPU(0) "-1", "fastest with a kernel" },
        { "asked", "exp", GPU(1), "asked for" },
        { "kept", "assign", CPU(0), "the CPU writes variables" },
    };
    bed b;
    ls_tensor *y = NULL;
    char *table = NULL;
    open_bed(&b, (machine_settings){ .gpu = { .devices = 2 } });
    ls_tensor *x = ls_op_input(b.graph, "x", LS_I32, LS_SHAPE(LS_BATCH, 3));
    ls_tensor *w = ls_op_variable(b.graph, "w", LS_F32, LS_SHAPE(3, 2), .data = six);
    ls_tensor *product = ls_named(ls_op_matmul(ls_named(ls_op_cast(x, LS_F32), "whole"), w), "product");
    LS_WITH_DEVICE(b.graph, "gpu:1")
    {
        y = ls_named(ls_op_exp(product), "asked");
    }
    ls_tensor *keep = ls_named(ls_op_assign(w, ls_op_neg(w)), "kept");
    OK(ls_graph_set_lanes(b.graph, 4));
    OK(ls_explain_placement(b.graph, (ls_tensor *[]){ y, keep }, 2, 8, &table));
    machine_has(table, "node ");
    for (size_t i = 0; i < LENGTH(rows); i++) {
        char line[256];
        snprintf(line, sizeof(line), "%-28s %-20s %-48s %s\n", rows[i].node, rows[i].op, rows[i].device,
                 rows[i].reason);
        machine_has(table, line);
    }
    free(table);
    close_bed(&b);
}

/* The colour of a node in a dump; "" if it has none. */
static const char *colour(const char *dump, const char *name)
{
    static char found[16];
    char label[64];
    found[0] = '\0';
    snprintf(label, sizeof(label), "\\n%s\\n", name);
    const char *at = strstr(dump, label), *line = at;
    while (line && line > dump && line[-1] != '\n')
        line--;
    const char *colour = line ? strstr(line, "fillcolor=\"") : NULL;
    if (colour && colour < at)
        sscanf(colour, "fillcolor=\"%15[^\"]", found);
    return found;
}

static void devices_are_colours_of_the_picture(void **state)
{
    (void)state;
    bed b;
    ls_tensor *x[4];
    char *dump = NULL, colours[4][16];
    static const char *const devices[] = { "gpu:0", "gpu:1", "cpu:0", "gpu:1" };
    static const char *const names[] = { "a", "b", "c", "d" };
    open_bed(&b, (machine_settings){ .gpu = { .devices = 2 } });
    for (int i = 0; i < 4; i++)
        LS_WITH_DEVICE(b.graph, devices[i])
        {
            x[i] = ls_named(here(&b), names[i]);
        }
    ls_named(here(&b), "never_run");
    OK(ls_eval(b.graph, NULL, 0, x, 4));
    OK(ls_graph_dump(b.graph, LS_DUMP_GRAPHVIZ, &dump));
    for (int i = 0; i < 4; i++) {
        snprintf(colours[i], sizeof(colours[i]), "%s", colour(dump, names[i]));
        assert_string_not_equal(colours[i], "");
    }
    assert_string_not_equal(colours[0], colours[1]);
    assert_string_not_equal(colours[0], colours[2]);
    assert_string_not_equal(colours[1], colours[2]);
    assert_string_equal(colours[1], colours[3]);
    assert_string_equal(colour(dump, "never_run"), "");
    free(dump);
    close_bed(&b);
}

/* ---- Groups ---- */

/* conv2d on cpu:0, its bias on cpu:1, its ReLU where nothing was said: one kernel, on cpu:0. */
static void a_group_is_never_cut(void **state)
{
    (void)state;
    bed b;
    ls_tensor *y = NULL;
    char *table = NULL;
    float kernel[3 * 3 * 1 * 16] = { 0 }, bias[16] = { 0 };
    open_bed(&b, (machine_settings){ .options = { .cpu_devices = 2, .threads = 2, .log_level = LS_LOG_INFO } });
    ls_tensor *x = ls_op_input(b.graph, "x", LS_F32, LS_SHAPE(LS_BATCH, 8, 8, 1));
    ls_tensor *k = ls_op_variable(b.graph, "k", LS_F32, LS_SHAPE(3, 3, 1, 16), .data = kernel);
    ls_tensor *v = ls_op_variable(b.graph, "v", LS_F32, LS_SHAPE(16), .data = bias);
    LS_WITH_DEVICE(b.graph, "cpu:0")
    {
        y = ls_named(ls_op_conv2d(x, k, .stride = { 1, 1 }), "conv");
    }
    LS_WITH_DEVICE(b.graph, "cpu:1")
    {
        y = ls_named(ls_op_add(y, v), "biased");
    }
    y = ls_named(ls_op_relu(y), "active");
    OK(ls_explain_placement(b.graph, &y, 1, 4, &table));
    machine_has(b.m.log, "biased is computed together with conv, on its device\n");
    machine_has(b.m.log, "active is computed together with conv, on its device\n");
    assert_int_equal(machine_count(table, "one kernel with the node before"), 2);
    char *line = strstr(table, "\nbiased");
    assert_non_null(line);
    assert_ptr_equal(strstr(line, CPU(0)), strstr(line, "/job"));
    free(table);
    close_bed(&b);
}

/* ---- Copies ---- */

typedef struct copies {
    ls_copy_info *list;
    size_t count;
} copies;

static copies list_copies(bed *b)
{
    copies c;
    OK(ls_list_copies(b->m.ctx, &c.list, &c.count));
    return c;
}

/* How often a tensor went from one device to another. */
static int64_t times(const copies *c, const char *tensor, int from, int to)
{
    for (size_t i = 0; i < c->count; i++)
        if (strcmp(c->list[i].tensor, tensor) == 0 && c->list[i].from == from && c->list[i].to == to)
            return c->list[i].times;
    return 0;
}

static size_t bytes(const copies *c)
{
    size_t sum = 0;
    for (size_t i = 0; i < c->count; i++)
        sum += c->list[i].bytes;
    return sum;
}

static void nothing_is_copied_where_nothing_must(void **state)
{
    (void)state;
    bed b;
    double value;
    open_bed(&b, (machine_settings){ .options = { .cpu_devices = 2 }, .gpu = { .devices = 1 } });
    ls_tensor *y = NULL;
    LS_WITH_DEVICE(b.graph, "cpu:0") /* a CPU reads what another has */
    {
        y = ls_op_scalar(b.graph, LS_F32, 3);
    }
    LS_WITH_DEVICE(b.graph, "cpu:1")
    {
        y = ls_op_exp(y);
    }
    OK(ls_read_scalar(y, &value));
    copies c = list_copies(&b);
    assert_int_equal(c.count, 0);
    free(c.list);
    assert_int_equal(gpu_counted(b.m.g).calls[GPU_UPLOAD] + gpu_counted(b.m.g).calls[GPU_DOWNLOAD], 0);
    close_bed(&b);
}

/* x goes to GPU:0, is computed there and on GPU:1, and the end comes back. */
static void copies_are_counted_and_named(void **state)
{
    (void)state;
    for (int direct = 0; direct < 2; direct++) {
        enum { ON_CPU, ON_GPU0, ON_GPU1 };
        bed b;
        ls_tensor *y = NULL, *z = NULL;
        float data[8 * 3] = { 1, 2, 3 };
        open_bed(&b, (machine_settings){ .gpu = { .devices = 2, .copies = direct != 0 } });
        ls_tensor *x = ls_op_input(b.graph, "x", LS_F32, LS_SHAPE(LS_BATCH, 3));
        LS_WITH_DEVICE(b.graph, "gpu:0")
        {
            y = ls_named(ls_op_exp(x), "y");
        }
        LS_WITH_DEVICE(b.graph, "gpu:1")
        {
            z = ls_named(ls_op_tanh(y), "z");
        }
        OK(ls_graph_set_lanes(b.graph, 2));
        ls_feed feed = { x, ls_array_of(LS_F32, LS_SHAPE(8, 3), data) };
        for (int i = 0; i < 3; i++)
            OK(ls_eval(b.graph, &feed, 1, &z, 1));
        copies c = list_copies(&b);
        assert_int_equal(times(&c, "x", ON_CPU, ON_GPU0), 6); /* runs times lanes */
        assert_int_equal(times(&c, "x", ON_CPU, ON_GPU1), 0);
        assert_int_equal(times(&c, "y", ON_GPU0, ON_GPU1), 6);
        assert_int_equal(times(&c, "y", ON_GPU0, ON_CPU), direct ? 0 : 6); /* by way of the host */
        assert_int_equal(times(&c, "z", ON_GPU1, ON_CPU), 6);
        assert_int_equal(c.count, direct ? 3 : 4);
        assert_int_equal(bytes(&c), (direct ? 3 : 4) * 3 * sizeof(data));
        gpu_counts counts = gpu_counted(b.m.g);
        assert_int_equal(counts.calls[GPU_COPY], direct ? 6 : 0);
        assert_int_equal(counts.calls[GPU_UPLOAD], direct ? 6 : 12);
        assert_int_equal(counts.bytes[GPU_UPLOAD] + counts.bytes[GPU_COPY], 2 * 3 * sizeof(data));
        assert_int_equal(counts.calls[GPU_DOWNLOAD], direct ? 6 : 12);
        free(c.list);
        close_bed(&b);
    }
}

static const char *in_turn(void *user, int layer)
{
    (void)user;
    return layer % 3 == 0 ? "gpu:0" : layer % 3 == 1 ? "gpu:1" : "cpu:0";
}

/* Whatever is copied is counted: bytes by the list are those that the backend saw, but for
 * constants. */
static void the_list_has_every_byte(void **state)
{
    (void)state;
    static const network_kind kinds[] = { NETWORK_CNN, NETWORK_MLP, NETWORK_RESIDUAL };
    for (size_t i = 0; i < LENGTH(kinds); i++)
        for (int way = 0; way < 4; way++) {
            machine m;
            network n;
            copies c;
            machine_create(&m, (machine_settings){ .gpu = { .devices = 2, .copies = way % 2 != 0, .delay = -1 } });
            OK(network_create_placed(m.ctx, kinds[i], way / 2 ? &(network_places){ .device = in_turn } : NULL, &n));
            OK(ls_graph_set_lanes(n.graph, 3));
            for (uint64_t step = 0; step < 3; step++) /* then both versions of the state are there */
                OK(network_step(&n, 7, step));
            gpu_counts before = gpu_counted(m.g);
            OK(ls_list_copies(m.ctx, &c.list, &c.count));
            size_t listed = bytes(&c);
            free(c.list);
            OK(network_step(&n, 7, 3));
            gpu_counts after = gpu_counted(m.g);
            OK(ls_list_copies(m.ctx, &c.list, &c.count));
            size_t seen = 0;
            for (gpu_call call = GPU_UPLOAD; call <= GPU_COPY; call++)
                seen += after.bytes[call] - before.bytes[call];
            assert_int_equal(bytes(&c) - listed, seen);
            assert_true(seen > 0);
            free(c.list);
            network_destroy(&n);
            machine_close(&m);
        }
}

static void a_value_comes_once_however_often_it_is_read(void **state)
{
    (void)state;
    bed b;
    open_bed(&b, (machine_settings){ .gpu = { .devices = 1 } });
    ls_tensor *w = ls_op_variable(b.graph, "w", LS_F32, LS_SHAPE(2, 3), .data = six);
    ls_tensor *k = ls_op_constant(b.graph, LS_F32, LS_SHAPE(2, 3), six);
    ls_tensor *y = ls_op_add(ls_op_mul(w, k), ls_op_add(ls_op_exp(w), ls_op_exp(k)));
    for (int i = 0; i < 4; i++) {
        if (i == 2)
            OK(ls_variable_set(w, six, sizeof(six))); /* a new version */
        OK(ls_eval(b.graph, NULL, 0, &y, 1));
    }
    copies c = list_copies(&b);
    assert_int_equal(times(&c, "w", 0, 1), 2);
    assert_int_equal(gpu_counted(b.m.g).calls[GPU_UPLOAD], 3);
    free(c.list);
    close_bed(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_log_is_that_of_tensorflow),
        cmocka_unit_test(the_log_can_be_turned_off),
        cmocka_unit_test(an_op_without_a_kernel_goes_to_the_cpu),
        cmocka_unit_test(hard_placement_refuses),
        cmocka_unit_test(scopes_may_be_nested),
        cmocka_unit_test(scopes_end_on_every_way_out),
        cmocka_unit_test(name_scopes_and_device_scopes_mix),
        cmocka_unit_test(scopes_belong_to_their_graph),
        cmocka_unit_test(a_bad_name_is_the_graphs_error),
        cmocka_unit_test(gradients_go_where_their_tensors_are),
        cmocka_unit_test(the_table_has_the_reasons),
        cmocka_unit_test(devices_are_colours_of_the_picture),
        cmocka_unit_test(a_group_is_never_cut),
        cmocka_unit_test(nothing_is_copied_where_nothing_must),
        cmocka_unit_test(copies_are_counted_and_named),
        cmocka_unit_test(the_list_has_every_byte),
        cmocka_unit_test(a_value_comes_once_however_often_it_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
