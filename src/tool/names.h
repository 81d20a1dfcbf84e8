/* Names of losses, optimizers and metrics on the command line, and their kinds. */
#ifndef LS_TOOL_NAMES_H
#define LS_TOOL_NAMES_H

/* X(name, KIND of LS_LOSS_KIND) */
/* clang-format off */
#define TOOL_LOSSES(X)                                                                                                 \
    X("auto", NONE)                                                                                                    \
    X("sparse_categorical_crossentropy", SPARSE_CATEGORICAL_CROSSENTROPY)                                              \
    X("categorical_crossentropy", CATEGORICAL_CROSSENTROPY)                                                            \
    X("binary_crossentropy", BINARY_CROSSENTROPY)                                                                      \
    X("mean_squared_error", MEAN_SQUARED_ERROR)                                                                        \
    X("mse", MEAN_SQUARED_ERROR)                                                                                       \
    X("mean_absolute_error", MEAN_ABSOLUTE_ERROR)                                                                      \
    X("mae", MEAN_ABSOLUTE_ERROR)                                                                                      \
    X("huber", HUBER)                                                                                                  \
    X("mean_absolute_percentage_error", MEAN_ABSOLUTE_PERCENTAGE_ERROR)                                                \
    X("mape", MEAN_ABSOLUTE_PERCENTAGE_ERROR)                                                                          \
    X("mean_squared_logarithmic_error", MEAN_SQUARED_LOGARITHMIC_ERROR)                                                \
    X("msle", MEAN_SQUARED_LOGARITHMIC_ERROR)                                                                          \
    X("log_cosh", LOG_COSH)                                                                                            \
    X("cosine_similarity", COSINE_SIMILARITY)                                                                          \
    X("kl_divergence", KL_DIVERGENCE)                                                                                  \
    X("poisson", POISSON)                                                                                              \
    X("hinge", HINGE)                                                                                                  \
    X("squared_hinge", SQUARED_HINGE)                                                                                  \
    X("categorical_hinge", CATEGORICAL_HINGE)                                                                          \
    X("binary_focal_crossentropy", BINARY_FOCAL_CROSSENTROPY)                                                          \
    X("categorical_focal_crossentropy", CATEGORICAL_FOCAL_CROSSENTROPY)                                                \
    X("dice", DICE)                                                                                                    \
    X("tversky", TVERSKY)                                                                                              \
    X("ctc", CTC)

/* X(name, KIND of LS_OPTIMIZER_KIND) */
#define TOOL_OPTIMIZERS(X)                                                                                             \
    X("adam", ADAM)                                                                                                    \
    X("adamw", ADAMW)                                                                                                  \
    X("sgd", SGD)                                                                                                      \
    X("rmsprop", RMSPROP)                                                                                              \
    X("rmsprop-tf1", RMSPROP_TF1)                                                                                      \
    X("adagrad", ADAGRAD)                                                                                              \
    X("adadelta", ADADELTA)                                                                                            \
    X("adamax", ADAMAX)                                                                                                \
    X("nadam", NADAM)                                                                                                  \
    X("ftrl", FTRL)                                                                                                    \
    X("lion", LION)                                                                                                    \
    X("lamb", LAMB)                                                                                                    \
    X("muon", MUON)

/* X(name, KIND of LS_METRIC_KIND). Other losses of the list above are metrics, too. */
#define TOOL_METRICS(X)                                                                                                \
    X("accuracy", ACCURACY)                                                                                            \
    X("acc", ACCURACY)                                                                                                 \
    X("binary_accuracy", BINARY_ACCURACY)                                                                              \
    X("categorical_accuracy", CATEGORICAL_ACCURACY)                                                                    \
    X("sparse_categorical_accuracy", SPARSE_CATEGORICAL_ACCURACY)                                                      \
    X("top_k_categorical_accuracy", TOP_K)                                                                             \
    X("mean_squared_error", MEAN_SQUARED_ERROR)                                                                        \
    X("mse", MEAN_SQUARED_ERROR)                                                                                       \
    X("mean_absolute_error", MEAN_ABSOLUTE_ERROR)                                                                      \
    X("mae", MEAN_ABSOLUTE_ERROR)                                                                                      \
    X("precision", PRECISION)                                                                                          \
    X("recall", RECALL)                                                                                                \
    X("root_mean_squared_error", ROOT_MEAN_SQUARED_ERROR)                                                              \
    X("rmse", ROOT_MEAN_SQUARED_ERROR)                                                                                 \
    X("cosine_similarity", COSINE_SIMILARITY)                                                                          \
    X("r2_score", R2_SCORE)                                                                                            \
    X("f1_score", F1_SCORE)                                                                                            \
    X("mean_io_u", MEAN_IOU)                                                                                           \
    X("binary_io_u", BINARY_IOU)                                                                                       \
    X("auc", AUC)
/* clang-format on */

#endif
