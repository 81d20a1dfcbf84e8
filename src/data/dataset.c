/* Dataset nodes: creation, sharing, destruction, errors and queries. */
#include "data/dataset.h"

#include <stdarg.h>
#include <string.h>

#include "base/fpmode.h"
#include "base/text.h"
#include "data/stream.h"
#include "graph/shape.h"

/* ---- The dataset that builders return when memory runs out ---- */

static const ls_dataset_type lost_type = { .name = "ls_dataset" };
static const ls_dataset lost = { .type = &lost_type, .status = LS_ERR_MEMORY };

bool ls_dataset_is_lost(const ls_dataset *dataset)
{
    return dataset == &lost;
}

/* ---- Creation and destruction ---- */

void ls_dataset_copy_source(ls_dataset *d)
{
    d->spec = d->source->spec;
    d->count = d->source->count;
    d->base = d->source->base;
    d->origin = d->source->origin;
    d->maker = d->source->maker;
    d->maps = d->source->maps;
}

/* Locks, because another thread may be preparing the node. */
static bool has_error(ls_dataset *d)
{
    if (ls_dataset_is_lost(d))
        return true;
    pthread_mutex_lock(&d->mutex);
    bool failed = d->status != LS_OK;
    pthread_mutex_unlock(&d->mutex);
    return failed;
}

ls_dataset *ls_dataset_node(const ls_dataset_type *type, ls_dataset *source)
{
    if (source && has_error(source))
        return source;
    ls_dataset *d = calloc(1, sizeof *d);
    if (d && pthread_mutex_init(&d->mutex, NULL) != 0) {
        free(d);
        d = NULL;
    }
    if (!d) {
        ls_dataset_destroy(source);
        return (ls_dataset *)&lost; /* never written to: see ls_dataset_is_lost */
    }
    d->type = type;
    d->source = source;
    atomic_init(&d->handles, 1);
    return d;
}

ls_dataset *ls_dataset_over(const ls_dataset_type *type, ls_dataset *source, bool *built)
{
    ls_dataset *d = ls_dataset_node(type, source);
    *built = source && d != source && !ls_dataset_is_lost(d);
    if (!source && !ls_dataset_is_lost(d))
        ls_dataset_fail(d, LS_ERR_INVALID, "%s: the dataset is NULL", type->name);
    return d;
}

ls_dataset *ls_dataset_fail(ls_dataset *dataset, ls_status status, const char *format, ...)
{
    char *message = NULL;
    ls_text text = { 0 };
    va_list args;
    if (dataset->status != LS_OK)
        return dataset;
    va_start(args, format);
    ls_text_add_v(&text, format, args);
    va_end(args);
    dataset->status = ls_text_take(&text, &message) == LS_OK ? status : LS_ERR_MEMORY;
    dataset->message = message;
    return dataset;
}

ls_dataset *ls_dataset_share(ls_dataset *dataset)
{
    if (dataset && !ls_dataset_is_lost(dataset))
        atomic_fetch_add(&dataset->handles, 1);
    return dataset;
}

void ls_dataset_destroy(ls_dataset *dataset)
{
    while (dataset && !ls_dataset_is_lost(dataset) && atomic_fetch_sub(&dataset->handles, 1) == 1) {
        ls_dataset *source = dataset->source;
        if (dataset->type->destroy)
            dataset->type->destroy(dataset);
        pthread_mutex_destroy(&dataset->mutex);
        free(dataset->message);
        free(dataset);
        dataset = source; /* a loop, so that long chains do not need a deep stack */
    }
}

/* ---- Preparation ---- */

static ls_status kept_error(const ls_dataset *d)
{
    return ls_fail(d->status, "%s", d->message ? d->message : "no memory for a dataset");
}

static ls_status prepare_locked(ls_dataset *d)
{
    if (d->status == LS_OK && !d->prepared) {
        ls_status status = d->source ? ls_dataset_prepare(d->source) : LS_OK;
        if (d->source && status == LS_OK) {
            d->shuffles = d->source->shuffles;
            d->together = d->source->together;
            d->classes = d->source->classes;
            d->class_count = d->source->class_count;
            d->left_out = d->source->left_out;
            d->left_out_lines = d->source->left_out_lines;
        }
        if (status == LS_OK)
            status = d->type->prepare(d);
        if (status == LS_OK)
            d->prepared = true;
        else
            ls_dataset_fail(d, status, "%s", ls_last_error());
    }
    return d->status == LS_OK ? LS_OK : kept_error(d);
}

