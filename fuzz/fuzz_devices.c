/* Random networks on random devices: 1 to 4 CPUs and 0 to 4 of the tests' GPUs, a random map,
 * device scopes, lanes, optimizers, and a list of steps, evaluations, reads and writes of
 * variables. In between runs fail: by a wrong label, or by a device, at once or late. Whatever
 * happens, the state is that of one device of each kind where nothing failed; a run that fails
 * leaves it as it was. */
#include "fuzz.h"

#include "base/sha256.h"
#include "gpu.h"
#include "run/runs.h"

#define SIDE     5
#define CHANNELS 2
#define CLASSES  4
#define BATCH    70
#define LAYERS   5
#define ACTS     12

typedef enum act_kind { TRAIN, EVALUATE, SET, READ, WRONG, FAIL_TRAIN, FAIL_EVALUATE, FAIL_READ, ACT_KINDS } act_kind;

typedef struct act {
    act_kind kind;
    int64_t batch;
    unsigned which; /* variable, sample */
    int call, nth;
    bool late, compared;
} act;

/* A case. Only the fields before the empty line may change bits. */
typedef struct plan_of_case {
    unsigned layers, layer[LAYERS], width[LAYERS], optimizer, scope_kind[LAYERS + 1];
    const char *denied;
    int lanes;
    bool frozen; /* the first layers are not trained */
    act acts[ACTS];
    size_t act_count;

    int gpus, cpus, threads;
    bool copies, mapped, by_group, whole_mapped, owners, delays;
    uint32_t stream;
    unsigned scope_number[LAYERS + 1];
} fuzz_case;

typedef struct bed {
    const fuzz_case *c;
    bool single;
    gpu *g;
    ls_context *ctx;
    ls_graph *graph;
    ls_tensor *images, *labels, *logits, *loss, *step;
    int cpus, gpus;
} bed;

static float pixels[BATCH * SIDE * SIDE * CHANNELS];
static int32_t labels[BATCH];

/* ---- The case ---- */

static act take_act(fuzz_input *in, bool gpus)
{
    act a = { .kind = fuzz_take(in, 3) == 0 ? (act_kind)fuzz_take(in, ACT_KINDS)
                      : fuzz_take(in, 2)    ? TRAIN
                                            : FAIL_TRAIN };
    a.batch = fuzz_take(in, 8) == 0 ? fuzz_take(in, 3) : 1 + fuzz_take(in, BATCH);
    a.which = fuzz_take(in, 256);
    a.call = GPU_UPLOAD + (int)fuzz_take(in, GPU_CALLS - GPU_UPLOAD);
    a.nth = 1 + (int)fuzz_take(in, fuzz_take(in, 2) ? 200 : 12);
    a.late = fuzz_take(in, 2);
    a.compared = fuzz_take(in, 3) == 0;
    if (!gpus && a.kind >= FAIL_TRAIN)
        a.kind = a.kind == FAIL_TRAIN ? TRAIN : a.kind == FAIL_EVALUATE ? EVALUATE : READ;
    return a;
}

static fuzz_case take_case(fuzz_input *in)
{
    static const char *const denied[] = { GPU_DENY,
                                          GPU_DENY,
                                          GPU_DENY ",apply",
                                          GPU_DENY ",relu",
                                          GPU_DENY ",matmul",
                                          GPU_DENY ",add",
                                          GPU_DENY ",mul",
                                          GPU_DENY ",conv2d",
                                          "assign,assign_add,group,gather_batch,scatter_batch",
                                          GPU_DENY ",matmul,apply",
                                          GPU_DENY ",reduce_sum,apply" };
    fuzz_case c = { .layers = 1 + fuzz_take(in, LAYERS) };
    c.gpus = (int)fuzz_take(in, 5);
    c.cpus = 1 + (int)fuzz_take(in, 4);
    for (unsigned i = 0; i <= LAYERS; i++) {
        c.layer[i % LAYERS] = fuzz_take(in, 5);
        c.width[i % LAYERS] = 1 + fuzz_take(in, fuzz_take(in, 8) ? 24 : 400);
        c.scope_kind[i] = fuzz_take(in, 6); /* 0: CPU, 1: GPU, otherwise none */
        c.scope_number[i] = fuzz_take(in, 8);
        if (c.scope_kind[i] == 1 && c.gpus == 0)
            c.scope_kind[i] = 2;
    }
    c.optimizer = fuzz_take(in, 8);
    c.denied = denied[fuzz_take(in, sizeof denied / sizeof *denied)];
    c.lanes = fuzz_take(in, 8) == 0 ? 0 : 1 + (int)fuzz_take(in, fuzz_take(in, 2) ? 64 : 9);
    c.frozen = fuzz_take(in, 4) == 0;
    c.threads = 1 + (int)fuzz_take(in, 4);
    c.copies = fuzz_take(in, 2);
    c.mapped = fuzz_take(in, 2);
    c.by_group = fuzz_take(in, 2);
    c.whole_mapped = fuzz_take(in, 2);
    c.owners = fuzz_take(in, 2);
    c.delays = fuzz_take(in, 4) == 0;
    c.stream = fuzz_take(in, 65536);
    c.act_count = 2 + fuzz_take(in, ACTS - 1);
    for (size_t i = 0; i < c.act_count; i++)
        c.acts[i] = take_act(in, c.gpus > 0);
    return c;
}

