// Every call that is a macro in C, in C++20: with no options, and with some. Compiled only, by test_cplusplus.sh.
#include <lockstep.h>

ls_status calls(ls_context *ctx, ls_model *model, ls_dataset *data,
                ls_status (*function)(void *, const ls_element *, ls_element *));

static ls_status copy_one(const ls_custom_sample *sample, void *output, void *)
{
    *static_cast<float *>(output) = *static_cast<const float *>(sample->inputs[0]);
    return LS_OK;
}

static ls_tensor *ops(ls_graph *graph)
{
    const float values[4] = { 1, 2, 3, 4 };
    ls_tensor *x = ls_op_constant(graph, LS_F32, LS_SHAPE(2, 2), values), *updates[2];
    ls_tensor *w = ls_op_variable(graph, "w", LS_F32, LS_SHAPE(2, 2), { .data = values, .frozen = true });
    ls_tensor *n = ls_op_variable(graph, "n", LS_F32, LS_SCALAR);
    ls_tensor *image = ls_op_input(graph, "image", LS_F32, LS_SHAPE(LS_BATCH, 8, 8, 1));
    ls_tensor *kernel = ls_op_fill(graph, LS_F32, LS_SHAPE(3, 3, 1, 1), 1);
    x = ls_op_add(ls_op_matmul(x, w), ls_op_matmul(x, w, { .transpose_b = true }));
    ls_tensor *row = ls_op_fill(graph, LS_F32, LS_SHAPE(1, 2, 4), 1);
    row = ls_op_attention(ls_op_attention(row, row, row, { .heads = 1 }), row, row, { .heads = 2, .causal = true });
    image = ls_op_conv2d(ls_op_conv2d(image, kernel), kernel,
                         { .stride = { 2, 2 }, .padding = LS_EXPLICIT, .pad = { 1, 1, 1, 1 } });
    image = ls_op_average_pool2d(ls_op_max_pool2d(image, { .window = { 2, 2 } }), { .window = { 1, 1 } });
    ls_tensor *matrix = ls_op_input(graph, "matrix", LS_F32, LS_SHAPE(LS_BATCH, 6));
    image = ls_op_warp(ls_op_warp(image, matrix), matrix, { .fill_mode = LS_FILL_WRAP, .size = { 2, 2 } });
    n = ls_op_custom("copy_one", { .inputs = { n }, .forward = copy_one, .flops = 1 });
    x = ls_op_layer_norm(ls_op_layer_norm(x), { .axes = 2 });
    x = ls_op_batch_norm(ls_op_batch_norm(x), { .training = true, .updates = updates });
    x = ls_op_reduce_sum(ls_op_transpose(x, LS_AXES(1, 0)), LS_ALL_AXES, true);
    LS_SCOPE(graph)
    {
        LS_NAME_SCOPE(graph, "g1")
        LS_WITH_DEVICE(graph, "/cpu:0")
        x = ls_op_apply(n, x, LS_APPLY_SGD, { .learning_rate = n });
    }
    return ls_op_add(x, ls_op_reduce_mean(image, LS_ALL_AXES, false));
}

static ls_dataset *pipelines(ls_status (*function)(void *, const ls_element *, ls_element *))
{
    float values[6] = {};
    const ls_array x = ls_array_of(LS_F32, LS_SHAPE(3, 2), values), y = ls_array_of(LS_F32, LS_SHAPE(3), values);
    ls_element_spec spec = LS_ELEMENT(LS_SPEC(LS_F32, LS_SHAPE(2)), LS_SPEC(LS_F32, LS_SCALAR));
    ls_dataset_destroy(ls_from_tensor_slices(x));
    ls_dataset_destroy(ls_from_tensors(x, y));
    ls_dataset_destroy(ls_from_tensors({ .features = x, .keep = LS_KEEP_BORROWED }));
    ls_dataset_destroy(ls_from_tensor_slices({ .inputs = &x, .input_count = 1 }));
    ls_dataset_destroy(ls_from_image_folder("photos"));
    ls_dataset_destroy(ls_from_image_folder("photos", { .size = { 96, 96 }, .channels = 3 }));
    ls_dataset_destroy(ls_from_image_shards("shards-{0..9}.tar", { .skip_broken = true }));
    ls_dataset_destroy(ls_from_text("book.txt"));
    ls_dataset_destroy(ls_from_text("train.bin", { .context = 64, .vocab = 50257 }));
    ls_table *table = nullptr;
    ls_dataset *train = nullptr;
    if (ls_table_create("iris.csv", &table) == LS_OK &&
        ls_table_create("iris.csv", &table, { .label = "kind" }) == LS_OK &&
        ls_load_data(nullptr, "iris.csv", &train, nullptr, { .table = table }) == LS_OK)
        ls_table_destroy(table);
    ls_dataset *d = ls_from_tensor_slices(x, y, { .weights = y });
    return ls_map(ls_map(d, function), function, { .output = spec, .threads = 2 });
}

