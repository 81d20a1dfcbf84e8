/* Names of everything beside Keras's and PyTorch's. Layers, activations, ops, losses and
 * optimizers come from the tables of the code; the names that these do not have are here. A row
 * that is missing here has NULL, which tests/nn/test_reference.c reports. */
#include <string.h>

#include "graph/node.h"
#include "nn/layer.h"

#define COUNT(array) (sizeof(array) / sizeof(*(array)))
#define NN(name)     "torch.nn." name
#define F(name)      "torch.nn.functional." name
#define VISION(name) "torchvision.transforms.v2." name
#define NONE         ""

/* clang-format off */

/* ---- Layers ---- */

static const char *const torch_layers[LS_LAYER_KINDS] = {
    [LS_LAYER_INPUT] = NONE,
    [LS_LAYER_MODEL] = NN("Module"),
    [LS_LAYER_DENSE] = NN("Linear"),
    [LS_LAYER_CONV2D] = NN("Conv2d"),
    [LS_LAYER_DEPTHWISE_CONV2D] = NN("Conv2d") " (groups)",
    [LS_LAYER_MAX_POOL2D] = NN("MaxPool2d"),
    [LS_LAYER_AVERAGE_POOL2D] = NN("AvgPool2d"),
    [LS_LAYER_GLOBAL_MAX_POOL2D] = NN("AdaptiveMaxPool2d"),
    [LS_LAYER_GLOBAL_AVERAGE_POOL2D] = NN("AdaptiveAvgPool2d"),
    [LS_LAYER_FLATTEN] = NN("Flatten"),
    [LS_LAYER_RESHAPE] = NN("Unflatten"),
    [LS_LAYER_DROPOUT] = NN("Dropout"),
    [LS_LAYER_BATCH_NORMALIZATION] = NN("BatchNorm2d"),
    [LS_LAYER_LAYER_NORMALIZATION] = NN("LayerNorm"),
    [LS_LAYER_ACTIVATION] = NONE,
    [LS_LAYER_RELU] = NN("ReLU"),
    [LS_LAYER_LEAKY_RELU] = NN("LeakyReLU"),
    [LS_LAYER_SOFTMAX] = NN("Softmax"),
    [LS_LAYER_ADD] = "torch.add",
    [LS_LAYER_MULTIPLY] = "torch.mul",
    [LS_LAYER_CONCATENATE] = "torch.cat",
    [LS_LAYER_ZERO_PADDING2D] = NN("ZeroPad2d"),
    [LS_LAYER_EMBEDDING] = NN("Embedding"),
    [LS_LAYER_RESCALING] = NONE,
    [LS_LAYER_SIMPLE_RNN] = NN("RNN"),
    [LS_LAYER_LSTM] = NN("LSTM"),
    [LS_LAYER_GRU] = NN("GRU"),
    [LS_LAYER_MASKING] = NONE,
    [LS_LAYER_BIDIRECTIONAL] = NN("LSTM") " (bidirectional)",
    [LS_LAYER_TIME_DISTRIBUTED] = NONE,
    [LS_LAYER_NORMALIZATION] = VISION("Normalize"),
    [LS_LAYER_GROUP_NORMALIZATION] = NN("GroupNorm"),
    [LS_LAYER_RMS_NORMALIZATION] = NN("RMSNorm"),
    [LS_LAYER_UNIT_NORMALIZATION] = F("normalize"),
    [LS_LAYER_PRELU] = NN("PReLU"),
    [LS_LAYER_ELU] = NN("ELU"),
    [LS_LAYER_SPATIAL_DROPOUT1D] = NN("Dropout1d"),
    [LS_LAYER_SPATIAL_DROPOUT2D] = NN("Dropout2d"),
    [LS_LAYER_GAUSSIAN_NOISE] = NONE,
    [LS_LAYER_GAUSSIAN_DROPOUT] = NONE,
    [LS_LAYER_ALPHA_DROPOUT] = NN("AlphaDropout"),
    [LS_LAYER_STOCHASTIC_DEPTH] = "torchvision.ops.StochasticDepth",
    [LS_LAYER_AVERAGE] = NONE,
    [LS_LAYER_MAXIMUM] = "torch.maximum",
    [LS_LAYER_MINIMUM] = "torch.minimum",
    [LS_LAYER_SUBTRACT] = "torch.sub",
    [LS_LAYER_DOT] = "torch.bmm",
    [LS_LAYER_CUSTOM_SCALE] = NONE,
    [LS_LAYER_LAYER_SCALE] = NONE,
    [LS_LAYER_ACTIVITY_REGULARIZATION] = NONE,
    [LS_LAYER_CONV1D] = NN("Conv1d"),
    [LS_LAYER_CONV1D_TRANSPOSE] = NN("ConvTranspose1d"),
    [LS_LAYER_CONV2D_TRANSPOSE] = NN("ConvTranspose2d"),
    [LS_LAYER_DEPTHWISE_CONV1D] = NN("Conv1d") " (groups)",
    [LS_LAYER_SEPARABLE_CONV1D] = NONE,
    [LS_LAYER_SEPARABLE_CONV2D] = NONE,
    [LS_LAYER_MAX_POOL1D] = NN("MaxPool1d"),
    [LS_LAYER_AVERAGE_POOL1D] = NN("AvgPool1d"),
    [LS_LAYER_GLOBAL_MAX_POOL1D] = NN("AdaptiveMaxPool1d"),
    [LS_LAYER_GLOBAL_AVERAGE_POOL1D] = NN("AdaptiveAvgPool1d"),
    [LS_LAYER_ZERO_PADDING1D] = NN("ZeroPad1d"),
    [LS_LAYER_CROPPING1D] = NONE,
    [LS_LAYER_CROPPING2D] = NONE,
    [LS_LAYER_PERMUTE] = "torch.permute",
    [LS_LAYER_REPEAT_VECTOR] = NONE,
    [LS_LAYER_UP_SAMPLING1D] = NN("Upsample"),
    [LS_LAYER_UP_SAMPLING2D] = NN("Upsample"),
    [LS_LAYER_RESIZING] = VISION("Resize"),
    [LS_LAYER_CENTER_CROP] = VISION("CenterCrop"),
    [LS_LAYER_RANDOM_FLIP] = VISION("RandomHorizontalFlip"),
    [LS_LAYER_RANDOM_TRANSLATION] = VISION("RandomAffine"),
    [LS_LAYER_RANDOM_CROP] = VISION("RandomCrop"),
    [LS_LAYER_RANDOM_ZOOM] = VISION("RandomAffine"),
    [LS_LAYER_RANDOM_ROTATION] = VISION("RandomRotation"),
    [LS_LAYER_RANDOM_CONTRAST] = VISION("ColorJitter"),
    [LS_LAYER_RANDOM_BRIGHTNESS] = VISION("ColorJitter"),
    [LS_LAYER_RANDOM_ERASING] = VISION("RandomErasing"),
};

