/* Devices: lists them, places ops, restricts which are visible, limits their memory, splits one
 * device into several, and mirrors a model over those. Uses GPUs if there are any, else the CPU.
 *     devices */
#include <lockstep.h>

/* "GPU" if there is one; "gpu:0" names the first. */
static const char *kind, *first;

static size_t count_devices(ls_context *ctx, bool logical)
{
    ls_device_info *list;
    size_t count;
    LS_CHECK(logical ? ls_list_logical_devices(ctx, kind, &list, &count)
                     : ls_list_physical_devices(ctx, kind, &list, &count));
    free(list);
    return count;
}

static void look_around(void)
{
    ls_context *ctx;
    ls_device_info *gpus;
    size_t count;
    LS_CHECK(ls_context_create(NULL, &ctx));
    LS_CHECK(ls_list_physical_devices(ctx, "GPU", &gpus, &count));
    printf("Num GPUs Available:  %zu\n", count);
    kind = count ? "GPU" : "CPU";
    first = count ? "gpu:0" : "cpu:0";
    free(gpus);
    ls_context_close(ctx);
}

static const float a_values[] = { 1, 2, 3, 4, 5, 6 };

/* The product of two constants; by default on the fastest device. */
static void place(void)
{
    ls_context *ctx;
    ls_graph *graph;
    LS_CHECK(ls_context_open(NULL, &ctx));
    LS_CHECK(ls_set_log_placement(ctx, true));
    LS_CHECK(ls_graph_create(ctx, &graph));

    ls_tensor *a = ls_op_constant(graph, LS_F32, LS_SHAPE(2, 3), a_values);
    ls_tensor *b = ls_op_constant(graph, LS_F32, LS_SHAPE(3, 2), a_values);
    LS_CHECK(ls_print(ls_op_matmul(a, b), NULL));

    LS_WITH_DEVICE(graph, "/CPU:0")
    {
        a = ls_op_constant(graph, LS_F32, LS_SHAPE(2, 3), a_values);
        b = ls_op_constant(graph, LS_F32, LS_SHAPE(3, 2), a_values);
    }
    LS_CHECK(ls_print(ls_op_matmul(a, b), NULL));
    /* On the CPU if the device has no kernel for it. */
    LS_CHECK(ls_print(ls_op_cast(ls_op_matmul(a, b), LS_I32), NULL));
    ls_graph_destroy(graph);

    /* All forms of names, and the message for a wrong one. */
    LS_CHECK(ls_graph_create(ctx, &graph));
    LS_WITH_DEVICE(graph, "/device:CPU:0")
    LS_WITH_DEVICE(graph, "/job:localhost/replica:0/task:0/device:CPU:0")
    LS_WITH_DEVICE(graph, first)
    LS_WITH_DEVICE(graph, "/TPU:0");
    printf("%s: %s\n", ls_status_name(ls_graph_status(graph)), ls_last_error());
    ls_graph_destroy(graph);
    ls_context_close(ctx);
}

static void print_counts(ls_context *ctx)
{
    printf("%zu Physical %ss, %zu Logical %ss\n", count_devices(ctx, false), kind, count_devices(ctx, true), kind);
}

/* Only the first device is visible; this cannot change once the context is open. */
static void make_visible(void)
{
    ls_context *ctx;
    LS_CHECK(ls_context_create(NULL, &ctx));
    LS_CHECK(ls_set_visible_devices(ctx, first));
    print_counts(ctx);
    if (ls_set_visible_devices(ctx, first) != LS_OK)
        printf("%s\n", ls_last_error());
    ls_context_close(ctx);
}

/* Allocates memory as it is needed. */
static void grow(void)
{
    ls_context *ctx;
    ls_memory_info memory;
    LS_CHECK(ls_context_create(NULL, &ctx));
    LS_CHECK(ls_set_memory_growth(ctx, first, true));
    LS_CHECK(ls_get_memory_info(ctx, first, &memory));
    printf("with growth %zu bytes are reserved\n", memory.reserved);
    ls_context_close(ctx);
}

/* Limits a device to 16 MiB, then splits it into two such devices. */
static void limit(void)
{
    const ls_logical_device parts[] = { { .memory_limit = LS_MIB(16) }, { .memory_limit = LS_MIB(16) } };
    for (size_t count = 1; count <= 2; count++) {
        ls_context *ctx;
        ls_memory_info memory;
        LS_CHECK(ls_context_create(NULL, &ctx));
        LS_CHECK(ls_set_logical_devices(ctx, first, parts, count));
        print_counts(ctx);
        LS_CHECK(ls_get_memory_info(ctx, first, &memory));
        printf("%zu of %zu MiB are reserved\n", memory.reserved >> 20, memory.limit >> 20);
        ls_context_close(ctx);
    }
}

/* One dense layer that learns y = 2 x + 1, mirrored over all logical devices. */
static void mirror(void)
{
    const ls_logical_device parts[] = { { .memory_limit = LS_MIB(16) }, { .memory_limit = LS_MIB(16) } };
    ls_context *ctx;
    ls_model *model;
    ls_results results;
    ls_device_info *devices;
    size_t count;
    float x[64], y[64];
    for (int i = 0; i < 64; i++) {
        x[i] = (float)i / 32 - 1;
        y[i] = 2 * x[i] + 1;
    }
    ls_array inputs = ls_array_of(LS_F32, LS_SHAPE(64, 1), x), targets = ls_array_of(LS_F32, LS_SHAPE(64, 1), y);
    LS_CHECK(ls_context_create(NULL, &ctx));
    LS_CHECK(ls_set_logical_devices(ctx, first, parts, 2));
    LS_CHECK(ls_set_log_placement(ctx, true));
    LS_CHECK(ls_list_logical_devices(ctx, kind, &devices, &count));
    LS_CHECK(ls_sequential(ctx, "model", &model, ls_input(1), ls_dense(1)));
    LS_CHECK(ls_compile(model, .loss = ls_mean_squared_error(), .optimizer = ls_sgd(0.2)));
    LS_CHECK(ls_fit_arrays(model, inputs, targets, .epochs = 10, .batch_size = 16, .verbose = LS_VERBOSE_SILENT,
                           .strategy = ls_mirrored(.list = devices, .list_count = count)));
    free(devices);
    ls_dataset *data = ls_from_tensor_slices(inputs, targets);
    LS_CHECK(ls_evaluate(model, data, &results));
    printf("mirrored over %zu Logical %ss: mean squared error below 0.001: %s\n", count_devices(ctx, true), kind,
           results.values[0] < 0.001 ? "yes" : "no");
    ls_dataset_destroy(data);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

int main(void)
{
    look_around();
    place();
    make_visible();
    grow();
    limit();
    mirror();
    return 0;
}
