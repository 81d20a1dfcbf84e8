/* Dense and Embedding, and what layers with a kernel share. */
#include "graph/rules.h"
#include "nn/layer_family.h"

_Static_assert(offsetof(ls_dense_options, bias_regularizer) == offsetof(ls_conv_options, bias_regularizer),
               "layer->dense must read the kernel options of every layer with a kernel");

/* ---- Kernels ---- */

ls_status ls_resolve_kernel(ls_layer *layer)
{
    static const ls_initializer glorot = { .kind = LS_INIT_GLOROT_UNIFORM };
    ls_dense_options *o = &layer->dense;
    LS_TRY(ls_resolve_activation(o->activation));
    LS_TRY(ls_init_resolve("kernel_initializer", &o->kernel_initializer, glorot));
    LS_TRY(ls_init_resolve("bias_initializer", &o->bias_initializer, ls_zeros));
    LS_TRY(ls_check_regularizer("kernel_regularizer", &o->kernel_regularizer));
    return ls_check_regularizer("bias_regularizer", &o->bias_regularizer);
}

void ls_add_kernel(const ls_layer *layer, ls_shape shape, int64_t bias_width, ls_weight *out, size_t *count)
{
    const ls_dense_options *o = &layer->dense;
    ls_add_weight(layer, "kernel", shape, o->kernel_initializer, o->kernel_regularizer, out, count);
    if (!o->no_bias)
        ls_add_weight(layer, "bias", LS_SHAPE(bias_width), o->bias_initializer, o->bias_regularizer, out, count);
}

ls_tensor *ls_finish_kernel(const ls_layer *layer, const ls_layer_pass *pass, ls_tensor *y, size_t bias)
{
    return ls_activate(layer->dense.no_bias ? y : ls_op_add(y, pass->weights[bias]), layer->dense.activation);
}

/* ---- Dense ---- */

static ls_status resolve_dense(ls_layer *layer)
{
    LS_TRY(ls_check_positive("units", layer->options.first));
    return ls_resolve_kernel(layer);
}

static ls_status dense_weights(const ls_layer *layer, const ls_shape *x, ls_weight *out, size_t *count)
{
    int64_t units = layer->options.first;
    LS_TRY(ls_check_rank(x, 2, LS_MAX_RANK, "an input of at least 2 axes (batch, ..., width)"));
    ls_add_kernel(layer, LS_SHAPE(x->dims[x->rank - 1], units), units, out, count);
    return LS_OK;
}

static ls_status call_dense(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    *out = ls_finish_kernel(layer, pass, ls_op_matmul(ls_layer_real(pass->inputs[0]), pass->weights[0]), 1);
    return LS_OK;
}

static const ls_layer_option dense_options[] = { LS_OPTIONS_KERNEL(dense) };

static const ls_layer_info dense_kinds[] = {
    { .kind = LS_LAYER_DENSE,
      .class_name = "Dense",
      .base = "dense",
      .function = "ls_dense",
      .positional = { "units" },
      .resolve = resolve_dense,
      .weights = dense_weights,
      .call = call_dense,
      .mask = LS_MASK_PASSES },
};

const ls_layer_family ls_dense_family = LS_LAYER_FAMILY(dense_options, dense_kinds);

/* ---- Embedding ---- */

static ls_status resolve_embedding(ls_layer *layer)
{
    static const ls_initializer uniform = { .kind = LS_INIT_UNIFORM };
    ls_embedding_options *o = &layer->embedding;
    LS_TRY(ls_check_positive("input_dim", o->first));
    LS_TRY(ls_check_positive("output_dim", o->second));
    LS_TRY(ls_init_resolve("embeddings_initializer", &o->kernel_initializer, uniform));
    return ls_check_regularizer("embeddings_regularizer", &o->kernel_regularizer);
}

static ls_status embedding_weights(const ls_layer *layer, const ls_shape *x, ls_weight *out, size_t *count)
{
    (void)x;
    const ls_embedding_options *o = &layer->embedding;
    ls_add_weight(layer, "embeddings", LS_SHAPE(o->first, o->second), o->kernel_initializer, o->kernel_regularizer, out,
                  count);
    return LS_OK;
}

static ls_status call_embedding(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    ls_tensor *x = pass->inputs[0];
    if (x->dtype != LS_I32 && x->dtype != LS_I64)
        x = ls_op_cast(x, LS_I32);
    *out = ls_op_gather(pass->weights[0], x, 0);
    if (layer->embedding.mask_zero)
        pass->mask = ls_op_compare(x, LS_NOT_EQUAL, ls_scalar_like(x, 0));
    return LS_OK;
}

static const ls_layer_option embedding_options[] = {
    LS_OPTION(embedding, INITIALIZER, kernel_initializer),
    LS_OPTION(embedding, REGULARIZER, kernel_regularizer),
    LS_OPTION(embedding, FLAG, mask_zero),
};

static const ls_layer_info embedding_kinds[] = {
    { .kind = LS_LAYER_EMBEDDING,
      .class_name = "Embedding",
      .base = "embedding",
      .function = "ls_embedding",
      .positional = { "input_dim", "output_dim" },
      .resolve = resolve_embedding,
      .weights = embedding_weights,
      .call = call_embedding,
      .mask = LS_MASK_OWN },
};

const ls_layer_family ls_embedding_family = LS_LAYER_FAMILY(embedding_options, embedding_kinds);
