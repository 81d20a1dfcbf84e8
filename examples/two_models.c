/* Two networks in two graphs, with the same names in the scopes "g1" and "g2". They are built from
 * ops, run by name, each on its own device and in its own thread, at the same time. They differ in
 * the width of their last hidden layer. This form of RMSProp starts with mean squares of 1, so the
 * first few hundred steps change little.
 *     two_models [ROUNDS [SAMPLES [WIDTH]]] */
#include <lockstep.h>

#include <pthread.h>

#define BATCH_SIZE 128
#define TEST_SIZE  256

typedef struct network {
    ls_graph *graph;
    const char *scope;
    ls_dataset *train_data, *test_data;
    uint64_t round;
    double loss, accuracy; /* of the last round */
} network;

/* ---- Building ---- */

/* A variable with small random initial values. */
static ls_tensor *init_weights(ls_graph *graph, ls_shape shape)
{
    return ls_op_variable(graph, NULL, LS_F32, shape, .initializer = { .kind = LS_INIT_NORMAL, .b = 0.01 });
}

/* The kept part is fed; dropout takes the dropped part. */
static ls_tensor *dropout(ls_tensor *x, ls_tensor *p_keep)
{
    return ls_op_dropout(x, ls_op_shift(ls_op_neg(p_keep), 1));
}

static ls_tensor *convolve(ls_tensor *x, ls_tensor *w, ls_tensor *p_keep)
{
    x = ls_op_relu(ls_op_conv2d(x, w, .padding = LS_SAME));
    return dropout(ls_op_max_pool2d(x, { 2, 2 }, .padding = LS_SAME), p_keep);
}

static void build(ls_context *ctx, const char *scope, const char *device, int64_t width, uint64_t seed, network *net)
{
    ls_graph *g;
    LS_CHECK(ls_graph_create(ctx, &g, .seed = seed));
    LS_CHECK(ls_graph_set_strategy(g, ls_one_device(.devices = device)));
    LS_NAME_SCOPE(g, scope)
    {
        ls_tensor *X = ls_op_input(g, "input", LS_F32, LS_SHAPE(LS_BATCH, 28, 28, 1));
        ls_tensor *Y = ls_op_input(g, "label", LS_F32, LS_SHAPE(LS_BATCH, 10));
        ls_tensor *p_keep_conv = ls_op_input(g, "p_keep_conv", LS_F32, LS_SCALAR);
        ls_tensor *p_keep_hidden = ls_op_input(g, "p_keep_hidden", LS_F32, LS_SCALAR);

        ls_tensor *x = convolve(X, init_weights(g, LS_SHAPE(3, 3, 1, 64)), p_keep_conv);
        x = convolve(x, init_weights(g, LS_SHAPE(3, 3, 64, 64)), p_keep_conv);
        x = ls_op_flatten(convolve(x, init_weights(g, LS_SHAPE(3, 3, 64, 128)), p_keep_conv)); /* [N, 128 * 4 * 4] */
        x = ls_op_relu(ls_op_matmul(x, init_weights(g, LS_SHAPE(128 * 4 * 4, width))));
        x = ls_op_matmul(dropout(x, p_keep_hidden), init_weights(g, LS_SHAPE(width, 10)));

        ls_tensor *cost = ls_op_reduce_mean(ls_op_cross_entropy(Y, x, LS_LOGITS), LS_ALL_AXES, false);
        ls_named(cost, "cross_entropy");
        ls_minimize(ls_rmsprop_tf1(.learning_rate = 0.001, .rho = 0.9), cost, "train_step");
        ls_named(ls_op_argmax(x, 1), "predict_op");
    }
    LS_CHECK(ls_graph_status(g));
    net->graph = g;
    net->scope = scope;
}

/* ---- Running: tensors are found by name ---- */

static ls_tensor *find(const network *net, const char *name)
{
    char full[64];
    ls_tensor *tensor;
    snprintf(full, sizeof(full), "%s/%s:0", net->scope, name);
    LS_CHECK(ls_graph_find(net->graph, full, &tensor));
    return tensor;
}

static void run(const network *net, const ls_element *batch, float keep_conv, float keep_hidden, ls_tensor **fetches,
                size_t count)
{
    ls_feed feeds[] = { { find(net, "input"), batch->component[0] },
                        { find(net, "label"), batch->component[1] },
                        { find(net, "p_keep_conv"), ls_array_of(LS_F32, LS_SCALAR, &keep_conv) },
                        { find(net, "p_keep_hidden"), ls_array_of(LS_F32, LS_SCALAR, &keep_hidden) } };
    LS_CHECK(ls_eval(net->graph, feeds, 4, fetches, count));
}