/* ---- Map ---- */

static unsigned draw(uint32_t stream, unsigned a, unsigned b)
{
    uint32_t x = stream * 2654435761u ^ (a + 1) * 2246822519u ^ (b + 1) * 3266489917u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return x * 3266489917u >> 8;
}

static int any_device(const ls_task_map *map, const ls_task_map_point *at)
{
    const bed *b = map->user;
    const fuzz_case *c = b->c;
    int count = at->kind == LS_CPU ? b->cpus : b->gpus, first = at->kind == LS_CPU ? 0 : b->cpus;
    if (at->lane < 0 && (!c->whole_mapped || draw(c->stream, 7, (unsigned)at->group) % 2))
        return LS_ANY_DEVICE;
    unsigned what = (unsigned)(c->by_group || at->lane < 0 ? at->group : at->segment);
    if (draw(c->stream, 3, what) % 5 == 0)
        return LS_ANY_DEVICE;
    return first + (int)(draw(c->stream, what, (unsigned)(at->lane + 1)) % (unsigned)count);
}

static int any_owner(const ls_task_map *map, const int *makers, int count, int part)
{
    const bed *b = map->user;
    return makers[draw(b->c->stream, 99, (unsigned)part) % (unsigned)count];
}

/* ---- Network ---- */

static ls_device_scope open_scope(bed *b, unsigned layer)
{
    unsigned kind = b->c->scope_kind[layer];
    char name[16];
    if (kind > 1)
        return (ls_device_scope){ 0 };
    unsigned count = (unsigned)(kind == 0 ? b->cpus : b->gpus);
    snprintf(name, sizeof name, "%s:%u", kind == 0 ? "cpu" : "gpu", b->c->scope_number[layer] % count);
    return ls_device_scope_open(b->graph, name);
}

static ls_tensor *weight(bed *b, ls_shape shape, bool trained)
{
    static float values[1 << 16];
    size_t count = 1;
    for (int i = 0; i < shape.rank; i++)
        count *= (size_t)shape.dims[i];
    FUZZ_CHECK(count <= sizeof values / sizeof *values, "%zu weights", count);
    for (size_t i = 0; i < count; i++)
        values[i] = ((float)(draw(5, (unsigned)b->graph->variable_count, (unsigned)i) % 2001) - 1000) / 4000;
    return ls_op_variable(b->graph, NULL, LS_F32, shape, .data = values, .frozen = !trained);
}

static ls_tensor *dense(bed *b, ls_tensor *x, int64_t out, bool trained)
{
    x = ls_op_flatten(x);
    ls_tensor *w = weight(b, LS_SHAPE(ls_tensor_shape(x).dims[1], out), trained);
    return ls_op_add(ls_op_matmul(x, w), weight(b, LS_SHAPE(out), trained));
}

static ls_tensor *layer(bed *b, ls_tensor *x, unsigned i, bool trained)
{
    const fuzz_case *c = b->c;
    bool image = ls_tensor_shape(x).rank == 4;
    int64_t last = ls_tensor_shape(x).dims[ls_tensor_shape(x).rank - 1], width = c->width[i];
    switch (image ? c->layer[i] : c->layer[i] % 3) {
    case 0:
        return ls_op_relu(dense(b, x, width > 60 && !image ? width : 1 + width % 60, trained));
    case 1:
        return ls_op_tanh(ls_op_mul(x, weight(b, LS_SHAPE(last), trained)));
    case 2:
        return ls_op_dropout(x, ls_op_scalar(b->graph, LS_F32, 0.25));
    case 3:
        return ls_op_relu(
            ls_op_conv2d(x, weight(b, LS_SHAPE(3, 3, last, 1 + width % 20), trained), .padding = LS_SAME));
    default: {
        ls_tensor *gamma = weight(b, LS_SHAPE(last), trained), *beta = weight(b, LS_SHAPE(last), trained);
        return ls_op_batch_norm(x, gamma, beta, weight(b, LS_SHAPE(last), false), weight(b, LS_SHAPE(last), false),
                                .training = true);
    }
    }
}

