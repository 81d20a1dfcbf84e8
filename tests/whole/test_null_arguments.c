/* Every public function with NULL for each of its pointers in turn, the others being right: a
 * status with a message, or nothing at all, never a crash. tests/whole/test_symbols.sh sees to it
 * that no function is left out. REFUSED: a status must come; STATUS: the pointer may be left out,
 * or the call cannot know; CALL: it returns something else. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "lockstep.h"
#include "lockstep/backend.h"
#include "machine.h"

/* Arguments of calls, and places for results. */
static struct {
    ls_context *ctx, *fresh; /* fresh: not opened */
    ls_graph *graph;
    ls_tensor *x, *w, *sum, *scaled, *update, *rate, *list[2], *variables[2], *tensors[4];
    ls_model *model, *building;
    ls_call *call;
    ls_symbol symbol;
    ls_dataset *data;
    ls_iterator *iterator;
    ls_rows *pass;
    ls_history *history;
    FILE *file;
    ls_layer layers[2];
    ls_element_spec spec;
    ls_context_options options;
    ls_logical_device part;
    ls_backend backend;
    ls_program_run run;
    ls_feed feed;
    ls_schedule schedule;
    ls_optimizer optimizer;
    ls_loss loss;
    ls_metric metric;
    ls_metric_state state;
    float floats[64];
    double doubles[512], number;
    int64_t integers[16], rows;
    const void *operands[2];

    ls_context *out_ctx;
    ls_model *out_model;
    ls_graph *out_graph;
    ls_dataset *out_data;
    ls_iterator *out_iterator;
    ls_rows *out_rows;
    ls_array array;
    char *text, hex[65];
    ls_table *table;
    ls_tokenizer *tokenizer;
    int32_t *ids, id;
    size_t bytes;
    const char *const *classes;
    const char *lines;
    ls_device_info *devices;
    ls_copy_info *copies;
    ls_device_name *names;
    ls_cpu_info cpu;
    int *cores;
    ls_memory_info memory;
    ls_device_times *times;
    ls_trace trace;
    const ls_element *element;
    const int64_t *list_of_rows;
    size_t count;
    int places;
    bool flag;
} t;

static ls_array features(void)
{
    return ls_array_of(LS_F32, LS_SHAPE(4, 3), t.floats);
}

static ls_array labels(void)
{
    return ls_array_of(LS_F32, LS_SHAPE(4, 1), t.floats);
}

/* Gives back what a call gave after all. */
static void tidy(void)
{
    ls_model_destroy(t.out_model);
    ls_context_close(t.out_ctx);
    ls_dataset_destroy(t.out_data);
    ls_iterator_destroy(t.out_iterator);
    ls_rows_destroy(t.out_rows);
    free(t.text);
    free(t.devices);
    free(t.copies);
    free(t.names);
    free(t.cores);
    free(t.times);
    t.times = NULL;
    t.names = NULL;
    t.cores = NULL;
    free(t.trace.updates);
    t.out_ctx = NULL;
    t.out_model = NULL;
    t.out_data = NULL;
    t.out_iterator = NULL;
    t.out_rows = NULL;
    t.text = NULL;
    t.devices = NULL;
    t.copies = NULL;
    t.trace.updates = NULL;
    t.array = (ls_array){ .data = NULL };
}

static void step_function(ls_tensor *const *inputs, ls_tensor **outputs, void *user)
{
    (void)user;
    outputs[0] = ls_op_scale(inputs[0], 2);
}

static void see(const char *call, ls_status status, bool refused)
{
    if (status == LS_OK && refused)
        fail_msg("%s: is not refused", call);
    if (status != LS_OK && !ls_last_error()[0])
        fail_msg("%s: %s without a message", call, ls_status_name(status));
    tidy();
}

#define REFUSED(call) (ls_clear_error(), see(#call, call, true))
#define STATUS(call)  (ls_clear_error(), see(#call, call, false))
#define CALL(call)    ((void)(call), tidy())
#define DATA(call)    ls_dataset_destroy(call)

static ls_status generate(void *user, ls_element *out, bool *end)
{
    (void)user, (void)out;
    *end = true;
    return LS_OK;
}

/* The calls that need a custom model. */
static void call_function(ls_call *call, ls_tensor *const *inputs, ls_tensor **outputs, void *user)
{
    (void)user;
    t.call = call;
    CALL(ls_layer_call(t.call, ls_dense(1), NULL));
    CALL(ls_layer_call_many(t.call, ls_dense(1), NULL, 1));
    CALL(ls_call_variable_with(t.call, NULL, (ls_weight_options){ .shape = LS_SHAPE(1) }));
    outputs[0] = ls_layer_call(call, ls_dense(1, .name = "last"), inputs[0]);
}

static void graph_calls(void **state)
{
    (void)state;
    CALL(ls_status_name(LS_ERR_IO));
    CALL(ls_last_error());
    CALL(ls_show_work(NULL));
    CALL(ls_dtype_bytes(LS_F32));
    CALL(ls_dtype_name(LS_F32));
    REFUSED(ls_graph_create_with(NULL, (ls_graph_options){ .ls_first = 0 }, &t.out_graph));
    CALL(ls_graph_destroy(NULL));
    REFUSED(ls_graph_status(NULL));
    CALL(ls_scope_open(NULL));
    CALL(ls_scope_close(NULL));
    CALL(ls_name_scope_open(NULL, "name"));
    CALL(ls_name_scope_open(t.graph, NULL));
    CALL(ls_name_scope_close(NULL));
    CALL(ls_named(NULL, "name"));
    CALL(ls_named(t.x, NULL));
    REFUSED(ls_graph_find(NULL, "name", t.tensors));
    REFUSED(ls_graph_find(t.graph, NULL, t.tensors));
    REFUSED(ls_graph_find(t.graph, "w", NULL));
    REFUSED(ls_graph_dump(NULL, LS_DUMP_TEXT, &t.text));
    REFUSED(ls_graph_dump(t.graph, LS_DUMP_TEXT, NULL));
    CALL(ls_graph_node_count(NULL));
    CALL(ls_tensor_dtype(NULL));
    CALL(ls_tensor_shape(NULL));
    CALL(ls_tensor_is_per_sample(NULL));
    CALL(ls_tensor_is_error(NULL));
    CALL(ls_tensor_op(NULL));
    CALL(ls_tensor_name(NULL));
    CALL(ls_tensor_graph(NULL));
    CALL(ls_tensor_input_count(NULL));
    CALL(ls_tensor_input(NULL, 1));
    CALL(ls_tensor_reduces(NULL));
    REFUSED(ls_tensor_attribute(NULL, "name", 1, &t.number, &t.places));
    REFUSED(ls_tensor_attribute(t.scaled, NULL, 1, &t.number, &t.places));
    REFUSED(ls_tensor_attribute(t.scaled, "factor", 1, NULL, &t.places));
    REFUSED(ls_tensor_attribute(t.scaled, "factor", 1, &t.number, NULL));
    REFUSED(ls_gradients(NULL, t.list, 1, t.tensors));
    REFUSED(ls_gradients(t.x, NULL, 1, t.tensors));
    REFUSED(ls_gradients(t.x, t.list, 1, NULL));
    REFUSED(ls_gradients_with(NULL, t.list, 1, (ls_gradients_options){ .zeros = true }, t.tensors));
    REFUSED(ls_gradients_with(t.x, NULL, 1, (ls_gradients_options){ .zeros = true }, t.tensors));
    REFUSED(ls_gradients_with(t.x, t.list, 1, (ls_gradients_options){ .zeros = true }, NULL));
    REFUSED(ls_variable_set(NULL, t.floats, 1));
    REFUSED(ls_variable_set(t.w, NULL, 12));
    REFUSED(ls_variable_get(NULL, t.floats, 1));
    REFUSED(ls_variable_get(t.w, NULL, 12));
}

