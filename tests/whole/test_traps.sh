#!/bin/sh
# Programs that look right and are not: each is refused by the compiler, fails with a message that has the reason, or prints
# what it really uses.
. "$(dirname "$0")/../support/lib.sh"

WARNINGS="-Wall -Wextra -Wpedantic -Werror"
SANITIZED=${SANITIZE:+-fsanitize=$SANITIZE}

# ---- The compiler ----

# compiles COMPILER EXPRESSION: an expression in a C function, or in a C++ one where the compiler's name ends in ++
compiles() {
    case $1 in
    *++) language="c++ -std=c++20" ;;
    *) language="c -std=c11" ;;
    esac
    cat >"$TMP/trap.c" <<END
#include <lockstep.h>

void trap(ls_model *model, ls_dataset *data, ls_call *call, ls_graph *graph);
void trap(ls_model *model, ls_dataset *data, ls_call *call, ls_graph *graph)
{
    (void)model, (void)data, (void)call, (void)graph;
    (void)$2;
}
END
    $1 -x $language $WARNINGS -Iinclude -fsyntax-only "$TMP/trap.c"
}

# refused COMPILER EXPRESSION WORD: it does not compile, and the compiler shows the word.
refused() {
    if compiles "$1" "$2" 2>"$TMP/errors"; then
        echo "this compiles: $2"
        return 1
    fi
    grep -q "error: " "$TMP/errors" && grep -q "[^a-z]$3[^a-z]" "$TMP/errors" || { cat "$TMP/errors"; return 1; }
}

# moved OLD NEW C C++: an option that got another name: a call with OLD does not compile, with NEW it does.
moved() {
    old=$1 new=$2
    name=$(printf '%s' "$old" | sed 's/^\.\([a-z_]*\) .*/\1/')
    check "$old, as in '$3', does not compile" refused "$CC" "$(printf "$3" "$old")" "$name"
    check "$new, as in '$3', compiles" compiles "$CC" "$(printf "$3" "$new")"
    if command -v g++ >/dev/null; then
        check "$old, as in '$4', does not compile as C++" refused g++ "$(printf "$4" "$old")" "$name"
        check "$new, as in '$4', compiles as C++" compiles g++ "$(printf "$4" "$new")"
    else
        skip "$old as C++" "no g++"
    fi
}

moved '.use_bias = false' '.no_bias = true' 'ls_dense(3, %s)' 'ls_dense(3, { %s })'
moved '.trainable = false' '.frozen = true' 'ls_dense(3, %s)' 'ls_dense(3, { %s })'
moved '.center = false' '.no_center = true' 'ls_batch_normalization(%s)' 'ls_batch_normalization({ %s })'
moved '.scale = false' '.no_scale = true' 'ls_batch_normalization(%s)' 'ls_batch_normalization({ %s })'
moved '.trainable = false' '.frozen = true' 'ls_call_variable(call, "w", LS_SHAPE(1), %s)' \
    'ls_call_variable(call, "w", LS_SHAPE(1), { %s })'
moved '.trainable = false' '.frozen = true' 'ls_op_variable(graph, "w", LS_F32, LS_SHAPE(1), %s)' \
    'ls_op_variable(graph, "w", LS_F32, LS_SHAPE(1), { %s })'
moved '.shuffle = false' '.keep_order = true' 'ls_fit(model, data, %s)' 'ls_fit(model, data, { %s })'

# ---- Running programs ----

cat >"$TMP/traps.c" <<'END'
#include <lockstep.h>
#include <string.h>

static ls_context *ctx;

/* Prints the error of a call that must fail. */
static int failed(ls_status status)
{
    if (status == LS_OK) {
        puts("nothing failed");
        return 1;
    }
    printf("%s: %s\n", ls_status_name(status), ls_last_error());
    return 0;
}

static int rescale(double scale)
{
    ls_model *model = NULL;
    ls_status status = ls_sequential(ctx, "m", &model, ls_input(2), ls_rescaling(scale));
    ls_model_destroy(model);
    return scale == 0 ? failed(status) : status != LS_OK;
}

/* A sum of each sample's numbers. */
static ls_model *sum_of(ls_layer input, ls_optimizer optimizer)
{
    ls_model *model;
    LS_CHECK(ls_sequential(ctx, "sum", &model, input, ls_flatten(),
                           ls_dense(1, .no_bias = true, .kernel_initializer = { .kind = LS_INIT_ONES })));
    LS_CHECK(ls_compile(model, .optimizer = optimizer, .loss = ls_mean_squared_error()));
    return model;
}