ls_status ls_dataset_prepare(ls_dataset *dataset)
{
    if (!dataset)
        return ls_fail(LS_ERR_INVALID, "the dataset is NULL");
    if (ls_dataset_is_lost(dataset))
        return kept_error(dataset);
    pthread_mutex_lock(&dataset->mutex);
    ls_status status = prepare_locked(dataset);
    pthread_mutex_unlock(&dataset->mutex);
    return status;
}

/* ---- Specs ---- */

static ls_status check_roles(ls_element_spec *spec, const char *what)
{
    if (spec->features == 0 && spec->labels == 0 && spec->weights == 0) {
        if (spec->count > 3)
            return ls_fail(LS_ERR_INVALID, "%s: %d components; set how many of them are features, labels and weights",
                           what, spec->count);
        spec->features = 1;
        spec->labels = spec->count > 1;
        spec->weights = spec->count > 2;
    }
    if (spec->features < 1 || spec->labels < 0 || spec->weights < 0 || spec->weights > 1 ||
        spec->features + spec->labels + spec->weights != spec->count)
        return ls_fail(LS_ERR_INVALID, "%s: %d features, %d labels and %d weights do not add up to %d components", what,
                       spec->features, spec->labels, spec->weights, spec->count);
    return LS_OK;
}

ls_status ls_element_spec_check(ls_element_spec *spec, bool batch_axis, const char *what)
{
    char text[LS_SHAPE_TEXT];
    if (spec->count < 1 || spec->count > LS_MAX_COMPONENTS)
        return ls_fail(LS_ERR_INVALID, "%s: %d components; expected 1 to %d", what, spec->count, LS_MAX_COMPONENTS);
    for (int i = 0; i < spec->count; i++) {
        const ls_spec *c = &spec->component[i];
        if ((unsigned)c->dtype >= LS_DTYPE_COUNT)
            return ls_fail(LS_ERR_DTYPE, "%s: component %d has the unknown type %d", what, i, (int)c->dtype);
        if (c->shape.rank < 0 || c->shape.rank > LS_MAX_RANK)
            return ls_fail(LS_ERR_SHAPE, "%s: component %d has %d axes; at most %d are supported", what, i,
                           c->shape.rank, LS_MAX_RANK);
        for (int k = 0; k < c->shape.rank; k++)
            if (c->shape.dims[k] < 0 && !(batch_axis && k == 0 && c->shape.dims[k] == LS_BATCH))
                return ls_fail(LS_ERR_SHAPE, "%s: component %d: %s: every size must be known", what, i,
                               ls_shape_format(&c->shape, text));
        ls_shape one = ls_shape_at(&c->shape, 1);
        size_t bytes;
        if (!ls_data_bytes(c->dtype, &one, &bytes))
            return ls_fail(LS_ERR_OVERFLOW, "%s: component %d: shape %s overflows", what, i,
                           ls_shape_format(&c->shape, text));
    }
    return check_roles(spec, what);
}

/* ---- Queries ---- */

ls_status ls_dataset_status(ls_dataset *dataset)
{
    return ls_dataset_prepare(dataset);
}

ls_status ls_dataset_spec(ls_dataset *dataset, ls_element_spec *out)
{
    LS_TRY(ls_dataset_prepare(dataset));
    if (!out)
        return ls_fail(LS_ERR_INVALID, "ls_dataset_spec: out is NULL");
    *out = dataset->spec;
    return LS_OK;
}

ls_status ls_dataset_count(ls_dataset *dataset, int64_t *out)
{
    LS_TRY(ls_dataset_prepare(dataset));
    if (!out)
        return ls_fail(LS_ERR_INVALID, "ls_dataset_count: out is NULL");
    *out = dataset->count;
    return LS_OK;
}

ls_status ls_dataset_has_rows(ls_dataset *dataset, bool *out)
{
    LS_TRY(ls_dataset_prepare(dataset));
    if (!out)
        return ls_fail(LS_ERR_INVALID, "ls_dataset_has_rows: out is NULL");
    *out = dataset->base != NULL;
    return LS_OK;
}