static void op_calls(void **state)
{
    (void)state;
    CALL(ls_op_constant(NULL, LS_F32, LS_SHAPE(3), t.floats));
    CALL(ls_op_constant(t.graph, LS_F32, LS_SHAPE(3), NULL));
    CALL(ls_op_scalar(NULL, LS_F32, 0.5));
    CALL(ls_op_fill(NULL, LS_F32, LS_SHAPE(3), 0.5));
    CALL(ls_op_input(NULL, "name", LS_F32, LS_SHAPE(3)));
    CALL(ls_op_input(t.graph, NULL, LS_F32, LS_SHAPE(3)));
    CALL(ls_op_count(NULL, LS_F32));
    CALL(ls_op_variable_with(NULL, "name", LS_F32, (ls_variable_op){ .ls_first = 0 }));
    CALL(ls_op_variable_with(t.graph, NULL, LS_F32, (ls_variable_op){ .ls_first = 0 }));
    CALL(ls_op_assign(NULL, t.x));
    CALL(ls_op_assign(t.w, NULL));
    CALL(ls_op_assign_add(NULL, t.x));
    CALL(ls_op_assign_add(t.w, NULL));
    CALL(ls_op_apply_with(NULL, t.x, (ls_apply_op){ .ls_first = 0 }));
    CALL(ls_op_apply_with(t.w, NULL, (ls_apply_op){ .ls_first = 0 }));
    CALL(ls_op_group(NULL, 1));
    CALL(ls_op_random_uniform(NULL, LS_F32, LS_SHAPE(3), 0.5, 0.5));
    CALL(ls_op_random_normal(NULL, LS_F32, LS_SHAPE(3), 0.5, 0.5));
    CALL(ls_op_gather_batch(NULL));
    CALL(ls_op_scatter_batch(NULL));
    CALL(ls_op_stop_gradient(NULL));
    CALL(ls_op_cast(NULL, LS_F32));
    CALL(ls_op_add(NULL, t.x));
    CALL(ls_op_add(t.x, NULL));
    CALL(ls_op_sub(NULL, t.x));
    CALL(ls_op_sub(t.x, NULL));
    CALL(ls_op_mul(NULL, t.x));
    CALL(ls_op_mul(t.x, NULL));
    CALL(ls_op_div(NULL, t.x));
    CALL(ls_op_div(t.x, NULL));
    CALL(ls_op_pow(NULL, t.x));
    CALL(ls_op_pow(t.x, NULL));
    CALL(ls_op_maximum(NULL, t.x));
    CALL(ls_op_maximum(t.x, NULL));
    CALL(ls_op_minimum(NULL, t.x));
    CALL(ls_op_minimum(t.x, NULL));
    CALL(ls_op_scale(NULL, 0.5));
    CALL(ls_op_shift(NULL, 0.5));
    CALL(ls_op_compare(NULL, LS_LESS, t.x));
    CALL(ls_op_compare(t.x, LS_LESS, NULL));
    CALL(ls_op_select(NULL, t.x, t.x));
    CALL(ls_op_select(t.x, NULL, t.x));
    CALL(ls_op_select(t.x, t.x, NULL));
    CALL(ls_op_neg(NULL));
    CALL(ls_op_abs(NULL));
    CALL(ls_op_sign(NULL));
    CALL(ls_op_exp(NULL));
    CALL(ls_op_log(NULL));
    CALL(ls_op_sqrt(NULL));
    CALL(ls_op_rsqrt(NULL));
    CALL(ls_op_square(NULL));
    CALL(ls_op_erf(NULL));
    CALL(ls_op_clip(NULL, 0.5, 0.5));
    CALL(ls_op_relu(NULL));
    CALL(ls_op_leaky_relu(NULL, 0.5));
    CALL(ls_op_sigmoid(NULL));
    CALL(ls_op_tanh(NULL));
    CALL(ls_op_softplus(NULL));
    CALL(ls_op_gelu(NULL, false));
    CALL(ls_op_silu(NULL));
    CALL(ls_op_elu(NULL, 0.5));
    CALL(ls_op_capped_relu(NULL, 6));
    CALL(ls_op_reshape(NULL, LS_SHAPE(3)));
    CALL(ls_op_flatten(NULL));
    CALL(ls_op_transpose(NULL, LS_AXES(0)));
    CALL(ls_op_broadcast(NULL, LS_SHAPE(3)));
    CALL(ls_op_concat(NULL, 1, 1));
    CALL(ls_op_slice(NULL, LS_AXES(0), LS_AXES(0)));
    CALL(ls_op_strided_slice(NULL, LS_AXES(0), LS_AXES(0), LS_AXES(0)));
    CALL(ls_op_split(NULL, 1, LS_AXES(0), t.tensors));
    CALL(ls_op_split(t.x, 1, LS_AXES(0), NULL));
    CALL(ls_op_pad(NULL, LS_AXES(0), LS_AXES(0), 0.5));
    CALL(ls_op_gather(NULL, t.x, 1));
    CALL(ls_op_gather(t.x, NULL, 1));
    CALL(ls_op_one_hot(NULL, LS_F32, 1));
    CALL(ls_op_matmul_with(NULL, (ls_matmul_op){ .ls_first = 0 }));
    CALL(ls_op_attention_with(NULL, (ls_attention_op){ .ls_first = 0 }));
    CALL(ls_op_custom_with(NULL, (ls_custom_op){ .ls_first = 0 }));
    CALL(ls_op_reduce_sum(NULL, LS_AXES(0), false));
    CALL(ls_op_reduce_mean(NULL, LS_AXES(0), false));
    CALL(ls_op_reduce_max(NULL, LS_AXES(0), false));
    CALL(ls_op_reduce_min(NULL, LS_AXES(0), false));
    CALL(ls_op_argmax(NULL, 1));
    CALL(ls_op_top_k(NULL, 1));
    CALL(ls_op_top_k_indices(NULL, 1));
    CALL(ls_op_softmax(NULL, 1));
    CALL(ls_op_log_softmax(NULL, 1));
    CALL(ls_op_conv2d_with(NULL, (ls_conv2d_op){ .ls_first = 0 }));
    CALL(ls_op_max_pool2d_with(NULL, (ls_pool2d_op){ .ls_first = 0 }));
    CALL(ls_op_average_pool2d_with(NULL, (ls_pool2d_op){ .ls_first = 0 }));
    CALL(ls_op_warp_with(NULL, (ls_warp_op){ .ls_first = 0 }));
    CALL(ls_op_global_max_pool2d(NULL));
    CALL(ls_op_global_average_pool2d(NULL));
    CALL(ls_op_batch_norm_with(NULL, (ls_batch_norm_op){ .ls_first = 0 }));
    CALL(ls_op_layer_norm_with(NULL, (ls_layer_norm_op){ .ls_first = 0 }));
    CALL(ls_op_dropout(NULL, t.x));
    CALL(ls_op_dropout(t.x, NULL));
    CALL(ls_op_sparse_cross_entropy(t.x, NULL, LS_LOGITS));
    CALL(ls_op_sparse_cross_entropy(NULL, t.x, LS_LOGITS));
    CALL(ls_op_cross_entropy(t.x, NULL, LS_LOGITS));
    CALL(ls_op_cross_entropy(NULL, t.x, LS_LOGITS));
    CALL(ls_op_binary_cross_entropy(t.x, NULL, LS_LOGITS));
    CALL(ls_op_binary_cross_entropy(NULL, t.x, LS_LOGITS));
    CALL(ls_op_mean_squared_error(t.x, NULL));
    CALL(ls_op_mean_squared_error(NULL, t.x));
    CALL(ls_op_mean_absolute_error(t.x, NULL));
    CALL(ls_op_mean_absolute_error(NULL, t.x));
    CALL(ls_op_huber(t.x, NULL, 0.5));
    CALL(ls_op_huber(NULL, t.x, 0.5));
    CALL(ls_op_ctc(t.x, NULL));
    CALL(ls_op_ctc(NULL, t.x));
}

