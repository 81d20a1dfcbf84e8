/* A program that is one worker of several: the names of its devices, the strategy multi-worker,
 * what it does alone in a context of its own, and what it touches of the data. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/status.h"
#include "lockstep.h"

#define WANT(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            return ls_fail(LS_ERR_INTERNAL, "%s:%d: not so: %s (last error: %s)", __FILE__, __LINE__, #condition,      \
                           ls_last_error());                                                                           \
    } while (0)

static void run_workers(int count, ls_worker_function function)
{
    if (ls_spawn(count, function, NULL) != LS_OK)
        fail_msg("%s", ls_last_error());
}

static const float xs[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };

static ls_status train(ls_context *ctx, ls_strategy strategy, char hash[65])
{
    ls_model *model = NULL;
    ls_array x = ls_array_of(LS_F32, LS_SHAPE(8, 1), xs);
    ls_status status = ls_sequential(ctx, "m", &model, ls_input(1), ls_dense(2), ls_dense(1));
    if (status == LS_OK)
        status = ls_compile(model, .optimizer = ls_sgd(), .loss = ls_mean_squared_error());
    if (status == LS_OK)
        status = ls_fit_arrays(model, x, x, .epochs = 2, .batch_size = 4, .lanes = 4, .strategy = strategy,
                               .verbose = LS_VERBOSE_SILENT);
    if (status == LS_OK)
        status = ls_model_state_sha256(model, hash);
    ls_model_destroy(model);
    return status;
}

/* ---- Names and strategy ---- */

static ls_status use_names(int rank, int size, void *user)
{
    ls_context *ctx = NULL;
    ls_device_info *list = NULL;
    size_t count = 0;
    int replicas = 0;
    char own[80], other[80], hash[65], expected[65];
    (void)user;
    LS_TRY(ls_context_create(&(ls_context_options){ .cpu_devices = 2, .threads = 2 }, &ctx));
    LS_TRY(ls_list_logical_devices(ctx, NULL, &list, &count));
    snprintf(own, sizeof(own), "/job:worker/replica:0/task:%d/device:CPU:1", rank);
    snprintf(other, sizeof(other), "/job:worker/replica:0/task:%d/device:CPU:1", (rank + 1) % size);
    WANT(count == 2 && strcmp(list[1].name, own) == 0);
    free(list);
    LS_TRY(ls_strategy_replicas(ctx, ls_multi_worker(), &replicas));
    WANT(replicas == 2 * size);
    LS_TRY(train(ctx, ls_multi_worker(), expected));
    LS_TRY(train(ctx, ls_multi_worker(.devices = own), hash));
    WANT(strcmp(hash, expected) == 0);
    WANT(train(ctx, ls_mirrored(.devices = other), hash) == LS_ERR_NOT_FOUND);
    WANT(strstr(ls_last_error(), "is another worker, this one is task") != NULL);
    LS_TRY(ls_cluster_barrier(ctx, "the end"));
    ls_context_close(ctx);
    return LS_OK;
}

static void workers_name_their_own_devices(void **state)
{
    (void)state;
    run_workers(2, use_names);
}

/* ---- Alone ---- */

/* Worker 1 trains by itself while the others wait for it in a barrier, on its own devices; all are
 * still together. */
static ls_status do_something_alone(int rank, int size, void *user)
{
    ls_context *ctx = NULL, *alone = NULL;
    ls_device_info *list = NULL;
    size_t count = 0;
    char together[65], by_itself[65];
    (void)user;
    LS_TRY(ls_context_open(&(ls_context_options){ .threads = 1 }, &ctx));
    LS_TRY(train(ctx, ls_multi_worker(), together));
    if (rank == 1) {
        LS_TRY(ls_context_create(&(ls_context_options){ .threads = 1 }, &alone));
        LS_TRY(ls_cluster_join(alone, &(ls_cluster_options){ .size = 1 }));
        LS_TRY(ls_list_logical_devices(alone, NULL, &list, &count));
        WANT(count == 1 && strcmp(list[0].name, "/job:localhost/replica:0/task:0/device:CPU:0") == 0);
        free(list);
        WANT(ls_cluster_size(alone) == 1 && ls_is_chief(alone));
        LS_TRY(train(alone, ls_multi_worker(), by_itself));
        WANT(strcmp(together, by_itself) == 0);
        ls_context_close(alone);
    }
    LS_TRY(ls_cluster_barrier(ctx, "together again"));
    LS_TRY(train(ctx, ls_multi_worker(), by_itself));
    WANT(strcmp(together, by_itself) == 0 && ls_cluster_size(ctx) == size);
    ls_context_close(ctx);
    return LS_OK;
}