/* ---- Activations ---- */

static const ls_reference_row activations[] = {
    [LS_LINEAR] = { "LS_LINEAR", "linear", NN("Identity") },
    [LS_RELU] = { "LS_RELU", "relu", F("relu") },
    [LS_SOFTMAX] = { "LS_SOFTMAX", "softmax", F("softmax") },
    [LS_SIGMOID] = { "LS_SIGMOID", "sigmoid", F("sigmoid") },
    [LS_TANH] = { "LS_TANH", "tanh", F("tanh") },
    [LS_GELU] = { "LS_GELU", "gelu", F("gelu") },
    [LS_GELU_TANH] = { "LS_GELU_TANH", "gelu (approximate)", F("gelu") " (approximate)" },
    [LS_SILU] = { "LS_SILU", "silu", F("silu") },
    [LS_ELU] = { "LS_ELU", "elu", F("elu") },
    [LS_SOFTPLUS] = { "LS_SOFTPLUS", "softplus", F("softplus") },
    [LS_LEAKY_RELU] = { "LS_LEAKY_RELU", "leaky_relu", F("leaky_relu") },
    [LS_LOG_SOFTMAX] = { "LS_LOG_SOFTMAX", "log_softmax", F("log_softmax") },
    [LS_EXPONENTIAL] = { "LS_EXPONENTIAL", "exponential", "torch.exp" },
    [LS_RELU6] = { "LS_RELU6", "relu6", F("relu6") },
    [LS_HARD_SIGMOID] = { "LS_HARD_SIGMOID", "hard_sigmoid", F("hardsigmoid") },
    [LS_HARD_SILU] = { "LS_HARD_SILU", "hard_silu", F("hardswish") },
    [LS_MISH] = { "LS_MISH", "mish", F("mish") },
    [LS_SELU] = { "LS_SELU", "selu", F("selu") },
    [LS_SOFTSIGN] = { "LS_SOFTSIGN", "softsign", F("softsign") },
    [LS_LOG_SIGMOID] = { "LS_LOG_SIGMOID", "log_sigmoid", F("logsigmoid") },
    [LS_TANH_SHRINK] = { "LS_TANH_SHRINK", "tanh_shrink", F("tanhshrink") },
    [LS_SOFT_SHRINK] = { "LS_SOFT_SHRINK", "soft_shrink", F("softshrink") },
    [LS_HARD_SHRINK] = { "LS_HARD_SHRINK", "hard_shrink", F("hardshrink") },
    [LS_HARD_TANH] = { "LS_HARD_TANH", "hard_tanh", F("hardtanh") },
    [LS_SQUAREPLUS] = { "LS_SQUAREPLUS", "squareplus", NONE },
    [LS_SPARSE_PLUS] = { "LS_SPARSE_PLUS", "sparse_plus", NONE },
    [LS_SPARSE_SIGMOID] = { "LS_SPARSE_SIGMOID", "sparse_sigmoid", NONE },
    [LS_CELU] = { "LS_CELU", "celu", F("celu") },
    [LS_GLU] = { "LS_GLU", "glu", F("glu") },
    [LS_SPARSEMAX] = { "LS_SPARSEMAX", "sparsemax", NONE },
    { "ls_threshold", "threshold", F("threshold") },
};

