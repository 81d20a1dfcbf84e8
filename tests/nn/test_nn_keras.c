/* Models from Keras's JSON: what Keras 3 wrote is read, gives Keras's predictions with Keras's
 * weights, and what is not honoured is refused by name. The files of tests/reference/keras are
 * real; the texts here are cut down from such. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "check.h"
#include "data/safetensors.h"
#include "folder.h"
#include "graph_cases.h"
#include "lockstep.h"
#include "skip.h"

#define REFERENCE "tests/reference/keras/"

static ls_context *ctx;

static int set_up(void **state)
{
    (void)state;
    return make_folder(state) != 0 || ls_context_open(NULL, &ctx) != LS_OK;
}

static int tear_down(void **state)
{
    (void)state;
    ls_context_close(ctx);
    return rmdir(folder); /* nothing is left in it */
}

static ls_status read_text(const char *text, ls_model **out)
{
    const char *path = in_folder("model.json");
    OK(ls_file_write(path, text, strlen(text)));
    ls_status status = ls_model_from_keras_json(ctx, path, out);
    unlink(path);
    return status;
}

static void expect_words(const char *what, const char *words) /* separated by | */
{
    char list[512];
    snprintf(list, sizeof(list), "%s", words);
    for (char *word = strtok(list, "|"); word; word = strtok(NULL, "|"))
        if (!strstr(ls_last_error(), word))
            fail_msg("%s: \"%s\" is not in: %s", what, word, ls_last_error());
}

/* ---- Texts ---- */

#define INPUT                                                                                                          \
    "{\"class_name\":\"InputLayer\",\"config\":{\"batch_shape\":[null,8,8,3],\"dtype\":\"float32\",\"name\":\"in\"}}"
#define SEQUENTIAL(layers)                                                                                             \
    "{\"module\":\"keras\",\"class_name\":\"Sequential\",\"config\":{\"name\":\"s\",\"trainable\":true,\"layers\":"    \
    "[" INPUT layers "]}}"
#define LAYER(class_name, keys)  ",{\"class_name\":\"" class_name "\",\"config\":{\"name\":\"x\"," keys "}}"
#define ONE(class_name, keys)    SEQUENTIAL(LAYER(class_name, keys))
#define CONVOLUTION(keys)        ONE("Conv2D", "\"filters\":2,\"kernel_size\":[3,3]," keys)
#define DENSE(keys)              ONE("Dense", "\"units\":2," keys)
#define OBJECT(class_name, keys) "{\"class_name\":\"" class_name "\",\"config\":{" keys "},\"registered_name\":null}"

#define TENSOR(layer, node)                                                                                            \
    "{\"class_name\":\"__keras_tensor__\",\"config\":{\"shape\":[null,3],\"dtype\":\"float32\",\"keras_history\":["    \
    "\"" layer "\"," #node ",0]}}"
#define FUNCTIONAL(layers, inputs, outputs)                                                                            \
    "{\"class_name\":\"Functional\",\"config\":{\"name\":\"f\",\"layers\":[" layers "],\"input_layers\":" inputs       \
    ",\"output_layers\":" outputs "}}"
#define F_INPUT(name)                                                                                                  \
    "{\"class_name\":\"InputLayer\",\"config\":{\"batch_shape\":[null,3],\"name\":\"" name "\"},\"name\":\"" name      \
    "\",\"inbound_nodes\":[]}"
#define F_DENSE(name, nodes)                                                                                           \
    ",{\"class_name\":\"Dense\",\"config\":{\"units\":3,\"name\":\"" name "\"},\"name\":\"" name                       \
    "\",\"inbound_nodes\":[" nodes "]}"
#define NODE(args) "{\"args\":[" args "],\"kwargs\":{\"training\":false,\"mask\":null}}"