static ls_status models(ls_context *ctx, ls_model **out)
{
    const ls_layer inner = ls_lstm(4);
    const ls_layer layers[] = { ls_input(),
                                ls_input(8),
                                ls_input(8, 8),
                                ls_input(8, 8, 1),
                                ls_input(8, 8, 8, 1, { .dtype = LS_U8 }),
                                ls_dense(4),
                                ls_conv2d(4, { .kernel_size = { 3, 5 } }),
                                ls_conv2d(4, 3, 2, { .name = "c", .padding = LS_SAME }),
                                ls_depthwise_conv2d(3, 1),
                                ls_depthwise_conv2d({ .kernel_size = { 3, 3 } }),
                                ls_max_pool2d(),
                                ls_max_pool2d(3, 2),
                                ls_average_pool2d(),
                                ls_average_pool2d(2),
                                ls_average_pool2d(3, 2),
                                ls_global_max_pool2d(),
                                ls_global_average_pool2d({ .keepdims = true }),
                                ls_reshape(4, -1),
                                ls_reshape({ .shape = LS_SHAPE(2, 2, 1, 1, 4) }),
                                ls_dropout(0.5),
                                ls_batch_normalization({ .momentum = 0.9 }),
                                ls_layer_normalization(),
                                ls_activation_layer(LS_RELU),
                                ls_relu(),
                                ls_leaky_relu(),
                                ls_leaky_relu(0.1),
                                ls_leaky_relu({ .name = "l" }),
                                ls_softmax(),
                                ls_nested(*out),
                                ls_nested(*out, { .name = "n", .frozen = true }),
                                ls_multiply(),
                                ls_concatenate(),
                                ls_zero_padding2d(),
                                ls_zero_padding2d(2),
                                ls_embedding(100, 8),
                                ls_simple_rnn(4),
                                ls_lstm(4, { .return_sequences = true }),
                                ls_gru(4, { .reset_before = true }),
                                ls_masking(0.5),
                                ls_bidirectional(inner, { .merge_mode = LS_MERGE_SUM }),
                                ls_time_distributed(inner),
                                ls_rescaling(2, { .offset = -1 }),
                                ls_conv1d(4, 3, { .padding = LS_CAUSAL }),
                                ls_conv1d_transpose(4, 3, 2, { .output_padding = { 1 } }),
                                ls_conv2d_transpose(4, 3, 2),
                                ls_depthwise_conv1d(3),
                                ls_separable_conv1d(4, 3),
                                ls_separable_conv2d(4, 3, { .pointwise_regularizer = { .l2 = 0.1 } }),
                                ls_max_pool1d(),
                                ls_average_pool1d(2),
                                ls_global_max_pool1d(),
                                ls_global_average_pool1d(),
                                ls_zero_padding1d(2),
                                ls_cropping1d(),
                                ls_cropping2d({ .cropping = { 1, 2, 3, 4 } }),
                                ls_permute(2, 1),
                                ls_repeat_vector(3),
                                ls_up_sampling1d(2),
                                ls_up_sampling2d({ .size = { 2, 3 }, .interpolation = LS_BILINEAR }),
                                ls_resizing(8, 8, { .crop_to_aspect_ratio = true }),
                                ls_center_crop(4, 4),
                                ls_normalization({ .invert = true }),
                                ls_group_normalization(4, { .no_center = true }),
                                ls_rms_normalization({ .epsilon = 1e-5 }),
                                ls_unit_normalization({ .axes = LS_AXES(1) }),
                                ls_prelu({ .shared_axes = LS_AXES(1, 2) }),
                                ls_elu(0.5),
                                ls_spatial_dropout1d(0.1),
                                ls_spatial_dropout2d(0.1),
                                ls_gaussian_noise(0.1),
                                ls_gaussian_dropout(0.1),
                                ls_alpha_dropout(0.1),
                                ls_stochastic_depth(0.1),
                                ls_average(),
                                ls_maximum(),
                                ls_minimum(),
                                ls_subtract(),
                                ls_dot(1, 2, { .normalize = true }),
                                ls_custom_scale(0.5),
                                ls_layer_scale(8, { .init_values = 0.1 }),
                                ls_activity_regularization({ .activity_regularizer = { .l2 = 0.1 } }),
                                ls_registered("Mine", { .config = "{}" }),
                                ls_random_flip(),
                                ls_random_flip(LS_VERTICAL),
                                ls_random_flip({ .seed = 3 }),
                                ls_random_translation({ .height_factor = { 0.1 }, .width_factor = { 0, 0.1 } }),
                                ls_random_crop(24, 24),
                                ls_random_zoom({ .height_factor = { 0.1 } }),
                                ls_random_rotation({ .factor = { 0.1 }, .fill_mode = LS_FILL_WRAP }),
                                ls_random_contrast({ .factor = { 0.2 } }),
                                ls_random_brightness({ .factor = { 0.2 }, .value_range = { 0, 1 } }),
                                ls_random_erasing(),
                                ls_dense(4, { .frozen = true,
                                              .kernel_initializer = { .kind = LS_INIT_HE_NORMAL },
                                              .kernel_regularizer = { .l2 = 0.1 } }) };
    LS_CHECK(ls_model_builtin(ctx, "resnet18", out));
    LS_CHECK(ls_model_builtin(ctx, "resnet18", out, { .input = LS_SHAPE(32, 32, 3), .classes = 10 }));
    LS_CHECK(ls_functional_begin(ctx, "net", out));
    ls_symbol a = ls_symbol_input(*out, layers[1]);
    ls_symbol b = ls_symbol_call(*out, ls_dense(8), a);
    return ls_functional_end(*out, ls_symbol_share(b, ls_symbol_call(*out, ls_add(), a, b)));
}