/* ---- Ops; those of gradients are left out ---- */

static const struct {
    const char *op, *keras, *pytorch;
} ops[] = {
    { "constant", "convert_to_tensor", "torch.tensor" },
    { "fill", "full", "torch.full" },
    { "input", NONE, NONE },
    { "variable", NONE, NN("Parameter") },
    { "count", NONE, NONE },
    { "random_uniform", NONE, "torch.rand" },
    { "random_normal", NONE, "torch.randn" },
    { "assign", NONE, "torch.Tensor.copy_" },
    { "assign_add", NONE, "torch.Tensor.add_" },
    { "apply", NONE, NONE },
    { "group", NONE, NONE },
    { "gather_batch", NONE, NONE },
    { "scatter_batch", NONE, NONE },
    { "stop_gradient", "stop_gradient", "torch.Tensor.detach" },
    { "cast", "cast", "torch.Tensor.to" },
    { "add", "add", "torch.add" },
    { "sub", "subtract", "torch.sub" },
    { "mul", "multiply", "torch.mul" },
    { "div", "divide", "torch.div" },
    { "pow", "power", "torch.pow" },
    { "maximum", "maximum", "torch.maximum" },
    { "minimum", "minimum", "torch.minimum" },
    { "compare", "equal, less, greater, ...", "torch.eq, torch.lt, torch.gt, ..." },
    { "select", "where", "torch.where" },
    { "neg", "negative", "torch.neg" },
    { "abs", "abs", "torch.abs" },
    { "sign", "sign", "torch.sign" },
    { "square", "square", "torch.square" },
    { "clip", "clip", "torch.clamp" },
    { "exp", "exp", "torch.exp" },
    { "log", "log", "torch.log" },
    { "sqrt", "sqrt", "torch.sqrt" },
    { "rsqrt", "rsqrt", "torch.rsqrt" },
    { "erf", "erf", "torch.erf" },
    { "relu", "relu", F("relu") },
    { "leaky_relu", "leaky_relu", F("leaky_relu") },
    { "sigmoid", "sigmoid", "torch.sigmoid" },
    { "tanh", "tanh", "torch.tanh" },
    { "softplus", "softplus", F("softplus") },
    { "gelu", "gelu", F("gelu") },
    { "silu", "silu", F("silu") },
    { "elu", "elu", F("elu") },
    { "reshape", "reshape", "torch.reshape" },
    { "transpose", "transpose", "torch.permute" },
    { "broadcast", "broadcast_to", "torch.broadcast_to" },
    { "concat", "concatenate", "torch.cat" },
    { "slice", "slice", "torch.narrow" },
    { "pad", "pad", F("pad") },
    { "gather", "take", "torch.index_select" },
    { "one_hot", "one_hot", F("one_hot") },
    { "matmul", "matmul", "torch.matmul" },
    { "recurrent", NONE, NN("LSTM") },
    { "attention", "dot_product_attention", F("scaled_dot_product_attention") },
    { "reduce_sum", "sum", "torch.sum" },
    { "reduce_max", "max", "torch.amax" },
    { "reduce_min", "min", "torch.amin" },
    { "argmax", "argmax", "torch.argmax" },
    { "top_k", "top_k", "torch.topk" },
    { "top_k_indices", "top_k", "torch.topk" },
    { "softmax", "softmax", "torch.softmax" },
    { "log_softmax", "log_softmax", "torch.log_softmax" },
    { "conv2d", "conv", F("conv2d") },
    { "max_pool2d", "max_pool", F("max_pool2d") },
    { "average_pool2d", "average_pool", F("avg_pool2d") },
    { "warp", NONE, F("grid_sample") },
    { "moments", "moments", "torch.var_mean" },
    { "batch_norm", "batch_normalization", F("batch_norm") },
    { "dropout", NONE, F("dropout") },
    { "sparse_cross_entropy", "sparse_categorical_crossentropy", F("cross_entropy") },
    { "ctc", "ctc_loss", F("ctc_loss") },
    { "custom", NONE, "torch.autograd.Function" },
    { "capped_relu", "relu6", F("relu6") },
};