static void small_texts_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *what, *text;
        int64_t parameters;
    } rows[] = {
        { "a convolution with everything said",
          CONVOLUTION(
              "\"strides\":[2,2],\"padding\":\"same\",\"data_format\":\"channels_last\",\"dilation_rate\":[1,1],"
              "\"groups\":1,"
              "\"activation\":\"relu\",\"use_bias\":false,\"kernel_initializer\":" OBJECT(
                  "HeNormal",
                  "\"seed\":null") ",\"kernel_regularizer\":" OBJECT("L2",
                                                                     "\"l2\":0.01") ",\"kernel_constraint\":null,"
                                                                                    "\"activity_regularizer\":null,"
                                                                                    "\"trainable\":true,"
                                                                                    "\"dtype\":" OBJECT(
                                                                                        "DTypePolicy",
                                                                                        "\"name\":\"float32\"")),
          54 },
        { "dtype as text", DENSE("\"dtype\":\"float32\""), 8 },
        { "initializers by name", DENSE("\"kernel_initializer\":\"he_uniform\",\"activation\":\"swish\""), 8 },
        { "a pool without strides", ONE("MaxPooling2D", "\"pool_size\":[3,3],\"strides\":null"), 0 },
        { "padding by nothing", ONE("ZeroPadding2D", "\"padding\":[[0,0],[0,0]]"), 0 },
        { "batch norm on axis 3", ONE("BatchNormalization", "\"axis\":3,\"renorm\":false,\"renorm_momentum\":0.5"),
          12 },
        { "layer norm over all", ONE("LayerNormalization", "\"axis\":[-3,-2,-1]"), 384 },
        { "layer norm over the rows", ONE("LayerNormalization", "\"axis\":[1],\"rms_scaling\":true"), 8 },
        { "group norm with a group for each channel", ONE("GroupNormalization", "\"groups\":-1"), 6 },
        { "normalization of everything", ONE("Normalization", "\"axis\":null"), 3 },
        { "normalization with numbers", ONE("Normalization", "\"mean\":[1,2,3],\"variance\":[4,5,6]"), 0 },
        { "a function as an object",
          CONVOLUTION("\"activation\":{\"class_name\":\"function\",\"config\":\"hard_swish\"}"), 56 },
        { "a layer as an activation", CONVOLUTION("\"activation\":" OBJECT("ReLU", "\"max_value\":6.0")), 56 },
        { "an activity regularizer", CONVOLUTION("\"activity_regularizer\":" OBJECT("L2", "\"l2\":1")), 56 },
        { "one input, one output, not in lists",
          FUNCTIONAL(F_INPUT("a") F_DENSE("d", NODE(TENSOR("a", 0))), "[\"a\",0,0]", "[\"d\",0,0]"), 12 },
        { "layers in any order",
          FUNCTIONAL(F_INPUT("a") F_DENSE("d", NODE(TENSOR("e", 0))) F_DENSE("e", NODE(TENSOR("a", 0))),
                     "[[\"a\",0,0]]", "[[\"d\",0,0]]"),
          24 },
        { "a layer called on its own output",
          FUNCTIONAL(F_INPUT("a") F_DENSE("d", NODE(TENSOR("a", 0)) "," NODE(TENSOR("d", 0))), "[[\"a\",0,0]]",
                     "[[\"d\",1,0]]"),
          12 },
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        ls_model *model = NULL;
        if (read_text(rows[i].text, &model) != LS_OK)
            fail_msg("%s: %s", rows[i].what, ls_last_error());
        if (ls_model_parameter_count(model) != rows[i].parameters)
            fail_msg("%s: %lld parameters", rows[i].what, (long long)ls_model_parameter_count(model));
        ls_model_destroy(model);
    }
    ls_model *model;
    ls_shape same = LS_SHAPE(LS_BATCH, 8, 8, 3);
    OK(read_text(ONE("ZeroPadding2D", "\"padding\":[[0,0],[0,0]]"), &model));
    ls_shape shape = ls_model_output_shape(model, 0);
    assert_true(ls_shape_equal(&shape, &same));
    ls_model_destroy(model);
    OK(read_text(ONE("BatchNormalization", "\"trainable\":false"), &model));
    for (size_t i = 0; i < 4; i++)
        assert_false(ls_model_variable_is_trainable(model, i));
    ls_model_destroy(model);
}

