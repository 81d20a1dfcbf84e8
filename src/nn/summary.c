/* The table of a model's layers as Keras 3 prints it on a terminal of 80 columns, except that
 * columns grow instead of truncating. */
#include <string.h>

#include "base/fpmode.h"
#include "base/text.h"
#include "graph/claim.h"
#include "nn/model.h"

enum { LAYER, SHAPE, PARAMS, FROM, COLUMNS };

typedef struct row {
    char *text[COLUMNS]; /* lines separated by newlines */
} row;

typedef struct table {
    row *rows;
    size_t count, room;
    int columns;
    size_t width[COLUMNS];
} table;

static const char *const heads[COLUMNS] = { "Layer (type)", "Output Shape", "Param #", "Connected to" };

/* ---- Text pieces ---- */

static void put_count(ls_text *text, int64_t value) /* 25,636,712 */
{
    if (value >= 1000) {
        put_count(text, value / 1000);
        ls_text_add(text, ",%03lld", (long long)(value % 1000));
    } else {
        ls_text_add(text, "%lld", (long long)value);
    }
}

static void put_bytes(ls_text *text, double bytes) /* 97.80 MB */
{
    static const char *const units[] = { "B", "KB", "MB", "GB", "TB", "PB" };
    int unit = 0;
    for (; unit < 5 && bytes / 1024 >= 1; unit++)
        bytes /= 1024;
    ls_text_add(text, "%.2f %s", bytes, units[unit]);
}

static void put_shape(ls_text *text, const ls_shape *shape) /* (None, 28, 28, 1) */
{
    ls_text_put(text, "(");
    for (int i = 0; i < shape->rank; i++) {
        ls_text_put(text, i ? ", " : "");
        if (shape->dims[i] == LS_BATCH)
            ls_text_put(text, "None");
        else
            ls_text_add(text, "%lld", (long long)shape->dims[i]);
    }
    ls_text_put(text, shape->rank == 1 ? ",)" : ")");
}

/* ---- Rows ---- */

/* One per line: a[0][0], b[1][0]: layer, number of its call, and of its output. */
static void put_connections(ls_text *text, const ls_model *model, const ls_model_layer *layer)
{
    bool any = false;
    for (size_t c = 0; c < model->call_count; c++)
        for (size_t i = 0; model->calls[c].layer == layer && i < model->calls[c].input_count; i++) {
            const ls_model_call *from = &model->calls[model->calls[c].inputs[i]];
            ls_text_add(text, "%s%s[%lld][%d]", any ? ",\n" : "", from->layer->name, (long long)from->number,
                        from->output);
            any = true;
        }
    if (!any)
        ls_text_put(text, "-");
}

/* One shape, or a list with one per line. */
static void put_output(ls_text *text, const ls_model_layer *layer)
{
    size_t count = ls_model_layer_outputs(layer);
    if (count == 1) {
        put_shape(text, &layer->output);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        ls_text_put(text, i ? ",\n" : "[");
        put_shape(text, &layer->inner->output_shapes[i]);
    }
    ls_text_put(text, "]");
}

static ls_status add_row(table *t, const ls_model *model, const ls_model_layer *layer)
{
    ls_text text[COLUMNS] = { { 0 } };
    ls_status status = ls_grow(&t->rows, t->count, &t->room, sizeof(*t->rows));
    if (status != LS_OK)
        return status;
    row *r = &t->rows[t->count];
    *r = (row){ { NULL } };
    ls_text_add(&text[LAYER], "%s (%s)", layer->name,
                layer->spec.kind == LS_LAYER_NONE ? "Weight" : ls_model_layer_class(layer));
    put_output(&text[SHAPE], layer);
    put_count(&text[PARAMS], ls_model_layer_parameters(model, layer));
    if (t->columns > FROM)
        put_connections(&text[FROM], model, layer);
    t->count++;
    for (int c = 0; c < t->columns; c++) {
        ls_status taken = ls_text_take(&text[c], &r->text[c]);
        status = status == LS_OK ? taken : status;
    }
    return status;
}

/* Longest piece that cannot be broken: a line, or a name or its type. */
static size_t widest(const char *text, bool breaks)
{
    size_t most = 0;
    while (*text) {
        size_t length = strcspn(text, breaks ? "\n " : "\n");
        most = length > most ? length : most;
        text += length + (text[length] != 0);
    }
    return most;
}

static void measure(table *t)
{
    /* Keras's widths */
    static const size_t sequential[] = { 31, 22, 13 }, functional[] = { 19, 17, 10, 17 };
    for (int c = 0; c < t->columns; c++) {
        t->width[c] = t->columns > FROM ? functional[c] : sequential[c];
        for (size_t r = 0; r < t->count; r++) {
            size_t need = widest(t->rows[r].text[c], c == LAYER);
            t->width[c] = need > t->width[c] ? need : t->width[c];
        }
    }
    /* a name that does not fit next to its type goes on the line above it */
    for (size_t r = 0; r < t->count; r++) {
        char *text = t->rows[r].text[LAYER];
        if (strlen(text) > t->width[LAYER])
            *strrchr(text, ' ') = '\n';
    }
}

/* ---- Lines ---- */

static void put_rule(ls_text *text, const table *t, const char *left, const char *line, const char *cross,
                     const char *right)
{
    ls_text_put(text, left);
    for (int c = 0; c < t->columns; c++) {
        ls_text_put(text, c ? cross : "");
        for (size_t i = 0; i < t->width[c] + 2; i++)
            ls_text_put(text, line);
    }
    ls_text_put(text, right);
    ls_text_put(text, "\n");
}

