/* lockstep/cplusplus.h: the calls that are macros in C, as functions for C++20.
 *
 * lockstep.h includes it. The calls have the same names and arguments; put options in braces, in
 * the order in which their struct declares them:
 *     ls_conv2d(16, 3, { .activation = LS_RELU, .padding = LS_SAME })
 *     ls_fit(model, data, { .epochs = 5, .batch_size = 256 })
 * The other headers document the functions. Bindings of other languages can work the same way:
 * fill in the options and call the function whose name ends in _with. */
#ifndef LOCKSTEP_CPLUSPLUS_H
#define LOCKSTEP_CPLUSPLUS_H

/* The missing file stops the compiler before a page of errors follows. */
#if defined(__cplusplus) && __cplusplus < 202002L
#error Lockstep needs C++20: compile with -std=c++20
#include "lockstep needs -std=c++20"
#endif

#include "lockstep/device.h"
#include "lockstep/train.h"

#ifdef __cplusplus

/* g++ warns about each member that a designated initializer omits; C compilers and clang++ do
 * not. With options every call would warn, so the warning is off from here on, unless
 * LS_KEEP_WARNINGS is defined. */
#if defined(__GNUC__) && !defined(__clang__) && !defined(LS_KEEP_WARNINGS)
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#endif

/* ---- Shapes, axes, arrays ---- */

template <class... Sizes> constexpr ls_shape ls_shape_of_(Sizes... sizes)
{
    static_assert(sizeof...(sizes) <= LS_MAX_RANK, "a shape has at most LS_MAX_RANK axes");
    return ls_shape{ static_cast<int>(sizeof...(sizes)), { static_cast<int64_t>(sizes)... } };
}

template <class... Axes> constexpr ls_axes ls_axes_of_(Axes... axes)
{
    static_assert(sizeof...(axes) <= LS_MAX_RANK, "there are at most LS_MAX_RANK axes");
    return ls_axes{ static_cast<int>(sizeof...(axes)), { static_cast<int64_t>(axes)... } };
}

#undef LS_SHAPE
#undef LS_SCALAR
#undef LS_AXES
#undef LS_ALL_AXES
#define LS_SHAPE(...) ls_shape_of_(__VA_ARGS__)
#define LS_SCALAR     ls_shape_of_()
#define LS_AXES(...)  ls_axes_of_(__VA_ARGS__)
#define LS_ALL_AXES   (ls_axes{ -1, {} })

#undef ls_array_of
inline ls_array ls_array_of(ls_dtype dtype, ls_shape shape, const void *values)
{
    return ls_array{ const_cast<void *>(values), dtype, shape };
}

/* ---- Contexts and graphs ---- */

inline ls_status ls_context_open(const ls_context_options &options, ls_context **out)
{
    return ls_context_open(&options, out);
}

inline ls_status ls_context_create(const ls_context_options &options, ls_context **out)
{
    return ls_context_create(&options, out);
}

#undef ls_graph_create
inline ls_status ls_graph_create(ls_context *ctx, ls_graph **out, ls_graph_options options = {})
{
    return ls_graph_create_with(ctx, options, out);
}

/* ---- Ops ---- */

#undef ls_op_variable
#undef ls_op_apply
#undef ls_op_matmul
#undef ls_op_conv2d
#undef ls_op_max_pool2d
#undef ls_op_average_pool2d
#undef ls_op_batch_norm
#undef ls_op_layer_norm

inline ls_tensor *ls_op_variable(ls_graph *graph, const char *name, ls_dtype dtype, ls_shape shape,
                                 ls_variable_op options = {})
{
    options.shape = shape;
    return ls_op_variable_with(graph, name, dtype, options);
}

inline ls_tensor *ls_op_apply(ls_tensor *variable, ls_tensor *gradient, ls_apply_rule rule, ls_apply_op options = {})
{
    options.rule = rule;
    return ls_op_apply_with(variable, gradient, options);
}

inline ls_tensor *ls_op_matmul(ls_tensor *a, ls_tensor *b, ls_matmul_op options = {})
{
    options.b = b;
    return ls_op_matmul_with(a, options);
}

inline ls_tensor *ls_op_conv2d(ls_tensor *x, ls_tensor *kernel, ls_conv2d_op options = {})
{
    options.kernel = kernel;
    return ls_op_conv2d_with(x, options);
}