ls_status ls_dataset_classes(ls_dataset *dataset, const char *const **names, int64_t *count)
{
    LS_TRY(ls_dataset_prepare(dataset));
    if (!names || !count)
        return ls_fail(LS_ERR_INVALID, "ls_dataset_classes: names or count is NULL");
    *names = dataset->classes;
    *count = dataset->class_count;
    return LS_OK;
}

ls_status ls_dataset_left_out(ls_dataset *dataset, int64_t *count, const char **lines)
{
    LS_TRY(ls_dataset_prepare(dataset));
    if (!count || !lines)
        return ls_fail(LS_ERR_INVALID, "ls_dataset_left_out: count or lines is NULL");
    *count = dataset->left_out;
    *lines = dataset->left_out_lines ? dataset->left_out_lines : "";
    return LS_OK;
}

/* ---- Splits ---- */

/* `what`: "a validation split" or "a fold" */
static ls_status check_split(const ls_dataset *d, const char *what)
{
    if (d->spec.batch > 0)
        return ls_fail(LS_ERR_INVALID, "%s takes samples, but the dataset is batched: split it before ls_batch", what);
    if (d->shuffles > 0)
        return ls_fail(LS_ERR_INVALID, "%s of shuffled data would change every epoch: split it before ls_shuffle",
                       what);
    if (d->count < 0)
        return ls_fail(LS_ERR_INVALID, "%s needs a known number of samples; that of this dataset is %s", what,
                       d->count == LS_INFINITE ? "infinite" : "unknown");
    return LS_OK;
}

ls_status ls_dataset_split(ls_dataset *dataset, double fraction, ls_dataset **train, ls_dataset **validation)
{
    LS_OWN_FP_MODE;
    LS_TRY(ls_dataset_prepare(dataset));
    if (!train || !validation)
        return ls_fail(LS_ERR_INVALID, "ls_dataset_split: train or validation is NULL");
    if (!(fraction > 0 && fraction < 1))
        return ls_fail(LS_ERR_INVALID, "the validation split must be above 0 and below 1 (got %g)", fraction);
    LS_TRY(check_split(dataset, "a validation split"));
    /* Same arithmetic as Keras. */
    int64_t first = (int64_t)((double)dataset->count * (1.0 - fraction));
    if (first < 1 || first >= dataset->count)
        return ls_fail(LS_ERR_INVALID,
                       "a validation split of %g of %lld samples leaves %lld for training and %lld for validation",
                       fraction, (long long)dataset->count, (long long)first, (long long)(dataset->count - first));
    *train = ls_take(ls_dataset_share(dataset), first);
    *validation = ls_skip(ls_dataset_share(dataset), first);
    return LS_OK;
}

/* n * index / folds, without overflow. */
static int64_t fold_begin(int64_t n, int64_t folds, int64_t index)
{
    return n / folds * index + n % folds * index / folds;
}

ls_status ls_dataset_fold(ls_dataset *dataset, int64_t folds, int64_t index, ls_dataset **train,
                          ls_dataset **validation)
{
    LS_TRY(ls_dataset_prepare(dataset));
    if (!train || !validation)
        return ls_fail(LS_ERR_INVALID, "ls_dataset_fold: train or validation is NULL");
    LS_TRY(check_split(dataset, "a fold"));
    if (folds < 2 || folds > dataset->count || folds > INT32_MAX)
        return ls_fail(LS_ERR_INVALID, "the number of folds must be from 2 to the number of samples, %lld (got %lld)",
                       (long long)dataset->count, (long long)folds);
    if (index < 0 || index >= folds)
        return ls_fail(LS_ERR_INVALID, "the index of a fold must be from 0 to %lld (got %lld)", (long long)(folds - 1),
                       (long long)index);
    int64_t first = fold_begin(dataset->count, folds, index), end = fold_begin(dataset->count, folds, index + 1);
    *train = ls_leave_out(ls_dataset_share(dataset), first, end);
    *validation = ls_take(ls_skip(ls_dataset_share(dataset), first), end - first);
    return LS_OK;
}