/* Each changes one thing of a good text; the error names layer, class and key. */
static void what_is_not_honoured_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        ls_status status;
        const char *words;
    } rows[] = {
        { CONVOLUTION("\"data_format\":\"channels_first\""), LS_ERR_UNSUPPORTED,
          "layer \"x\" (Conv2D)|data_format|channels_first" },
        { CONVOLUTION("\"kernel_constraint\":" OBJECT("RadialConstraint", "")), LS_ERR_UNSUPPORTED,
          "layer \"x\" (Conv2D)|kernel_constraint|RadialConstraint|MaxNorm" },
        { CONVOLUTION("\"kernel_constraint\":" OBJECT("MaxNorm", "\"max_value\":-1")), LS_ERR_INVALID,
          "layer \"x\"|kernel_constraint|max_value -1" },
        { CONVOLUTION("\"kernel_constraint\":" OBJECT("MaxNorm", "\"axis\":4")), LS_ERR_SHAPE,
          "layer \"x\"|no axis 4 of 4 axes" },
        { CONVOLUTION("\"kernel_constraint\":" OBJECT("NonNeg", "\"axis\":0")), LS_ERR_DATA,
          "layer \"x\" (Conv2D)|kernel_constraint|axis" },
        { CONVOLUTION("\"kernel_regularizer\":" OBJECT("OrthogonalRegularizer", "\"factor\":0.1")), LS_ERR_SHAPE,
          "layer \"x\"|needs a matrix" },
        { CONVOLUTION("\"kernel_regularizer\":" OBJECT("OrthogonalRegularizer", "\"mode\":\"both\"")),
          LS_ERR_UNSUPPORTED, "layer \"x\" (Conv2D)|the mode \"both\"" },
        { CONVOLUTION("\"activity_regularizer\":" OBJECT("Orthogonal", "")), LS_ERR_UNSUPPORTED,
          "\"x\" (Conv2D)|activity_regularizer|Orthogonal" },
        { CONVOLUTION("\"activation\":\"threshold\""), LS_ERR_UNSUPPORTED, "\"x\" (Conv2D)|threshold|numbers" },
        { CONVOLUTION("\"activation\":" OBJECT("LeakyReLU", "\"negative_slope\":0.1")), LS_ERR_UNSUPPORTED,
          "\"x\" (Conv2D)|LeakyReLU|as a layer after this one" },
        { CONVOLUTION("\"activation\":" OBJECT("Dense", "\"units\":3")), LS_ERR_UNSUPPORTED, "\"x\" (Conv2D)|Dense" },
        { CONVOLUTION("\"activation\":{\"class_name\":\"function\",\"config\":\"mine\"}"), LS_ERR_UNSUPPORTED,
          "\"x\" (Conv2D)|mine" },
        { CONVOLUTION("\"padding\":\"causal\""), LS_ERR_UNSUPPORTED, "\"x\" (Conv2D)|padding|causal" },
        { CONVOLUTION("\"groups\":0"), LS_ERR_DATA, "\"x\" (Conv2D)|groups" },
        { CONVOLUTION("\"strides\":[2]"), LS_ERR_DATA, "\"x\" (Conv2D)|strides" },
        { CONVOLUTION("\"strides\":[0,1]"), LS_ERR_DATA, "\"x\" (Conv2D)|strides" },
        { CONVOLUTION("\"strides\":\"2\""), LS_ERR_DATA, "\"x\" (Conv2D)|strides" },
        { CONVOLUTION("\"use_bias\":1"), LS_ERR_DATA, "\"x\" (Conv2D)|use_bias" },
        { CONVOLUTION("\"kernel_initialiser\":null"), LS_ERR_DATA,
          "\"x\" (Conv2D)|kernel_initialiser|kernel_initializer" },
        { CONVOLUTION("\"activation\":\"relu7\""), LS_ERR_UNSUPPORTED,
          "\"x\" (Conv2D)|activation|relu7|did you mean relu?" },
        { CONVOLUTION("\"activation\":" OBJECT("function", "")), LS_ERR_DATA, "\"x\" (Conv2D)|activation" },
        { CONVOLUTION("\"dtype\":\"float16\""), LS_ERR_UNSUPPORTED, "\"x\" (Conv2D)|dtype|float16" },
        { CONVOLUTION("\"dtype\":" OBJECT("DTypePolicy", "\"name\":\"mixed_bfloat16\"")), LS_ERR_UNSUPPORTED,
          "dtype|mixed_bfloat16" },
        { CONVOLUTION("\"dtype\":" OBJECT("QuantizedDTypePolicy", "\"name\":\"int8\"")), LS_ERR_UNSUPPORTED,
          "QuantizedDTypePolicy" },
        { CONVOLUTION("\"kernel_regularizer\":" OBJECT("L2", "\"l3\":1")), LS_ERR_DATA, "kernel_regularizer|l3" },
        { CONVOLUTION("\"kernel_initializer\":" OBJECT("HeNormall", "")), LS_ERR_UNSUPPORTED,
          "kernel_initializer|HeNormall|HeNormal" },
        { CONVOLUTION("\"kernel_initializer\":" OBJECT("HeNormal", "\"gain\":2")), LS_ERR_DATA,
          "kernel_initializer|gain" },
        { CONVOLUTION("\"kernel_initializer\":" OBJECT("VarianceScaling", "\"mode\":\"fan_most\"")), LS_ERR_UNSUPPORTED,
          "fan_most|fan_" },
        { CONVOLUTION("\"kernel_initializer\":{\"class_name\":\"Mine\",\"config\":{},\"registered_name\":\"p>Mine\"}"),
          LS_ERR_UNSUPPORTED, "kernel_initializer|p>Mine" },
        { DENSE("\"quantization_config\":{}"), LS_ERR_UNSUPPORTED, "\"x\" (Dense)|quantization_config" },
        { ONE("Dense", "\"units\":0"), LS_ERR_INVALID, "\"x\" (Dense)|units is 0" },
        { ONE("Dense", "\"use_bias\":true"), LS_ERR_INVALID, "\"x\" (Dense)|units" },
        { ONE("Dropout", "\"rate\":0.5,\"seed\":3"), LS_ERR_UNSUPPORTED, "\"x\" (Dropout)|seed" },
        { ONE("Dropout", "\"rate\":0.5,\"noise_shape\":[1]"), LS_ERR_UNSUPPORTED, "\"x\" (Dropout)|noise_shape" },
        { ONE("Dropout", "\"rate\":0.5,\"noise_shape\":[1,1,8,3]"), LS_ERR_UNSUPPORTED, "noise_shape[0]|one mask" },
        { ONE("Dropout", "\"rate\":0.5,\"noise_shape\":[null,1,7,3]"), LS_ERR_SHAPE,
          "\"x\" (Dropout)|noise_shape is (1, 7, 3)" },
        { ONE("BatchNormalization", "\"renorm\":true"), LS_ERR_UNSUPPORTED, "\"x\" (BatchNormalization)|renorm" },
        { ONE("BatchNormalization", "\"synchronized\":true"), LS_ERR_UNSUPPORTED, "synchronized" },
        { ONE("BatchNormalization", "\"axis\":1"), LS_ERR_UNSUPPORTED, "\"x\" (BatchNormalization)|axis 1" },
        { ONE("LayerNormalization", "\"axis\":[0]"), LS_ERR_UNSUPPORTED, "\"x\" (LayerNormalization)|axis 0" },
        { ONE("LayerNormalization", "\"axis\":[1,2,3,4,5,6,7,8,9]"), LS_ERR_UNSUPPORTED, "9 axes" },
        { ONE("Normalization", "\"mean\":[1,2,3]"), LS_ERR_INVALID, "\"x\" (Normalization)|0 variances" },
        { ONE("Normalization", "\"mean\":[],\"variance\":[]"), LS_ERR_DATA, "\"x\" (Normalization)|mean|empty" },
        { ONE("Normalization", "\"mean\":[[1]],\"variance\":[[1]]"), LS_ERR_UNSUPPORTED, "mean|nested" },
        { ONE("Normalization", "\"mean\":\"x\",\"variance\":1"), LS_ERR_DATA, "\"x\" (Normalization)|mean" },
        { ONE("PReLU", "\"shared_axes\":[\"a\"]"), LS_ERR_DATA, "\"x\" (PReLU)|shared_axes" },
        { ONE("PReLU", "\"alpha_constraint\":" OBJECT("NonNeg", "")), LS_ERR_UNSUPPORTED, "alpha_constraint" },
        { ONE("Dot", "\"axes\":[1,2,3]"), LS_ERR_DATA, "\"x\" (Dot)|axes|found 3" },
        { ONE("SpatialDropout2D", "\"rate\":0.5,\"data_format\":\"channels_first\""), LS_ERR_UNSUPPORTED,
          "\"x\" (SpatialDropout2D)|channels_first" },
        { ONE("AlphaDropout", "\"rate\":0.5,\"noise_shape\":[1]"), LS_ERR_UNSUPPORTED, "noise_shape" },
        { ONE("GaussianNoise", "\"stddev\":0.5,\"seed\":3"), LS_ERR_UNSUPPORTED, "\"x\" (GaussianNoise)|seed" },
        { ONE("Softmax", "\"axis\":[1,2]"), LS_ERR_UNSUPPORTED, "\"x\" (Softmax)|axis" },
        { ONE("Rescaling", "\"scale\":[1,2]"), LS_ERR_DATA, "\"x\" (Rescaling)|scale" },
        { ONE("Conv1D", "\"data_format\":\"channels_first\""), LS_ERR_UNSUPPORTED,
          "\"x\" (Conv1D)|data_format|channels_first" },
        { ONE("Conv1DTranspose", "\"data_format\":\"channels_first\""), LS_ERR_UNSUPPORTED,
          "\"x\" (Conv1DTranspose)|data_format|channels_first" },
        { ONE("Conv2DTranspose", "\"data_format\":\"channels_first\""), LS_ERR_UNSUPPORTED,
          "\"x\" (Conv2DTranspose)|data_format|channels_first" },
        { ONE("SeparableConv1D", "\"data_format\":\"channels_first\""), LS_ERR_UNSUPPORTED,
          "\"x\" (SeparableConv1D)|data_format|channels_first" },
        { ONE("SeparableConv2D", "\"data_format\":\"channels_first\""), LS_ERR_UNSUPPORTED,
          "\"x\" (SeparableConv2D)|data_format|channels_first" },
        { ONE("DepthwiseConv1D", "\"data_format\":\"channels_first\""), LS_ERR_UNSUPPORTED,
          "\"x\" (DepthwiseConv1D)|data_format|channels_first" },
        { ONE("MaxPooling1D", "\"data_format\":\"channels_first\""), LS_ERR_UNSUPPORTED,
          "\"x\" (MaxPooling1D)|data_format|channels_first" },
        { ONE("AveragePooling1D", "\"data_format\":\"channels_first\""), LS_ERR_UNSUPPORTED,
          "\"x\" (AveragePooling1D)|data_format|channels_first" },
        { ONE("GlobalMaxPooling1D", "\"data_format\":\"channels_first\""), LS_ERR_UNSUPPORTED,
          "\"x\" (GlobalMaxPooling1D)|data_format|channels_first" },
        { ONE("GlobalAveragePooling1D", "\"data_format\":\"channels_first\""), LS_ERR_UNSUPPORTED,
          "\"x\" (GlobalAveragePooling1D)|data_format|channels_first" },
        { ONE("ZeroPadding1D", "\"data_format\":\"channels_first\""), LS_ERR_UNSUPPORTED,
          "\"x\" (ZeroPadding1D)|data_format|channels_first" },
        { ONE("Cropping2D", "\"data_format\":\"channels_first\""), LS_ERR_UNSUPPORTED,
          "\"x\" (Cropping2D)|data_format|channels_first" },
        { ONE("UpSampling2D", "\"data_format\":\"channels_first\""), LS_ERR_UNSUPPORTED,
          "\"x\" (UpSampling2D)|data_format|channels_first" },
        { ONE("Resizing", "\"data_format\":\"channels_first\""), LS_ERR_UNSUPPORTED,
          "\"x\" (Resizing)|data_format|channels_first" },
        { ONE("CenterCrop", "\"data_format\":\"channels_first\""), LS_ERR_UNSUPPORTED,
          "\"x\" (CenterCrop)|data_format|channels_first" },
        { ONE("DepthwiseConv1D", "\"padding\":\"causal\""), LS_ERR_UNSUPPORTED, "(DepthwiseConv1D)|padding|causal" },
        { ONE("MaxPooling1D", "\"padding\":\"causal\""), LS_ERR_UNSUPPORTED, "(MaxPooling1D)|padding|causal" },
        { ONE("Conv1D", "\"padding\":\"full\""), LS_ERR_UNSUPPORTED, "(Conv1D)|padding|full|causal" },
        { ONE("Conv1D", "\"kernel_size\":[3,3]"), LS_ERR_DATA, "(Conv1D)|kernel_size|1 number" },
        { ONE("Conv1D", "\"kernel_constraint\":" OBJECT("RadialConstraint", "")), LS_ERR_UNSUPPORTED,
          "kernel_constraint" },
        { ONE("SeparableConv2D", "\"pointwise_constraint\":" OBJECT("RadialConstraint", "")), LS_ERR_UNSUPPORTED,
          "(SeparableConv2D)|pointwise_constraint" },
        { ONE("SeparableConv1D", "\"depthwise_constraint\":" OBJECT("RadialConstraint", "")), LS_ERR_UNSUPPORTED,
          "(SeparableConv1D)|depthwise_constraint" },
        { ONE("Conv2DTranspose", "\"output_padding\":[-1,0]"), LS_ERR_DATA, "(Conv2DTranspose)|output_padding" },
        { ONE("Conv2DTranspose", "\"groups\":2"), LS_ERR_DATA, "(Conv2DTranspose)|groups" },
        { ONE("Cropping1D", "\"cropping\":[1,-1]"), LS_ERR_DATA, "(Cropping1D)|cropping" },
        { ONE("ZeroPadding1D", "\"padding\":[1,2,3]"), LS_ERR_DATA, "(ZeroPadding1D)|padding|2 numbers" },
        { ONE("Permute", "\"dims\":[0,1]"), LS_ERR_INVALID, "(Permute)|dims" },
        { ONE("UpSampling2D", "\"interpolation\":\"lanczos3\""), LS_ERR_UNSUPPORTED,
          "interpolation|lanczos3|bilinear" },
        { ONE("Resizing", "\"height\":2,\"width\":2,\"antialias\":true"), LS_ERR_UNSUPPORTED, "(Resizing)|antialias" },
        { ONE("Resizing", "\"height\":2,\"width\":2,\"fill_mode\":\"reflect\""), LS_ERR_UNSUPPORTED,
          "(Resizing)|fill_mode|reflect|constant" },
        { ONE("Resizing", "\"height\":2,\"width\":2,\"interpolation\":\"bicubic\""), LS_ERR_UNSUPPORTED, "bicubic" },
        { ONE("Conv2d", "\"filters\":2"), LS_ERR_UNSUPPORTED, "\"x\" (Conv2d)|did you mean Conv2D?" },
        { ONE("ConvLSTM2D", "\"filters\":2"), LS_ERR_UNSUPPORTED, "layers of class ConvLSTM2D are not known" },
        { ONE("LSTM", "\"units\":2,\"stateful\":true"), LS_ERR_UNSUPPORTED, "(LSTM)|stateful|must be false" },
        { ONE("GRU", "\"units\":2,\"return_state\":true"), LS_ERR_UNSUPPORTED, "(GRU)|return_state|must be false" },
        { ONE("LSTM", "\"units\":2,\"recurrent_dropout\":0.5"), LS_ERR_UNSUPPORTED, "recurrent_dropout|0.5|must be 0" },
        { ONE("SimpleRNN", "\"units\":2,\"time_major\":true"), LS_ERR_UNSUPPORTED, "(SimpleRNN)|time_major" },
        { ONE("LSTM", "\"units\":2,\"recurrent_constraint\":" OBJECT("RadialConstraint", "")), LS_ERR_UNSUPPORTED,
          "recurrent_constraint" },
        { ONE("LSTM", "\"units\":2,\"seed\":3"), LS_ERR_UNSUPPORTED, "(LSTM)|seed" },
        { ONE("GRU", "\"units\":2,\"activation\":\"gelu\""), LS_ERR_UNSUPPORTED, "(GRU)|activation is gelu" },
        { ONE("Bidirectional", "\"merge_mode\":null"), LS_ERR_UNSUPPORTED, "(Bidirectional)|merge_mode|two outputs" },
        { ONE("Bidirectional", "\"merge_mode\":\"max\""), LS_ERR_UNSUPPORTED, "merge_mode|max|concat" },
        { ONE("TimeDistributed", "\"layer\":null"), LS_ERR_INVALID, "(TimeDistributed)|no layer inside" },
        { ONE("TimeDistributed", "\"layer\":" OBJECT("Dence", "")), LS_ERR_UNSUPPORTED, "Dence|did you mean Dense" },
        { ONE("Functional", "\"layers\":[]"), LS_ERR_DATA, "input_layers" },
        { SEQUENTIAL(LAYER("Flatten", "\"trainable\":true") LAYER("Flatten", "\"trainable\":true")), LS_ERR_INVALID,
          "\"x\" (Flatten)|has this name" },
        { "{\"class_name\":\"Sequential\",\"config\":{\"layers\":[{\"class_name\":\"Dense\",\"config\":{\"units\":2}}]}"
          "}",
          LS_ERR_UNSUPPORTED, "InputLayer" },
        { "{\"class_name\":\"Sequential\",\"config\":{\"layers\":[]}}", LS_ERR_DATA, "no layers" },
        { "{\"class_name\":\"Sequential\",\"config\":{\"layers\":[{\"class_name\":\"InputLayer\",\"config\":{\"batch_"
          "shape\":[4,3]}}]}}",
          LS_ERR_UNSUPPORTED, "InputLayer|batch_shape[0]" },
        { "{\"class_name\":\"Sequential\",\"config\":{\"layers\":[{\"class_name\":\"InputLayer\",\"config\":{\"batch_"
          "shape\":[null,null,3]}}]}}",
          LS_ERR_UNSUPPORTED, "batch_shape[1]" },
        { "{\"class_name\":\"Sequential\",\"config\":{\"layers\":[{\"class_name\":\"InputLayer\",\"config\":{\"batch_"
          "shape\":[null,3],\"sparse\":true}}]}}",
          LS_ERR_UNSUPPORTED, "sparse" },
        { "{\"class_name\":\"Sequential\",\"config\":{\"layers\":[{\"class_name\":\"InputLayer\",\"config\":{\"batch_"
          "shape\":[null,3],\"dtype\":\"string\"}}]}}",
          LS_ERR_UNSUPPORTED, "dtype|string" },
        { "{\"class_name\":\"MyModel\",\"config\":{}}", LS_ERR_UNSUPPORTED, "MyModel|Sequential" },
        { "{\"class_name\":\"Sequential\",\"config\":{\"layers\":[]},\"extra\":1}", LS_ERR_DATA, "extra" },
        { "{\"class_name\":\"Sequential\"", LS_ERR_DATA, "model.json" },
        { "[]", LS_ERR_DATA, "object" },
        { FUNCTIONAL(F_INPUT("a") F_DENSE("d", NODE(TENSOR("b", 0))), "[[\"a\",0,0]]", "[[\"d\",0,0]]"), LS_ERR_DATA,
          "no layer \"b\"" },
        { FUNCTIONAL(F_INPUT("a") F_DENSE("d", NODE(TENSOR("a", 1))), "[[\"a\",0,0]]", "[[\"d\",0,0]]"), LS_ERR_DATA,
          "\"a\" has 1 calls" },
        { FUNCTIONAL(F_INPUT("a") F_DENSE("d", NODE(TENSOR("d", 0))), "[[\"a\",0,0]]", "[[\"d\",0,0]]"), LS_ERR_DATA,
          "\"d\"|depends on it" },
        { FUNCTIONAL(F_INPUT("a") F_DENSE("d", NODE("3")), "[[\"a\",0,0]]", "[[\"d\",0,0]]"), LS_ERR_UNSUPPORTED,
          "not another layer's output" },
        { FUNCTIONAL(F_INPUT("a") F_DENSE("d", "[[\"a\",0,0,{}]]"), "[[\"a\",0,0]]", "[[\"d\",0,0]]"),
          LS_ERR_UNSUPPORTED, "Keras 2" },
        { FUNCTIONAL(F_INPUT("a") F_DENSE("d", NODE(TENSOR("a", 0))), "[[\"a\",0,0],[\"a\",0,0]]", "[[\"d\",0,0]]"),
          LS_ERR_DATA, "input \"a\" is given twice" },
        { FUNCTIONAL(F_INPUT("a") F_DENSE("d", NODE(TENSOR("a", 0))), "[[\"a\",0,0]]", "[[\"d\",0,1]]"), LS_ERR_DATA,
          "layer \"d\" has 1 output; there is no output 1" },
        { FUNCTIONAL(F_INPUT("a") F_DENSE("d", ""), "[[\"a\",0,0]]", "[[\"d\",0,0]]"), LS_ERR_DATA,
          "layer \"d\"|calls" },
        { FUNCTIONAL(F_INPUT("a") F_DENSE("d", NODE(TENSOR("a", 0))), "{\"a\":[\"a\",0,0]}", "[[\"d\",0,0]]"),
          LS_ERR_UNSUPPORTED, "input_layers|dict" },
        { FUNCTIONAL(F_INPUT("a") F_DENSE("d", NODE(TENSOR("a", 0))), "[[\"d\",0,0]]", "[[\"d\",0,0]]"), LS_ERR_DATA,
          "\"d\" is not an InputLayer" },
        { FUNCTIONAL(F_INPUT("a") "," F_INPUT("b") F_DENSE("d", NODE(TENSOR("a", 0))), "[[\"a\",0,0]]",
                     "[[\"d\",0,0]]"),
          LS_ERR_DATA, "\"b\"|input_layers" },
        { FUNCTIONAL(F_INPUT("a") F_DENSE("d", NODE(TENSOR("a", 0))) F_DENSE("d", NODE(TENSOR("a", 0))),
                     "[[\"a\",0,0]]", "[[\"d\",0,0]]"),
          LS_ERR_DATA, "two layers named \"d\"" },
        { FUNCTIONAL(F_INPUT("a") F_DENSE("d", "{\"args\":[" TENSOR("a", 0) "],\"kwargs\":{\"initial_state\":null}}"),
                     "[[\"a\",0,0]]", "[[\"d\",0,0]]"),
          LS_ERR_DATA, "initial_state" },
        { FUNCTIONAL(F_INPUT("a") F_DENSE("d", NODE(TENSOR("a", 0) "," TENSOR("a", 0))), "[[\"a\",0,0]]",
                     "[[\"d\",0,0]]"),
          LS_ERR_UNSUPPORTED, "second argument" },
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        ls_model *model = NULL;
        ls_status status = read_text(rows[i].text, &model);
        if (status != rows[i].status)
            fail_msg("%s: %s: %s", rows[i].words, ls_status_name(status),
                     status == LS_OK ? "it was read" : ls_last_error());
        assert_null(model);
        expect_words("a text", rows[i].words);
    }
    ls_model *model;
    assert_int_equal(ls_model_from_keras_json(ctx, "/nonexistent.json", &model), LS_ERR_NOT_FOUND);
    assert_int_equal(ls_model_from_keras_json(ctx, NULL, &model), LS_ERR_INVALID);
}