static void put_cell(ls_text *text, const char *start, size_t length, size_t width, bool right)
{
    ls_text_put(text, " ");
    if (right)
        ls_text_pad(text, width - length);
    ls_text_put_bytes(text, start, length);
    if (!right)
        ls_text_pad(text, width - length);
    ls_text_put(text, " ");
}

static void put_row(ls_text *text, const table *t, const char *const cells[COLUMNS], const char *bar)
{
    const char *at[COLUMNS];
    memcpy(at, cells, sizeof(at));
    for (bool more = true; more;) {
        more = false;
        for (int c = 0; c < t->columns; c++) {
            size_t length = strcspn(at[c], "\n");
            ls_text_put(text, bar);
            put_cell(text, at[c], length, t->width[c], c == PARAMS);
            at[c] += length + (at[c][length] != 0);
            more = more || *at[c];
        }
        ls_text_add(text, "%s\n", bar);
    }
}

static void put_table(ls_text *text, const table *t)
{
    put_rule(text, t, "┏", "━", "┳", "┓");
    put_row(text, t, heads, "┃");
    put_rule(text, t, "┡", "━", "╇", "┩");
    for (size_t r = 0; r < t->count; r++) {
        if (r > 0)
            put_rule(text, t, "├", "─", "┼", "┤");
        const char *cells[COLUMNS] = { t->rows[r].text[0], t->rows[r].text[1], t->rows[r].text[2], t->rows[r].text[3] };
        put_row(text, t, cells, "│");
    }
    put_rule(text, t, "└", "─", "┴", "┘");
}

/* ---- The table ---- */

/* Keras omits "Connected to" if each layer follows the previous one. */
static bool is_chain(const ls_model *model)
{
    int before = -1;
    if (model->kind != LS_MODEL_FUNCTIONAL)
        return true;
    for (size_t c = 0; c < model->call_count; c++) {
        const ls_model_call *at = &model->calls[c];
        if (at->output > 0)
            continue;
        if (at->number > 0 || at->input_count > 1 || (c == 0) != (at->input_count == 0) ||
            (c > 0 && (at->inputs[0] - model->calls[at->inputs[0]].output) != before))
            return false;
        before = (int)c;
    }
    return true;
}

/* Traces the model in a temporary graph. */
static ls_status cost(ls_model *model, double *flops, double *bytes)
{
    ls_graph *draft;
    ls_call call;
    ls_tensor **tensors = calloc(model->input_count + model->output_count, sizeof(ls_tensor *));
    if (!tensors)
        return ls_fail(LS_ERR_MEMORY, "no memory for a summary");
    ls_status status = ls_graph_create(model->context, &draft);
    if (status == LS_OK) {
        ls_call_begin(&call, model, draft, false, true);
        status = ls_model_make_inputs(model, draft, tensors);
        if (status == LS_OK)
            status = ls_model_run_calls(model, &call, tensors, tensors + model->input_count);
        for (size_t i = 0; i < draft->node_count; i++)
            *flops += draft->nodes[i]->per_sample ? ls_node_flops(draft->nodes[i]) : 0;
        *bytes = call.activation_bytes;
        ls_call_end(&call);
        ls_graph_destroy(draft);
    }
    free(tensors);
    return status;
}

static void put_total(ls_text *text, const char *what, int64_t count)
{
    ls_text_add(text, " %s: ", what);
    put_count(text, count);
    ls_text_put(text, " (");
    put_bytes(text, (double)count * (double)sizeof(float));
    ls_text_put(text, ")\n");
}

static ls_status fill(table *t, ls_model *model)
{
    for (size_t i = 0; i < model->layer_count; i++)
        if (ls_model_owns(model, model->layers[i]) &&
            (model->kind == LS_MODEL_FUNCTIONAL || model->layers[i]->spec.kind != LS_LAYER_INPUT))
            LS_TRY(add_row(t, model, model->layers[i]));
    return LS_OK;
}

ls_status ls_model_summary(ls_model *model, char **out)
{
    LS_CLAIM(ls_model_claimed(model));
    LS_OWN_FP_MODE;
    double flops = 0, bytes = 0;
    LS_TRY(ls_model_need_ready(model, "ls_model_summary"));
    if (!out)
        return ls_fail(LS_ERR_INVALID, "ls_model_summary: the text pointer (out) is NULL");
    LS_TRY(cost(model, &flops, &bytes));
    table t = { .columns = is_chain(model) ? FROM : COLUMNS };
    ls_text text = { 0 };
    ls_status status = fill(&t, model);
    if (status == LS_OK) {
        int64_t all = ls_model_parameter_count(model), trained = 0, count;
        for (size_t i = 0; i < model->variable_count; i++)
            if (ls_model_variable_is_trainable(model, i) &&
                ls_shape_count(&ls_model_variable(model, i)->shape, 1, &count))
                trained += count;
        measure(&t);
        ls_text_add(&text, "Model: \"%s\"\n", model->name);
        put_table(&text, &t);
        put_total(&text, "Total params", all);
        put_total(&text, "Trainable params", trained);
        put_total(&text, "Non-trainable params", all - trained);
        ls_text_put(&text, " FLOPs per sample, forward: ");
        put_count(&text, (int64_t)flops);
        ls_text_put(&text, "\n Activations per sample: ");
        put_bytes(&text, bytes);
        ls_text_put(&text, "\n");
        status = ls_text_take(&text, out);
    }
    ls_text_free(&text);
    for (size_t r = 0; r < t.count; r++)
        for (int c = 0; c < COLUMNS; c++)
            free(t.rows[r].text[c]);
    free(t.rows);
    return status;
}