static void device_calls(void **state)
{
    (void)state;
    STATUS(ls_context_open(NULL, &t.out_ctx));
    REFUSED(ls_context_open(&t.options, NULL));
    STATUS(ls_context_create(NULL, &t.out_ctx));
    REFUSED(ls_context_create(&t.options, NULL));
    CALL(ls_context_close(NULL));
    REFUSED(ls_list_physical_devices(NULL, "CPU", &t.devices, &t.count));
    STATUS(ls_list_physical_devices(t.ctx, NULL, &t.devices, &t.count));
    REFUSED(ls_list_physical_devices(t.ctx, "CPU", NULL, &t.count));
    REFUSED(ls_list_physical_devices(t.ctx, "CPU", &t.devices, NULL));
    REFUSED(ls_list_logical_devices(NULL, "CPU", &t.devices, &t.count));
    STATUS(ls_list_logical_devices(t.ctx, NULL, &t.devices, &t.count));
    REFUSED(ls_list_logical_devices(t.ctx, "CPU", NULL, &t.count));
    REFUSED(ls_list_logical_devices(t.ctx, "CPU", &t.devices, NULL));
    REFUSED(ls_set_visible_devices(NULL, "cpu:0"));
    REFUSED(ls_set_visible_devices(t.fresh, NULL));
    REFUSED(ls_set_memory_growth(NULL, "cpu:0", false));
    REFUSED(ls_set_memory_growth(t.fresh, NULL, false));
    REFUSED(ls_set_logical_devices(NULL, "cpu:0", &t.part, 1));
    REFUSED(ls_set_logical_devices(t.fresh, NULL, &t.part, 1));
    REFUSED(ls_set_logical_devices(t.fresh, "cpu:0", NULL, 1));
    CALL(ls_device_scope_open(NULL, "cpu:0"));
    CALL(ls_device_scope_open(t.graph, NULL));
    CALL(ls_device_scope_close(NULL));
    REFUSED(ls_set_hard_placement(NULL, false));
    REFUSED(ls_set_log_placement(NULL, false));
    REFUSED(ls_get_memory_info(NULL, "cpu:0", &t.memory));
    REFUSED(ls_get_memory_info(t.ctx, NULL, &t.memory));
    REFUSED(ls_get_memory_info(t.ctx, "cpu:0", NULL));
    REFUSED(ls_format_memory(NULL, "cpu:0", &t.text));
    REFUSED(ls_format_memory(t.ctx, NULL, &t.text));
    REFUSED(ls_format_memory(t.ctx, "cpu:0", NULL));
    REFUSED(ls_read_device_names(NULL, "cpu:0", &t.names, &t.count));
    REFUSED(ls_read_device_names(t.ctx, NULL, &t.names, &t.count));
    REFUSED(ls_read_device_names(t.ctx, "cpu:0", NULL, &t.count));
    REFUSED(ls_read_device_names(t.ctx, "cpu:0", &t.names, NULL));
    REFUSED(ls_get_cpu_info(NULL, &t.cpu));
    REFUSED(ls_get_cpu_info(t.ctx, NULL));
    REFUSED(ls_list_device_cores(NULL, "cpu:0", &t.cores, &t.count));
    REFUSED(ls_list_device_cores(t.ctx, NULL, &t.cores, &t.count));
    REFUSED(ls_list_device_cores(t.ctx, "cpu:0", NULL, &t.count));
    REFUSED(ls_list_device_cores(t.ctx, "cpu:0", &t.cores, NULL));
    STATUS(ls_check_environment());
    REFUSED(ls_list_copies(NULL, &t.copies, &t.count));
    REFUSED(ls_format_drivers(NULL));
    REFUSED(ls_list_copies(t.ctx, NULL, &t.count));
    REFUSED(ls_list_copies(t.ctx, &t.copies, NULL));
    REFUSED(ls_add_backend(NULL, &t.backend));
    REFUSED(ls_add_backend(t.fresh, NULL));
    REFUSED(ls_backend_fail(LS_ERR_IO, NULL));
    REFUSED(ls_reference_run(NULL, &t.run, t.operands, NULL, t.floats, NULL));
    REFUSED(ls_reference_run(t.sum, &t.run, NULL, NULL, t.floats, NULL));
    REFUSED(ls_reference_run(t.sum, &t.run, t.operands, NULL, NULL, NULL));
    REFUSED(ls_reference_run(t.sum, NULL, t.operands, NULL, t.floats, NULL));
    CALL(ls_reference_join(LS_JOIN_SUM, LS_F32, t.floats, t.floats, 1, NULL));
    CALL(ls_reference_join(LS_JOIN_SUM, LS_F32, NULL, t.floats, 1, t.floats));
    CALL(ls_reference_join(LS_JOIN_SUM, LS_F32, t.floats, NULL, 1, t.floats));
    REFUSED(ls_reference_run(t.update, &t.run, t.operands, NULL, t.floats, NULL));
}