/* Without memory limits in the way: whatever is cut off a file, the reader reports it and does not
 * crash. */
static void texts_cut_short_are_refused(void **state)
{
    (void)state;
    static const char text[] =
        FUNCTIONAL(F_INPUT("a") F_DENSE("d", NODE(TENSOR("a", 0))), "[[\"a\",0,0]]", "[[\"d\",0,0]]");
    for (size_t length = 0; length + 1 < sizeof(text); length += 7) {
        char cut[sizeof(text)];
        ls_model *model = NULL;
        memcpy(cut, text, length);
        cut[length] = 0;
        assert_int_equal(read_text(cut, &model), LS_ERR_DATA);
    }
}

/* ---- What Keras wrote ---- */

static json_t *manifest(void)
{
    json_t *json = NULL;
    if (access(REFERENCE "manifest.json", R_OK) != 0)
        return NULL;
    OK(ls_json_read_file(REFERENCE "manifest.json", &json));
    return json;
}

static const char *path_of(const char *file)
{
    static char path[4][256];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof(path[next]), REFERENCE "%s", file);
    return path[next];
}

static const char *text_at(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (!text)
        fail_msg("the manifest has no %s", key);
    return text;
}

/* The test data of one input, in the model's type, divided as the manifest says. */
static ls_array test_input(const char *data, const json_t *input, ls_dtype dtype)
{
    ls_array x;
    OK(ls_npz_read(data, text_at(input, "test"), &x));
    int64_t count;
    assert_true(ls_shape_count(&x.shape, 1, &count));
    double divide = json_number_value(json_object_get(input, "divide"));
    if (x.dtype == LS_U8 && dtype == LS_F32) {
        float *reals = malloc((size_t)count * sizeof(float));
        assert_non_null(reals);
        for (int64_t i = 0; i < count; i++)
            reals[i] = (float)((const uint8_t *)x.data)[i] / (float)(divide != 0 ? divide : 1);
        free(x.data);
        x.data = reals;
        x.dtype = LS_F32;
    }
    assert_int_equal(x.dtype, dtype);
    return x;
}

