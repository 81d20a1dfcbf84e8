/* Draws and runs random jobs; see random_job.h. */
#include "random_job.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "base/sha256.h"

#define SIDE     6
#define CHANNELS 2
#define VECTOR   5
#define IDS      3
#define ID_KINDS 11
#define CLASSES  3
#define NUMBERS  2
#define WIDTH    7
#define MOST     96 /* samples */

/* ---- Random numbers ---- */

draws draws_from(uint64_t seed, uint64_t stream)
{
    return (draws){ (seed + 1) * 0x9e3779b97f4a7c15u ^ (stream + 1) * 0xd1b54a32d192ed03u };
}

/* SplitMix64. */
static uint64_t next(draws *d)
{
    uint64_t z = d->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint32_t draw(draws *d, uint32_t count)
{
    return (uint32_t)((next(d) >> 32) * count >> 32);
}

bool chance(draws *d, uint32_t percent)
{
    return draw(d, 100) < percent;
}

enum { STREAM_JOB, STREAM_MODEL, STREAM_DATA };

/* ---- Drawing a job ---- */

static ls_optimizer draw_optimizer(draws *d)
{
    const ls_optimizer kinds[] = { ls_sgd(),
                                   ls_sgd(.momentum = 0.9),
                                   ls_sgd(.momentum = 0.9, .nesterov = true),
                                   ls_adam(),
                                   ls_adamw(),
                                   ls_rmsprop(),
                                   ls_rmsprop(.momentum = 0.5),
                                   ls_adagrad() };
    ls_optimizer o = kinds[draw(d, 8)];
    switch (draw(d, 4)) {
    case 0:
        o.options.clipvalue = 0.05;
        break;
    case 1:
        o.options.clipnorm = 0.1;
        break;
    case 2:
        o.options.global_clipnorm = 0.2;
        break;
    }
    if (chance(d, 30))
        o.options.gradient_accumulation_steps = 2 + draw(d, 2);
    if (chance(d, 25))
        o.options.weight_decay = 0.01;
    switch (draw(d, 4)) {
    case 0:
        o.options.schedule = ls_exponential_decay(0.02, 2, 0.7, chance(d, 50));
        break;
    case 1:
        o.options.schedule = ls_cosine_decay(0.02, 6, 0.1, 0.001, 2);
        break;
    default:
        o.options.learning_rate = 0.01;
    }
    return o;
}

/* Sizes that leave a last batch of one sample are common: they are where lanes are empty. */
static void draw_sizes(draws *d, random_job *j)
{
    j->batch = 1 + draw(d, chance(d, 20) ? 40 : 16);
    int64_t batches = 1 + draw(d, 3);
    int64_t rest = chance(d, 40) ? 1 : (int64_t)draw(d, (uint32_t)j->batch);
    j->samples = j->batch * batches + rest;
    if (j->samples > MOST)
        j->samples = MOST;
    j->epochs = 1 + draw(d, 3);
    j->lanes = chance(d, 30) ? 0 : 1 + (int)draw(d, chance(d, 30) ? 64 : 9);
    if (chance(d, 20))
        j->steps_per_epoch = 1 + draw(d, 4);
    if (chance(d, 20))
        j->max_steps = 2 + draw(d, 4);
}

static void draw_pipeline(draws *d, random_job *j)
{
    random_pipeline *p = &j->pipeline;
    if (chance(d, 15))
        p->source = SOURCE_GENERATOR;
    if (chance(d, 40)) {
        p->map = chance(d, 50);
        p->map_threads = chance(d, 50);
        p->skip = j->samples > 2 && chance(d, 20);
        p->shard = chance(d, 20);
        p->shuffle = chance(d, 50);
        p->repeat = chance(d, 20);
        p->batch = chance(d, 60);
        p->drop_remainder = chance(d, 20);
        p->prefetch = chance(d, 40);
    }
}

void random_job_draw(uint64_t seed, random_job *out)
{
    draws d = draws_from(seed, STREAM_JOB);
    random_job j = { .seed = seed, .inputs = 1 + (int)draw(&d, RANDOM_JOB_INPUTS) };
    j.outputs = 1 + (int)draw(&d, RANDOM_JOB_OUTPUTS);
    for (int i = 0; i < j.inputs; i++)
        j.input[i] = (input_kind)draw(&d, INPUT_KINDS);
    for (int i = 0; i < j.outputs; i++)
        j.target[i] = (target_kind)draw(&d, TARGET_KINDS);
    j.statistics = chance(&d, 50) ? LS_PER_BATCH : LS_PER_LANE;
    j.optimizer = draw_optimizer(&d);
    draw_sizes(&d, &j);
    draw_pipeline(&d, &j);
    j.sample_weights = chance(&d, 30);
    j.class_weights = j.outputs == 1 && j.target[0] == TARGET_SPARSE && chance(&d, 50);
    j.validation_data = chance(&d, 30);
    j.own_callback = chance(&d, 40);
    j.scheduler = j.optimizer.options.schedule.kind == LS_SCHEDULE_CONSTANT && chance(&d, 30);
    j.plateau = j.optimizer.options.schedule.kind == LS_SCHEDULE_CONSTANT && !j.scheduler && chance(&d, 30);
    j.early_stopping = chance(&d, 20);
    j.csv = chance(&d, 20);
    const random_pipeline none = { .source = SOURCE_ARRAYS };
    if (!j.validation_data && memcmp(&j.pipeline, &none, sizeof(none)) == 0 && j.samples > 4)
        j.validation_split = chance(&d, 30);
    *out = j;
}

typedef struct words {
    char *text;
    size_t bytes, used;
} words;

__attribute__((format(printf, 2, 3))) static void put(words *w, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int written = vsnprintf(w->text + w->used, w->bytes - w->used, format, arguments);
    va_end(arguments);
    if (written > 0)
        w->used = w->used + (size_t)written < w->bytes ? w->used + (size_t)written : w->bytes - 1;
}

void random_job_describe(const random_job *j, char *out, size_t bytes)
{
    static const char *const inputs[] = { "uint8 image", "image", "vector", "ids" };
    static const char *const targets[] = { "sparse", "one-hot", "binary", "numbers" };
    const ls_optimizer_options *o = &j->optimizer.options;
    const random_pipeline *p = &j->pipeline;
    words w = { .text = out, .bytes = bytes };
    put(&w, "inputs:");
    for (int i = 0; i < j->inputs; i++)
        put(&w, " %s", inputs[j->input[i]]);
    put(&w, "; targets:");
    for (int i = 0; i < j->outputs; i++)
        put(&w, " %s", targets[j->target[i]]);
    put(&w, "; norms by %s; %s, accumulation %" PRId64 ", clip %g %g %g",
        j->statistics == LS_PER_LANE ? "lane" : "batch", ls_optimizer_name(&j->optimizer),
        o->gradient_accumulation_steps, o->clipvalue, o->clipnorm, o->global_clipnorm);
    put(&w,
        "; %" PRId64 " samples, batch %" PRId64 ", %" PRId64 " epochs, %" PRId64 " steps each, at most %" PRId64
        ", %d lanes",
        j->samples, j->batch, j->epochs, j->steps_per_epoch, j->max_steps, j->lanes);
    const struct {
        bool on;
        const char *name;
    } parts[] = { { p->source == SOURCE_GENERATOR, "generator" },
                  { p->map, p->map_threads ? "map by threads" : "map" },
                  { p->skip, "skip" },
                  { p->shard, "shard" },
                  { p->shuffle, "shuffle" },
                  { p->repeat, "repeat" },
                  { p->batch, p->drop_remainder ? "whole batches" : "batch" },
                  { p->prefetch, "prefetch" },
                  { j->sample_weights, "sample weights" },
                  { j->class_weights, "class weights" },
                  { j->validation_data, "validation data" },
                  { j->validation_split, "validation split" },
                  { j->own_callback, "own callback" },
                  { j->scheduler, "scheduler" },
                  { j->plateau, "plateau" },
                  { j->early_stopping, "early stopping" },
                  { j->csv, "csv" } };
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (parts[i].on)
            put(&w, ", %s", parts[i].name);
}

/* ---- Model ---- */

typedef struct builder {
    ls_model *model;
    draws d;
    ls_norm_statistics statistics;
} builder;

static ls_activation draw_activation(builder *b)
{
    static const ls_activation all[] = { LS_LINEAR, LS_RELU, LS_TANH, LS_SIGMOID, LS_GELU, LS_SILU, LS_ELU };
    return all[draw(&b->d, 7)];
}

static ls_regularizer draw_regularizer(builder *b)
{
    return chance(&b->d, 20) ? (ls_regularizer){ .l1 = 0.001 * draw(&b->d, 2), .l2 = 0.01 } : (ls_regularizer){ 0 };
}

static ls_layer draw_dense(builder *b, int64_t units)
{
    ls_activation activation = draw_activation(b);
    return ls_dense(units, .activation = activation, .kernel_regularizer = draw_regularizer(b));
}

/* A layer that fits images and vectors alike. */
static ls_symbol any_layer(builder *b, ls_symbol x)
{
    switch (draw(&b->d, 4)) {
    case 0:
        return ls_symbol_call(b->model, ls_dropout(0.25), x);
    case 1:
        return ls_symbol_call(b->model, ls_layer_normalization(), x);
    case 2:
        return ls_symbol_call(b->model, ls_batch_normalization(.statistics = b->statistics, .momentum = 0.8), x);
    default:
        return ls_symbol_call(b->model, ls_activation_layer(draw_activation(b)), x);
    }
}

static ls_symbol conv(builder *b, ls_symbol x, int64_t filters)
{
    ls_activation activation = draw_activation(b);
    int64_t side = 1 + draw(&b->d, 3);
    return ls_symbol_call(b->model,
                          ls_conv2d(filters, side, .padding = LS_SAME, .activation = activation,
                                    .kernel_regularizer = draw_regularizer(b)),
                          x);
}

static ls_symbol image_layer(builder *b, ls_symbol x)
{
    switch (draw(&b->d, 8)) {
    case 0:
        return conv(b, x, 1 + draw(&b->d, 9));
    case 1:
        return ls_symbol_call(b->model, ls_depthwise_conv2d(3, .padding = LS_SAME), x);
    case 2:
        return ls_symbol_call(b->model, ls_max_pool2d(2, .padding = LS_SAME), x);
    case 3:
        return ls_symbol_call(b->model, ls_average_pool2d(2, .padding = LS_SAME), x);
    case 4: {
        ls_symbol start = conv(b, x, 4), again = conv(b, start, 4);
        return ls_symbol_call(b->model, ls_add(), start, again);
    }
    case 5: {
        ls_symbol left = conv(b, x, 2), right = conv(b, x, 3);
        return ls_symbol_call(b->model, ls_concatenate(), left, right);
    }
    default:
        return any_layer(b, x);
    }
}

static ls_symbol image_features(builder *b, ls_symbol x)
{
    for (int layers = 1 + (int)draw(&b->d, 4); layers > 0; layers--)
        x = image_layer(b, x);
    switch (draw(&b->d, 3)) {
    case 0:
        return ls_symbol_call(b->model, ls_global_average_pool2d(), x);
    case 1:
        return ls_symbol_call(b->model, ls_global_max_pool2d(), x);
    default:
        return ls_symbol_call(b->model, ls_flatten(), x);
    }
}

static ls_symbol input_features(builder *b, input_kind kind)
{
    ls_symbol x;
    switch (kind) {
    case INPUT_VECTOR:
        x = ls_symbol_input(b->model, ls_input(VECTOR));
        break;
    case INPUT_IDS:
        x = ls_symbol_call(b->model, ls_embedding(ID_KINDS, 4),
                           ls_symbol_input(b->model, ls_input(IDS, .dtype = LS_I32)));
        x = ls_symbol_call(b->model, ls_flatten(), x);
        break;
    default:
        x = image_features(b, ls_symbol_input(b->model, ls_input(SIDE, SIDE, CHANNELS)));
    }
    return ls_symbol_call(b->model, draw_dense(b, WIDTH), x);
}

/* One dense layer on two tensors, whose results are merged. */
static ls_symbol shared_features(builder *b, ls_symbol first, ls_symbol second)
{
    ls_symbol x = ls_symbol_call(b->model, draw_dense(b, WIDTH), first), y = ls_symbol_share(x, second);
    switch (draw(&b->d, 3)) {
    case 0:
        return ls_symbol_call(b->model, ls_add(), x, y);
    case 1:
        return ls_symbol_call(b->model, ls_multiply(), x, y);
    default:
        return ls_symbol_call(b->model, ls_concatenate(), x, y);
    }
}

static ls_symbol head(builder *b, target_kind kind, ls_symbol x)
{
    switch (kind) {
    case TARGET_BINARY:
        return ls_symbol_call(b->model, ls_dense(1, .activation = LS_SIGMOID), x);
    case TARGET_NUMBERS:
        return ls_symbol_call(b->model, ls_dense(NUMBERS), x);
    default:
        return ls_symbol_call(b->model, ls_dense(CLASSES, .activation = LS_SOFTMAX), x);
    }
}

static ls_status make_model(const random_job *j, ls_context *ctx, ls_model **out)
{
    builder b = { .d = draws_from(j->seed, STREAM_MODEL), .statistics = j->statistics };
    ls_status status = ls_functional_begin(ctx, "random", &b.model);
    if (status != LS_OK)
        return status;
    ls_symbol features[RANDOM_JOB_INPUTS], x, outputs[RANDOM_JOB_OUTPUTS];
    for (int i = 0; i < j->inputs; i++)
        features[i] = input_features(&b, j->input[i]);
    x = features[0];
    if (j->inputs == 2)
        x = shared_features(&b, features[0], features[1]);
    else if (chance(&b.d, 40))
        x = shared_features(&b, x, any_layer(&b, x));
    for (int layers = (int)draw(&b.d, 3); layers > 0; layers--)
        x = any_layer(&b, ls_symbol_call(b.model, draw_dense(&b, 3 + draw(&b.d, 30)), x));
    for (int i = 0; i < j->outputs; i++)
        outputs[i] = head(&b, j->target[i], x);
    status = ls_functional_end_with(b.model, outputs, (size_t)j->outputs);
    if (status == LS_OK)
        status = ls_model_initialize(b.model, j->seed);
    if (status != LS_OK)
        ls_model_destroy(b.model);
    else
        *out = b.model;
    return status;
}

static ls_status compile(const random_job *j, ls_model *model)
{
    draws d = draws_from(j->seed, STREAM_MODEL + 100);
    ls_output outputs[RANDOM_JOB_OUTPUTS];
    for (int i = 0; i < j->outputs; i++) {
        ls_metrics_list metrics = ls_metrics(ls_accuracy());
        ls_loss loss = ls_sparse_categorical_crossentropy();
        if (j->target[i] == TARGET_ONE_HOT)
            loss = ls_categorical_crossentropy();
        if (j->target[i] == TARGET_BINARY) {
            loss = ls_binary_crossentropy();
            metrics = ls_metrics(ls_accuracy(), ls_metric_of(LS_METRIC_AUC));
        }
        if (j->target[i] == TARGET_NUMBERS) {
            const ls_loss losses[] = { ls_mean_squared_error(), ls_mean_absolute_error(), ls_huber(.delta = 0.3) };
            loss = losses[draw(&d, 3)];
            metrics = ls_metrics(ls_metric_of(LS_METRIC_MEAN_ABSOLUTE_ERROR));
        }
        outputs[i] = (ls_output){ .loss = loss, .weight = 0.5 + 0.25 * draw(&d, 3), .metrics = metrics };
    }
    return ls_compile(model, .optimizer = j->optimizer, .outputs = outputs, .output_count = (size_t)j->outputs);
}

/* ---- Data ---- */

typedef struct samples {
    uint8_t bytes[RANDOM_JOB_INPUTS][MOST * SIDE * SIDE * CHANNELS];
    float numbers[RANDOM_JOB_INPUTS][MOST * SIDE * SIDE * CHANNELS];
    int32_t ids[RANDOM_JOB_INPUTS][MOST * IDS];
    int32_t classes[RANDOM_JOB_OUTPUTS][MOST];
    float targets[RANDOM_JOB_OUTPUTS][MOST * CLASSES];
    float weights[MOST];
    ls_array inputs[RANDOM_JOB_INPUTS], labels[RANDOM_JOB_OUTPUTS];
    const random_job *job;
} samples;

static float unit(draws *d)
{
    return (float)draw(d, 1 << 16) / 65536;
}

static ls_array make_input(const random_job *j, samples *s, int i, draws *d)
{
    for (size_t k = 0; k < sizeof(s->numbers[i]) / sizeof(float); k++) {
        s->numbers[i][k] = unit(d);
        s->bytes[i][k] = (uint8_t)draw(d, 256);
    }
    for (int k = 0; k < MOST * IDS; k++)
        s->ids[i][k] = (int32_t)draw(d, ID_KINDS);
    switch (j->input[i]) {
    case INPUT_IMAGE_U8:
        return ls_array_of(LS_U8, LS_SHAPE(j->samples, SIDE, SIDE, CHANNELS), s->bytes[i]);
    case INPUT_IMAGE:
        return ls_array_of(LS_F32, LS_SHAPE(j->samples, SIDE, SIDE, CHANNELS), s->numbers[i]);
    case INPUT_VECTOR:
        return ls_array_of(LS_F32, LS_SHAPE(j->samples, VECTOR), s->numbers[i]);
    default:
        return ls_array_of(LS_I32, LS_SHAPE(j->samples, IDS), s->ids[i]);
    }
}

static ls_array make_label(const random_job *j, samples *s, int i, draws *d)
{
    for (int k = 0; k < MOST; k++) {
        s->classes[i][k] = (int32_t)draw(d, CLASSES);
        for (int c = 0; c < CLASSES; c++)
            if (j->target[i] == TARGET_ONE_HOT)
                s->targets[i][k * CLASSES + c] = c == s->classes[i][k];
            else
                s->targets[i][k * CLASSES + c] = j->target[i] == TARGET_BINARY ? (float)draw(d, 2) : unit(d);
    }
    switch (j->target[i]) {
    case TARGET_SPARSE:
        return ls_array_of(LS_I32, LS_SHAPE(j->samples), s->classes[i]);
    case TARGET_ONE_HOT:
        return ls_array_of(LS_F32, LS_SHAPE(j->samples, CLASSES), s->targets[i]);
    case TARGET_BINARY:
        return ls_array_of(LS_F32, LS_SHAPE(j->samples, 1), s->targets[i]);
    default:
        return ls_array_of(LS_F32, LS_SHAPE(j->samples, NUMBERS), s->targets[i]);
    }
}

static samples *make_samples(const random_job *j)
{
    samples *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    draws d = draws_from(j->seed, STREAM_DATA);
    s->job = j;
    for (int i = 0; i < j->inputs; i++)
        s->inputs[i] = make_input(j, s, i, &d);
    for (int i = 0; i < j->outputs; i++)
        s->labels[i] = make_label(j, s, i, &d);
    for (int k = 0; k < MOST; k++)
        s->weights[k] = k % 5 == 3 ? 0 : 0.5f + unit(&d);
    return s;
}

static ls_array weights_of(const samples *s)
{
    return ls_array_of(LS_F32, LS_SHAPE(s->job->samples), s->weights);
}

static ls_dataset *all_samples(const samples *s, bool weighted)
{
    ls_arrays_options o = { .inputs = s->inputs,
                            .input_count = s->job->inputs,
                            .targets = s->labels,
                            .target_count = s->job->outputs,
                            .keep = LS_KEEP_BORROWED };
    if (weighted)
        o.weights = weights_of(s);
    return ls_from_tensor_slices_with(o);
}

/* The bytes of one row. */
static size_t row_bytes(ls_array a, size_t element)
{
    size_t bytes = element;
    for (int axis = 1; axis < a.shape.rank; axis++)
        bytes *= (size_t)a.shape.dims[axis];
    return bytes;
}

static size_t element_bytes(ls_dtype dtype)
{
    return dtype == LS_U8 ? 1 : 4;
}

static void copy_row(ls_array from, int64_t row, ls_array *to)
{
    size_t bytes = row_bytes(from, element_bytes(from.dtype));
    memcpy(to->data, (const char *)from.data + (size_t)row * bytes, bytes);
}

static ls_status generate(void *user, ls_element *out, bool *end)
{
    const samples *s = user;
    const random_job *j = s->job;
    int64_t row = (out->number + (int64_t)out->epoch) % j->samples;
    *end = out->number == j->samples;
    if (*end)
        return LS_OK;
    for (int i = 0; i < j->inputs; i++)
        copy_row(s->inputs[i], row, &out->component[i]);
    for (int i = 0; i < j->outputs; i++)
        copy_row(s->labels[i], row, &out->component[j->inputs + i]);
    if (j->sample_weights)
        copy_row(weights_of(s), row, &out->component[j->inputs + j->outputs]);
    return LS_OK;
}

static ls_spec row_spec(ls_array a)
{
    ls_spec spec = { .dtype = a.dtype, .shape = { .rank = a.shape.rank - 1 } };
    memcpy(spec.shape.dims, a.shape.dims + 1, sizeof(spec.shape.dims[0]) * (size_t)spec.shape.rank);
    return spec;
}

static ls_dataset *generated_samples(samples *s)
{
    const random_job *j = s->job;
    ls_element_spec spec = { .features = j->inputs, .labels = j->outputs, .weights = j->sample_weights };
    for (int i = 0; i < j->inputs; i++)
        spec.component[spec.count++] = row_spec(s->inputs[i]);
    for (int i = 0; i < j->outputs; i++)
        spec.component[spec.count++] = row_spec(s->labels[i]);
    if (j->sample_weights)
        spec.component[spec.count++] = row_spec(weights_of(s));
    return ls_from_generator(generate, s, spec);
}

/* Turns images around in every second sample, and adds a number that depends on epoch and sample to float inputs. */
static ls_status augment(void *user, const ls_element *in, ls_element *out)
{
    (void)user;
    for (int c = 0; c < in->count; c++) {
        size_t bytes = element_bytes(in->component[c].dtype);
        for (int axis = 0; axis < in->component[c].shape.rank; axis++)
            bytes *= (size_t)in->component[c].shape.dims[axis];
        memcpy(out->component[c].data, in->component[c].data, bytes);
    }
    float *first = out->component[0].data;
    if (in->component[0].dtype == LS_F32)
        first[0] += (float)((in->number * 7 + (int64_t)in->epoch * 3) % 11) / 16;
    if (in->component[0].dtype == LS_U8)
        ((uint8_t *)out->component[0].data)[0] = (uint8_t)(in->number * 7 + (int64_t)in->epoch * 3);
    return LS_OK;
}

static ls_dataset *make_data(samples *s)
{
    const random_pipeline *p = &s->job->pipeline;
    ls_dataset *data = p->source == SOURCE_GENERATOR ? generated_samples(s) : all_samples(s, s->job->sample_weights);
    if (p->skip)
        data = ls_skip(data, 1);
    if (p->shard)
        data = ls_shard(data, 2, 0);
    if (p->map)
        data = ls_map(data, augment, .threads = p->map_threads ? 3 : 0);
    if (p->shuffle)
        data = ls_shuffle(data, 1 + s->job->samples / 2, s->job->seed);
    if (p->repeat)
        data = ls_repeat(data, 2);
    if (p->batch)
        data = ls_batch(data, s->job->batch, p->drop_remainder && s->job->samples / 2 > s->job->batch);
    if (p->prefetch)
        data = ls_prefetch(data, 2);
    return data;
}

/* ---- Callbacks ---- */

/* Lowers the learning rate every third batch and remembers how many there were: it must be saved with the job. */
typedef struct own {
    const random_job *job;
    int64_t batches;
} own;

static ls_status own_batch_end(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    own *o = user;
    double rate;
    (void)logs;
    (void)stop;
    o->batches++;
    if (o->batches % 3 || o->job->optimizer.options.schedule.kind != LS_SCHEDULE_CONSTANT)
        return LS_OK;
    ls_status status = ls_learning_rate(model, &rate);
    return status == LS_OK ? ls_set_learning_rate(model, rate * 0.75) : status;
}

static ls_status own_epoch_end(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    own *o = user;
    (void)model;
    *stop = !logs->cut && o->batches > 20;
    return LS_OK;
}

static ls_status own_save(void *user, void **bytes, size_t *count)
{
    own *o = user;
    int64_t *copy = malloc(sizeof(*copy));
    if (!copy)
        return LS_ERR_MEMORY;
    *copy = o->batches;
    *bytes = copy;
    *count = sizeof(*copy);
    return LS_OK;
}

static ls_status own_load(void *user, const void *bytes, size_t count)
{
    own *o = user;
    if (count != sizeof(o->batches))
        return LS_ERR_DATA;
    memcpy(&o->batches, bytes, count);
    return LS_OK;
}

static double lower_rate(void *user, int64_t epoch, double rate)
{
    (void)user;
    return epoch == 0 ? rate : rate * 0.7;
}

static size_t make_callbacks(const random_job *j, own *o, const char *csv, ls_callback out[5])
{
    size_t count = 0;
    if (j->own_callback)
        out[count++] = (ls_callback){
            .user = o, .on_batch_end = own_batch_end, .on_epoch_end = own_epoch_end, .save = own_save, .load = own_load
        };
    if (j->scheduler)
        out[count++] = ls_learning_rate_scheduler(lower_rate);
    if (j->plateau)
        out[count++] = ls_reduce_lr_on_plateau(.monitor = "loss", .factor = 0.5, .patience = 1, .min_delta = 0.01);
    if (j->early_stopping)
        out[count++] = ls_early_stopping("loss", .patience = 1, .restore_best_weights = true);
    if (j->csv)
        out[count++] = ls_csv_logger(csv);
    return count;
}

/* ---- Running ---- */

typedef struct report {
    char *text;
    size_t bytes;
    FILE *out;
} report;

static void put_failure(report *r, const char *what, ls_status status)
{
    fprintf(r->out, "%s: %s: %s\n", what, ls_status_name(status), status == LS_ERR_NOT_FINITE ? "" : ls_last_error());
}

/* A line for each step of the log: its number and the hash of the state after it. */
static void put_steps(report *r, const char *log)
{
    FILE *file = fopen(log, "r");
    char *line = NULL;
    size_t room = 0;
    while (file && getline(&line, &room, file) > 0) {
        const char *step = strstr(line, "\"event\":\"step\",\"step\":"), *hash = strstr(line, "\"hash\":\"");
        if (step && hash)
            fprintf(r->out, "step %" PRId64 ": %.64s\n", (int64_t)strtoll(step + 22, NULL, 10), hash + 8);
    }
    free(line);
    if (file)
        fclose(file);
}

static void put_history(report *r, const ls_history *history)
{
    for (size_t e = 0; history && e < ls_history_epochs(history); e++) {
        fprintf(r->out, "epoch %zu:", e);
        for (size_t i = 0; i < ls_history_count(history); i++) {
            double value = 0;
            if (ls_history_value(history, ls_history_name(history, i), e, &value) == LS_OK)
                fprintf(r->out, " %s %a", ls_history_name(history, i), value);
        }
        fprintf(r->out, "\n");
    }
}

static ls_status put_state(report *r, ls_model *model)
{
    char weights[65], state[65];
    ls_status status = ls_model_weights_sha256(model, weights);
    if (status == LS_OK)
        status = ls_model_state_sha256(model, state);
    if (status == LS_OK)
        fprintf(r->out, "weights %s\nstate %s\n", weights, state);
    return status;
}

static ls_status fit(const random_job *j, const random_run *run, ls_model *model, ls_dataset *data,
                     ls_dataset *validation, report *r)
{
    static const double class_weights[CLASSES] = { 1, 0.5, 2 };
    char log[512], csv[512], checkpoint[512];
    snprintf(log, sizeof(log), "%s/log", run->folder);
    snprintf(csv, sizeof(csv), "%s/csv", run->folder);
    snprintf(checkpoint, sizeof(checkpoint), "%s/../checkpoints", run->folder);
    bool saves = run->cut > 0 || run->resume;
    own mine = { .job = j };
    ls_callback callbacks[5];
    ls_history *history = NULL;
    ls_status status =
        ls_fit(model, data, .epochs = j->epochs, .batch_size = j->pipeline.batch ? 0 : j->batch,
               .steps_per_epoch = j->steps_per_epoch, .max_steps = run->cut ? run->cut : j->max_steps,
               .validation = validation, .validation_split = j->validation_split ? 0.25 : 0, .seed = j->seed,
               .class_weights = j->class_weights ? class_weights : NULL, .class_count = j->class_weights ? CLASSES : 0,
               .callbacks = callbacks, .callback_count = make_callbacks(j, &mine, csv, callbacks),
               .verbose = LS_VERBOSE_SILENT, .strategy = run->strategy, .lanes = j->lanes, .log = log, .log_hash = true,
               .history = run->resume ? NULL : &history, .checkpoint = saves ? checkpoint : NULL,
               .resume = run->resume ? "auto" : NULL, .audit = run->audit);
    put_steps(r, log);
    put_history(r, history);
    ls_history_destroy(history);
    return status;
}

static ls_status put_evaluation(const random_job *j, const random_run *run, ls_model *model, ls_dataset *data,
                                report *r)
{
    ls_results results;
    ls_status status = ls_evaluate(model, data, &results, .batch_size = j->batch, .verbose = LS_VERBOSE_SILENT,
                                   .strategy = run->strategy, .lanes = j->lanes);
    if (status != LS_OK)
        return status;
    fprintf(r->out, "evaluation of %" PRId64 ":", results.samples);
    for (size_t i = 0; i < results.count; i++)
        fprintf(r->out, " %s %a", results.names[i], results.values[i]);
    fprintf(r->out, "\n");
    return LS_OK;
}

static ls_status put_predictions(const random_job *j, const random_run *run, ls_model *model, ls_dataset *data,
                                 report *r)
{
    for (int output = 0; output < j->outputs; output++) {
        char hex[65];
        ls_array values = { 0 };
        ls_status status = ls_predict(model, data, &values, .batch_size = j->batch, .verbose = LS_VERBOSE_SILENT,
                                      .strategy = run->strategy, .lanes = j->lanes, .index = output);
        if (status == LS_OK)
            status = ls_sha256_of(values.data, (size_t)values.shape.dims[0] * row_bytes(values, 4), hex);
        free(values.data);
        if (status != LS_OK)
            return status;
        fprintf(r->out, "predictions %d: %s\n", output, hex);
    }
    return LS_OK;
}

static void train(const random_job *j, const random_run *run, ls_model *model, samples *s, report *r)
{
    ls_dataset *data = make_data(s), *all = all_samples(s, false), *validation = NULL;
    if (j->validation_data)
        validation = ls_take(all_samples(s, false), 1 + j->samples / 2);
    ls_status status = fit(j, run, model, data, validation, r);
    if (status != LS_OK)
        put_failure(r, "fit", status);
    status = put_state(r, model);
    if (status == LS_OK && !run->cut)
        status = put_evaluation(j, run, model, all, r);
    if (status == LS_OK && !run->cut)
        status = put_predictions(j, run, model, all, r);
    if (status != LS_OK)
        put_failure(r, "after fit", status);
    ls_dataset_destroy(data);
    ls_dataset_destroy(all);
    ls_dataset_destroy(validation);
}

char *random_job_run(const random_job *j, ls_context *ctx, const random_run *run)
{
    report r = { .text = NULL };
    ls_model *model = NULL;
    samples *s = make_samples(j);
    r.out = s ? open_memstream(&r.text, &r.bytes) : NULL;
    if (r.out) {
        ls_status status = make_model(j, ctx, &model);
        if (status == LS_OK)
            status = compile(j, model);
        if (status == LS_OK)
            train(j, run, model, s, &r);
        else
            put_failure(&r, "model", status);
        ls_model_destroy(model);
        fclose(r.out);
    }
    free(s);
    return r.text;
}