static void run_calls(void **state)
{
    (void)state;
    REFUSED(ls_eval(NULL, &t.feed, 1, t.list, 1));
    REFUSED(ls_eval(t.graph, NULL, 1, t.list, 1));
    REFUSED(ls_eval(t.graph, &t.feed, 1, NULL, 1));
    REFUSED(ls_eval_rows(NULL, &t.feed, 1, t.integers, 1, t.list, 1));
    REFUSED(ls_eval_rows(t.graph, NULL, 1, t.integers, 1, t.list, 1));
    REFUSED(ls_eval_rows(t.graph, &t.feed, 1, NULL, 1, t.list, 1));
    REFUSED(ls_eval_rows(t.graph, &t.feed, 1, t.integers, 1, NULL, 1));
    REFUSED(ls_graph_set_lanes(NULL, 1));
    REFUSED(ls_graph_set_strategy(NULL, ls_mirrored()));
    REFUSED(ls_strategy_replicas(NULL, ls_mirrored(), &(int){ 0 }));
    REFUSED(ls_strategy_check(NULL, t.integers));
    STATUS(ls_strategy_check(t.graph, NULL));
    REFUSED(ls_explain(NULL, t.list, 1, 1, &t.text));
    REFUSED(ls_explain(t.graph, NULL, 1, 1, &t.text));
    REFUSED(ls_explain(t.graph, t.list, 1, 1, NULL));
    REFUSED(ls_explain_placement(NULL, t.list, 1, 1, &t.text));
    REFUSED(ls_explain_placement(t.graph, NULL, 1, 1, &t.text));
    REFUSED(ls_explain_placement(t.graph, t.list, 1, 1, NULL));
    REFUSED(ls_explain_memory(NULL, t.list, 1, 1, &t.flag, &t.text));
    REFUSED(ls_explain_memory(t.graph, NULL, 1, 1, &t.flag, &t.text));
    STATUS(ls_explain_memory(t.graph, t.list, 1, 1, NULL, &t.text));
    REFUSED(ls_explain_memory(t.graph, t.list, 1, 1, &t.flag, NULL));
    REFUSED(ls_cluster_environment(NULL));
    REFUSED(ls_cluster_make_key(NULL));
    REFUSED(ls_cluster_join(NULL, NULL));
    STATUS(ls_cluster_join(t.fresh, NULL));
    CALL(ls_cluster_rank(NULL));
    CALL(ls_cluster_size(NULL));
    CALL(ls_cluster_servers(NULL));
    CALL(ls_is_server(NULL));
    CALL(ls_is_evaluator(NULL));
    CALL(ls_is_chief(NULL));
    REFUSED(ls_cluster_barrier(NULL, "all"));
    STATUS(ls_cluster_barrier(t.ctx, NULL));
    REFUSED(ls_cluster_broadcast(NULL, "all", 0, t.floats, 4));
    STATUS(ls_cluster_broadcast(t.ctx, NULL, 0, t.floats, 4));
    REFUSED(ls_cluster_broadcast(t.ctx, "all", 0, NULL, 4));
    REFUSED(ls_cluster_gather(NULL, "all", t.floats, 4, t.doubles));
    STATUS(ls_cluster_gather(t.ctx, NULL, t.floats, 4, t.doubles));
    REFUSED(ls_cluster_gather(t.ctx, "all", NULL, 4, t.doubles));
    REFUSED(ls_cluster_gather(t.ctx, "all", t.floats, 4, NULL));
    ls_dataset *nowhere = ls_from_worker(NULL, 0, NULL), *nothing = ls_from_worker(t.ctx, 0, NULL);
    REFUSED(ls_dataset_status(nowhere));
    REFUSED(ls_dataset_status(nothing));
    ls_dataset_destroy(nowhere);
    ls_dataset_destroy(nothing);
    REFUSED(ls_spawn(1, NULL, NULL));
    REFUSED(ls_bit_class(NULL, &t.text));
    REFUSED(ls_bit_class(t.ctx, NULL));
    REFUSED(ls_value(NULL, &t.array));
    REFUSED(ls_value(t.sum, NULL));
    REFUSED(ls_read(NULL, t.floats, 1));
    REFUSED(ls_read(t.sum, NULL, 4));
    REFUSED(ls_read_scalar(NULL, &t.number));
    REFUSED(ls_read_scalar(t.sum, NULL));
    REFUSED(ls_format(NULL, &t.text));
    REFUSED(ls_format(t.sum, NULL));
    REFUSED(ls_print(NULL, t.file));
    REFUSED(ls_print(t.x, NULL));
}

