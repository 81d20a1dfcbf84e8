/* Compares two weights files: elements by their bits, and reports how far they differ. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/fpmode.h"
#include "base/text.h"
#include "graph/claim.h"
#include "nn/weights.h"

typedef struct findings {
    ls_text *text;
    size_t tensors, different; /* in both files; different in any way */
    size_t in_one;             /* how many of the different ones are in one file only */
    int64_t elements;
    double largest; /* NaN: only one side is NaN */
    const char *name;
    char at[LS_SHAPE_TEXT];
} findings;

static double value_of(const ls_safetensors_entry *entry, int64_t index)
{
    switch (entry->dtype) {
    case LS_F32:
        return (double)((const float *)entry->data)[index];
    case LS_F64:
        return ((const double *)entry->data)[index];
    case LS_I32:
        return ((const int32_t *)entry->data)[index];
    case LS_I64:
        return (double)((const int64_t *)entry->data)[index];
    case LS_U8:
    case LS_BOOL:
    case LS_DTYPE_COUNT:
        break;
    }
    return ((const uint8_t *)entry->data)[index];
}

/* NaN if exactly one is. */
static double distance(double a, double b)
{
    if (isnan(a) && isnan(b))
        return 0;                    /* NaNs with different bits */
    return a == b ? 0 : fabs(a - b); /* also for equal infinities */
}

static bool is_farther(double a, double b)
{
    return isnan(a) ? !isnan(b) : a > b;
}

/* Formats the index of an element: "(0, 3, 1)". */
static void format_index(const ls_shape *shape, int64_t index, char out[LS_SHAPE_TEXT])
{
    ls_shape at = { .rank = shape->rank };
    for (int i = shape->rank - 1; i >= 0; i--) {
        at.dims[i] = index % shape->dims[i];
        index /= shape->dims[i];
    }
    ls_shape_format(&at, out);
}

static void put_value(ls_text *text, const ls_safetensors_entry *entry, int64_t index)
{
    if (entry->dtype == LS_I64)
        ls_text_add(text, "%" PRId64, ((const int64_t *)entry->data)[index]);
    else if (entry->dtype == LS_F64)
        ls_text_put_f64(text, value_of(entry, index));
    else
        ls_text_add(text, "%.9g", value_of(entry, index));
}

static void compare_elements(findings *f, const ls_safetensors_entry *a, const ls_safetensors_entry *b, int64_t count)
{
    int64_t differing = 0, worst = 0;
    double largest = 0;
    size_t item = ls_dtype_bytes(a->dtype);
    bool alike = a->dtype == b->dtype;
    for (int64_t i = 0; i < count; i++) {
        if (alike &&
            memcmp((const char *)a->data + i * (int64_t)item, (const char *)b->data + i * (int64_t)item, item) == 0)
            continue;
        double far = distance(value_of(a, i), value_of(b, i));
        if (!alike && far == 0)
            continue;
        if (differing++ == 0 || is_farther(far, largest)) {
            largest = far;
            worst = i;
        }
    }
    if (differing == 0 && alike)
        return;
    f->different++;
    ls_text_add(f->text, "\"%s\":", a->name);
    if (!alike)
        ls_text_add(f->text, " %s and %s;", ls_dtype_name(a->dtype), ls_dtype_name(b->dtype));
    ls_text_add(f->text, " %" PRId64 " of %" PRId64 " elements differ", differing, count);
    if (differing > 0) {
        char at[LS_SHAPE_TEXT];
        format_index(&a->shape, worst, at);
        ls_text_add(f->text, ", the most by %.6g at %s: ", largest, at);
        put_value(f->text, a, worst);
        ls_text_put(f->text, " and ");
        put_value(f->text, b, worst);
        if (!f->name || is_farther(largest, f->largest)) {
            f->largest = largest;
            f->name = a->name;
            memcpy(f->at, at, sizeof at);
        }
    }
    ls_text_put(f->text, "\n");
}