static void a_context_of_its_own_is_for_what_one_does_alone(void **state)
{
    (void)state;
    run_workers(3, do_something_alone);
}

/* ---- A cluster that was forgotten ---- */

static ls_status forget_to_join(int rank, int size, void *user)
{
    ls_context *ctx = NULL;
    char hash[65], expected[65];
    (void)rank, (void)size, (void)user;
    LS_TRY(ls_context_open(&(ls_context_options){ .threads = 1 }, &ctx)); /* a cluster of one worker, by ls_spawn */
    LS_TRY(train(ctx, ls_multi_worker(), expected));
    unsetenv("LOCKSTEP_RANK");
    unsetenv("LOCKSTEP_WORLD_SIZE");
    unsetenv("LOCKSTEP_RENDEZVOUS");
    setenv("TF_CONFIG", "{\"cluster\":{\"worker\":[\"a:1\",\"b:1\"]},\"task\":{\"type\":\"worker\",\"index\":1}}", 1);
    setenv("LOCKSTEP_KEY_FILE", "/nowhere", 1);
    WANT(train(ctx, ls_multi_worker(), hash) == LS_ERR_STATE);
    WANT(strstr(ls_last_error(), "worker 1 of 2, but the context did not join the cluster; call ls_cluster_join") !=
         NULL);
    LS_TRY(train(ctx, ls_mirrored(), hash)); /* which asks for no cluster */
    WANT(strcmp(hash, expected) == 0);
    setenv("TF_CONFIG", "{", 1);
    WANT(train(ctx, ls_multi_worker(), hash) != LS_OK && strstr(ls_last_error(), "TF_CONFIG") != NULL);
    ls_context_close(ctx);
    return LS_OK;
}

static void multi_worker_without_joining_is_an_error(void **state)
{
    (void)state;
    run_workers(1, forget_to_join);
}

/* ---- A worker that leaves a program of eager tensors ---- */

/* A joined value of a batch that a run before has left: it is computed when it is read. */
static ls_status read_mean(ls_graph *graph, bool leaves, float *out)
{
    ls_array value;
    ls_tensor *x = ls_op_input(graph, NULL, LS_F32, LS_SHAPE(LS_BATCH, 1));
    ls_tensor *twice = ls_op_add(x, x);
    LS_TRY(ls_eval(graph, &(ls_feed){ x, ls_array_of(LS_F32, LS_SHAPE(8, 1), xs) }, 1, &twice, 1));
    if (leaves)
        return LS_OK;
    LS_TRY(ls_value(ls_op_reduce_mean(ls_op_mul(twice, twice), LS_ALL_AXES, false), &value));
    *out = *(const float *)value.data;
    return LS_OK;
}

static ls_status read_while_one_leaves(int rank, int size, void *user)
{
    ls_context *ctx = NULL;
    ls_graph *graph = NULL;
    float before, after;
    (void)size, (void)user;
    LS_TRY(ls_context_open(&(ls_context_options){ .threads = 1 }, &ctx));
    LS_TRY(ls_graph_create(ctx, &graph));
    LS_TRY(ls_graph_set_lanes(graph, 4));
    LS_TRY(read_mean(graph, false, &before));
    for (int i = 0; i < 2 && !(i > 0 && rank == 1); i++) {
        after = before;
        LS_TRY(read_mean(graph, rank == 1, &after));
        WANT(before == after);
    }
    ls_graph_destroy(graph);
    ls_context_close(ctx);
    return LS_OK;
}

static void a_tensor_is_read_also_when_a_worker_is_lost(void **state)
{
    (void)state;
    run_workers(3, read_while_one_leaves);
}

/* ---- Rows ---- */

#define ROWS      1024
#define ROW_BYTES 65536 /* as much as the system maps around a page that is touched */

static uint8_t *images; /* in memory that is shared, so that each process has its own list of what it touched */
static int32_t labels[ROWS];

/* The part of the images that this process has touched. */
static double touched(void)
{
    char line[256];
    unsigned long from, kilobytes = 0;
    bool found = false;
    FILE *file = fopen("/proc/self/smaps", "r");
    while (file && fgets(line, sizeof(line), file)) {
        if (strchr(line, '-') && sscanf(line, "%lx-", &from) == 1 && strstr(line, " rw"))
            found = from == (unsigned long)(uintptr_t)images;
        if (found && sscanf(line, "Rss: %lu kB", &kilobytes) == 1)
            break;
    }
    if (file)
        fclose(file);
    return (double)kilobytes * 1024 / ((double)ROWS * ROW_BYTES);
}