static void data_calls(void **state)
{
    (void)state;
    REFUSED(ls_load_data(NULL, "name", &t.out_data, &t.out_data));
    REFUSED(ls_load_data(t.ctx, NULL, &t.out_data, &t.out_data));
    REFUSED(ls_load_data(t.ctx, "name", NULL, &t.out_data));
    REFUSED(ls_load_data(t.ctx, "name", &t.out_data, NULL));
    REFUSED(ls_idx_read(NULL, &t.array));
    REFUSED(ls_idx_read("name", NULL));
    REFUSED(ls_npy_read(NULL, &t.array));
    REFUSED(ls_npy_read("name", NULL));
    REFUSED(ls_npy_write(NULL, features()));
    REFUSED(ls_npz_write(NULL, NULL, NULL, 0));
    REFUSED(ls_npz_write("/dev/null", NULL, NULL, 1));
    REFUSED(ls_npz_write("/dev/null", (const char *[]){ NULL }, (ls_array[]){ features() }, 1));
    REFUSED(ls_npz_write("/dev/null", (const char *[]){ "x" }, (ls_array[]){ { .shape = LS_SHAPE(2) } }, 1));
    REFUSED(ls_npy_write("/dev/null", (ls_array){ .data = NULL, .shape = LS_SHAPE(2) }));
    REFUSED(ls_npz_read(NULL, "name", &t.array));
    REFUSED(ls_npz_read("name", NULL, &t.array));
    REFUSED(ls_npz_read("name", "name", NULL));
    REFUSED(ls_csv_read(NULL, &t.array, &t.array));
    REFUSED(ls_csv_read("name", NULL, &t.array));
    REFUSED(ls_csv_read("name", &t.array, NULL));
    DATA(ls_from_tensor_slices_with((ls_arrays_options){ .ls_first = 0 }));
    DATA(ls_from_tensors_with((ls_arrays_options){ .ls_first = 0 }));
    DATA(ls_from_generator(NULL, t.floats, t.spec));
    DATA(ls_from_generator(generate, NULL, t.spec));
    DATA(ls_from_function(1, t.spec, NULL, NULL));
    DATA(ls_from_image_folder(NULL));
    DATA(ls_from_image_folder("name", .class_count = 1));
    DATA(ls_from_image_folder("name", .class_count = 1, .classes = (const char *[]){ NULL }));
    DATA(ls_from_image_shards(NULL));
    DATA(ls_from_array_files(NULL, "name"));
    DATA(ls_from_table(NULL, "name"));
    DATA(ls_concatenate_datasets(NULL, NULL));
    DATA(ls_concatenate_datasets(ls_dataset_share(t.data), NULL));
    REFUSED(ls_table_create(NULL, &t.table));
    REFUSED(ls_table_create("name", NULL));
    REFUSED(ls_table_load(NULL, &t.table));
    REFUSED(ls_table_load("name", NULL));
    REFUSED(ls_table_save(NULL, "name"));
    REFUSED(ls_table_describe(NULL, &t.text));
    CALL(ls_table_destroy(NULL));
    DATA(ls_from_text(NULL));
    REFUSED(ls_tokenizer_open(NULL, &t.tokenizer));
    REFUSED(ls_tokenizer_open("bytes", NULL));
    REFUSED(ls_tokenizer_from_characters(NULL, 1, &t.tokenizer));
    REFUSED(ls_tokenizer_from_characters("a", 1, NULL));
    REFUSED(ls_tokenizer_save(NULL, "name"));
    REFUSED(ls_tokenizer_encode(NULL, "a", 1, &t.ids, &t.bytes));
    REFUSED(ls_tokenizer_decode(NULL, NULL, 0, &t.text, &t.bytes));
    REFUSED(ls_tokenizer_id(NULL, "a", &t.id));
    REFUSED(ls_tokens_write(NULL, NULL, 0, 1, LS_TOKENS_AUTO));
    REFUSED(ls_tokens_write("/dev/null", NULL, 1, 1, LS_TOKENS_AUTO));
    REFUSED(ls_tokens_read(NULL, LS_TOKENS_AUTO, &t.ids, &t.bytes));
    REFUSED(ls_tokens_read("name", LS_TOKENS_AUTO, NULL, &t.bytes));
    REFUSED(ls_tokens_read("name", LS_TOKENS_AUTO, &t.ids, NULL));
    CALL(ls_tokenizer_size(NULL));
    CALL(ls_tokenizer_destroy(NULL));
    ls_tokenizer *bytes = NULL;
    assert_int_equal(ls_tokenizer_open("bytes", &bytes), LS_OK);
    REFUSED(ls_tokenizer_save(bytes, NULL));
    REFUSED(ls_tokenizer_encode(bytes, NULL, 1, &t.ids, &t.bytes));
    REFUSED(ls_tokenizer_encode(bytes, "a", 1, NULL, &t.bytes));
    REFUSED(ls_tokenizer_encode(bytes, "a", 1, &t.ids, NULL));
    REFUSED(ls_tokenizer_decode(bytes, NULL, 1, &t.text, &t.bytes));
    REFUSED(ls_tokenizer_decode(bytes, &t.id, 1, NULL, &t.bytes));
    REFUSED(ls_tokenizer_decode(bytes, &t.id, 1, &t.text, NULL));
    REFUSED(ls_tokenizer_id(bytes, NULL, &t.id));
    REFUSED(ls_tokenizer_id(bytes, "a", NULL));
    ls_tokenizer_destroy(bytes);
    REFUSED(ls_dataset_fold(NULL, 2, 0, &t.out_data, &t.out_data));
    REFUSED(ls_dataset_fold(t.data, 2, 0, NULL, &t.out_data));
    REFUSED(ls_dataset_fold(t.data, 2, 0, &t.out_data, NULL));
    REFUSED(ls_dataset_classes(NULL, &t.classes, &t.rows));
    REFUSED(ls_dataset_classes(t.data, NULL, &t.rows));
    REFUSED(ls_dataset_classes(t.data, &t.classes, NULL));
    REFUSED(ls_dataset_left_out(NULL, &t.rows, &t.lines));
    REFUSED(ls_dataset_left_out(t.data, NULL, &t.lines));
    REFUSED(ls_dataset_left_out(t.data, &t.rows, NULL));
    DATA(ls_repeat(NULL, 1));
    DATA(ls_take(NULL, 1));
    DATA(ls_skip(NULL, 1));
    DATA(ls_shard(NULL, 2, 1));
    DATA(ls_shuffle(NULL, 1, 1));
    DATA(ls_batch(NULL, 1, false));
    DATA(ls_map_with(NULL, (ls_map_options){ .ls_first = 0 }));
    DATA(ls_prefetch(NULL, 1));
    REFUSED(ls_dataset_status(NULL));
    REFUSED(ls_dataset_spec(NULL, &t.spec));
    REFUSED(ls_dataset_spec(t.data, NULL));
    REFUSED(ls_dataset_count(NULL, &t.rows));
    REFUSED(ls_dataset_count(t.data, NULL));
    DATA(ls_dataset_share(NULL));
    CALL(ls_dataset_destroy(NULL));
    REFUSED(ls_dataset_split(NULL, 0.5, &t.out_data, &t.out_data));
    REFUSED(ls_dataset_split(t.data, 0.5, NULL, &t.out_data));
    REFUSED(ls_dataset_split(t.data, 0.5, &t.out_data, NULL));
    REFUSED(ls_iterator_create(NULL, 1, &t.out_iterator));
    REFUSED(ls_iterator_create(t.data, 1, NULL));
    REFUSED(ls_iterator_next(NULL, &t.element));
    REFUSED(ls_iterator_next(t.iterator, NULL));
    CALL(ls_iterator_destroy(NULL));
    REFUSED(ls_dataset_has_rows(NULL, &t.flag));
    REFUSED(ls_dataset_has_rows(t.data, NULL));
    REFUSED(ls_rows_create(NULL, 1, &t.out_rows));
    REFUSED(ls_rows_create(t.data, 1, NULL));
    CALL(ls_rows_base(NULL));
    REFUSED(ls_rows_next(NULL, &t.list_of_rows, &t.rows));
    REFUSED(ls_rows_next(t.pass, NULL, &t.rows));
    REFUSED(ls_rows_next(t.pass, &t.list_of_rows, NULL));
    CALL(ls_rows_destroy(NULL));
}

static void loop_calls(void **state)
{
    (void)state;
    ls_loop_step *step = NULL;
    ls_distributed *passes = NULL;
    ls_dataset *batched = ls_batch(ls_dataset_share(t.data), 2, false);
    ls_element batch = { .count = 1, .component = { features() } }, part;
    REFUSED(ls_loop_step_create(NULL, step_function, NULL, 1, &step));
    REFUSED(ls_loop_step_create(t.graph, NULL, NULL, 1, &step));
    REFUSED(ls_loop_step_create(t.graph, step_function, NULL, 1, NULL));
    STATUS(ls_loop_step_create(t.graph, step_function, NULL, 1, &step));
    CALL(ls_loop_step_destroy(NULL));
    REFUSED(ls_strategy_run(NULL, &batch, NULL));
    REFUSED(ls_strategy_run(step, NULL, NULL));
    STATUS(ls_strategy_run(step, &batch, NULL));
    CALL(ls_strategy_reduce(LS_REDUCE_SUM, NULL, LS_NO_AXIS));
    REFUSED(ls_replica_element(NULL, &batch, 0, &part));
    REFUSED(ls_replica_element(step, NULL, 0, &part));
    REFUSED(ls_replica_element(step, &batch, 0, NULL));
    REFUSED(ls_replica_value(NULL, 0, 0, &t.array));
    REFUSED(ls_replica_value(step, 0, 0, NULL));
    REFUSED(ls_format_replicas(NULL, 0, &t.text));
    REFUSED(ls_format_replicas(step, 0, NULL));
    ls_loop_step_destroy(step);
    REFUSED(ls_distribute_dataset(NULL, &passes));
    REFUSED(ls_distribute_dataset(batched, NULL));
    STATUS(ls_distribute_dataset(batched, &passes));
    REFUSED(ls_distributed_next(NULL, &t.element));
    REFUSED(ls_distributed_next(passes, NULL));
    CALL(ls_distributed_destroy(NULL));
    ls_distributed_destroy(passes);
    ls_dataset_destroy(batched);
}