static void compare(findings *f, const ls_safetensors_entry *a, const ls_safetensors_entry *b)
{
    char shape_a[LS_SHAPE_TEXT], shape_b[LS_SHAPE_TEXT];
    int64_t count = 0;
    f->tensors++;
    if (!ls_shape_equal(&a->shape, &b->shape)) {
        f->different++;
        ls_text_add(f->text, "\"%s\": shapes %s and %s\n", a->name, ls_shape_format(&a->shape, shape_a),
                    ls_shape_format(&b->shape, shape_b));
        return;
    }
    ls_shape_count(&a->shape, 0, &count);
    f->elements += count;
    compare_elements(f, a, b, count);
}

static void only_in(findings *f, const char *path, const ls_safetensors_entry *entry)
{
    char shape[LS_SHAPE_TEXT];
    f->different++;
    f->in_one++;
    ls_text_add(f->text, "\"%s\" %s: only in %s\n", entry->name, ls_shape_format(&entry->shape, shape), path);
}

static void conclude(findings *f)
{
    if (f->different == 0) {
        ls_text_add(f->text, "equal bits: %zu tensors, %" PRId64 " elements\n", f->tensors, f->elements);
        return;
    }
    ls_text_add(f->text, "different: %zu of %zu tensors", f->different, f->tensors + f->in_one);
    if (f->name)
        ls_text_add(f->text, "; the largest difference is %.6g, in \"%s\" at %s", f->largest, f->name, f->at);
    ls_text_put(f->text, "\n");
}

typedef struct side {
    const char *path;
    const ls_safetensors_entry *entries;
    size_t count;
} side;

static const ls_safetensors_entry *find(const side *side, const char *name)
{
    for (size_t i = 0; i < side->count; i++)
        if (strcmp(side->entries[i].name, name) == 0)
            return &side->entries[i];
    return NULL;
}

/* Two layouts of one model have no names in common: no list of them. */
static void no_name_in_both(ls_text *text, const side *a, const side *b)
{
    ls_text_free(text);
    ls_text_add(text,
                "different: no name is in both: %s has %zu tensors (\"%s\"%s), %s has %zu (\"%s\"%s); compare files of "
                "different layouts as weights of a model (--model MODEL)\n",
                a->path, a->count, a->entries[0].name, a->count > 1 ? ", ..." : "", b->path, b->count,
                b->entries[0].name, b->count > 1 ? ", ..." : "");
}

static ls_status compare_sides(const side *a, const side *b, bool *equal, char **out)
{
    ls_text text = { 0 };
    findings f = { .text = &text };
    for (size_t i = 0; i < a->count; i++) {
        const ls_safetensors_entry *other = find(b, a->entries[i].name);
        if (other)
            compare(&f, &a->entries[i], other);
        else
            only_in(&f, a->path, &a->entries[i]);
    }
    for (size_t i = 0; i < b->count; i++)
        if (!find(a, b->entries[i].name))
            only_in(&f, b->path, &b->entries[i]);
    if (f.tensors == 0 && a->count > 0 && b->count > 0)
        no_name_in_both(&text, a, b);
    else
        conclude(&f);
    LS_TRY(ls_text_take(&text, out));
    *equal = f.different == 0;
    return LS_OK;
}

static ls_status open_side(const ls_model *model, const char *path, ls_weights *weights, side *out)
{
    if (model)
        LS_TRY(ls_weights_open(model, path, LS_LAYOUT_AUTO, weights));
    else
        LS_TRY(ls_tensors_open(path, &weights->file));
    *out = (side){ .path = path,
                   .entries = model ? weights->entries : weights->file.entries,
                   .count = model ? model->variable_count : weights->file.count };
    return LS_OK;
}

ls_status ls_weights_diff(const char *a, const char *b, const ls_model *model, bool *equal, char **out)
{
    LS_CLAIM(ls_model_claimed(model));
    LS_OWN_FP_MODE;
    ls_weights first = { 0 }, second = { 0 };
    side sides[2];
    if (!a || !b || !equal || !out)
        return ls_fail(LS_ERR_INVALID, "ls_weights_diff: a path or a result pointer is NULL");
    if (model)
        LS_TRY(ls_model_need_ready(model, "ls_weights_diff"));
    ls_status status = open_side(model, a, &first, &sides[0]);
    if (status == LS_OK)
        status = open_side(model, b, &second, &sides[1]);
    if (status == LS_OK)
        status = compare_sides(&sides[0], &sides[1], equal, out);
    ls_weights_close(&first);
    ls_weights_close(&second);
    return status;
}