static ls_array column(void)
{
    static const float values[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    return ls_array_of(LS_F32, LS_SHAPE(8, 1), values);
}

static int rate(double learning_rate)
{
    ls_model *model = sum_of(ls_input(1), ls_sgd(learning_rate));
    LS_CHECK(ls_fit_arrays(model, column(), column(), .epochs = 2));
    ls_model_destroy(model);
    return 0;
}

/* Predicts from two samples of bytes, 51 each, and prints the first sum; the log goes to standard error. */
static int bytes(ls_layer input, ls_shape shape)
{
    static unsigned char values[8];
    float sums[2];
    ls_array x = ls_array_of(LS_U8, shape, memset(values, 51, sizeof values)), sum;
    ls_model *model = sum_of(input, ls_sgd());
    LS_CHECK(ls_predict_array(model, x, &sum));
    LS_CHECK(ls_fit_arrays(model, x, ls_array_of(LS_F32, LS_SHAPE(2, 1), memset(sums, 0, sizeof sums)),
                           .verbose = LS_VERBOSE_SILENT));
    printf("%g\n", ((const float *)sum.data)[0]);
    free(sum.data);
    ls_model_destroy(model);
    return 0;
}

static int batches(void)
{
    ls_model *model = sum_of(ls_input(1), ls_sgd());
    ls_dataset *data = ls_batch(ls_from_tensor_slices(column(), column()), 4, false),
               *other = ls_batch(ls_from_tensor_slices(column(), column()), 2, false);
    ls_results results;
    ls_array sums;
    LS_CHECK(ls_fit(model, data, .batch_size = 4, .validation = other, .verbose = LS_VERBOSE_SILENT));
    int bad = failed(ls_fit(model, data, .batch_size = 8, .verbose = LS_VERBOSE_SILENT));
    bad |= failed(ls_fit(model, data, .validation = other, .validation_batch_size = 3, .verbose = LS_VERBOSE_SILENT));
    bad |= failed(ls_evaluate(model, data, &results, .batch_size = 16, .verbose = LS_VERBOSE_SILENT));
    bad |= failed(ls_predict(model, data, &sums, .batch_size = 32, .verbose = LS_VERBOSE_SILENT));
    ls_dataset_destroy(data);
    ls_dataset_destroy(other);
    ls_model_destroy(model);
    return bad;
}

int main(int count, char **arguments)
{
    const char *trap = count > 1 ? arguments[1] : "";
    int bad = 2;
    LS_CHECK(ls_context_open(&(ls_context_options){ .log_level = LS_LOG_INFO }, &ctx));
    if (strcmp(trap, "rescaling") == 0)
        bad = rescale(1 / 255);
    else if (strcmp(trap, "rescaling-zero") == 0)
        bad = rescale(LS_ZERO);
    else if (strcmp(trap, "rate") == 0)
        bad = rate(0);
    else if (strcmp(trap, "rate-zero") == 0)
        bad = rate(LS_ZERO);
    else if (strcmp(trap, "bytes-1") == 0)
        bad = bytes(ls_input(), LS_SHAPE(2));
    else if (strcmp(trap, "bytes-2") == 0)
        bad = bytes(ls_input(4), LS_SHAPE(2, 4));
    else if (strcmp(trap, "bytes-3") == 0)
        bad = bytes(ls_input(2, 2), LS_SHAPE(2, 2, 2));
    else if (strcmp(trap, "bytes-4") == 0)
        bad = bytes(ls_input(2, 2, 1), LS_SHAPE(2, 2, 2, 1));
    else if (strcmp(trap, "batches") == 0)
        bad = batches();
    ls_context_close(ctx);
    return bad;
}
END

builds() {
    timeout 120 $CC -std=c11 $WARNINGS $SANITIZED -Iinclude "$TMP/traps.c" "$LS_BUILD/liblockstep.so" \
        -Wl,-rpath,"$ROOT/$LS_BUILD" -o "$TMP/traps"
}

# runs TRAP: its output in $TMP/out, its log in $TMP/log
runs() {
    timeout 120 "$TMP/traps" "$1" >"$TMP/out" 2>"$TMP/log" || { cat "$TMP/out" "$TMP/log"; return 1; }
}

# line FILE NUMBER PATTERN: that line of the file matches as a whole.
line() {
    sed -n "$2p" "$1" | grep -E -x -q "$3" || { echo "line $2 of:"; cat "$1"; return 1; }
}

# says TRAP PATTERN...: what it prints, line by line
says() {
    runs "$1"
    shift
    number=0
    for pattern in "$@"; do
        number=$((number + 1))
        line "$TMP/out" $number "$pattern" || return 1
    done
}

# takes TRAP SUM WORDS: the model's sum of bytes of 51, and what the log says of them, once for predict and fit.
takes() {
    says "$1" "$2" || return 1
    [ "$(grep -c "uint8 .*$3" "$TMP/log")" = 1 ] || { cat "$TMP/log"; return 1; }
    [ "$(grep -c 'divided by 255' "$TMP/log")" = 1 ] || { cat "$TMP/log"; return 1; }
}

ALREADY='but the dataset already has batches of'
check "the programs build" builds
check "ls_rescaling(1 / 255) is an error with 1.0/255" says rescaling 'LS_ERR_INVALID: .*scale is 0.*1\.0/255.*'
check "ls_rescaling(LS_ZERO) is not an error" runs rescaling-zero
check "ls_sgd(0) prints its rate 0.01, once" says rate 'Optimizer sgd, learning rate 0\.01' 'Epoch 1/2' '.*' 'Epoch 2/2'
check "ls_sgd(LS_ZERO) prints its rate 0" says rate-zero 'Optimizer sgd, learning rate 0' 'Epoch 1/2'
check "a column of uint8 keeps its values" takes bytes-1 51 'is not an image: it is not'
check "four columns of uint8 keep their values" takes bytes-2 204 'is not an image: it is not'
check "gray images of uint8 are divided by 255" takes bytes-3 '0\.8' 'is an image: it is divided'
check "images of uint8 with channels are divided by 255" takes bytes-4 '0\.8' 'is an image: it is divided'
check "a batch size that contradicts the dataset's is an error" says batches \
    "LS_ERR_INVALID: batch_size is 8, $ALREADY 4; .*" "LS_ERR_INVALID: validation_batch_size is 3, $ALREADY 2; .*" \
    "LS_ERR_INVALID: batch_size is 16, $ALREADY 4; .*" "LS_ERR_INVALID: batch_size is 32, $ALREADY 4; .*"
finish