static void nn_calls(void **state)
{
    (void)state;
    REFUSED(ls_sequential_with(NULL, "name", t.layers, 1, &t.out_model));
    STATUS(ls_sequential_with(t.ctx, NULL, t.layers, 1, &t.out_model));
    REFUSED(ls_sequential_with(t.ctx, "name", t.layers, 1, NULL));
    REFUSED(ls_sequential_with(t.ctx, "name", NULL, 1, &t.out_model));
    REFUSED(ls_functional_begin(NULL, "name", &t.out_model));
    STATUS(ls_functional_begin(t.ctx, NULL, &t.out_model));
    REFUSED(ls_functional_begin(t.ctx, "name", NULL));
    CALL(ls_symbol_input(NULL, ls_input(3)));
    CALL(ls_symbol_call_with(NULL, ls_dense(1), &t.symbol, 1));
    CALL(ls_symbol_call_with(t.building, ls_dense(1), NULL, 1));
    CALL(ls_symbol_share_with(t.symbol, NULL, 1));
    CALL(ls_symbol_output((ls_symbol){ 0 }, 1));
    CALL(ls_symbol_from(NULL, t.model, "name"));
    CALL(ls_symbol_from(t.building, NULL, "name"));
    CALL(ls_symbol_from(t.building, t.model, NULL));
    REFUSED(ls_functional_end_with(NULL, &t.symbol, 1));
    REFUSED(ls_functional_end_with(t.building, NULL, 1));
    REFUSED(ls_custom(NULL, "name", t.layers, 1, 1, call_function, t.floats, &t.out_model));
    STATUS(ls_custom(t.ctx, NULL, t.layers, 1, 1, call_function, t.floats, &t.out_model));
    REFUSED(ls_custom(t.ctx, "name", t.layers, 1, 1, call_function, t.floats, NULL));
    REFUSED(ls_custom(t.ctx, "name", NULL, 1, 1, call_function, t.floats, &t.out_model));
    REFUSED(ls_custom(t.ctx, "name", t.layers, 1, 1, NULL, t.floats, &t.out_model));
    STATUS(ls_custom(t.ctx, "name", t.layers, 1, 1, call_function, NULL, &t.out_model));
    CALL(ls_layer_call(NULL, ls_dense(1), t.x));
    CALL(ls_layer_call_many(NULL, ls_dense(1), t.list, 1));
    CALL(ls_call_is_training(NULL));
    CALL(ls_model_trainable_variables(NULL, &t.count));
    CALL(ls_model_trainable_variables(t.model, NULL));
    REFUSED(ls_model_join(NULL, t.model));
    REFUSED(ls_model_join(t.model, NULL));
    CALL(ls_model_apply(NULL, t.x, false));
    CALL(ls_model_apply(t.model, NULL, false));
    CALL(ls_average_loss(NULL, 4));
    CALL(ls_metric_state_make(NULL, t.metric));
    CALL(ls_metric_state_update(NULL, t.x, t.x, NULL));
    CALL(ls_metric_state_update(NULL, NULL, NULL, NULL));
    CALL(ls_metric_state_update(&t.state, NULL, t.x, NULL));
    CALL(ls_metric_state_update(&t.state, t.x, NULL, NULL));
    CALL(ls_call_variable_with(NULL, "name", (ls_weight_options){ .shape = LS_SHAPE(1) }));
    REFUSED(ls_model_builtin_with(NULL, "mlp", (ls_builtin_options){ 0 }, &t.out_model));
    REFUSED(ls_model_builtin_with(t.ctx, NULL, (ls_builtin_options){ 0 }, &t.out_model));
    REFUSED(ls_model_builtin_with(t.ctx, "mlp", (ls_builtin_options){ 0 }, NULL));
    CALL(ls_model_builtin_name(1));
    REFUSED(ls_model_from_keras(NULL, "name", &t.model));
    REFUSED(ls_model_from_keras(t.ctx, NULL, &t.model));
    REFUSED(ls_model_from_keras(t.ctx, "name", NULL));
    REFUSED(ls_model_from_keras_json(NULL, "name", &t.out_model));
    REFUSED(ls_model_from_keras_json(t.ctx, NULL, &t.out_model));
    REFUSED(ls_model_from_keras_json(t.ctx, "name", NULL));
    REFUSED(ls_register_layer(NULL, (ls_layer_definition){ .keys = NULL }));
    REFUSED(ls_config_number(NULL, "key", &(double){ 0 }));
    REFUSED(ls_config_integer(NULL, "key", &(int64_t){ 0 }));
    REFUSED(ls_config_bool(NULL, "key", &(bool){ false }));
    REFUSED(ls_config_string(NULL, "key", &(const char *){ NULL }));
    CALL(ls_model_destroy(NULL));
    CALL(ls_model_layer_count(NULL));
    CALL(ls_model_layer_name(NULL, 1));
    REFUSED(ls_model_replace_head(NULL, 2, &t.out_model));
    REFUSED(ls_model_replace_head(t.model, 2, NULL));
    REFUSED(ls_model_set_trainable(NULL, "name", false));
    REFUSED(ls_model_set_trainable(t.model, NULL, false));
    REFUSED(ls_model_set_rate(NULL, "name", 0.5));
    REFUSED(ls_model_set_rate(t.model, NULL, 0.5));
    REFUSED(ls_model_set_device(NULL, "name", "name", "cpu:0"));
    STATUS(ls_model_set_device(t.model, NULL, "name", "cpu:0"));
    STATUS(ls_model_set_device(t.model, "name", NULL, "cpu:0"));
    REFUSED(ls_model_set_device(t.model, "name", "name", NULL));
    REFUSED(ls_model_set_norm_statistics(NULL, LS_PER_LANE));
    CALL(ls_model_norm_count(NULL, LS_PER_LANE));
    CALL(ls_model_name(NULL));
    CALL(ls_model_graph(NULL));
    CALL(ls_model_input_count(NULL));
    CALL(ls_model_output_count(NULL));
    CALL(ls_model_input_shape(NULL, 1));
    CALL(ls_model_input_dtype(NULL, 1));
    CALL(ls_model_input_name(NULL, 1));
    CALL(ls_model_output_shape(NULL, 1));
    CALL(ls_model_output_name(NULL, 1));
    CALL(ls_model_variable_count(NULL));
    CALL(ls_model_variable(NULL, 1));
    CALL(ls_model_variable_name(NULL, 1));
    CALL(ls_model_variable_is_trainable(NULL, 1));
    CALL(ls_model_parameter_count(NULL));
    REFUSED(ls_model_initialize(NULL, 1));
    REFUSED(ls_model_adapt(NULL, t.data));
    REFUSED(ls_model_adapt(t.model, NULL));
    REFUSED(ls_model_trace(NULL, t.list, false, t.tensors, &t.trace));
    REFUSED(ls_model_trace(t.model, NULL, false, t.tensors, &t.trace));
    REFUSED(ls_model_trace(t.model, t.list, false, NULL, &t.trace));
    REFUSED(ls_model_trace(t.model, t.list, false, t.tensors, NULL));
    REFUSED(ls_model_summary(NULL, &t.text));
    REFUSED(ls_model_summary(t.model, NULL));
    REFUSED(ls_model_save_weights(NULL, "name"));
    REFUSED(ls_model_save_weights(t.model, NULL));
    REFUSED(ls_model_load_weights(NULL, "name"));
    REFUSED(ls_model_load_weights(t.model, NULL));
    REFUSED(ls_model_save_weights_with(t.model, "name", (ls_weights_options){ .layout = (ls_layout)9 }));
    REFUSED(ls_model_load_weights_with(t.model, "name", (ls_weights_options){ .layout = (ls_layout)-1 }));
    bool equal;
    char *difference;
    REFUSED(ls_weights_diff(NULL, "name", NULL, &equal, &difference));
    REFUSED(ls_weights_diff("name", NULL, NULL, &equal, &difference));
    REFUSED(ls_weights_diff("name", "name", NULL, NULL, &difference));
    REFUSED(ls_weights_diff("name", "name", NULL, &equal, NULL));
    REFUSED(ls_model_weights_sha256(NULL, t.hex));
    REFUSED(ls_model_weights_sha256(t.model, NULL));
    CALL(ls_exponential_decay(0.5, 1, 0.5, false));
    CALL(ls_cosine_decay(0.5, 1, 0.5, 0.5, 1));
    CALL(ls_polynomial_decay(0.5, 1, 0.5, 1, false));
    CALL(ls_inverse_time_decay(0.5, 1, 0.5, false));
    CALL(ls_cosine_decay_restarts(0.5, 1, 2, 1, 0));
    CALL(ls_one_cycle(0.5, 1, 0, 0, 0, false, false));
    CALL(ls_piecewise_decay(NULL, t.doubles, 1));
    CALL(ls_piecewise_decay(t.integers, NULL, 1));
    CALL(ls_rates_by_batch_size(NULL, t.doubles, 1));
    CALL(ls_rates_by_batch_size(t.integers, NULL, 1));
    REFUSED(ls_schedule_rate(NULL, 1, 1, &t.number));
    REFUSED(ls_schedule_rate(&t.schedule, 1, 1, NULL));
    CALL(ls_optimizer_name(NULL));
    REFUSED(ls_optimizer_rate(NULL, 1, 1, &t.number));
    REFUSED(ls_optimizer_rate(&t.optimizer, 1, 1, NULL));
    CALL(ls_apply_gradients(ls_sgd(), NULL, t.variables, 1, t.rate));
    CALL(ls_apply_gradients(ls_sgd(), t.list, NULL, 1, t.rate));
    CALL(ls_apply_gradients(ls_sgd(), t.variables, t.variables, 1, NULL));
    CALL(ls_minimize(ls_sgd(), NULL, "name"));
    CALL(ls_model_minimize(NULL, ls_sgd(), t.x));
    CALL(ls_model_minimize(t.model, ls_sgd(), NULL));
    CALL(ls_minimize(ls_sgd(), t.x, NULL));
    CALL(ls_loss_name(NULL));
    CALL(ls_threshold(NULL, 0, 0));
    CALL(ls_reference_name(LS_REFERENCE_OPS));
    CALL(ls_reference(LS_REFERENCE_OPS, 0, NULL));
    CALL(ls_loss_per_sample(ls_mean_squared_error(), NULL, t.x));
    CALL(ls_loss_per_sample(ls_mean_squared_error(), t.x, NULL));
    CALL(ls_loss_value(ls_mean_squared_error(), NULL, t.x, t.x));
    CALL(ls_loss_value(ls_mean_squared_error(), t.x, NULL, t.x));
    CALL(ls_loss_value(ls_mean_squared_error(), t.x, t.x, NULL));
    CALL(ls_metric_name(NULL));
    CALL(ls_metric_sums(ls_accuracy(), NULL, t.x, t.x));
    CALL(ls_metric_sums(ls_accuracy(), t.x, NULL, t.x));
    CALL(ls_metric_sums(ls_accuracy(), t.x, t.x, NULL));
    CALL(ls_metric_sums_count(NULL));
    CALL(ls_metric_result(NULL, t.doubles));
    CALL(ls_metric_result(&t.metric, NULL));
    REFUSED(ls_metric_class_values(NULL, t.doubles, &t.number, 1));
    REFUSED(ls_metric_class_values(&t.metric, NULL, &t.number, 1));
    REFUSED(ls_metric_class_values(&t.metric, t.doubles, NULL, 1));
    CALL(ls_metric_state_of(ls_accuracy(), NULL, t.x, t.x));
    CALL(ls_metric_state_of(ls_accuracy(), t.x, NULL, t.x));
    CALL(ls_metric_state_of(ls_accuracy(), t.x, t.x, NULL));
    REFUSED(ls_metric_state_result(NULL, &t.number));
    REFUSED(ls_metric_state_result(&t.state, NULL));
    REFUSED(ls_metric_state_reset(NULL));
}

