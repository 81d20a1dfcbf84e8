/* One model on two devices: convolutions on the first, dense layers on the second. Each layer gets
 * its device by name, from a scope or an option. The weights after training are the same as on one
 * device, bit for bit.
 *     big_model [STEPS [DEVICE DEVICE]] */
#include <lockstep.h>

#define BATCH 32

/* Three convolutions on one device and two dense layers on another. */
static ls_model *make_model(ls_context *ctx, const char *front, const char *back)
{
    ls_model *model;
    LS_CHECK(ls_sequential(
        ctx, "big", &model, ls_input(28, 28, 1),
        ls_conv2d(16, 3, .padding = LS_SAME, .activation = LS_RELU, .device = front), ls_max_pool2d(.device = front),
        ls_conv2d(16, 3, .padding = LS_SAME, .activation = LS_RELU, .device = front), ls_max_pool2d(.device = front),
        ls_conv2d(32, 3, .padding = LS_SAME, .activation = LS_RELU, .device = front), ls_max_pool2d(.device = front),
        ls_flatten(.device = back), ls_dropout(0.5, .device = back),
        ls_dense(240, .activation = LS_RELU, .device = back), ls_dense(10, .activation = LS_SOFTMAX, .device = back)));
    return model;
}

static void train(ls_context *ctx, ls_dataset *data, const char *front, const char *back, int64_t steps, char hash[65])
{
    ls_model *model = make_model(ctx, front, back);
    LS_CHECK(ls_compile(model, .optimizer = ls_rmsprop(), .loss = ls_sparse_categorical_crossentropy()));
    LS_CHECK(ls_fit(model, data, .batch_size = BATCH, .max_steps = steps, .verbose = LS_VERBOSE_SILENT));
    LS_CHECK(ls_model_weights_sha256(model, hash));
    ls_model_destroy(model);
}

/* The same from ops: each node is made inside the scope of its device. */
static void show_placement(ls_context *ctx, const char *front, const char *back)
{
    ls_graph *graph;
    ls_tensor *x = NULL, *y = NULL;
    char *text;
    LS_CHECK(ls_graph_create(ctx, &graph));
    LS_WITH_DEVICE(graph, front)
    {
        ls_tensor *w = ls_op_variable(graph, "w", LS_F32, LS_SHAPE(3, 3, 1, 16));
        x = ls_op_input(graph, "input", LS_F32, LS_SHAPE(LS_BATCH, 28, 28, 1));
        y = ls_op_max_pool2d(ls_op_relu(ls_op_conv2d(x, w)), { 2, 2 });
    }
    LS_WITH_DEVICE(graph, back)
    {
        ls_tensor *w4 = ls_op_variable(graph, "w4", LS_F32, LS_SHAPE(13 * 13 * 16, 10));
        y = ls_named(ls_op_matmul(ls_op_flatten(y), w4), "predict_op");
    }
    LS_CHECK(ls_explain_placement(graph, &y, 1, BATCH, &text));
    printf("%s", text);
    free(text);
    ls_graph_destroy(graph);
}

int main(int argc, char **argv)
{
    int64_t steps = argc > 1 ? atoll(argv[1]) : 20;
    const char *front = argc > 3 ? argv[2] : "/cpu:0", *back = argc > 3 ? argv[3] : "/cpu:1";
    ls_context *ctx;
    ls_dataset *data;
    char split[65], one[65];
    LS_CHECK(ls_context_open(&(ls_context_options){ .cpu_devices = 2 }, &ctx));
    LS_CHECK(ls_load_data(ctx, "fashion-mnist", &data, NULL));
    show_placement(ctx, front, back);
    train(ctx, data, front, back, steps, split);
    train(ctx, data, front, front, steps, one);
    printf("over two devices %s\non one device    %s\n", split, one);
    ls_dataset_destroy(data);
    ls_context_close(ctx);
    return 0;
}