inline ls_tensor *ls_op_max_pool2d(ls_tensor *x, ls_pool2d_op options)
{
    return ls_op_max_pool2d_with(x, options);
}

inline ls_tensor *ls_op_average_pool2d(ls_tensor *x, ls_pool2d_op options)
{
    return ls_op_average_pool2d_with(x, options);
}

inline ls_tensor *ls_op_batch_norm(ls_tensor *x, ls_batch_norm_op options = {})
{
    return ls_op_batch_norm_with(x, options);
}

inline ls_tensor *ls_op_layer_norm(ls_tensor *x, ls_layer_norm_op options = {})
{
    return ls_op_layer_norm_with(x, options);
}

/* ---- Data ---- */

#undef LS_SPEC
#undef LS_ELEMENT
#undef ls_from_tensor_slices
#undef ls_from_tensors
#undef ls_map

inline ls_spec LS_SPEC(ls_dtype dtype, ls_shape shape)
{
    return ls_spec{ dtype, shape };
}

template <class... Specs> ls_element_spec LS_ELEMENT(Specs... specs)
{
    static_assert(sizeof...(specs) <= LS_MAX_COMPONENTS, "an element has at most LS_MAX_COMPONENTS components");
    return ls_element_spec{ static_cast<int>(sizeof...(specs)), { specs... }, 0, 0, 0, 0 };
}

inline ls_dataset *ls_from_tensor_slices(ls_arrays_options options)
{
    return ls_from_tensor_slices_with(options);
}

inline ls_dataset *ls_from_tensor_slices(ls_array features, ls_array labels = {}, ls_arrays_options options = {})
{
    options.features = features;
    options.labels = labels;
    return ls_from_tensor_slices_with(options);
}

inline ls_dataset *ls_from_tensors(ls_arrays_options options)
{
    return ls_from_tensors_with(options);
}

inline ls_dataset *ls_from_tensors(ls_array features, ls_array labels = {}, ls_arrays_options options = {})
{
    options.features = features;
    options.labels = labels;
    return ls_from_tensors_with(options);
}

inline ls_dataset *ls_map(ls_dataset *source, ls_map_function function, ls_map_options options = {})
{
    options.function = function;
    return ls_map_with(source, options);
}

/* ---- Layers ---- */

#undef ls_input
#undef ls_dense
#undef ls_conv2d
#undef ls_depthwise_conv2d
#undef ls_max_pool2d
#undef ls_average_pool2d
#undef ls_global_max_pool2d
#undef ls_global_average_pool2d
#undef ls_flatten
#undef ls_reshape
#undef ls_dropout
#undef ls_batch_normalization
#undef ls_layer_normalization
#undef ls_activation_layer
#undef ls_relu
#undef ls_leaky_relu
#undef ls_softmax
#undef ls_add
#undef ls_multiply
#undef ls_concatenate
#undef ls_zero_padding2d
#undef ls_embedding
#undef ls_rescaling

inline ls_layer ls_layer_of_(ls_layer_kind kind, ls_layer_options options, int64_t first = 0, int64_t second = 0,
                             int64_t third = 0, int64_t fourth = 0)
{
    options.first = first, options.second = second, options.third = third, options.fourth = fourth;
    return ls_layer{ kind, options };
}

/* Defines a constructor with N positional arguments. */
#define LS_LAYER_0_(name, kind)                                                                                        \
    inline ls_layer name(ls_layer_options options = {})                                                                \
    {                                                                                                                  \
        return ls_layer_of_(kind, options);                                                                            \
    }
#define LS_LAYER_1_(name, kind)                                                                                        \
    inline ls_layer name(int64_t first, ls_layer_options options = {})                                                 \
    {                                                                                                                  \
        return ls_layer_of_(kind, options, first);                                                                     \
    }
#define LS_LAYER_2_(name, kind)                                                                                        \
    inline ls_layer name(int64_t first, int64_t second, ls_layer_options options = {})                                 \
    {                                                                                                                  \
        return ls_layer_of_(kind, options, first, second);                                                             \
    }
#define LS_LAYER_3_(name, kind)                                                                                        \
    inline ls_layer name(int64_t first, int64_t second, int64_t third, ls_layer_options options = {})                  \
    {                                                                                                                  \
        return ls_layer_of_(kind, options, first, second, third);                                                      \
    }
