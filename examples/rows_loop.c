/* A training loop over rows: each step gets the row numbers of its batch, and reads the images in
 * place. The step itself is one named node, made by ls_minimize.
 *     rows_loop [EPOCHS [SAMPLES]] */
#include <lockstep.h>

#define BUFFER_SIZE 60000
#define BATCH_SIZE  512

typedef struct net {
    ls_model *model;
    ls_tensor *images, *labels;
    ls_tensor *loss; /* the mean over the batch */
    ls_tensor *step;
} net;

static void build(ls_context *ctx, net *n)
{
    ls_tensor *predictions;
    ls_trace trace;
    LS_CHECK(ls_sequential(ctx, "fashion", &n->model, ls_input(28, 28, 1), ls_conv2d(32, 3, .activation = LS_RELU),
                           ls_max_pool2d(), ls_conv2d(64, 3, .activation = LS_RELU), ls_max_pool2d(), ls_flatten(),
                           ls_dense(64, .activation = LS_RELU), ls_dense(10)));
    ls_graph *graph = ls_model_graph(n->model);
    n->images = ls_op_input(graph, "images", LS_U8, LS_SHAPE(LS_BATCH, 28, 28, 1));
    n->labels = ls_op_input(graph, "labels", LS_U8, LS_SHAPE(LS_BATCH));
    ls_tensor *scaled = ls_op_scale(ls_op_cast(n->images, LS_F32), 1 / 255.0);
    LS_CHECK(ls_model_trace(n->model, &scaled, true, &predictions, &trace));
    n->loss = ls_loss_value(ls_sparse_categorical_crossentropy(.from_logits = true), n->labels, predictions, NULL);
    n->step = ls_minimize(ls_adam(), n->loss, "train_step");
    LS_CHECK(ls_graph_status(graph));
}

/* Loss and update of the samples in these rows of the set. */
static double train_step(const net *n, const ls_element *set, const int64_t *rows, int64_t count)
{
    double loss;
    ls_feed feeds[] = { { n->images, set->component[0] }, { n->labels, set->component[1] } };
    LS_CHECK(ls_eval_rows(ls_model_graph(n->model), feeds, 2, rows, count, (ls_tensor *[]){ n->loss, n->step }, 2));
    LS_CHECK(ls_read_scalar(n->loss, &loss));
    return loss;
}

int main(int argc, char **argv)
{
    int64_t epochs = argc > 1 ? atoll(argv[1]) : 3, samples = argc > 2 ? atoll(argv[2]) : -1;
    ls_context *ctx;
    ls_dataset *train;
    net n;
    LS_CHECK(ls_context_open(&(ls_context_options){ .cpu_devices = 2 }, &ctx));
    LS_CHECK(ls_load_data(ctx, "fashion-mnist", &train, NULL));
    train = ls_batch(ls_shuffle(ls_take(train, samples), BUFFER_SIZE, 1), BATCH_SIZE, false);
    build(ctx, &n);

    for (int64_t epoch = 0; epoch < epochs; epoch++) {
        ls_rows *pass;
        const int64_t *rows;
        int64_t count, seen = 0;
        double sum_loss = 0;
        LS_CHECK(ls_rows_create(train, (uint64_t)epoch, &pass));
        for (;;) {
            LS_CHECK(ls_rows_next(pass, &rows, &count));
            if (count == 0)
                break;
            sum_loss += train_step(&n, ls_rows_base(pass), rows, count) * (double)count;
            seen += count;
        }
        ls_rows_destroy(pass);
        printf("epoch %lld: loss %.4f over %lld samples\n", (long long)epoch + 1, sum_loss / (double)seen,
               (long long)seen);
    }

    ls_model_destroy(n.model);
    ls_dataset_destroy(train);
    ls_context_close(ctx);
    return 0;
}