static ls_optimizer optimizer_of(unsigned which)
{
    switch (which) {
    case 0:
        return ls_sgd(.learning_rate = 0.01);
    case 1:
        return ls_sgd(.momentum = 0.9);
    case 2:
        return ls_adam();
    case 3:
        return ls_adam(.clipnorm = 0.5);
    case 4:
        return ls_sgd(.global_clipnorm = 0.2);
    case 5:
        return ls_adam(.gradient_accumulation_steps = 2);
    case 6:
        return ls_sgd(.momentum = 0.5, .gradient_accumulation_steps = 3, .global_clipnorm = 1);
    default:
        return ls_rmsprop(.clipvalue = 0.01);
    }
}

static ls_status make_network(bed *b)
{
    const fuzz_case *c = b->c;
    FUZZ_CHECK(ls_graph_create(b->ctx, &b->graph, .seed = 3) == LS_OK, "no graph: %s", ls_last_error());
    b->images = ls_op_input(b->graph, "images", LS_F32, LS_SHAPE(LS_BATCH, SIDE, SIDE, CHANNELS));
    b->labels = ls_op_input(b->graph, "labels", LS_I32, LS_SHAPE(LS_BATCH));
    ls_tensor *x = b->images;
    for (unsigned i = 0; i < c->layers; i++) {
        ls_device_scope scope = open_scope(b, i);
        x = layer(b, x, i, !c->frozen || i + 1 == c->layers);
        ls_device_scope_close(&scope);
    }
    ls_device_scope scope = open_scope(b, LAYERS);
    b->logits = dense(b, x, CLASSES, true);
    b->loss = ls_op_reduce_mean(ls_op_sparse_cross_entropy(b->labels, b->logits, LS_LOGITS), LS_ALL_AXES, false);
    ls_device_scope_close(&scope);
    b->step = ls_minimize(optimizer_of(c->optimizer), b->loss, NULL);
    return ls_graph_status(b->graph);
}

static void open_bed(bed *b, const fuzz_case *c, bool single)
{
    *b = (bed){ .c = c, .single = single, .cpus = single ? 1 : c->cpus, .gpus = single ? c->gpus > 0 : c->gpus };
    ls_context_options options = { .threads = single ? 1 : c->threads,
                                   .cpu_devices = b->cpus,
                                   .log_level = LS_LOG_ERROR };
    ls_status status = ls_context_create(&options, &b->ctx);
    if (status == LS_OK && b->gpus) {
        gpu_settings settings = { .devices = b->gpus, .deny = c->denied, .copies = c->copies, .seed = c->stream };
        settings.delay = c->delays ? 0 : -1;
        b->g = gpu_create(settings);
        status = b->g ? ls_add_backend(b->ctx, gpu_backend(b->g)) : LS_ERR_MEMORY;
    }
    FUZZ_CHECK(status == LS_OK, "no context: %s", ls_last_error());
    FUZZ_CHECK(make_network(b) == LS_OK, "no network: %s", ls_last_error());
    ls_runs *runs = NULL;
    FUZZ_CHECK(ls_runs_of(b->graph, &runs) == LS_OK, "no runs: %s", ls_last_error());
    runs->settings.plan.lanes = c->lanes;
    if (single)
        return;
    if (c->mapped)
        runs->settings.plan.map.device = any_device;
    if (c->owners)
        runs->settings.plan.map.owner = any_owner;
    runs->settings.plan.map.user = b;
}

static void close_bed(bed *b)
{
    ls_graph_destroy(b->graph);
    ls_context_close(b->ctx);
    if (!b->g)
        return;
    gpu_counts counts = gpu_counted(b->g);
    FUZZ_CHECK(counts.misuses == 0, "the GPU was misused %d times", counts.misuses);
    FUZZ_CHECK(counts.buffers == 0 && counts.plans == 0 && counts.devices == 0, "the GPU has %d buffers and %d plans",
               counts.buffers, counts.plans);
    gpu_destroy(b->g);
}

/* ---- Acts ---- */

static ls_status run(bed *b, const act *a, bool train)
{
    ls_feed feeds[] = {
        { b->images, ls_array_of(LS_F32, LS_SHAPE(a->batch, SIDE, SIDE, CHANNELS), pixels) },
        { b->labels, ls_array_of(LS_I32, LS_SHAPE(a->batch), labels) },
    };
    ls_tensor *train_fetches[] = { b->loss, b->step }, *fetches[] = { b->loss, b->logits };
    return ls_eval(b->graph, feeds, 2, train ? train_fetches : fetches, a->which % 3 || train ? 2 : 1);
}

