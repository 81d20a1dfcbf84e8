/* Graphs as people meet them: names and name scopes, look-up, dumps, counts of nodes and flops,
 * types, values as text. / */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "graph/node.h"
#include "lockstep.h"
#include "with_graph.h"

#define F32(...) ls_op_fill(g, LS_F32, LS_SHAPE(__VA_ARGS__), 1)

static ls_tensor *find(const char *name)
{
    ls_tensor *found = NULL;
    return ls_graph_find(g, name, &found) == LS_OK ? found : NULL;
}

/* ---- Names ---- */

static void names_get_the_prefix_of_their_scopes(void **state)
{
    (void)state;
    ls_tensor *loss = NULL, *deep = NULL, *after = NULL;
    LS_NAME_SCOPE(g, "g1")
    {
        loss = ls_named(F32(2), "cross_entropy");
        LS_NAME_SCOPE(g, "layer/0") deep = ls_op_variable(g, "kernel", LS_F32, LS_SHAPE(2));
        after = ls_op_input(g, "after", LS_F32, LS_SHAPE(2));
    }
    ls_tensor *outside = ls_named(F32(2), "cross_entropy");
    assert_string_equal(ls_tensor_name(loss), "g1/cross_entropy");
    assert_string_equal(ls_tensor_name(deep), "g1/layer/0/kernel");
    assert_string_equal(ls_tensor_name(after), "g1/after");
    assert_string_equal(ls_tensor_name(outside), "cross_entropy");
    assert_ptr_equal(find("g1/cross_entropy"), loss);
    assert_ptr_equal(find("g1/cross_entropy:0"), loss);
    assert_ptr_equal(find("g1/layer/0/kernel:0"), deep);
    assert_ptr_equal(find("cross_entropy"), outside);
    assert_null(find("g1"));
    assert_null(find("g1/"));
    assert_null(find("g1/cross_entropy:1"));
    assert_null(find(":0"));
    assert_null(find(""));
    LS_NAME_SCOPE(g, "g1") assert_ptr_equal(find("cross_entropy"), outside); /* look-up is by full name, anywhere */
    LS_NAME_SCOPE(g, "g1") ls_named(F32(2), "second");                       /* a scope may be opened again */
    assert_non_null(find("g1/second"));
}

static ls_tensor *leave_early(void)
{
    LS_NAME_SCOPE(g, "outer")
    LS_NAME_SCOPE(g, "inner") return ls_named(F32(2), "x");
    return NULL;
}

static void name_scopes_close_on_return_and_break(void **state)
{
    (void)state;
    assert_string_equal(ls_tensor_name(leave_early()), "outer/inner/x");
    assert_string_equal(ls_tensor_name(ls_named(F32(2), "x")), "x");
    LS_NAME_SCOPE(g, "broken")
    break;
    assert_string_equal(ls_tensor_name(ls_named(F32(2), "y")), "y");
}

/* Enough names for the table to grow several times, many of them twice with a scope in between. */
static void thousands_of_names(void **state)
{
    (void)state;
    enum { COUNT = 5000 };
    ls_tensor *tensors[COUNT];
    char name[32];
    for (int round = 0; round < 2; round++) {
        LS_SCOPE(g)
        {
            for (int i = 0; i < COUNT; i++) {
                snprintf(name, sizeof(name), "t/%d", i);
                tensors[i] = ls_named(F32(1), name);
            }
            for (int i = 0; i < COUNT; i++) {
                snprintf(name, sizeof(name), "t/%d", i);
                assert_ptr_equal(find(name), tensors[i]);
            }
        }
        assert_null(find("t/0"));
        assert_null(find("t/4999"));
    }
}

static void a_wrong_name_leaves_no_variable(void **state)
{
    (void)state;
    ls_op_variable(g, "v", LS_F32, LS_SHAPE(2));
    assert_true(ls_tensor_is_error(ls_op_variable(g, "v", LS_F32, LS_SHAPE(2))));
    assert_true(ls_tensor_is_error(ls_op_variable(g, "a b", LS_F32, LS_SHAPE(2))));
    assert_int_equal(g->variable_count, 1);
    ls_tensor *w = ls_op_variable(g, "w", LS_F32, LS_SHAPE(2), .frozen = true);
    assert_int_equal(w->attr.variable.variable->number, 1);
    assert_false(w->attr.variable.variable->trainable);
}