#define MOST 8

typedef struct subject {
    const char *name;
    ls_model *model;
    ls_feed feeds[MOST];
    size_t input_count, output_count;
    ls_tensor *out[MOST];
    ls_safetensors *expected;
} subject;

static void open_subject(subject *s, const char *name, const json_t *record)
{
    const json_t *files = json_object_get(record, "files"), *inputs = json_object_get(record, "inputs"),
                 *outputs = json_object_get(record, "outputs"), *parameters = json_object_get(record, "parameters");
    ls_tensor *in[MOST];
    *s = (subject){ .name = name };
    OK(ls_model_from_keras_json(ctx, path_of(text_at(files, "model")), &s->model));
    s->input_count = ls_model_input_count(s->model);
    s->output_count = ls_model_output_count(s->model);
    assert_int_equal(s->input_count, json_array_size(inputs));
    assert_int_equal(s->output_count, json_array_size(outputs));
    assert_in_range(s->output_count, 1, MOST);
    assert_int_equal(ls_model_parameter_count(s->model), json_integer_value(json_array_get(parameters, 0)) +
                                                             json_integer_value(json_array_get(parameters, 1)));
    for (size_t i = 0; i < s->input_count; i++) {
        ls_dtype dtype = ls_model_input_dtype(s->model, i);
        in[i] = ls_op_input(ls_model_graph(s->model), NULL, dtype, ls_model_input_shape(s->model, i));
        s->feeds[i] = (ls_feed){ in[i], test_input(path_of(text_at(files, "data")), json_array_get(inputs, i), dtype) };
    }
    for (size_t i = 0; i < s->output_count; i++)
        assert_string_equal(ls_model_output_name(s->model, i), json_string_value(json_array_get(outputs, i)));
    OK(ls_model_trace(s->model, in, false, s->out, NULL));
    OK(ls_safetensors_open(path_of(text_at(files, "predictions")), &s->expected));
}

