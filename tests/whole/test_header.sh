#!/bin/sh
# Public headers compile alone, as C11 and as C++, with every compiler there is, without a warning.
. "$(dirname "$0")/../support/lib.sh"

WARNINGS="-Wall -Wextra -Wpedantic -Werror"

# compiles COMPILER LANGUAGE STANDARD HEADER
compiles() {
    printf '#include <%s>\n#include <%s>\nint main(void)\n{\n    return 0;\n}\n' "$4" "$4" >"$TMP/alone.c"
    $1 -x "$2" "-std=$3" $WARNINGS -Iinclude -fsyntax-only "$TMP/alone.c"
}

# Calls whose options may be left out: no option, one by position, one by name. Compiled only.
write_calls() {
    cat >"$TMP/calls.c" <<'END'
#include <lockstep.h>

ls_status calls(ls_context *ctx, ls_tensor *x, ls_model *model, ls_dataset *data, ls_array a);
ls_status calls(ls_context *ctx, ls_tensor *x, ls_model *model, ls_dataset *data, ls_array a)
{
    ls_graph *graph;
    char *text;
    bool fits;
    const ls_layer layers[] = { ls_leaky_relu(), ls_leaky_relu(0.1), ls_leaky_relu(.negative_slope = 0.1),
                                ls_leaky_relu(.name = "leaky"), ls_dropout(0.5), ls_dropout(.rate = 0.5),
                                ls_rescaling(2, .offset = -1), ls_activation_layer(LS_RELU), ls_flatten(),
                                ls_max_pool2d(), ls_batch_normalization(), ls_input() };
    LS_CHECK(ls_graph_create(ctx, &graph));
    LS_CHECK(ls_graph_create(ctx, &graph, .seed = 1));
    x = ls_op_layer_norm(ls_op_layer_norm(x));
    x = ls_op_layer_norm(x, .axes = 2);
    x = ls_op_batch_norm(ls_op_batch_norm(x), .training = true);
    LS_CHECK(ls_fit(model, data));
    LS_CHECK(ls_fit(model, data, .epochs = 2));
    LS_CHECK(ls_fit_arrays(model, a, a));
    LS_CHECK(ls_explain_fit(model, data, &fits, &text));
    LS_CHECK(ls_compile(model, .optimizer = ls_adam(), .metrics = ls_metrics(ls_accuracy(), ls_top_k(5))));
    return ls_sequential_with(ctx, ls_tensor_name(x), layers, sizeof layers / sizeof *layers, &model);
}
END
}

# call_without_options COMPILER
call_without_options() {
    $1 -std=c11 $WARNINGS -Iinclude -fsyntax-only "$TMP/calls.c"
}

# An option of another family of layers is a compile error that names the option.
# refuses_foreign_options COMPILER
refuses_foreign_options() {
    for call in 'ls_dense(3, .strides = { 2, 2 })' 'ls_flatten(.no_bias = true)' 'ls_dropout(0.5, .axis = 1)' \
        'ls_max_pool2d(2, .groups = 2)' 'ls_relu(.momentum = 0.9)' 'ls_add(.activation = LS_RELU)'; do
        option=${call#*.}
        printf '#include <lockstep.h>\nls_layer layer(void);\nls_layer layer(void)\n{\n    return %s;\n}\n' "$call" \
            >"$TMP/foreign.c"
        ! $1 -std=c11 $WARNINGS -Iinclude -fsyntax-only "$TMP/foreign.c" >"$TMP/out" 2>&1 || { echo "compiles: $call"; return 1; }
        grep -q "${option%% *}" "$TMP/out" || { cat "$TMP/out"; return 1; }
    done
}

write_calls
HEADERS=$(cd include && echo lockstep.h lockstep/*.h)
case $CC in
gcc | clang) COMPILERS="gcc clang" ;;
*) COMPILERS="$CC gcc clang" ;;
esac

for compiler in $COMPILERS; do
    if command -v ${compiler%% *} >/dev/null; then
        for header in $HEADERS; do
            check "$header alone as C11 with $compiler" compiles "$compiler" c c11 "$header"
        done
        check "options may be left out with $compiler" call_without_options "$compiler"
        check "options of another family do not compile with $compiler" refuses_foreign_options "$compiler"
    else
        skip "headers as C11" "no $compiler"
    fi
done
for compiler in g++ clang++; do
    if command -v $compiler >/dev/null; then
        for header in $HEADERS; do
            case $header in
            lockstep.h | lockstep/cplusplus.h) ;; # test_cplusplus.sh: earlier standards are refused
            *) check "$header alone as C++11 with $compiler" compiles $compiler c++ c++11 "$header" ;;
            esac
            check "$header alone as C++20 with $compiler" compiles $compiler c++ c++20 "$header"
        done
    else
        skip "headers as C++" "no $compiler"
    fi
done
finish