#define LS_LAYER_4_(name, kind)                                                                                        \
    inline ls_layer name(int64_t first, int64_t second, int64_t third, int64_t fourth, ls_layer_options options = {})  \
    {                                                                                                                  \
        return ls_layer_of_(kind, options, first, second, third, fourth);                                              \
    }

LS_LAYER_0_(ls_input, LS_LAYER_INPUT)
LS_LAYER_1_(ls_input, LS_LAYER_INPUT)
LS_LAYER_2_(ls_input, LS_LAYER_INPUT)
LS_LAYER_3_(ls_input, LS_LAYER_INPUT)
LS_LAYER_4_(ls_input, LS_LAYER_INPUT)
LS_LAYER_1_(ls_dense, LS_LAYER_DENSE)
LS_LAYER_1_(ls_conv2d, LS_LAYER_CONV2D) /* with .kernel_size */
LS_LAYER_2_(ls_conv2d, LS_LAYER_CONV2D)
LS_LAYER_3_(ls_conv2d, LS_LAYER_CONV2D)
LS_LAYER_0_(ls_depthwise_conv2d, LS_LAYER_DEPTHWISE_CONV2D) /* with .kernel_size */
LS_LAYER_1_(ls_depthwise_conv2d, LS_LAYER_DEPTHWISE_CONV2D)
LS_LAYER_2_(ls_depthwise_conv2d, LS_LAYER_DEPTHWISE_CONV2D)
LS_LAYER_0_(ls_max_pool2d, LS_LAYER_MAX_POOL2D)
LS_LAYER_1_(ls_max_pool2d, LS_LAYER_MAX_POOL2D)
LS_LAYER_2_(ls_max_pool2d, LS_LAYER_MAX_POOL2D)
LS_LAYER_0_(ls_average_pool2d, LS_LAYER_AVERAGE_POOL2D)
LS_LAYER_1_(ls_average_pool2d, LS_LAYER_AVERAGE_POOL2D)
LS_LAYER_2_(ls_average_pool2d, LS_LAYER_AVERAGE_POOL2D)
LS_LAYER_0_(ls_global_max_pool2d, LS_LAYER_GLOBAL_MAX_POOL2D)
LS_LAYER_0_(ls_global_average_pool2d, LS_LAYER_GLOBAL_AVERAGE_POOL2D)
LS_LAYER_0_(ls_flatten, LS_LAYER_FLATTEN)
LS_LAYER_0_(ls_reshape, LS_LAYER_RESHAPE) /* with .shape */
LS_LAYER_1_(ls_reshape, LS_LAYER_RESHAPE)
LS_LAYER_2_(ls_reshape, LS_LAYER_RESHAPE)
LS_LAYER_3_(ls_reshape, LS_LAYER_RESHAPE)
LS_LAYER_4_(ls_reshape, LS_LAYER_RESHAPE)
LS_LAYER_0_(ls_batch_normalization, LS_LAYER_BATCH_NORMALIZATION)
LS_LAYER_0_(ls_layer_normalization, LS_LAYER_LAYER_NORMALIZATION)
LS_LAYER_0_(ls_relu, LS_LAYER_RELU)
LS_LAYER_0_(ls_softmax, LS_LAYER_SOFTMAX)
LS_LAYER_0_(ls_add, LS_LAYER_ADD)
LS_LAYER_0_(ls_multiply, LS_LAYER_MULTIPLY)
LS_LAYER_0_(ls_concatenate, LS_LAYER_CONCATENATE)
LS_LAYER_0_(ls_zero_padding2d, LS_LAYER_ZERO_PADDING2D)
LS_LAYER_1_(ls_zero_padding2d, LS_LAYER_ZERO_PADDING2D)
LS_LAYER_2_(ls_embedding, LS_LAYER_EMBEDDING)

inline ls_layer ls_dropout(double rate, ls_layer_options options = {})
{
    options.rate = rate;
    return ls_layer{ LS_LAYER_DROPOUT, options };
}

inline ls_layer ls_activation_layer(ls_activation activation, ls_layer_options options = {})
{
    options.activation = activation;
    return ls_layer{ LS_LAYER_ACTIVATION, options };
}

LS_LAYER_0_(ls_leaky_relu, LS_LAYER_LEAKY_RELU)