/* ---- Asking ---- */

static void tensors_describe_themselves(void **state)
{
    (void)state;
    ls_tensor *x = ls_op_input(g, "x", LS_U8, LS_SHAPE(LS_BATCH, 28, 28, 1)), *real = ls_op_cast(x, LS_F64);
    assert_int_equal(ls_tensor_dtype(x), LS_U8);
    assert_int_equal(ls_tensor_dtype(real), LS_F64);
    assert_int_equal(ls_tensor_dtype(ls_op_compare(real, LS_LESS, real)), LS_BOOL);
    assert_int_equal(ls_tensor_dtype(ls_op_argmax(real, -1)), LS_I64);
    assert_int_equal(ls_tensor_dtype(ls_op_one_hot(x, LS_I32, 4)), LS_I32);
    assert_string_equal(ls_tensor_op(real), "cast");
    assert_ptr_equal(ls_tensor_graph(real), g);
    assert_true(ls_tensor_is_per_sample(real));
    assert_false(ls_tensor_is_per_sample(ls_op_reduce_sum(real, LS_AXES(0), false)));
    assert_false(ls_tensor_is_per_sample(ls_op_gather_batch(x)));
    ls_shape shape = ls_tensor_shape(ls_op_flatten(x));
    assert_true(shape.rank == 2 && shape.dims[0] == LS_BATCH && shape.dims[1] == 784);
    const struct {
        ls_dtype dtype;
        const char *name;
        size_t bytes;
    } types[] = { { LS_F32, "float32", 4 }, { LS_F64, "float64", 8 }, { LS_I32, "int32", 4 },
                  { LS_I64, "int64", 8 },   { LS_U8, "uint8", 1 },    { LS_BOOL, "bool", 1 } };
    assert_int_equal(sizeof(types) / sizeof(types[0]), LS_DTYPE_COUNT);
    for (int i = 0; i < LS_DTYPE_COUNT; i++) {
        assert_string_equal(ls_dtype_name(types[i].dtype), types[i].name);
        assert_int_equal(ls_dtype_bytes(types[i].dtype), types[i].bytes);
    }
}

static void nodes_are_counted(void **state)
{
    (void)state;
    assert_int_equal(ls_graph_node_count(g), 0);
    ls_tensor *a = F32(2), *b = ls_op_neg(a);
    assert_int_equal(ls_graph_node_count(g), 2);
    assert_ptr_equal(ls_op_reshape(b, LS_SHAPE(2)), b); /* nothing to do: no node */
    assert_ptr_equal(ls_op_cast(b, LS_F32), b);
    assert_ptr_equal(ls_op_broadcast(b, LS_SHAPE(2)), b);
    assert_int_equal(ls_graph_node_count(g), 2);
    ls_op_add(a, b);
    assert_int_equal(ls_graph_node_count(g), 3);
}

/* ---- Flops ---- */

static void flops_are(ls_tensor *tensor, double expected, int line)
{
    if (ls_tensor_is_error(tensor) || !(ls_node_flops(tensor) == expected))
        fail_msg("line %d: %s has %g flops, expected %g", line, ls_tensor_op(tensor), ls_node_flops(tensor), expected);
}
#define FLOPS(tensor, expected) flops_are(tensor, expected, __LINE__)