static void close_subject(subject *s)
{
    ls_safetensors_close(s->expected);
    for (size_t i = 0; i < s->input_count; i++)
        free(s->feeds[i].value.data);
    ls_model_destroy(s->model);
}

/* With the weights of that file, the predictions that Keras wrote down under `label`. */
static void compare(subject *s, const char *label, const char *weights, double tolerance)
{
    OK(ls_model_load_weights(s->model, path_of(weights)));
    OK(ls_eval(ls_model_graph(s->model), s->feeds, s->input_count, s->out, s->output_count));
    for (size_t i = 0; i < s->output_count; i++) {
        char name[128];
        snprintf(name, sizeof(name), "%s/%s", label, ls_model_output_name(s->model, i));
        const ls_safetensors_entry *want = ls_safetensors_find(s->expected, name);
        ls_array got;
        OK(ls_value(s->out[i], &got));
        if (!want || !ls_shape_equal(&got.shape, &want->shape))
            fail_msg("%s: %s is not there, or has another shape", s->name, name);
        const float *a = got.data, *b = want->data;
        for (size_t j = 0; j < want->bytes / sizeof(float); j++)
            if (!test_is_near(a[j], b[j], tolerance))
                fail_msg("%s: %s, element %zu is %.9g, Keras says %.9g", s->name, name, j, a[j], b[j]);
    }
}