inline ls_layer ls_leaky_relu(double negative_slope, ls_layer_options options = {})
{
    options.negative_slope = negative_slope;
    return ls_layer{ LS_LAYER_LEAKY_RELU, options };
}

inline ls_layer ls_rescaling(double scale, ls_layer_options options = {})
{
    options.scale_by = scale;
    return ls_layer{ LS_LAYER_RESCALING, options };
}

/* ---- Models ---- */

#undef ls_sequential
#undef ls_symbol_call
#undef ls_symbol_share
#undef ls_functional_end

template <class... Layers>
ls_status ls_sequential(ls_context *ctx, const char *name, ls_model **out, const Layers &...layers)
{
    const ls_layer list[] = { layers... };
    return ls_sequential_with(ctx, name, list, sizeof...(layers), out);
}

template <class... Symbols> ls_symbol ls_symbol_call(ls_model *model, ls_layer layer, Symbols... inputs)
{
    const ls_symbol list[] = { inputs... };
    return ls_symbol_call_with(model, layer, list, sizeof...(inputs));
}

template <class... Symbols> ls_symbol ls_symbol_share(ls_symbol symbol, Symbols... inputs)
{
    const ls_symbol list[] = { inputs... };
    return ls_symbol_share_with(symbol, list, sizeof...(inputs));
}

template <class... Symbols> ls_status ls_functional_end(ls_model *model, Symbols... outputs)
{
    const ls_symbol list[] = { outputs... };
    return ls_functional_end_with(model, list, sizeof...(outputs));
}

#undef ls_model_builtin
inline ls_status ls_model_builtin(ls_context *ctx, const char *name, ls_model **out, ls_builtin_options options = {})
{
    return ls_model_builtin_with(ctx, name, options, out);
}

#undef ls_call_variable
inline ls_tensor *ls_call_variable(ls_call *call, const char *name, ls_shape shape, ls_weight_options options = {})
{
    options.shape = shape;
    return ls_call_variable_with(call, name, options);
}

/* ---- Optimizers, losses, metrics ---- */

#undef ls_sgd
#undef ls_adam
#undef ls_adamw
#undef ls_rmsprop
#undef ls_rmsprop_tf1
#undef ls_adagrad
#define LS_OPTIMIZER_(name, kind)                                                                                      \
    inline ls_optimizer name(ls_optimizer_options options = {})                                                        \
    {                                                                                                                  \
        return ls_optimizer{ kind, options };                                                                          \
    }                                                                                                                  \
    inline ls_optimizer name(double learning_rate, ls_optimizer_options options = {})                                  \
    {                                                                                                                  \
        options.learning_rate = learning_rate;                                                                         \
        return ls_optimizer{ kind, options };                                                                          \
    }
LS_OPTIMIZER_(ls_sgd, LS_OPTIMIZER_SGD)
LS_OPTIMIZER_(ls_adam, LS_OPTIMIZER_ADAM)
LS_OPTIMIZER_(ls_adamw, LS_OPTIMIZER_ADAMW)
LS_OPTIMIZER_(ls_rmsprop, LS_OPTIMIZER_RMSPROP)
LS_OPTIMIZER_(ls_rmsprop_tf1, LS_OPTIMIZER_RMSPROP_TF1)
LS_OPTIMIZER_(ls_adagrad, LS_OPTIMIZER_ADAGRAD)

#undef ls_sparse_categorical_crossentropy
#undef ls_categorical_crossentropy
#undef ls_binary_crossentropy
#undef ls_mean_squared_error
#undef ls_mean_absolute_error
#undef ls_huber
#undef ls_custom_loss
#define LS_LOSS_(name, kind)                                                                                           \
    inline ls_loss name(ls_loss_options options = {})                                                                  \
    {                                                                                                                  \
        return ls_loss{ kind, options };                                                                               \
    }