static void flops_of_known_ops(void **state)
{
    (void)state;
    ls_tensor *x = ls_op_input(g, "x", LS_F32, LS_SHAPE(LS_BATCH, 3)), *w = F32(3, 5);
    FLOPS(ls_op_matmul(F32(2, 3), w), 2 * 2 * 3 * 5);
    FLOPS(ls_op_matmul(F32(3, 2), w, .transpose_a = true), 2 * 2 * 3 * 5);
    FLOPS(ls_op_matmul(F32(2, 3), F32(5, 3), .transpose_b = true), 2 * 2 * 3 * 5);
    FLOPS(ls_op_matmul(x, w), 2 * 3 * 5); /* for one sample */
    FLOPS(ls_op_matmul(x, ls_op_matmul(x, w), .transpose_a = true),
          2 * 3 * 5); /* a weight's gradient, for one sample */
    FLOPS(ls_op_matmul(F32(7, 2, 3), w), 7 * 2 * 2 * 3 * 5);
    FLOPS(ls_op_matmul(F32(7, 1, 2, 3), F32(4, 3, 5)), 7 * 4 * 2 * 2 * 3 * 5);
    FLOPS(ls_op_add(x, F32(3)), 3);
    FLOPS(ls_op_reduce_sum(F32(4, 5), LS_ALL_AXES, false), 20);
    FLOPS(ls_op_softmax(F32(4, 5), -1), 5 * 20);
    FLOPS(ls_op_reshape(F32(4, 5), LS_SHAPE(20)), 0);
    FLOPS(F32(4, 5), 0);
    ls_tensor *image = ls_op_input(g, "image", LS_F32, LS_SHAPE(LS_BATCH, 8, 8, 6)), *kernel = F32(3, 3, 6, 4);
    ls_tensor *conv = ls_op_conv2d(image, kernel), *gradients[2];
    FLOPS(conv, 2.0 * 6 * 6 * 4 * 3 * 3 * 6);
    FLOPS(ls_op_conv2d(image, kernel, .stride = { 2, 2 }, .padding = LS_SAME), 2.0 * 4 * 4 * 4 * 3 * 3 * 6);
    FLOPS(ls_op_conv2d(image, F32(3, 3, 1, 6), .groups = 6), 2.0 * 6 * 6 * 6 * 3 * 3);
    FLOPS(ls_op_max_pool2d(image, { 2, 2 }), 4 * 4 * 6 * 4);
    OK(ls_gradients(conv, (ls_tensor *[]){ image, kernel }, 2, gradients));
    FLOPS(gradients[0], 2.0 * 6 * 6 * 4 * 3 * 3 * 6); /* three convolutions of one cost */
    FLOPS(gradients[1], 2.0 * 6 * 6 * 4 * 3 * 3 * 6);
    assert_true(ls_node_flops(ls_op_add(x, F32(2, 2))) == 0); /* an error costs nothing */
}

/* ---- Dumps ---- */

static void make_small_model(void)
{
    ls_tensor *x = ls_op_input(g, "x", LS_F32, LS_SHAPE(LS_BATCH, 3)),
              *labels = ls_op_input(g, "y", LS_I32, LS_SHAPE(LS_BATCH));
    ls_tensor *w = ls_op_variable(g, "w", LS_F32, LS_SHAPE(3, 4)), *loss = NULL, *gradient;
    float two = 2;
    LS_NAME_SCOPE(g, "g1")
    {
        ls_tensor *logits = ls_named(ls_op_matmul(x, w), "logits");
        loss = ls_named(ls_op_reduce_mean(ls_op_sparse_cross_entropy(labels, logits, LS_LOGITS), LS_ALL_AXES, false),
                        "loss");
    }
    OK(ls_gradients(loss, &w, 1, &gradient));
    ls_op_apply(w, gradient, .rule = LS_APPLY_SGD, .learning_rate = ls_op_constant(g, LS_F32, LS_SCALAR, &two));
    ls_op_conv2d(F32(1, 8, 8, 3), F32(3, 3, 3, 2), .padding = LS_SAME);
    ls_op_slice(w, LS_AXES(1, 0), LS_AXES(2, -1));
    OK(ls_graph_status(g));
}

static void text_dump(void **state)
{
    (void)state;
    char *text = NULL;
    make_small_model();
    OK(ls_graph_dump(g, LS_DUMP_TEXT, &text));
    const char *const parts[] = { "%0 input float32 (batch, 3) per-sample \"x\"\n",
                                  "input int32 (batch,) per-sample \"y\"",
                                  "variable float32 (3, 4) whole variable=w \"w\"",
                                  "%3 matmul float32 (batch, 4) per-sample <- %0 %2 transpose_a=no transpose_b=no",
                                  "\"g1/logits\"",
                                  "sparse_cross_entropy float32 (batch,) per-sample <- %3 %1\n",
                                  "reduce_sum float32 () reduces <-",
                                  "\"g1/loss\"",
                                  "matmul float32 (3, 4) reduces <- %0 ",
                                  "apply float32 (3, 4) whole",
                                  "slot=none,none",
                                  "data=4 bytes",
                                  "pad=1,1,1,1",
                                  "begin=1,0 step=1,1\n" };
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (!strstr(text, parts[i]))
            fail_msg("\"%s\" is not in\n%s", parts[i], text);
    size_t lines = 0;
    for (const char *c = text; *c; c++)
        lines += *c == '\n';
    assert_int_equal(lines, ls_graph_node_count(g)); /* one a node */
    free(text);
}