/* Returns the mean loss of one pass. */
static double train(const network *net, ls_dataset *data, uint64_t round)
{
    ls_iterator *batches;
    const ls_element *batch;
    ls_tensor *fetches[] = { find(net, "cross_entropy"), find(net, "train_step") };
    double sum = 0, loss;
    int count = 0;
    LS_CHECK(ls_iterator_create(data, round, &batches));
    for (;;) {
        LS_CHECK(ls_iterator_next(batches, &batch));
        if (!batch)
            break;
        run(net, batch, 0.8F, 0.5F, fetches, 2);
        LS_CHECK(ls_read_scalar(fetches[0], &loss));
        sum += loss;
        count++;
    }
    ls_iterator_destroy(batches);
    return sum / count;
}

/* Returns the accuracy on TEST_SIZE samples. */
static double test(const network *net, ls_dataset *data, uint64_t round)
{
    ls_iterator *batches;
    const ls_element *batch;
    int64_t told[TEST_SIZE];
    ls_tensor *predict_op = find(net, "predict_op");
    int right = 0;
    LS_CHECK(ls_iterator_create(data, round, &batches));
    LS_CHECK(ls_iterator_next(batches, &batch));
    run(net, batch, 1, 1, &predict_op, 1);
    LS_CHECK(ls_read(predict_op, told, sizeof(told)));
    for (int i = 0; i < TEST_SIZE; i++)
        right += ((const float *)batch->component[1].data)[i * 10 + told[i]] == 1;
    ls_iterator_destroy(batches);
    return (double)right / TEST_SIZE;
}

/* One round, in its own thread. */
static void *train_and_test(void *user)
{
    network *net = user;
    net->loss = train(net, net->train_data, net->round);
    net->accuracy = test(net, net->test_data, net->round);
    return NULL;
}

/* ---- Data: bytes become numbers from 0 to 1, labels become one-hot ---- */

static ls_status prepare(void *user, const ls_element *in, ls_element *out)
{
    (void)user;
    const uint8_t *pixels = in->component[0].data, *label = in->component[1].data;
    float *x = out->component[0].data, *y = out->component[1].data;
    for (int i = 0; i < 28 * 28; i++)
        x[i] = (float)pixels[i] / 255;
    for (int i = 0; i < 10; i++)
        y[i] = i == *label;
    return LS_OK;
}

static ls_dataset *prepared(ls_dataset *data, int64_t batch)
{
    ls_element_spec spec = LS_ELEMENT(LS_SPEC(LS_F32, LS_SHAPE(28, 28, 1)), LS_SPEC(LS_F32, LS_SHAPE(10)));
    return ls_batch(ls_map(data, prepare, .output = spec), batch, true);
}

int main(int argc, char **argv)
{
    int64_t rounds = argc > 1 ? atoll(argv[1]) : 3, samples = argc > 2 ? atoll(argv[2]) : -1;
    int64_t width = argc > 3 ? atoll(argv[3]) : 2400;
    ls_context *ctx;
    ls_dataset *train_data, *test_data;
    network nets[2];
    pthread_t threads[2];
    LS_CHECK(ls_context_open(&(ls_context_options){ .cpu_devices = 2 }, &ctx));
    LS_CHECK(ls_load_data(ctx, "fashion-mnist", &train_data, &test_data));
    train_data = prepared(ls_shuffle(ls_take(train_data, samples), 60000, 1), BATCH_SIZE);
    test_data = prepared(ls_shuffle(test_data, 10000, 2), TEST_SIZE);
    build(ctx, "g1", "cpu:0", width, 1, &nets[0]);
    build(ctx, "g2", "cpu:1", 2 * width, 2, &nets[1]);

    for (int64_t i = 0; i < rounds; i++) {
        for (int j = 0; j < 2; j++) {
            nets[j].train_data = train_data;
            nets[j].test_data = test_data;
            nets[j].round = (uint64_t)i;
            if (pthread_create(&threads[j], NULL, train_and_test, &nets[j]) != 0)
                return 1;
        }
        for (int j = 0; j < 2; j++) {
            pthread_join(threads[j], NULL);
            printf("%lld %s: cross-entropy %.4f, test accuracy %.4f\n", (long long)i, nets[j].scope, nets[j].loss,
                   nets[j].accuracy);
        }
    }

    ls_graph_destroy(nets[0].graph);
    ls_graph_destroy(nets[1].graph);
    ls_dataset_destroy(train_data);
    ls_dataset_destroy(test_data);
    ls_context_close(ctx);
    return 0;
}