static void train_calls(void **state)
{
    (void)state;
    REFUSED(ls_compile_with(NULL, (ls_compile_options){ .ls_first = 0 }));
    CALL(ls_history_epochs(NULL));
    CALL(ls_history_count(NULL));
    CALL(ls_history_name(NULL, 1));
    REFUSED(ls_history_value(NULL, "name", 1, &t.number));
    REFUSED(ls_history_value(t.history, NULL, 0, &t.number));
    REFUSED(ls_history_value(t.history, "loss", 0, NULL));
    CALL(ls_history_destroy(NULL));
    REFUSED(ls_fit_with(NULL, t.data, (ls_fit_options){ .ls_first = 0 }));
    REFUSED(ls_fit_with(t.model, NULL, (ls_fit_options){ .ls_first = 0 }));
    REFUSED(ls_fit_arrays_with(NULL, t.array, t.array, (ls_fit_options){ .ls_first = 0 }));
    REFUSED(ls_checkpoint_save(NULL, "/nonexistent/checkpoints"));
    REFUSED(ls_checkpoint_save(t.model, NULL));
    REFUSED(ls_checkpoint_restore_with(NULL, "/nonexistent/checkpoints", (ls_restore_options){ .ls_first = 0 }));
    REFUSED(ls_checkpoint_restore_with(t.model, NULL, (ls_restore_options){ .ls_first = 0 }));
    REFUSED(ls_explain_fit_with(NULL, t.data, (ls_fit_options){ .ls_first = 0 }, &t.flag, &t.text));
    REFUSED(ls_explain_fit_with(t.model, NULL, (ls_fit_options){ .ls_first = 0 }, &t.flag, &t.text));
    STATUS(ls_explain_fit_with(t.model, t.data, (ls_fit_options){ .ls_first = 0 }, NULL, &t.text));
    REFUSED(ls_explain_fit_with(t.model, t.data, (ls_fit_options){ .ls_first = 0 }, &t.flag, NULL));
    REFUSED(ls_replay_with(NULL, t.data, "record", (ls_fit_options){ .ls_first = 0 }, NULL));
    REFUSED(ls_replay_with(t.model, NULL, "record", (ls_fit_options){ .ls_first = 0 }, NULL));
    REFUSED(ls_replay_with(t.model, t.data, NULL, (ls_fit_options){ .ls_first = 0 }, NULL));
    REFUSED(ls_record_own(NULL, &t.text));
    REFUSED(ls_record_own("record", NULL));
    REFUSED(ls_evaluate_with(NULL, t.data, (ls_evaluate_options){ .ls_first = 0 }));
    REFUSED(ls_evaluate_with(t.model, NULL, (ls_evaluate_options){ .ls_first = 0 }));
    REFUSED(ls_predict(NULL, t.data, &t.array, .batch_size = 1));
    REFUSED(ls_predict(t.model, NULL, &t.array, .batch_size = 1));
    REFUSED(ls_predict(t.model, t.data, NULL, .batch_size = 1));
    REFUSED(ls_evaluate_arrays_with(NULL, t.array, t.array, (ls_evaluate_options){ .ls_first = 0 }));
    REFUSED(ls_predict_array_with(NULL, t.array, (ls_predict_options){ .ls_first = 0 }, &t.array));
    REFUSED(ls_model_share_with(NULL, (ls_share_options){ .ls_first = 0 }, &(ls_predictor *){ NULL }));
    REFUSED(ls_model_share_with(t.model, (ls_share_options){ .ls_first = 0 }, NULL));
    REFUSED(ls_predictor_run(NULL, &t.array, 1, &t.array, 1));
    ls_predictor_destroy(NULL);
    REFUSED(ls_train_on_batch_with(NULL, t.array, t.array, (ls_batch_options){ .ls_first = 0 }));
    REFUSED(ls_learning_rate(NULL, &t.number));
    REFUSED(ls_learning_rate(t.model, NULL));
    REFUSED(ls_set_learning_rate(NULL, 0.1));
    REFUSED(ls_model_steps(NULL, &t.rows));
    REFUSED(ls_model_steps(t.model, NULL));
    REFUSED(ls_model_state_sha256(NULL, t.hex));
    REFUSED(ls_model_state_sha256(t.model, NULL));
    CALL(ls_model_times(NULL));
    REFUSED(ls_model_device_times(NULL, &t.times, &t.count));
    REFUSED(ls_model_device_times(t.model, NULL, &t.count));
    REFUSED(ls_model_device_times(t.model, &t.times, NULL));
    REFUSED(ls_explain_profile(NULL, &t.text));
    REFUSED(ls_explain_profile(t.model, NULL));
    STATUS(ls_explain_profile(t.model, &t.text));
    REFUSED(ls_explain_times(NULL, &t.text));
    REFUSED(ls_explain_times(t.model, NULL));
    STATUS(ls_explain_times(t.model, &t.text));
}