/* ---- Losses ---- */

static const ls_reference_row losses[] = {
    [LS_LOSS_SPARSE_CATEGORICAL_CROSSENTROPY] = { "ls_sparse_categorical_crossentropy",
        "SparseCategoricalCrossentropy", NN("CrossEntropyLoss") },
    [LS_LOSS_CATEGORICAL_CROSSENTROPY] = { "ls_categorical_crossentropy", "CategoricalCrossentropy",
        NN("CrossEntropyLoss") },
    [LS_LOSS_BINARY_CROSSENTROPY] = { "ls_binary_crossentropy", "BinaryCrossentropy", NN("BCELoss") },
    [LS_LOSS_MEAN_SQUARED_ERROR] = { "ls_mean_squared_error", "MeanSquaredError", NN("MSELoss") },
    [LS_LOSS_MEAN_ABSOLUTE_ERROR] = { "ls_mean_absolute_error", "MeanAbsoluteError", NN("L1Loss") },
    [LS_LOSS_HUBER] = { "ls_huber", "Huber", NN("HuberLoss") },
    [LS_LOSS_MEAN_ABSOLUTE_PERCENTAGE_ERROR] = { "ls_mean_absolute_percentage_error", "MeanAbsolutePercentageError",
        NONE },
    [LS_LOSS_MEAN_SQUARED_LOGARITHMIC_ERROR] = { "ls_mean_squared_logarithmic_error", "MeanSquaredLogarithmicError",
        NONE },
    [LS_LOSS_LOG_COSH] = { "ls_log_cosh", "LogCosh", NONE },
    [LS_LOSS_COSINE_SIMILARITY] = { "ls_cosine_similarity", "CosineSimilarity", NN("CosineEmbeddingLoss") },
    [LS_LOSS_KL_DIVERGENCE] = { "ls_kl_divergence", "KLDivergence", NN("KLDivLoss") },
    [LS_LOSS_POISSON] = { "ls_poisson", "Poisson", NN("PoissonNLLLoss") },
    [LS_LOSS_HINGE] = { "ls_hinge", "Hinge", NONE },
    [LS_LOSS_SQUARED_HINGE] = { "ls_squared_hinge", "SquaredHinge", NONE },
    [LS_LOSS_CATEGORICAL_HINGE] = { "ls_categorical_hinge", "CategoricalHinge", NN("MultiMarginLoss") },
    [LS_LOSS_BINARY_FOCAL_CROSSENTROPY] = { "ls_binary_focal_crossentropy", "BinaryFocalCrossentropy",
        "torchvision.ops.sigmoid_focal_loss" },
    [LS_LOSS_CATEGORICAL_FOCAL_CROSSENTROPY] = { "ls_categorical_focal_crossentropy", "CategoricalFocalCrossentropy",
        NONE },
    [LS_LOSS_DICE] = { "ls_dice", "Dice", NONE },
    [LS_LOSS_TVERSKY] = { "ls_tversky", "Tversky", NONE },
    [LS_LOSS_CTC] = { "ls_ctc", "CTC", NN("CTCLoss") },
    [LS_LOSS_CUSTOM] = { "ls_custom_loss", "Loss", NN("Module") },
};

/* ---- Metrics: PyTorch itself has none ---- */