static ls_tensor *difference(ls_tensor *targets, ls_tensor *predictions, void *)
{
    return ls_op_sub(targets, predictions);
}

[[maybe_unused]] static ls_tensor *own_weight(ls_call *call)
{
    return ls_op_add(ls_call_variable(call, "w", LS_SHAPE(3)),
                     ls_call_variable(call, "w", LS_SHAPE(3), { .initializer = { .kind = LS_INIT_ONES } }));
}

static ls_status training(ls_model *model, ls_dataset *data)
{
    const ls_optimizer optimizers[] = { ls_sgd(0.1),
                                        ls_sgd({ .momentum = 0.9, .nesterov = true }),
                                        ls_adam(),
                                        ls_adamw(),
                                        ls_rmsprop(),
                                        ls_rmsprop_tf1(0.1),
                                        ls_adagrad(),
                                        ls_adadelta(0.1),
                                        ls_adamax(),
                                        ls_nadam(),
                                        ls_ftrl({ .beta = 0.1 }),
                                        ls_lion(),
                                        ls_lamb(),
                                        ls_muon({ .use_ema = true }) };
    const ls_loss losses[] = { ls_sparse_categorical_crossentropy({ .from_logits = true }),
                               ls_categorical_crossentropy(),
                               ls_binary_crossentropy(),
                               ls_mean_squared_error(),
                               ls_mean_absolute_error(),
                               ls_huber({ .delta = 2 }),
                               ls_mean_absolute_percentage_error(),
                               ls_mean_squared_logarithmic_error(),
                               ls_log_cosh(),
                               ls_cosine_similarity({ .axis = LS_AXES(1) }),
                               ls_kl_divergence(),
                               ls_poisson(),
                               ls_hinge(),
                               ls_squared_hinge(),
                               ls_categorical_hinge(),
                               ls_binary_focal_crossentropy({ .gamma = 3, .apply_class_balancing = true }),
                               ls_categorical_focal_crossentropy({ .label_smoothing = 0.1 }),
                               ls_dice(),
                               ls_tversky({ .alpha = 0.3, .beta = 0.7 }),
                               ls_ctc(),
                               ls_custom_loss(difference),
                               ls_custom_loss(difference, nullptr, "mine", { .reduction = LS_REDUCE_SUM }) };
    ls_array x = {};
    ls_results results;
    char *text;
    bool fits;
    LS_CHECK(ls_compile(model, { .optimizer = optimizers[0],
                                 .loss = losses[0],
                                 .metrics = ls_metrics(ls_accuracy(), ls_top_k(5), ls_metric_of(LS_METRIC_AUC),
                                                       ls_loss_metric(losses[1]), ls_custom_metric(difference)) }));
    LS_CHECK(ls_fit(model, data));
    LS_CHECK(ls_fit(model, data, { .strategy = ls_mirrored("cpu:0-1"), .lanes = 8 }));
    LS_CHECK(ls_fit(model, data, { .trace = { .path = "trace.json" }, .async = { .journal = "" } }));
    const ls_callback callbacks[] = {
        ls_early_stopping({ .monitor = "loss", .patience = 3 }),
        ls_csv_logger("log.csv", { .append = true }),
        ls_tensorboard({ .update_freq = 1 }),
        ls_model_checkpoint("{epoch}.safetensors"),
        ls_reduce_lr_on_plateau("loss", { .factor = 0.5 }),
        ls_learning_rate_scheduler({ .schedule = [](void *, int64_t, double rate) { return rate / 2; } }),
        ls_terminate_on_nan(),
    };
    LS_CHECK(ls_fit(model, data, { .callbacks = callbacks, .callback_count = 7 }));
    LS_CHECK(ls_fit_arrays(model, x, x, { .strategy = ls_one_device() }));
    LS_CHECK(ls_fit_arrays(model, x, x, { .strategy = ls_data_parallel() }));
    LS_CHECK(ls_fit_arrays(model, x, x, { .strategy = ls_model_parallel() }));
    LS_CHECK(ls_fit_arrays(model, x, x, { .strategy = ls_pipeline() }));
    LS_CHECK(ls_fit_arrays(model, x, x, { .strategy = ls_multi_worker() }));
    LS_CHECK(ls_fit_arrays(model, x, x, { .strategy = ls_parameter_server() }));
    LS_CHECK(ls_explain_fit(model, data, &fits, &text, { .batch_size = 4096 }));
    ls_replayed replayed;
    if (ls_replay(model, data, "run.record", &replayed, { .batch_size = 32 }) == LS_OK)
        LS_CHECK(ls_record_own("run.record", &text));
    LS_CHECK(ls_checkpoint_save(model, "checkpoints"));
    LS_CHECK(ls_checkpoint_restore(model, "checkpoints", { .allow_other_bits = true }));
    LS_CHECK(ls_evaluate(model, data, &results));
    LS_CHECK(ls_evaluate_arrays(model, x, x, &results));
    LS_CHECK(ls_predict(model, data, &x, { .batch_size = 100 }));
    LS_CHECK(ls_predict_array(model, x, &x));
    ls_predictor *predictor = nullptr;
    LS_CHECK(ls_model_share(model, &predictor, { .uint8 = true }));
    LS_CHECK(ls_predictor_run(predictor, &x, 1, &x, 1));
    ls_predictor_destroy(predictor);
    LS_CHECK(ls_model_save_weights(model, "model.npz"));
    LS_CHECK(ls_model_load_weights(model, "model.npz", { .layout = LS_LAYOUT_TORCH }));
    LS_CHECK(ls_train_on_batch(model, x, x));
    LS_CHECK(ls_train_on_batch(model, x, x, &results, { .lanes = 8 }));
    const ls_output outputs[] = { { .loss = losses[0], .weight = 0.3 }, { .loss = losses[1] } };
    LS_CHECK(ls_compile(model, { .optimizer = optimizers[0], .outputs = outputs, .output_count = 2 }));
    return ls_evaluate(model, data, &results, { .batch_size = 1000 });
}

ls_status calls(ls_context *ctx, ls_model *model, ls_dataset *data,
                ls_status (*function)(void *, const ls_element *, ls_element *))
{
    ls_graph *graph;
    LS_CHECK(ls_graph_create(ctx, &graph));
    LS_CHECK(ls_graph_create(ctx, &graph, { .seed = 1 }));
    LS_CHECK(ls_context_create({ .cpu_devices = 2 }, &ctx));
    LS_CHECK(ls_read(ops(graph), nullptr, 0));
    ls_dataset_destroy(pipelines(function));
    LS_CHECK(models(ctx, &model));
    return training(model, data);
}