/* Counts without arrays, and options that are pointers. */
static void option_calls(void **state)
{
    (void)state;
    ls_dataset *d = ls_from_tensor_slices(features(), .input_count = 2);
    REFUSED(ls_dataset_status(d));
    ls_dataset_destroy(d);
    d = ls_from_tensors(features(), .target_count = 2);
    REFUSED(ls_dataset_status(d));
    ls_dataset_destroy(d);
    d = ls_from_tensor_slices(ls_array_of(LS_F32, LS_SHAPE(4, 3), NULL));
    REFUSED(ls_dataset_status(d));
    ls_dataset_destroy(d);
    d = ls_map(ls_dataset_share(t.data), NULL);
    REFUSED(ls_dataset_status(d));
    ls_dataset_destroy(d);
    REFUSED(ls_fit(t.model, t.data, .callback_count = 1));
    REFUSED(ls_fit(t.model, t.data, .class_count = 1));
    REFUSED(ls_graph_create(t.ctx, NULL));
    REFUSED(ls_eval(t.graph, &(ls_feed){ .input = NULL }, 1, t.list, 1));
    REFUSED(ls_eval(t.graph, &(ls_feed){ .input = t.x, .value = { NULL, LS_F32, LS_SHAPE(4, 3) } }, 1, t.list, 1));
    REFUSED(ls_eval(t.graph, &t.feed, 1, (ls_tensor *[]){ NULL }, 1));
    REFUSED(ls_explain(t.graph, (ls_tensor *[]){ NULL }, 1, 1, &t.text));
    REFUSED(ls_gradients(t.sum, (ls_tensor *[]){ NULL }, 1, t.tensors));
    REFUSED(ls_fit_arrays(t.model, ls_array_of(LS_F32, LS_SHAPE(4, 3), NULL), labels(), .epochs = 1));
    CALL(ls_op_conv2d(t.x, NULL));
    CALL(ls_op_matmul(t.x, NULL));
    CALL(ls_op_attention(t.x, NULL, NULL, .heads = 1));
    CALL(ls_op_custom("own", .inputs = { t.x }));
    CALL(ls_op_custom(NULL, .inputs = { t.x, NULL, t.x }));
    CALL(ls_op_concat((ls_tensor *[]){ NULL, NULL }, 2, 0));
    CALL(ls_op_group((ls_tensor *[]){ NULL }, 1));
    CALL(ls_op_apply(t.w, t.w, .rule = LS_APPLY_ADAM));
    CALL(ls_op_apply(t.w, t.w, .rule = LS_APPLY_ADAM, .learning_rate = t.rate));
    CALL(ls_apply_gradients(ls_adam(), (ls_tensor *[]){ NULL }, t.variables, 1, NULL));
    CALL(ls_apply_gradients(ls_adam(), t.variables, (ls_tensor *[]){ NULL }, 1, NULL));
}

static ls_model *make_model(void)
{
    ls_model *model = NULL;
    OK(ls_sequential(t.ctx, "m", &model, ls_input(3), ls_dense(1)));
    OK(ls_compile(model, .optimizer = ls_sgd(), .loss = ls_mean_squared_error()));
    return model;
}

static void make_graph(void)
{
    OK(ls_graph_create(t.ctx, &t.graph));
    t.x = ls_op_input(t.graph, "x", LS_F32, LS_SHAPE(LS_BATCH, 3));
    t.w = ls_op_variable(t.graph, "w", LS_F32, LS_SHAPE(3));
    t.rate = ls_op_scalar(t.graph, LS_F32, 0.5);
    t.sum = ls_op_add(t.rate, t.rate);
    t.scaled = ls_op_scale(t.w, 2);
    t.update = ls_op_apply(t.w, t.scaled, .rule = LS_APPLY_SGD, .learning_rate = t.rate);
    t.list[0] = t.list[1] = t.x;
    t.variables[0] = t.variables[1] = t.w;
    t.feed = (ls_feed){ t.x, features() };
    t.operands[0] = t.operands[1] = t.floats;
    t.run = (ls_program_run){ .samples = 1, .batch = 1 };
}

static int open_all(void **state)
{
    (void)state;
    OK(ls_context_open(&(ls_context_options){ .log_level = LS_LOG_SILENT, .threads = 1 }, &t.ctx));
    OK(ls_context_create(NULL, &t.fresh));
    make_graph();
    t.layers[0] = ls_input(3);
    t.layers[1] = ls_dense(1);
    t.options = (ls_context_options){ .threads = 1 };
    t.data = ls_from_tensor_slices(features(), labels());
    OK(ls_dataset_spec(t.data, &t.spec));
    OK(ls_iterator_create(t.data, 0, &t.iterator));
    OK(ls_rows_create(t.data, 0, &t.pass));
    t.schedule = ls_cosine_decay(0.1, 10, 0, 0, 0);
    t.optimizer = ls_sgd();
    t.loss = ls_mean_squared_error();
    t.metric = ls_accuracy();
    t.state = ls_metric_state_of(t.metric, t.x, t.x, NULL);
    t.model = make_model();
    OK(ls_fit(t.model, t.data, .verbose = LS_VERBOSE_SILENT, .history = &t.history));
    OK(ls_functional_begin(t.ctx, "f", &t.building));
    t.symbol = ls_symbol_input(t.building, ls_input(3));
    t.file = tmpfile();
    return t.file ? 0 : -1;
}

static int close_all(void **state)
{
    (void)state;
    fclose(t.file);
    ls_history_destroy(t.history);
    ls_iterator_destroy(t.iterator);
    ls_rows_destroy(t.pass);
    ls_dataset_destroy(t.data);
    ls_model_destroy(t.building);
    ls_model_destroy(t.model);
    ls_graph_destroy(t.graph);
    ls_context_close(t.fresh);
    ls_context_close(t.ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graph_calls), cmocka_unit_test(op_calls),    cmocka_unit_test(device_calls),
        cmocka_unit_test(run_calls),   cmocka_unit_test(data_calls),  cmocka_unit_test(loop_calls),
        cmocka_unit_test(nn_calls),    cmocka_unit_test(train_calls), cmocka_unit_test(option_calls),
    };
    return cmocka_run_group_tests_name("null arguments", tests, open_all, close_all);
}