#define TM(name) "torchmetrics." name
static const ls_reference_row metrics[] = {
    [LS_METRIC_ACCURACY] = { "LS_METRIC_ACCURACY", "Accuracy", TM("Accuracy") },
    [LS_METRIC_BINARY_ACCURACY] = { "LS_METRIC_BINARY_ACCURACY", "BinaryAccuracy", TM("Accuracy") },
    [LS_METRIC_CATEGORICAL_ACCURACY] = { "LS_METRIC_CATEGORICAL_ACCURACY", "CategoricalAccuracy", TM("Accuracy") },
    [LS_METRIC_SPARSE_CATEGORICAL_ACCURACY] = { "LS_METRIC_SPARSE_CATEGORICAL_ACCURACY", "SparseCategoricalAccuracy",
        TM("Accuracy") },
    [LS_METRIC_TOP_K] = { "LS_METRIC_TOP_K", "TopKCategoricalAccuracy", TM("Accuracy") " (top_k)" },
    [LS_METRIC_MEAN] = { "LS_METRIC_MEAN", "Mean", TM("MeanMetric") },
    [LS_METRIC_MEAN_SQUARED_ERROR] = { "LS_METRIC_MEAN_SQUARED_ERROR", "MeanSquaredError", TM("MeanSquaredError") },
    [LS_METRIC_MEAN_ABSOLUTE_ERROR] = { "LS_METRIC_MEAN_ABSOLUTE_ERROR", "MeanAbsoluteError",
        TM("MeanAbsoluteError") },
    [LS_METRIC_PRECISION] = { "LS_METRIC_PRECISION", "Precision", TM("Precision") },
    [LS_METRIC_RECALL] = { "LS_METRIC_RECALL", "Recall", TM("Recall") },
    [LS_METRIC_AUC] = { "LS_METRIC_AUC", "AUC", TM("AUROC") },
    [LS_METRIC_ROOT_MEAN_SQUARED_ERROR] = { "LS_METRIC_ROOT_MEAN_SQUARED_ERROR", "RootMeanSquaredError",
        TM("MeanSquaredError") " (squared=False)" },
    [LS_METRIC_COSINE_SIMILARITY] = { "LS_METRIC_COSINE_SIMILARITY", "CosineSimilarity", TM("CosineSimilarity") },
    [LS_METRIC_LOSS] = { "ls_loss_metric", "MeanMetricWrapper", NONE },
    [LS_METRIC_R2_SCORE] = { "LS_METRIC_R2_SCORE", "R2Score", TM("R2Score") },
    [LS_METRIC_F1_SCORE] = { "LS_METRIC_F1_SCORE", "F1Score", TM("F1Score") },
    [LS_METRIC_FBETA_SCORE] = { "LS_METRIC_FBETA_SCORE", "FBetaScore", TM("FBetaScore") },
    [LS_METRIC_MEAN_IOU] = { "LS_METRIC_MEAN_IOU", "MeanIoU", TM("JaccardIndex") },
    [LS_METRIC_BINARY_IOU] = { "LS_METRIC_BINARY_IOU", "BinaryIoU", TM("JaccardIndex") },
    [LS_METRIC_CONFUSION] = { "LS_METRIC_CONFUSION", NONE, TM("ConfusionMatrix") },
    [LS_METRIC_CUSTOM] = { "ls_custom_metric", "Metric", TM("Metric") },
};

/* ---- Optimizers and schedules ---- */

#define OPTIM(name) "torch.optim." name
static const ls_reference_row optimizers[] = {
    [LS_OPTIMIZER_SGD] = { "ls_sgd", "SGD", OPTIM("SGD") },
    [LS_OPTIMIZER_ADAM] = { "ls_adam", "Adam", OPTIM("Adam") },
    [LS_OPTIMIZER_ADAMW] = { "ls_adamw", "AdamW", OPTIM("AdamW") },
    [LS_OPTIMIZER_RMSPROP] = { "ls_rmsprop", "RMSprop", OPTIM("RMSprop") },
    [LS_OPTIMIZER_RMSPROP_TF1] = { "ls_rmsprop_tf1", NONE, NONE },
    [LS_OPTIMIZER_ADAGRAD] = { "ls_adagrad", "Adagrad", OPTIM("Adagrad") },
    [LS_OPTIMIZER_ADADELTA] = { "ls_adadelta", "Adadelta", OPTIM("Adadelta") },
    [LS_OPTIMIZER_ADAMAX] = { "ls_adamax", "Adamax", OPTIM("Adamax") },
    [LS_OPTIMIZER_NADAM] = { "ls_nadam", "Nadam", OPTIM("NAdam") },
    [LS_OPTIMIZER_FTRL] = { "ls_ftrl", "Ftrl", NONE },
    [LS_OPTIMIZER_LION] = { "ls_lion", "Lion", NONE },
    [LS_OPTIMIZER_LAMB] = { "ls_lamb", "Lamb", NONE },
    [LS_OPTIMIZER_MUON] = { "ls_muon", "Muon", OPTIM("Muon") },
};