LS_LOSS_(ls_sparse_categorical_crossentropy, LS_LOSS_SPARSE_CATEGORICAL_CROSSENTROPY)
LS_LOSS_(ls_categorical_crossentropy, LS_LOSS_CATEGORICAL_CROSSENTROPY)
LS_LOSS_(ls_binary_crossentropy, LS_LOSS_BINARY_CROSSENTROPY)
LS_LOSS_(ls_mean_squared_error, LS_LOSS_MEAN_SQUARED_ERROR)
LS_LOSS_(ls_mean_absolute_error, LS_LOSS_MEAN_ABSOLUTE_ERROR)
LS_LOSS_(ls_huber, LS_LOSS_HUBER)
inline ls_loss ls_custom_loss(ls_loss_function function, void *user = nullptr, const char *name = nullptr,
                              ls_loss_options options = {})
{
    options.function = function;
    options.user = user;
    options.name = name;
    return ls_loss{ LS_LOSS_CUSTOM, options };
}

#undef ls_metric_of
#undef ls_accuracy
#undef ls_top_k
#undef ls_custom_metric
#undef ls_metrics
inline ls_metric ls_metric_of(ls_metric_kind kind)
{
    return ls_metric{ kind, 0, 0, 0, nullptr, nullptr, nullptr };
}

inline ls_metric ls_accuracy()
{
    return ls_metric_of(LS_METRIC_ACCURACY);
}

inline ls_metric ls_top_k(int64_t places)
{
    return ls_metric{ LS_METRIC_TOP_K, places, 0, 0, nullptr, nullptr, nullptr };
}

inline ls_metric ls_custom_metric(ls_metric_function function, void *user = nullptr, const char *name = nullptr)
{
    return ls_metric{ LS_METRIC_CUSTOM, 0, 0, 0, function, user, name };
}

template <class... Metrics> ls_metrics_list ls_metrics(Metrics... metrics)
{
    static_assert(sizeof...(metrics) <= LS_MAX_METRICS, "there are at most LS_MAX_METRICS metrics");
    return ls_metrics_list{ sizeof...(metrics), { metrics... } };
}

/* ---- Weights ---- */

#undef ls_model_save_weights
#undef ls_model_load_weights

inline ls_status ls_model_save_weights(const ls_model *model, const char *path, ls_weights_options options = {})
{
    return ls_model_save_weights_with(model, path, options);
}

inline ls_status ls_model_load_weights(ls_model *model, const char *path, ls_weights_options options = {})
{
    return ls_model_load_weights_with(model, path, options);
}

/* ---- Training ---- */

#undef ls_compile
#undef ls_mirrored
#undef ls_one_device
#undef ls_data_parallel
#undef ls_model_parallel
#undef ls_pipeline
#undef ls_multi_worker
#undef ls_parameter_server
#undef ls_fit
#undef ls_fit_arrays
#undef ls_explain_fit
#undef ls_replay
#undef ls_checkpoint_restore
#undef ls_evaluate
#undef ls_evaluate_arrays
#undef ls_predict
#undef ls_predict_array
#undef ls_train_on_batch

#undef ls_early_stopping
#undef ls_csv_logger
#undef ls_tensorboard
#undef ls_model_checkpoint
#undef ls_reduce_lr_on_plateau
#undef ls_learning_rate_scheduler
#undef ls_terminate_on_nan

/* Pass callbacks as an array and a count: .callbacks = list, .callback_count = 2. */
#define LS_CALLBACK_(name, constant)                                                                                   \
    inline ls_callback ls_##name(ls_##name##_options options = {})                                                     \
    {                                                                                                                  \
        ls_callback callback = {};                                                                                     \
        callback.kind = constant;                                                                                      \
        callback.of.name = options;                                                                                    \
        return callback;                                                                                               \
    }
/* The same, with one positional argument. */
#define LS_CALLBACK_1_(name, constant, type, first)                                                                    \
    LS_CALLBACK_(name, constant)                                                                                       \
    inline ls_callback ls_##name(type first, ls_##name##_options options = {})                                         \
    {                                                                                                                  \
        options.first = first;                                                                                         \
        return ls_##name(options);                                                                                     \
    }
LS_CALLBACK_1_(early_stopping, LS_CALLBACK_EARLY_STOPPING, const char *, monitor)
LS_CALLBACK_1_(csv_logger, LS_CALLBACK_CSV_LOGGER, const char *, path)
LS_CALLBACK_1_(tensorboard, LS_CALLBACK_TENSORBOARD, const char *, log_dir)
LS_CALLBACK_1_(model_checkpoint, LS_CALLBACK_MODEL_CHECKPOINT, const char *, path)
LS_CALLBACK_1_(reduce_lr_on_plateau, LS_CALLBACK_REDUCE_LR_ON_PLATEAU, const char *, monitor)
LS_CALLBACK_(learning_rate_scheduler, LS_CALLBACK_LEARNING_RATE_SCHEDULER)
LS_CALLBACK_(terminate_on_nan, LS_CALLBACK_TERMINATE_ON_NAN)

