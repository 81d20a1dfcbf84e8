/* Models of random jobs; see random_job.h. */
#include "random_job_parts.h"

#define WIDTH 7

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

/* Layers that make images larger or smaller. */
static ls_symbol resizing_layer(builder *b, ls_symbol x)
{
    ls_activation activation = draw_activation(b);
    switch (draw(&b->d, 6)) {
    case 0:
        return ls_symbol_call(b->model,
                              ls_conv2d_transpose(1 + draw(&b->d, 5), 3, 1 + draw(&b->d, 2), .padding = LS_SAME,
                                                  .activation = activation),
                              x);
    case 1:
        return ls_symbol_call(b->model, ls_separable_conv2d(4, 3, .padding = LS_SAME, .activation = activation), x);
    case 2:
        return ls_symbol_call(b->model, ls_up_sampling2d(.size = { 2, 1 }), x);
    case 3:
        return ls_symbol_call(b->model, ls_up_sampling2d(.size = { 1, 2 }, .interpolation = LS_BILINEAR), x);
    case 4:
        return ls_symbol_call(b->model, ls_resizing(5, 4), x);
    default:
        return ls_symbol_call(b->model, ls_center_crop(4, 4), x);
    }
}

static ls_symbol sequence_layer(builder *b, ls_symbol x)
{
    ls_activation activation = draw_activation(b);
    switch (draw(&b->d, 6)) {
    case 0:
        return ls_symbol_call(b->model, ls_conv1d(4, 3, .padding = LS_CAUSAL, .activation = activation), x);
    case 1:
        return ls_symbol_call(b->model, ls_separable_conv1d(3, 2, .padding = LS_SAME, .activation = activation), x);
    case 2:
        return ls_symbol_call(b->model, ls_conv1d_transpose(2, 3, 2, .activation = activation), x);
    case 3:
        return ls_symbol_call(b->model, ls_max_pool1d(2, .padding = LS_SAME), x);
    case 4:
        return ls_symbol_call(b->model, ls_up_sampling1d(2), x);
    default:
        return ls_symbol_call(b->model, ls_zero_padding1d(1), x);
    }
}

static ls_symbol image_layer(builder *b, ls_symbol x)
{
    switch (draw(&b->d, 10)) {
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
    case 6:
    case 7:
        return resizing_layer(b, x);
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
        for (int layers = (int)draw(&b->d, 4); layers > 0; layers--)
            x = sequence_layer(b, x);
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

ls_status random_model_make(const random_job *j, ls_context *ctx, ls_model **out)
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

ls_status random_model_compile(const random_job *j, ls_model *model)
{
    draws d = draws_from(j->seed, STREAM_LOSSES);
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