static ls_status act_on_variable(bed *b, const act *a, bool set)
{
    ls_variable *v = b->graph->variables[a->which % b->graph->variable_count];
    if (v->node->dtype != LS_F32)
        return LS_OK;
    float *data = malloc(v->bytes ? v->bytes : 1);
    ls_status status = ls_read((ls_tensor *)v->node, data, v->bytes);
    for (size_t i = 0; i < v->bytes / sizeof(float); i++)
        data[i] *= 0.5f;
    if (status == LS_OK && set)
        status = ls_variable_set((ls_tensor *)v->node, data, v->bytes);
    free(data);
    return status;
}

static ls_status once(bed *b, const act *a)
{
    switch (a->kind) {
    case EVALUATE:
    case FAIL_EVALUATE:
        return run(b, a, false);
    case SET:
    case READ:
    case FAIL_READ:
        return act_on_variable(b, a, a->kind == SET);
    default:
        return run(b, a, true);
    }
}

static void state_of(bed *b, char hex[65])
{
    ls_sha256 *hash = NULL;
    ls_status status = ls_sha256_begin(&hash);
    for (size_t i = 0; i < b->graph->variable_count && status == LS_OK; i++) {
        status = ls_variable_sync_to_host(b->graph->variables[i]);
        if (status == LS_OK)
            status = ls_sha256_add(hash, b->graph->variables[i]->data, b->graph->variables[i]->bytes);
    }
    if (status == LS_OK)
        status = ls_sha256_add(hash, &b->graph->step, sizeof(b->graph->step));
    if (status == LS_OK)
        status = ls_sha256_end(hash, hex);
    FUZZ_CHECK(status == LS_OK, "no hash: %s", ls_last_error());
}

/* The first act that failed and may: a run of no samples has a loss that is not finite. */
static void fail_on_purpose(bed *b, const act *a, const char *before, size_t number)
{
    char hex[65];
    if (a->kind == WRONG && a->batch > 0) {
        labels[a->which % (unsigned)a->batch] = 77;
        ls_status status = once(b, a);
        labels[a->which % (unsigned)a->batch] = (int32_t)(a->which % (unsigned)a->batch * 7 % CLASSES);
        FUZZ_CHECK(status == LS_ERR_DATA, "act %zu: a wrong label gave %s: %s", number, ls_status_name(status),
                   ls_last_error());
        state_of(b, hex);
        FUZZ_CHECK(strcmp(hex, before) == 0, "act %zu: a wrong label changed the state", number);
    }
}

static void do_acts(bed *b, char states[][65], ls_status *statuses)
{
    const fuzz_case *c = b->c;
    if (b->single)
        state_of(b, states[0]);
    for (size_t i = 0; i < c->act_count; i++) {
        const act *a = &c->acts[i];
        if (!b->single)
            fail_on_purpose(b, a, states[i], i);
        bool injects = !b->single && a->kind >= FAIL_TRAIN;
        if (injects)
            (a->late ? gpu_fail_late : gpu_fail_next)(b->g, (gpu_call)a->call, a->nth);
        ls_status status = once(b, a);
        if (injects) {
            gpu_fail_next(b->g, (gpu_call)a->call, 0);
            if (status == LS_ERR_DEVICE || status == LS_ERR_MEMORY) {
                char hex[65], message[512];
                snprintf(message, sizeof message, "%s", ls_last_error());
                if (a->compared) {
                    state_of(b, hex);
                    FUZZ_CHECK(strcmp(hex, states[i]) == 0, "act %zu: a failed run changed the state: %s", i, message);
                }
                status = once(b, a);
            }
        }
        if (b->single)
            statuses[i] = status;
        FUZZ_CHECK(status == statuses[i], "act %zu: %s instead of %s: %s", i, ls_status_name(status),
                   ls_status_name(statuses[i]), status == LS_OK ? "" : ls_last_error());
        FUZZ_CHECK(status != LS_ERR_INTERNAL, "act %zu: %s", i, ls_last_error());
        char hex[65];
        if (b->single || a->compared || i + 1 == c->act_count) {
            state_of(b, hex);
            if (b->single)
                memcpy(states[i + 1], hex, sizeof hex);
            FUZZ_CHECK(strcmp(hex, states[i + 1]) == 0, "act %zu of kind %d: another state", i, (int)a->kind);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 512)
        return 0;
    fuzz_input in = { data, size };
    char states[ACTS + 3][65];
    ls_status statuses[ACTS + 2];
    bed b;
    for (int i = 0; i < BATCH; i++)
        labels[i] = i * 7 % CLASSES;
    for (size_t i = 0; i < sizeof pixels / sizeof *pixels; i++)
        pixels[i] = (float)(draw(1, 0, (unsigned)i) % 256) / 256;
    fuzz_case c = take_case(&in);
    open_bed(&b, &c, true);
    do_acts(&b, states, statuses);
    close_bed(&b);
    open_bed(&b, &c, false);
    do_acts(&b, states, statuses);
    close_bed(&b);
    return 0;
}