/* Batches of 128 in 4 lanes, in the order of the rows. */
static ls_status look_at_images(int rank, int size, void *user)
{
    ls_context *ctx = NULL;
    ls_model *model = NULL;
    (void)rank, (void)user;
    LS_TRY(ls_context_open(&(ls_context_options){ .threads = 1 }, &ctx));
    LS_TRY(ls_sequential(ctx, "m", &model, ls_input(128, 128, 4), ls_global_average_pool2d(),
                         ls_dense(3, .activation = LS_SOFTMAX)));
    LS_TRY(ls_compile(model, .optimizer = ls_sgd(), .loss = ls_sparse_categorical_crossentropy()));
    ls_array x = ls_array_of(LS_U8, LS_SHAPE(ROWS, 128, 128, 4), images);
    LS_TRY(ls_fit_arrays(model, x, ls_array_of(LS_I32, LS_SHAPE(ROWS), labels), .batch_size = 128, .lanes = 4,
                         .keep_order = true, .verbose = LS_VERBOSE_SILENT));
    double part = touched(), least = 1.0 / size - 0.01, most = 1.0 / size + 0.15; /* a sample of all is compared */
    if (!(part >= least && part <= most))
        return ls_fail(LS_ERR_INTERNAL, "worker %d of %d touched %.3f of the images", rank, size, part);
    ls_model_destroy(model);
    ls_context_close(ctx);
    return LS_OK;
}