static void graphviz_dump(void **state)
{
    (void)state;
    char *text = NULL;
    make_small_model();
    ls_op_add(F32(2), F32(3)); /* an error is drawn too */
    OK(ls_graph_dump(g, LS_DUMP_GRAPHVIZ, &text));
    assert_true(strncmp(text, "digraph lockstep {\n", 19) == 0);
    assert_string_equal(text + strlen(text) - 2, "}\n");
    int braces = 0, brackets = 0, quotes = 0, edges = 0, nodes = 0;
    for (const char *c = text; *c; c++) {
        quotes += *c == '"';
        if (quotes % 2)
            continue;
        braces += (*c == '{') - (*c == '}');
        brackets += (*c == '[') - (*c == ']');
        assert_true(braces >= 0 && brackets >= 0 && brackets <= 1);
        nodes += *c == '[';
        edges += c[0] == '-' && c[1] == '>';
    }
    assert_true(braces == 0 && brackets == 0 && quotes % 2 == 0);
    assert_int_equal(nodes, ls_graph_node_count(g));
    int inputs = 0;
    for (size_t i = 0; i < g->node_count; i++)
        inputs += g->nodes[i]->input_count;
    assert_int_equal(edges, inputs);
    assert_non_null(strstr(text, "label=\"matmul\\ng1/logits\\nfloat32 (batch, 4)\"];"));
    assert_non_null(strstr(text, "  n0 -> n3;\n"));
    assert_non_null(strstr(text, "shape=cylinder,label=\"variable\\nw"));
    assert_non_null(strstr(text, "color=red"));
    free(text);
}

static void an_empty_graph_dumps(void **state)
{
    (void)state;
    char *text = NULL;
    OK(ls_graph_dump(g, LS_DUMP_TEXT, &text));
    assert_string_equal(text, "");
    free(text);
    OK(ls_graph_dump(g, LS_DUMP_GRAPHVIZ, &text));
    assert_non_null(strchr(text, '}'));
    free(text);
}

/* Every op's attributes print: a graph of each op would be long, so the table itself is walked. */
static void every_op_has_fields_that_print(void **state)
{
    (void)state;
    for (int op = 0; op < LS_OP_COUNT; op++) {
        const ls_op_info *info = &ls_ops[op];
        assert_true(info->name && info->shape && info->gradient && info->flops);
        for (int i = 0; i < info->field_count; i++) {
            const ls_attr_field *field = &info->fields[i];
            assert_true(field->name && field->count >= 1 && field->offset < sizeof(ls_attrs));
            if (field->count == LS_MAX_RANK) /* printed up to the rank of input 0 */
                assert_true(info->inputs >= 1);
        }
    }
}

