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
#include "lockstep/text.h"
#include "lockstep/train.h"

#ifdef __cplusplus

/* g++ warns about each member that a designated initializer omits; C compilers and clang++ do
 * not. With options every call would warn, so the warning is off from here on, unless
 * LS_KEEP_WARNINGS is defined. */
#if defined(__GNUC__) && !defined(__clang__) && !defined(LS_KEEP_WARNINGS)
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#endif

/* ---- Shapes, axes, arrays, lists ---- */

#define LS_SHAPE(...) ls_list_of_<ls_shape>(__VA_ARGS__)
#define LS_SCALAR     (ls_shape{ 0, {} })
#define LS_AXES(...)  ls_list_of_<ls_axes>(__VA_ARGS__)
#define LS_ALL_AXES   (ls_axes{ -1, {} })
template <class List, class... Sizes> constexpr List ls_list_of_(Sizes... sizes)
{
    static_assert(sizeof...(sizes) <= LS_MAX_RANK, "there are at most LS_MAX_RANK axes");
    return List{ static_cast<int>(sizeof...(sizes)), { static_cast<int64_t>(sizes)... } };
}

template <class... Specs> ls_element_spec LS_ELEMENT(Specs... specs)
{
    static_assert(sizeof...(specs) <= LS_MAX_COMPONENTS, "an element has at most LS_MAX_COMPONENTS components");
    return ls_element_spec{ static_cast<int>(sizeof...(specs)), { specs... }, 0, 0, 0, 0 };
}

template <class... Metrics> ls_metrics_list ls_metrics(Metrics... metrics)
{
    static_assert(sizeof...(metrics) <= LS_MAX_METRICS, "there are at most LS_MAX_METRICS metrics");
    return ls_metrics_list{ sizeof...(metrics), { metrics... } };
}

/* clang-format off */
#undef ls_array_of
inline ls_array ls_array_of(ls_dtype dtype, ls_shape shape, const void *values) { return ls_array{ const_cast<void *>(values), dtype, shape }; }
inline ls_spec LS_SPEC(ls_dtype dtype, ls_shape shape) { return ls_spec{ dtype, shape }; }

/* ---- Calls with options ---- */