#define RATES(name) "torch.optim.lr_scheduler." name
static const ls_reference_row schedules[] = {
    [LS_SCHEDULE_EXPONENTIAL] = { "ls_exponential_decay", "ExponentialDecay", RATES("ExponentialLR") },
    [LS_SCHEDULE_COSINE] = { "ls_cosine_decay", "CosineDecay", RATES("CosineAnnealingLR") },
    [LS_SCHEDULE_PIECEWISE] = { "ls_piecewise_decay", "PiecewiseConstantDecay", RATES("MultiStepLR") },
    [LS_SCHEDULE_BY_BATCH] = { "ls_rates_by_batch_size", NONE, NONE },
    [LS_SCHEDULE_POLYNOMIAL] = { "ls_polynomial_decay", "PolynomialDecay", RATES("PolynomialLR") },
    [LS_SCHEDULE_INVERSE_TIME] = { "ls_inverse_time_decay", "InverseTimeDecay", NONE },
    [LS_SCHEDULE_COSINE_RESTARTS] = { "ls_cosine_decay_restarts", "CosineDecayRestarts",
        RATES("CosineAnnealingWarmRestarts") },
    [LS_SCHEDULE_ONE_CYCLE] = { "ls_one_cycle", NONE, RATES("OneCycleLR") },
};
/* clang-format on */

_Static_assert(COUNT(losses) == LS_LOSS_CUSTOM + 1, "a row for each loss");
_Static_assert(COUNT(metrics) == LS_METRIC_CUSTOM + 1, "a row for each metric");

/* ---- Rows ---- */

/* Skips the first, which stands for none, where `first` is 1. */
static bool row_at(const ls_reference_row *rows, size_t count, size_t first, size_t index, ls_reference_row *out)
{
    if (index >= count - first)
        return false;
    *out = rows[index + first];
    return true;
}

static bool layer_at(size_t index, ls_reference_row *out)
{
    for (int kind = LS_LAYER_INPUT; kind < LS_LAYER_KINDS; kind++) {
        const ls_layer_info *info = ls_layer_info_of((ls_layer_kind)kind);
        if (kind == LS_LAYER_REGISTERED || index-- > 0)
            continue;
        *out = (ls_reference_row){ info->function, info->class_name, torch_layers[kind] };
        return true;
    }
    return false;
}

static bool op_at(size_t index, ls_reference_row *out)
{
    for (int op = 0; op < LS_OP_COUNT; op++) {
        const char *name = ls_ops[op].name;
        if (strstr(name, "_grad") || index-- > 0)
            continue;
        *out = (ls_reference_row){ .name = name };
        for (size_t i = 0; i < COUNT(ops); i++)
            if (strcmp(ops[i].op, name) == 0)
                *out = (ls_reference_row){ name, ops[i].keras, ops[i].pytorch };
        return true;
    }
    return false;
}

const char *ls_reference_name(ls_reference_list list)
{
    static const char *const names[] = {
        "layers", "activations", "ops", "losses", "metrics", "optimizers", "schedules"
    };
    return (unsigned)list < COUNT(names) ? names[list] : NULL;
}

bool ls_reference(ls_reference_list list, size_t index, ls_reference_row *out)
{
    if (!out)
        return false;
    switch (list) {
    case LS_REFERENCE_LAYERS:
        return layer_at(index, out);
    case LS_REFERENCE_ACTIVATIONS:
        return row_at(activations, COUNT(activations), 0, index, out);
    case LS_REFERENCE_OPS:
        return op_at(index, out);
    case LS_REFERENCE_LOSSES:
        return row_at(losses, COUNT(losses), 1, index, out);
    case LS_REFERENCE_METRICS:
        return row_at(metrics, COUNT(metrics), 1, index, out);
    case LS_REFERENCE_OPTIMIZERS:
        return row_at(optimizers, COUNT(optimizers), 1, index, out);
    case LS_REFERENCE_SCHEDULES:
        return row_at(schedules, COUNT(schedules), 1, index, out);
    }
    return false;
}