inline ls_status ls_compile(ls_model *model, ls_compile_options options)
{
    return ls_compile_with(model, options);
}

inline ls_strategy ls_strategy_of_(ls_strategy_kind kind, const char *devices)
{
    ls_strategy strategy = {};
    strategy.kind = kind;
    strategy.devices = devices;
    return strategy;
}

inline ls_strategy ls_one_device(const char *device = nullptr)
{
    return ls_strategy_of_(LS_STRATEGY_ONE_DEVICE, device);
}

inline ls_strategy ls_mirrored(const char *devices = nullptr)
{
    return ls_strategy_of_(LS_STRATEGY_MIRRORED, devices);
}

inline ls_strategy ls_data_parallel(const char *devices = nullptr)
{
    return ls_strategy_of_(LS_STRATEGY_DATA_PARALLEL, devices);
}

inline ls_strategy ls_model_parallel(const char *devices = nullptr)
{
    return ls_strategy_of_(LS_STRATEGY_MODEL_PARALLEL, devices);
}

inline ls_strategy ls_pipeline(const char *devices = nullptr)
{
    return ls_strategy_of_(LS_STRATEGY_PIPELINE, devices);
}

inline ls_strategy ls_multi_worker(const char *devices = nullptr)
{
    return ls_strategy_of_(LS_STRATEGY_MULTI_WORKER, devices);
}

inline ls_strategy ls_parameter_server(int64_t staleness = 0, const char *devices = nullptr)
{
    ls_strategy strategy = ls_strategy_of_(LS_STRATEGY_PARAMETER_SERVER, devices);
    strategy.staleness = staleness;
    return strategy;
}

inline ls_status ls_fit(ls_model *model, ls_dataset *data, ls_fit_options options = {})
{
    return ls_fit_with(model, data, options);
}

inline ls_status ls_fit_arrays(ls_model *model, ls_array x, ls_array y, ls_fit_options options = {})
{
    return ls_fit_arrays_with(model, x, y, options);
}

inline ls_status ls_explain_fit(ls_model *model, ls_dataset *data, bool *fits, char **out, ls_fit_options options = {})
{
    return ls_explain_fit_with(model, data, options, fits, out);
}

inline ls_status ls_replay(ls_model *model, ls_dataset *data, const char *record, ls_replayed *out = nullptr,
                           ls_fit_options options = {})
{
    return ls_replay_with(model, data, record, options, out);
}

inline ls_status ls_checkpoint_restore(ls_model *model, const char *from, ls_restore_options options = {})
{
    return ls_checkpoint_restore_with(model, from, options);
}

inline ls_status ls_evaluate(ls_model *model, ls_dataset *data, ls_results *out, ls_evaluate_options options = {})
{
    options.out = out;
    return ls_evaluate_with(model, data, options);
}

inline ls_status ls_evaluate_arrays(ls_model *model, ls_array x, ls_array y, ls_results *out,
                                    ls_evaluate_options options = {})
{
    options.out = out;
    return ls_evaluate_arrays_with(model, x, y, options);
}

inline ls_status ls_predict(ls_model *model, ls_dataset *data, ls_array *out, ls_predict_options options = {})
{
    return ls_predict_with(model, data, options, out);
}

inline ls_status ls_predict_array(ls_model *model, ls_array x, ls_array *out, ls_predict_options options = {})
{
    return ls_predict_array_with(model, x, options, out);
}

inline ls_status ls_train_on_batch(ls_model *model, ls_array x, ls_array y, ls_results *out = nullptr,
                                   ls_batch_options options = {})
{
    options.out = out;
    return ls_train_on_batch_with(model, x, y, options);
}

#undef LS_LAYER_
#undef LS_LAYER_0_
#undef LS_LAYER_1_
#undef LS_LAYER_2_
#undef LS_LAYER_3_
#undef LS_LAYER_4_
#undef LS_OPTIMIZER_
#undef LS_LOSS_

#endif
#endif