/* Removes the parentheses around a list. */
#define LS_LIST_(...) __VA_ARGS__
/* Defines NAME(parameters, options) as NAME_with(arguments). */
#define LS_CALL_(type, name, parameters, option_type, arguments)                                                       \
    inline type name(LS_LIST_ parameters, option_type options = {}) { return name##_with(LS_LIST_ arguments); }
/* The same, with positional arguments that the function takes as options. */
#define LS_CALL_SET_(type, name, parameters, option_type, settings, arguments)                                         \
    inline type name(LS_LIST_ parameters, option_type options = {})                                                    \
    {                                                                                                                  \
        LS_LIST_ settings;                                                                                             \
        return name##_with(LS_LIST_ arguments);                                                                        \
    }

inline ls_status ls_context_open(const ls_context_options &options, ls_context **out) { return ls_context_open(&options, out); }
inline ls_status ls_context_create(const ls_context_options &options, ls_context **out) { return ls_context_create(&options, out); }

#undef ls_graph_create
LS_CALL_(ls_status, ls_graph_create, (ls_context *ctx, ls_graph **out), ls_graph_options, (ctx, options, out))

#undef ls_op_variable
#undef ls_op_apply
#undef ls_op_matmul
#undef ls_op_attention
#undef ls_op_custom
#undef ls_op_conv2d
#undef ls_op_max_pool2d
#undef ls_op_average_pool2d
#undef ls_op_warp
#undef ls_op_batch_norm
#undef ls_op_layer_norm
LS_CALL_SET_(ls_tensor *, ls_op_variable, (ls_graph *graph, const char *name, ls_dtype dtype, ls_shape shape), ls_variable_op,
             (options.shape = shape), (graph, name, dtype, options))
LS_CALL_SET_(ls_tensor *, ls_op_apply, (ls_tensor *variable, ls_tensor *gradient, ls_apply_rule rule), ls_apply_op,
             (options.rule = rule), (variable, gradient, options))
LS_CALL_SET_(ls_tensor *, ls_op_matmul, (ls_tensor *a, ls_tensor *b), ls_matmul_op, (options.b = b), (a, options))
LS_CALL_SET_(ls_tensor *, ls_op_attention, (ls_tensor *q, ls_tensor *k, ls_tensor *v), ls_attention_op, (options.k = k, options.v = v),
             (q, options))
LS_CALL_SET_(ls_tensor *, ls_op_conv2d, (ls_tensor *x, ls_tensor *kernel), ls_conv2d_op, (options.kernel = kernel), (x, options))
LS_CALL_(ls_tensor *, ls_op_custom, (const char *name), ls_custom_op, (name, options))
LS_CALL_(ls_tensor *, ls_op_max_pool2d, (ls_tensor *x), ls_pool2d_op, (x, options))
LS_CALL_(ls_tensor *, ls_op_average_pool2d, (ls_tensor *x), ls_pool2d_op, (x, options))
LS_CALL_SET_(ls_tensor *, ls_op_warp, (ls_tensor *x, ls_tensor *matrix), ls_warp_op, (options.matrix = matrix), (x, options))
LS_CALL_(ls_tensor *, ls_op_batch_norm, (ls_tensor *x), ls_batch_norm_op, (x, options))
LS_CALL_(ls_tensor *, ls_op_layer_norm, (ls_tensor *x), ls_layer_norm_op, (x, options))

#undef ls_from_tensor_slices
#undef ls_from_tensors
#undef ls_map
inline ls_dataset *ls_from_tensor_slices(ls_arrays_options options) { return ls_from_tensor_slices_with(options); }
inline ls_dataset *ls_from_tensors(ls_arrays_options options) { return ls_from_tensors_with(options); }
LS_CALL_SET_(ls_dataset *, ls_from_tensor_slices, (ls_array features, ls_array labels = {}), ls_arrays_options,
             (options.features = features, options.labels = labels), (options))
LS_CALL_SET_(ls_dataset *, ls_from_tensors, (ls_array features, ls_array labels = {}), ls_arrays_options,
             (options.features = features, options.labels = labels), (options))
LS_CALL_SET_(ls_dataset *, ls_map, (ls_dataset *source, ls_map_function function), ls_map_options, (options.function = function),
             (source, options))

#undef ls_load_data
#undef ls_table_create
#undef ls_from_image_folder
#undef ls_from_image_shards
#undef ls_from_text
LS_CALL_SET_(ls_status, ls_load_data, (ls_context *ctx, const char *name, ls_dataset **train, ls_dataset **test), ls_load_options,
             (options.train = train, options.test = test), (ctx, name, options))
LS_CALL_(ls_status, ls_table_create, (const char *path, ls_table **out), ls_table_options, (path, options, out))
LS_CALL_(ls_dataset *, ls_from_image_folder, (const char *path), ls_image_options, (path, options))
LS_CALL_(ls_dataset *, ls_from_image_shards, (const char *pattern), ls_image_options, (pattern, options))
LS_CALL_(ls_dataset *, ls_from_text, (const char *path), ls_text_options, (path, options))

#undef ls_model_builtin
#undef ls_call_variable
#undef ls_model_save_weights
#undef ls_model_load_weights
LS_CALL_(ls_status, ls_model_builtin, (ls_context *ctx, const char *name, ls_model **out), ls_builtin_options, (ctx, name, options, out))
LS_CALL_SET_(ls_tensor *, ls_call_variable, (ls_call *call, const char *name, ls_shape shape), ls_weight_options,
             (options.shape = shape), (call, name, options))
LS_CALL_(ls_status, ls_model_save_weights, (const ls_model *model, const char *path), ls_weights_options, (model, path, options))
LS_CALL_(ls_status, ls_model_load_weights, (ls_model *model, const char *path), ls_weights_options, (model, path, options))

#undef ls_compile
#undef ls_fit
#undef ls_fit_arrays
#undef ls_explain_fit
#undef ls_replay
#undef ls_checkpoint_restore
#undef ls_evaluate
#undef ls_evaluate_arrays
#undef ls_predict
#undef ls_predict_array
#undef ls_model_share
#undef ls_train_on_batch
LS_CALL_(ls_status, ls_compile, (ls_model *model), ls_compile_options, (model, options))
LS_CALL_(ls_status, ls_fit, (ls_model *model, ls_dataset *data), ls_fit_options, (model, data, options))
LS_CALL_(ls_status, ls_fit_arrays, (ls_model *model, ls_array x, ls_array y), ls_fit_options, (model, x, y, options))
LS_CALL_(ls_status, ls_explain_fit, (ls_model *model, ls_dataset *data, bool *fits, char **out), ls_fit_options,
         (model, data, options, fits, out))
LS_CALL_(ls_status, ls_replay, (ls_model *model, ls_dataset *data, const char *record, ls_replayed *out = nullptr), ls_fit_options,
         (model, data, record, options, out))
LS_CALL_(ls_status, ls_checkpoint_restore, (ls_model *model, const char *from), ls_restore_options, (model, from, options))
LS_CALL_SET_(ls_status, ls_evaluate, (ls_model *model, ls_dataset *data, ls_results *out), ls_evaluate_options,
             (options.out = out), (model, data, options))
LS_CALL_SET_(ls_status, ls_evaluate_arrays, (ls_model *model, ls_array x, ls_array y, ls_results *out), ls_evaluate_options,
             (options.out = out), (model, x, y, options))
LS_CALL_(ls_status, ls_predict, (ls_model *model, ls_dataset *data, ls_array *out), ls_predict_options, (model, data, options, out))
LS_CALL_(ls_status, ls_predict_array, (ls_model *model, ls_array x, ls_array *out), ls_predict_options, (model, x, options, out))
LS_CALL_(ls_status, ls_model_share, (ls_model *model, ls_predictor **out), ls_share_options, (model, options, out))
LS_CALL_SET_(ls_status, ls_train_on_batch, (ls_model *model, ls_array x, ls_array y, ls_results *out = nullptr), ls_batch_options,
             (options.out = out), (model, x, y, options))

/* ---- Models ---- */

#undef ls_sequential
#undef ls_symbol_call
#undef ls_symbol_share
#undef ls_functional_end
/* Defines NAME(parameters, items...) as NAME_with(arguments), with `items` in an array `list`. */
#define LS_CALL_LIST_(type, name, parameters, item, arguments)                                                         \
    template <class... Items> type name(LS_LIST_ parameters, const Items &...items)                                    \
    {                                                                                                                  \
        const item list[] = { items... };                                                                              \
        return name##_with(LS_LIST_ arguments);                                                                        \
    }
LS_CALL_LIST_(ls_status, ls_sequential, (ls_context *ctx, const char *name, ls_model **out), ls_layer, (ctx, name, list, sizeof...(items), out))
LS_CALL_LIST_(ls_symbol, ls_symbol_call, (ls_model *model, const ls_layer &layer), ls_symbol, (model, layer, list, sizeof...(items)))
LS_CALL_LIST_(ls_symbol, ls_symbol_share, (ls_symbol symbol), ls_symbol, (symbol, list, sizeof...(items)))
LS_CALL_LIST_(ls_status, ls_functional_end, (ls_model *model), ls_symbol, (model, list, sizeof...(items)))

/* ---- Layers ---- */

template <class Options> ls_layer ls_layer_of_(ls_layer_kind kind, Options ls_layer::*family, const Options &options)
{
    ls_layer layer = {};
    layer.kind = kind, layer.*family = options;
    return layer;
}
/* Defines the constructor of a layer: up to four numbers, then options. */
#define LS_LAYER_(name, KIND, family)                                                                                  \
    inline ls_layer name(int64_t first, int64_t second, int64_t third, int64_t fourth, ls_##family##_options o = {})   \
    {                                                                                                                  \
        o.first = first, o.second = second, o.third = third, o.fourth = fourth;                                        \
        return ls_layer_of_(LS_LAYER_##KIND, &ls_layer::family, o);                                                    \
    }                                                                                                                  \
    inline ls_layer name(ls_##family##_options o = {}) { return name(0, 0, 0, 0, o); }                                 \
    inline ls_layer name(int64_t a, ls_##family##_options o = {}) { return name(a, 0, 0, 0, o); }                      \
    inline ls_layer name(int64_t a, int64_t b, ls_##family##_options o = {}) { return name(a, b, 0, 0, o); }           \
    inline ls_layer name(int64_t a, int64_t b, int64_t c, ls_##family##_options o = {}) { return name(a, b, c, 0, o); }
/* The same for a layer whose positional argument is an option of another type. */
#define LS_LAYER_OF_(name, KIND, family, type, field)                                                                  \
    inline ls_layer name(ls_##family##_options o) { return ls_layer_of_(LS_LAYER_##KIND, &ls_layer::family, o); }      \
    inline ls_layer name(type field = {}, ls_##family##_options o = {})                                                \
    {                                                                                                                  \
        o.field = field;                                                                                               \
        return name(o);                                                                                                \
    }

LS_LAYER_(ls_input, INPUT, input)
LS_LAYER_OF_(ls_nested, MODEL, nested, ls_model *, model)
LS_LAYER_(ls_dense, DENSE, dense)
LS_LAYER_(ls_conv2d, CONV2D, conv)
LS_LAYER_(ls_depthwise_conv2d, DEPTHWISE_CONV2D, conv)
LS_LAYER_(ls_max_pool2d, MAX_POOL2D, pool)
LS_LAYER_(ls_average_pool2d, AVERAGE_POOL2D, pool)
LS_LAYER_(ls_global_max_pool2d, GLOBAL_MAX_POOL2D, pool)
LS_LAYER_(ls_global_average_pool2d, GLOBAL_AVERAGE_POOL2D, pool)
LS_LAYER_(ls_zero_padding2d, ZERO_PADDING2D, pad)
LS_LAYER_(ls_batch_normalization, BATCH_NORMALIZATION, norm)
LS_LAYER_(ls_layer_normalization, LAYER_NORMALIZATION, norm)
LS_LAYER_(ls_embedding, EMBEDDING, embedding)
LS_LAYER_OF_(ls_activation_layer, ACTIVATION, activation, ls_activation, activation)
LS_LAYER_(ls_relu, RELU, activation)
LS_LAYER_OF_(ls_leaky_relu, LEAKY_RELU, activation, double, negative_slope)
LS_LAYER_(ls_softmax, SOFTMAX, activation)
LS_LAYER_OF_(ls_dropout, DROPOUT, dropout, double, rate)
LS_LAYER_(ls_flatten, FLATTEN, reshape)
LS_LAYER_(ls_reshape, RESHAPE, reshape)
LS_LAYER_(ls_add, ADD, merge)
LS_LAYER_(ls_multiply, MULTIPLY, merge)
LS_LAYER_(ls_concatenate, CONCATENATE, merge)
LS_LAYER_OF_(ls_rescaling, RESCALING, rescaling, double, scale_by)
LS_LAYER_(ls_simple_rnn, SIMPLE_RNN, recurrent)
LS_LAYER_(ls_lstm, LSTM, recurrent)
LS_LAYER_(ls_gru, GRU, recurrent)
LS_LAYER_OF_(ls_masking, MASKING, masking, double, mask_value)
/* The layer inside must live until the model is made. */
#define LS_WRAPPER_(name, KIND)                                                                                        \
    inline ls_layer name(const ls_layer &layer, ls_wrapper_options o = {})                                             \
    {                                                                                                                  \
        o.layer = &layer;                                                                                              \
        return ls_layer_of_(LS_LAYER_##KIND, &ls_layer::wrapper, o);                                                   \
    }
LS_WRAPPER_(ls_bidirectional, BIDIRECTIONAL)
LS_WRAPPER_(ls_time_distributed, TIME_DISTRIBUTED)
LS_LAYER_(ls_normalization, NORMALIZATION, normalization)
LS_LAYER_(ls_group_normalization, GROUP_NORMALIZATION, norm)
LS_LAYER_(ls_rms_normalization, RMS_NORMALIZATION, norm)
LS_LAYER_(ls_unit_normalization, UNIT_NORMALIZATION, norm)
LS_LAYER_(ls_prelu, PRELU, activation)
LS_LAYER_OF_(ls_elu, ELU, activation, double, alpha)
LS_LAYER_OF_(ls_spatial_dropout1d, SPATIAL_DROPOUT1D, dropout, double, rate)
LS_LAYER_OF_(ls_spatial_dropout2d, SPATIAL_DROPOUT2D, dropout, double, rate)
LS_LAYER_OF_(ls_gaussian_noise, GAUSSIAN_NOISE, dropout, double, stddev)
LS_LAYER_OF_(ls_gaussian_dropout, GAUSSIAN_DROPOUT, dropout, double, rate)
LS_LAYER_OF_(ls_alpha_dropout, ALPHA_DROPOUT, dropout, double, rate)
LS_LAYER_OF_(ls_stochastic_depth, STOCHASTIC_DEPTH, dropout, double, rate)
LS_LAYER_(ls_average, AVERAGE, merge)
LS_LAYER_(ls_maximum, MAXIMUM, merge)
LS_LAYER_(ls_minimum, MINIMUM, merge)
LS_LAYER_(ls_subtract, SUBTRACT, merge)
LS_LAYER_(ls_dot, DOT, merge)
LS_LAYER_OF_(ls_custom_scale, CUSTOM_SCALE, merge, double, scale)
LS_LAYER_(ls_layer_scale, LAYER_SCALE, layer_scale)
LS_LAYER_(ls_activity_regularization, ACTIVITY_REGULARIZATION, rescaling)
LS_LAYER_OF_(ls_registered, REGISTERED, registered, const char *, class_name)
LS_LAYER_(ls_conv1d, CONV1D, conv)
LS_LAYER_(ls_conv1d_transpose, CONV1D_TRANSPOSE, conv)
LS_LAYER_(ls_conv2d_transpose, CONV2D_TRANSPOSE, conv)
LS_LAYER_(ls_depthwise_conv1d, DEPTHWISE_CONV1D, conv)
LS_LAYER_(ls_separable_conv1d, SEPARABLE_CONV1D, conv)
LS_LAYER_(ls_separable_conv2d, SEPARABLE_CONV2D, conv)
LS_LAYER_(ls_max_pool1d, MAX_POOL1D, pool)
LS_LAYER_(ls_average_pool1d, AVERAGE_POOL1D, pool)
LS_LAYER_(ls_global_max_pool1d, GLOBAL_MAX_POOL1D, pool)
LS_LAYER_(ls_global_average_pool1d, GLOBAL_AVERAGE_POOL1D, pool)
LS_LAYER_(ls_zero_padding1d, ZERO_PADDING1D, pad)
LS_LAYER_(ls_cropping1d, CROPPING1D, pad)
LS_LAYER_(ls_cropping2d, CROPPING2D, pad)
LS_LAYER_(ls_permute, PERMUTE, reshape)
LS_LAYER_(ls_repeat_vector, REPEAT_VECTOR, reshape)
LS_LAYER_(ls_up_sampling1d, UP_SAMPLING1D, resize)
LS_LAYER_(ls_up_sampling2d, UP_SAMPLING2D, resize)
LS_LAYER_(ls_resizing, RESIZING, resize)
LS_LAYER_(ls_center_crop, CENTER_CROP, resize)
LS_LAYER_OF_(ls_random_flip, RANDOM_FLIP, augment, ls_flip_mode, mode)
LS_LAYER_(ls_random_translation, RANDOM_TRANSLATION, augment)
LS_LAYER_(ls_random_crop, RANDOM_CROP, augment)
LS_LAYER_(ls_random_zoom, RANDOM_ZOOM, augment)
LS_LAYER_(ls_random_rotation, RANDOM_ROTATION, augment)
LS_LAYER_(ls_random_contrast, RANDOM_CONTRAST, augment)
LS_LAYER_(ls_random_brightness, RANDOM_BRIGHTNESS, augment)
LS_LAYER_(ls_random_erasing, RANDOM_ERASING, augment)

/* ---- Optimizers, losses, metrics ---- */

#define LS_OPTIMIZER_(name, KIND)                                                                                      \
    inline ls_optimizer name(ls_optimizer_options o = {}) { return ls_optimizer{ LS_OPTIMIZER_##KIND, o }; }           \
    inline ls_optimizer name(double learning_rate, ls_optimizer_options o = {})                                        \
    {                                                                                                                  \
        o.learning_rate = learning_rate;                                                                               \
        return name(o);                                                                                                \
    }
LS_OPTIMIZER_(ls_sgd, SGD)
LS_OPTIMIZER_(ls_adam, ADAM)
LS_OPTIMIZER_(ls_adamw, ADAMW)
LS_OPTIMIZER_(ls_rmsprop, RMSPROP)
LS_OPTIMIZER_(ls_rmsprop_tf1, RMSPROP_TF1)
LS_OPTIMIZER_(ls_adagrad, ADAGRAD)
LS_OPTIMIZER_(ls_adadelta, ADADELTA)
LS_OPTIMIZER_(ls_adamax, ADAMAX)
LS_OPTIMIZER_(ls_nadam, NADAM)
LS_OPTIMIZER_(ls_ftrl, FTRL)
LS_OPTIMIZER_(ls_lion, LION)
LS_OPTIMIZER_(ls_lamb, LAMB)
LS_OPTIMIZER_(ls_muon, MUON)

#define LS_LOSS_(name, KIND)                                                                                           \
    inline ls_loss name(ls_loss_options options = {}) { return ls_loss{ LS_LOSS_##KIND, options }; }
LS_LOSS_(ls_sparse_categorical_crossentropy, SPARSE_CATEGORICAL_CROSSENTROPY)
LS_LOSS_(ls_categorical_crossentropy, CATEGORICAL_CROSSENTROPY)
LS_LOSS_(ls_binary_crossentropy, BINARY_CROSSENTROPY)
LS_LOSS_(ls_mean_squared_error, MEAN_SQUARED_ERROR)
LS_LOSS_(ls_mean_absolute_error, MEAN_ABSOLUTE_ERROR)
LS_LOSS_(ls_huber, HUBER)
LS_LOSS_(ls_mean_absolute_percentage_error, MEAN_ABSOLUTE_PERCENTAGE_ERROR)
LS_LOSS_(ls_mean_squared_logarithmic_error, MEAN_SQUARED_LOGARITHMIC_ERROR)
LS_LOSS_(ls_log_cosh, LOG_COSH)
LS_LOSS_(ls_cosine_similarity, COSINE_SIMILARITY)
LS_LOSS_(ls_kl_divergence, KL_DIVERGENCE)
LS_LOSS_(ls_poisson, POISSON)
LS_LOSS_(ls_hinge, HINGE)
LS_LOSS_(ls_squared_hinge, SQUARED_HINGE)
LS_LOSS_(ls_categorical_hinge, CATEGORICAL_HINGE)
LS_LOSS_(ls_binary_focal_crossentropy, BINARY_FOCAL_CROSSENTROPY)
LS_LOSS_(ls_categorical_focal_crossentropy, CATEGORICAL_FOCAL_CROSSENTROPY)
LS_LOSS_(ls_dice, DICE)
LS_LOSS_(ls_tversky, TVERSKY)
LS_LOSS_(ls_ctc, CTC)
inline ls_loss ls_custom_loss(ls_loss_function function, void *user = nullptr, const char *name = nullptr,
                              ls_loss_options options = {})
{
    options.function = function, options.user = user, options.name = name;
    return ls_loss{ LS_LOSS_CUSTOM, options };
}

inline ls_metric ls_metric_of(ls_metric_kind kind) { return ls_metric{ .kind = kind }; }
inline ls_metric ls_accuracy() { return ls_metric_of(LS_METRIC_ACCURACY); }
inline ls_metric ls_top_k(int64_t places) { return ls_metric{ .kind = LS_METRIC_TOP_K, .k = places }; }
inline ls_metric ls_loss_metric(const ls_loss &loss) { return ls_metric{ .kind = LS_METRIC_LOSS, .loss = loss }; }
inline ls_metric ls_custom_metric(ls_metric_function function, void *user = nullptr, const char *name = nullptr)
{
    return ls_metric{ .kind = LS_METRIC_CUSTOM, .function = function, .user = user, .name = name };
}

/* ---- Callbacks and strategies ---- */

/* Pass callbacks as an array and a count: .callbacks = list, .callback_count = 2. */
#define LS_CALLBACK_(name, KIND)                                                                                       \
    inline ls_callback ls_##name(ls_##name##_options options = {})                                                     \
    {                                                                                                                  \
        ls_callback callback = {};                                                                                     \
        callback.kind = LS_CALLBACK_##KIND;                                                                            \
        callback.of.name = options;                                                                                    \
        return callback;                                                                                               \
    }
/* The same, with one positional argument. */
#define LS_CALLBACK_OF_(name, KIND, field)                                                                             \
    LS_CALLBACK_(name, KIND)                                                                                           \
    inline ls_callback ls_##name(const char *field, ls_##name##_options options = {})                                  \
    {                                                                                                                  \
        options.field = field;                                                                                         \
        return ls_##name(options);                                                                                     \
    }
LS_CALLBACK_OF_(early_stopping, EARLY_STOPPING, monitor)
LS_CALLBACK_OF_(csv_logger, CSV_LOGGER, path)
LS_CALLBACK_OF_(tensorboard, TENSORBOARD, log_dir)
LS_CALLBACK_OF_(model_checkpoint, MODEL_CHECKPOINT, path)
LS_CALLBACK_OF_(reduce_lr_on_plateau, REDUCE_LR_ON_PLATEAU, monitor)
LS_CALLBACK_(learning_rate_scheduler, LEARNING_RATE_SCHEDULER)
LS_CALLBACK_(terminate_on_nan, TERMINATE_ON_NAN)

#define LS_STRATEGY_(name, KIND)                                                                                       \
    inline ls_strategy name(const char *devices = nullptr)                                                             \
    {                                                                                                                  \
        ls_strategy strategy = {};                                                                                     \
        strategy.kind = LS_STRATEGY_##KIND, strategy.devices = devices;                                                \
        return strategy;                                                                                               \
    }
LS_STRATEGY_(ls_one_device, ONE_DEVICE)
LS_STRATEGY_(ls_mirrored, MIRRORED)
LS_STRATEGY_(ls_data_parallel, DATA_PARALLEL)
LS_STRATEGY_(ls_model_parallel, MODEL_PARALLEL)
LS_STRATEGY_(ls_pipeline, PIPELINE)
LS_STRATEGY_(ls_multi_worker, MULTI_WORKER)
inline ls_strategy ls_parameter_server(int64_t staleness = 0, const char *devices = nullptr)
{
    ls_strategy strategy = {};
    strategy.kind = LS_STRATEGY_PARAMETER_SERVER, strategy.devices = devices, strategy.staleness = staleness;
    return strategy;
}
/* clang-format on */

#endif
#endif