/* With Keras's initial weights, and with those it had after training: moving statistics have moved
 * by then. */
static void predictions_are_keras_s(void **state)
{
    (void)state;
    json_t *json = manifest(), *record, *row;
    const char *name;
    size_t i;
    if (!json)
        SKIP("Keras's files are not there");
    double tolerance = json_number_value(
        json_object_get(json_object_get(json_object_get(json, "tolerances"), "predict"), "predictions"));
    assert_true(tolerance > 0 && tolerance <= 1e-5);
    json_object_foreach(json_object_get(json, "models"), name, record)
    {
        subject s;
        open_subject(&s, name, record);
        compare(&s, "initial", text_at(json_object_get(record, "files"), "weights"), tolerance);
        json_array_foreach(json_object_get(json, "cases"), i, row) if (strcmp(text_at(row, "model"), name) == 0)
            compare(&s, text_at(row, "optimizer"), text_at(row, "weights"), tolerance);
        close_subject(&s);
    }
    json_decref(json);
}

static void models_of_keras_are_read(void **state)
{
    (void)state;
    json_t *json = manifest(), *row;
    size_t i;
    if (!json)
        SKIP("Keras's files are not there");
    json_array_foreach(json_object_get(json, "readable"), i, row)
    {
        ls_model *model;
        char *text;
        if (ls_model_from_keras_json(ctx, path_of(text_at(row, "file")), &model) != LS_OK)
            fail_msg("%s: %s", text_at(row, "file"), ls_last_error());
        OK(ls_model_summary(model, &text));
        if (strstr(text_at(row, "file"), "resnet50"))
            assert_int_equal(ls_model_parameter_count(model), 25636712);
        free(text);
        ls_model_destroy(model);
    }
    json_decref(json);
}