/* Traits of an op fit each other and its other columns. */
static void traits_of_ops_agree(void **state)
{
    (void)state;
    for (int op = 0; op < LS_OP_COUNT; op++) {
        const ls_op_info *info = &ls_ops[op];
        const ls_tensor node = { .op = (ls_op)op };
        bool cheap = ls_node_is(&node, LS_TRAIT_CHEAP), view = ls_node_is(&node, LS_TRAIT_VIEW);
        bool writes = ls_node_is(&node, LS_TRAIT_WRITES);
        bool reduces = info->batch == LS_BATCH_REDUCES || info->batch == LS_BATCH_BY_USE;
        int weights = ls_node_is(&node, LS_TRAIT_WEIGHTS_1) ? 2 : ls_node_is(&node, LS_TRAIT_WEIGHTS_0);
        bool written = false; /* has an attribute that names a variable, which is not its own */
        for (int i = 0; i < info->field_count; i++)
            written = written || (info->fields[i].type == LS_ATTR_variable && info->inputs != 0);
        bool fit = writes == written && (writes || !ls_node_is(&node, LS_TRAIT_UPDATES)) &&
                   (!view || (info->inputs == 1 && !cheap)) &&
                   (info->inputs == 2 || !ls_node_is(&node, LS_TRAIT_CHEAP_WITH_WHOLE)) &&
                   (!weights || info->inputs == LS_ANY || weights <= info->inputs) &&
                   (!weights || !ls_node_is(&node, LS_TRAIT_WEIGHTS_OUT)) &&
                   (reduces || !ls_node_is(&node, LS_TRAIT_GATHERS | LS_TRAIT_JOIN_MAX | LS_TRAIT_JOIN_MIN)) &&
                   (ls_node_is_given(&node) || !ls_node_is(&node, LS_TRAIT_EXTERNAL));
        if (!fit)
            fail_msg("%s: its traits %#x contradict each other or its row in ops.def", info->name, info->traits);
    }
}

/* ---- Values as text ---- */

static void prints(ls_tensor *tensor, const char *expected)
{
    char *text = NULL;
    OK(ls_format(tensor, &text));
    assert_string_equal(text, expected);
    free(text);
}

static void values_print_as_tensorflow_prints_them(void **state)
{
    (void)state;
    float a[] = { 1, 2, 3, 4, 5, 6 }, odd[] = { 0.5F, -1.25F, 1e20F, 0.1F };
    int64_t ints[] = { -1, INT64_MAX };
    ls_tensor *x = ls_op_constant(g, LS_F32, LS_SHAPE(2, 3), a), *y = ls_op_constant(g, LS_F32, LS_SHAPE(3, 2), a);
    ls_tensor *product = ls_op_matmul(x, y);
    prints(product, "[[22. 28.]\n [49. 64.]], shape=(2, 2), dtype=float32");
    prints(ls_op_scalar(g, LS_F32, 3), "3., shape=(), dtype=float32");
    prints(ls_op_constant(g, LS_F32, LS_SHAPE(4), odd), "[0.5 -1.25 1e+20 0.1], shape=(4,), dtype=float32");
    prints(ls_op_constant(g, LS_I64, LS_SHAPE(2), ints), "[-1 9223372036854775807], shape=(2,), dtype=int64");
    prints(ls_op_compare(ls_op_constant(g, LS_F32, LS_SHAPE(3), a), LS_LESS, ls_op_scalar(g, LS_F32, 2)),
           "[True False False], shape=(3,), dtype=bool");
    prints(ls_op_reshape(x, LS_SHAPE(2, 1, 3)), "[[[1. 2. 3.]]\n\n [[4. 5. 6.]]], shape=(2, 1, 3), dtype=float32");
    prints(F32(0), "[], shape=(0,), dtype=float32");
    prints(F32(2, 0), "[[]\n []], shape=(2, 0), dtype=float32");
    prints(ls_op_fill(g, LS_U8, LS_SHAPE(2000), 7), "[7 7 7 ... 7 7 7], shape=(2000,), dtype=uint8");
    prints(ls_op_variable(g, "v", LS_F64, LS_SHAPE(1, 2)), "[[0. 0.]], shape=(1, 2), dtype=float64");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_GRAPH(names_get_the_prefix_of_their_scopes),
        WITH_GRAPH(name_scopes_close_on_return_and_break),
        WITH_GRAPH(thousands_of_names),
        WITH_GRAPH(a_wrong_name_leaves_no_variable),
        WITH_GRAPH(tensors_describe_themselves),
        WITH_GRAPH(nodes_are_counted),
        WITH_GRAPH(flops_of_known_ops),
        WITH_GRAPH(text_dump),
        WITH_GRAPH(graphviz_dump),
        WITH_GRAPH(an_empty_graph_dumps),
        WITH_GRAPH(every_op_has_fields_that_print),
        cmocka_unit_test(traits_of_ops_agree),
        WITH_GRAPH(values_print_as_tensorflow_prints_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