static void a_worker_reads_the_rows_of_its_lanes(void **state)
{
    (void)state;
    images = mmap(NULL, (size_t)ROWS * ROW_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(images != MAP_FAILED);
    for (size_t i = 0; i < (size_t)ROWS * ROW_BYTES; i += 997)
        images[i] = (uint8_t)(i >> 4);
    for (int i = 0; i < ROWS; i++)
        labels[i] = i % 3;
    run_workers(1, look_at_images);
    run_workers(2, look_at_images);
    run_workers(4, look_at_images);
    munmap(images, (size_t)ROWS * ROW_BYTES);
}

/* ---- What maps make ---- */

#define SAMPLES 44

static atomic_int calls; /* in this process */
static int fails_at = -1;

/* Made from a sample's number and the pass's, so that both must be right. */
static ls_status add_number(void *user, const ls_element *in, ls_element *out)
{
    int64_t number = atomic_fetch_add(&calls, 1);
    if (fails_at >= 0 && number >= fails_at)
        return ls_fail(LS_ERR_IO, "the disk is gone");
    (void)user;
    *(float *)out->component[0].data =
        *(const float *)in->component[0].data + (float)in->number * 0.25f + (float)in->epoch;
    *(float *)out->component[1].data = *(const float *)in->component[1].data;
    return LS_OK;
}

static ls_status halve(void *user, const ls_element *in, ls_element *out)
{
    (void)user;
    *(float *)out->component[0].data = *(const float *)in->component[0].data * 0.5f - (float)in->number;
    *(float *)out->component[1].data = *(const float *)in->component[1].data;
    return LS_OK;
}

enum { PLAIN_MAP, THREADS, AHEAD, SHUFFLED, TWO_MAPS, CUT, PIPELINES };

static ls_dataset *make_pipeline(int which)
{
    static float x[SAMPLES], y[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        x[i] = (float)(i * 7 % 5);
        y[i] = (float)(i % 3);
    }
    ls_dataset *d =
        ls_from_tensor_slices(ls_array_of(LS_F32, LS_SHAPE(SAMPLES, 1), x), ls_array_of(LS_F32, LS_SHAPE(SAMPLES), y));
    if (which == SHUFFLED)
        d = ls_shuffle(d, SAMPLES, 3);
    if (which == CUT)
        d = ls_shard(ls_repeat(d, 2), 2, 1);
    d = ls_map(d, add_number, .threads = which == THREADS ? 3 : 0);
    if (which == SHUFFLED)
        d = ls_shuffle(d, 9, 4);
    if (which == TWO_MAPS)
        d = ls_map(ls_skip(d, 4), halve);
    d = ls_batch(d, 8, which == CUT);
    if (which == AHEAD)
        d = ls_prefetch(d, 2);
    return which == CUT ? ls_take(d, 3) : d;
}

static ls_status train_on_maps(ls_context *ctx, int which, int *called, char hash[65])
{
    ls_model *model = NULL;
    ls_dataset *data = make_pipeline(which);
    calls = 0;
    LS_TRY(ls_sequential(ctx, "m", &model, ls_input(1), ls_dense(3, .activation = LS_SOFTMAX)));
    LS_TRY(ls_compile(model, .optimizer = ls_sgd(), .loss = ls_sparse_categorical_crossentropy()));
    ls_status status = ls_fit(model, data, .epochs = 3, .lanes = 4, .verbose = LS_VERBOSE_SILENT);
    *called = atomic_load(&calls);
    if (status == LS_OK)
        status = ls_model_state_sha256(model, hash);
    ls_dataset_destroy(data);
    ls_model_destroy(model);
    return status;
}

static ls_status train_on_each_pipeline(int rank, int size, void *user)
{
    for (int which = 0; which < PIPELINES; which++) {
        ls_context *ctx = NULL, *alone = NULL;
        char together[65], by_itself[65];
        int called, called_alone;
        LS_TRY(ls_context_open(&(ls_context_options){ .threads = 1 }, &ctx));
        LS_TRY(train_on_maps(ctx, which, &called, together));
        LS_TRY(ls_context_create(&(ls_context_options){ .threads = 1 }, &alone));
        LS_TRY(ls_cluster_join(alone, &(ls_cluster_options){ .size = 1 }));
        LS_TRY(train_on_maps(alone, which, &called_alone, by_itself));
        if (strcmp(together, by_itself) != 0)
            return ls_fail(LS_ERR_INTERNAL, "pipeline %d: worker %d of %d has other bits than one process", which, rank,
                           size);
        /* Batches of 8 in 4 lanes, the last with 4 samples of 44; samples that are skipped after
         * the map are not made. / */
        int used = which == TWO_MAPS ? 3 * (SAMPLES - 4) : called_alone;
        if (called != used / size)
            return ls_fail(LS_ERR_INTERNAL, "pipeline %d: worker %d of %d called the map %d times, one process %d",
                           which, rank, size, called, called_alone);
        LS_TRY(ls_cluster_barrier(ctx, "the next one"));
        ls_context_close(alone);
        ls_context_close(ctx);
    }
    (void)user;
    return LS_OK;
}

static void a_worker_makes_the_samples_of_its_lanes(void **state)
{
    (void)state;
    run_workers(2, train_on_each_pipeline);
    run_workers(4, train_on_each_pipeline);
}

/* The map of worker 1 fails in the middle of an epoch: it leaves, and the others make its samples,
 * too. */
static ls_status train_until_a_map_fails(int rank, int size, void *user)
{
    ls_context *ctx = NULL, *alone = NULL;
    char together[65], by_itself[65];
    int called;
    (void)size;
    LS_TRY(ls_context_open(&(ls_context_options){ .threads = 1 }, &ctx));
    fails_at = rank == 1 ? 9 : -1;
    ls_status status = train_on_maps(ctx, *(const int *)user, &called, together);
    if (rank == 1) {
        WANT(status == LS_ERR_IO && strstr(ls_last_error(), "the disk is gone") != NULL);
        ls_context_close(ctx);
        return LS_OK;
    }
    LS_TRY(status);
    LS_TRY(ls_context_create(&(ls_context_options){ .threads = 1 }, &alone));
    LS_TRY(ls_cluster_join(alone, &(ls_cluster_options){ .size = 1 }));
    LS_TRY(train_on_maps(alone, *(const int *)user, &called, by_itself));
    WANT(strcmp(together, by_itself) == 0);
    ls_context_close(alone);
    ls_context_close(ctx);
    return LS_OK;
}

static void samples_of_a_lost_worker_are_made_by_the_others(void **state)
{
    (void)state;
    for (int which = 0; which <= THREADS; which++)
        if (ls_spawn(3, train_until_a_map_fails, &which) != LS_OK)
            fail_msg("%s", ls_last_error());
}

int main(void)
{
    alarm(120);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_name_their_own_devices),
        cmocka_unit_test(a_context_of_its_own_is_for_what_one_does_alone),
        cmocka_unit_test(multi_worker_without_joining_is_an_error),
        cmocka_unit_test(a_tensor_is_read_also_when_a_worker_is_lost),
        cmocka_unit_test(a_worker_reads_the_rows_of_its_lanes),
        cmocka_unit_test(a_worker_makes_the_samples_of_its_lanes),
        cmocka_unit_test(samples_of_a_lost_worker_are_made_by_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