static void check_constraint(const ls_model *model, size_t variable, ls_constraint expected)
{
    const ls_constraint *c = &ls_model_variable(model, variable)->attr.variable.variable->constraint;
    assert_int_equal(c->kind, expected.kind);
    assert_true(c->max_value == expected.max_value && c->min_value == expected.min_value && c->rate == expected.rate);
    assert_int_equal(c->axis.count, expected.axis.count);
    for (int i = 0; i < c->axis.count; i++)
        assert_int_equal(c->axis.axis[i], expected.axis.axis[i]);
}

/* Constraints of Keras's JSON; `again`: after they were written and read back. */
static void constraints_are_read_and_written(void **state)
{
    (void)state;
    json_t *json = manifest();
    if (!json)
        SKIP("Keras's files are not there");
    json_decref(json);
    char file[] = "/tmp/lockstep-constraints-XXXXXX.keras";
    int held = mkstemps(file, 6);
    assert_true(held >= 0);
    close(held);
    for (int again = 0; again < 2; again++) {
        ls_model *model;
        if (again)
            OK(ls_model_from_keras(ctx, file, &model));
        else
            OK(ls_model_from_keras_json(ctx, path_of("readable/constraints.json"), &model));
        check_constraint(model, 0, (ls_constraint){ LS_MAX_NORM, 3, 0, 0, LS_AXES(0, 1, 2) });
        check_constraint(model, 1, (ls_constraint){ LS_MAX_NORM, 2, 0, 0, LS_AXES(0) });
        check_constraint(model, 2, (ls_constraint){ .kind = LS_NON_NEG });
        check_constraint(model, 3, (ls_constraint){ LS_UNIT_NORM, 0, 0, 0, LS_AXES(0) });
        check_constraint(model, 6, (ls_constraint){ LS_MIN_MAX_NORM, 1.5, 0.5, 0.25, LS_AXES(1) });
        check_constraint(model, 8, (ls_constraint){ LS_MIN_MAX_NORM, 1, LS_ZERO, 1, LS_AXES(0) });
        OK(ls_model_save_weights(model, file));
        ls_model_destroy(model);
    }
    unlink(file);
}

static void models_of_keras_that_we_cannot_do_are_refused(void **state)
{
    (void)state;
    json_t *json = manifest(), *row, *word;
    size_t i, j;
    if (!json)
        SKIP("Keras's files are not there");
    json_array_foreach(json_object_get(json, "refused"), i, row)
    {
        ls_model *model = NULL;
        const char *file = text_at(row, "file");
        if (ls_model_from_keras_json(ctx, path_of(file), &model) == LS_OK)
            fail_msg("%s was read", file);
        assert_null(model);
        json_array_foreach(json_object_get(row, "names"), j, word) expect_words(file, json_string_value(word));
    }
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_texts_are_read),
        cmocka_unit_test(what_is_not_honoured_is_refused_by_name),
        cmocka_unit_test(texts_cut_short_are_refused),
        cmocka_unit_test(predictions_are_keras_s),
        cmocka_unit_test(models_of_keras_are_read),
        cmocka_unit_test(constraints_are_read_and_written),
        cmocka_unit_test(models_of_keras_that_we_cannot_do_are_refused),
    };
    return cmocka_run_group_tests_name("keras", tests, set_up, tear_down);
}
