/* Tables as JSON files, and as text for people. */
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/fpmode.h"
#include "base/json.h"
#include "base/status.h"
#include "base/text.h"
#include "data/table.h"

#define FORMAT     1
#define MOST_SHOWN 8 /* values that a description lists */

static const char *const kind_names[LS_COLUMN_KINDS] = { "number", "text", "class", "integer", "real" };

/* ---- Writing ---- */

static void put_column(ls_text *text, const ls_column *c)
{
    ls_text_put(text, "{\"name\":");
    ls_text_put_json(text, c->name);
    ls_text_add(text, ",\"kind\":\"%s\"", kind_names[c->kind]);
    if (c->kind == LS_COLUMN_NUMBER) {
        const double numbers[] = { c->median, c->mean, c->deviation };
        static const char *const names[] = { "median", "mean", "deviation" };
        for (int i = 0; i < 3; i++) {
            ls_text_add(text, ",\"%s\":", names[i]);
            ls_text_put_f64(text, numbers[i]);
        }
    }
    for (size_t i = 0; i < c->value_count; i++) {
        ls_text_put(text, i ? "," : ",\"values\":[");
        ls_text_put_json(text, c->values[i]);
    }
    ls_text_put(text, c->value_count ? "]}" : "}");
}

ls_status ls_table_save(const ls_table *table, const char *path)
{
    LS_OWN_FP_MODE;
    ls_text text = { 0 };
    if (!table || !path)
        return ls_fail(LS_ERR_INVALID, "ls_table_save: table or path is NULL");
    ls_text_add(&text, "{\"lockstep_table\":%d,\n\"header\":%s,\n\"missing\":\"%s\",\n\"columns\":[\n", FORMAT,
                table->has_header ? "true" : "false", table->missing == LS_MISSING_ERROR ? "error" : "fill");
    for (size_t i = 0; i < table->count; i++) {
        put_column(&text, &table->columns[i]);
        ls_text_put(&text, i + 1 < table->count ? ",\n" : "],\n\"label\":");
    }
    put_column(&text, &table->label);
    ls_text_put(&text, "}\n");
    ls_status status = text.failed ? ls_fail(LS_ERR_MEMORY, "no memory for the text of '%s'", path)
                                   : ls_file_write(path, ls_text_get(&text), text.length);
    ls_text_free(&text);
    return status;
}

/* ---- Reading ---- */

static ls_status read_values(const ls_json_at *at, ls_column *c)
{
    ls_json_at list, one;
    const char *text;
    LS_TRY(ls_json_get_array(at, "values", &list));
    size_t count = ls_json_count(&list);
    c->values = calloc(count + 1, sizeof *c->values);
    if (!c->values)
        return ls_fail(LS_ERR_MEMORY, "no memory for %zu values of a column", count);
    for (; c->value_count < count; c->value_count++) {
        LS_TRY(ls_json_element(&list, c->value_count, &one));
        LS_TRY(ls_json_string(&one, &text));
        if (c->value_count > 0 && strcmp(c->values[c->value_count - 1], text) >= 0)
            return ls_json_fail(&one, LS_ERR_DATA, "expected values sorted by their bytes, each once");
        c->values[c->value_count] = strdup(text);
        if (!c->values[c->value_count])
            return ls_fail(LS_ERR_MEMORY, "no memory for %zu values of a column", count);
    }
    return count > 0 ? LS_OK : ls_json_fail(&list, LS_ERR_DATA, "expected at least one value");
}

static ls_status read_column(const ls_json_at *at, bool is_label, ls_column *c)
{
    static const char *const keys[] = { "name", "kind", "median", "mean", "deviation", "values" };
    const char *name, *kind;
    LS_TRY(ls_json_is_object(at));
    LS_TRY(ls_json_known_keys(at, keys, sizeof keys / sizeof *keys));
    LS_TRY(ls_json_get_string(at, "name", &name));
    LS_TRY(ls_json_get_string(at, "kind", &kind));
    c->name = strdup(name);
    c->deviation = 1;
    if (!c->name)
        return ls_fail(LS_ERR_MEMORY, "no memory for the name of a column");
    while (c->kind < LS_COLUMN_KINDS && strcmp(kind_names[c->kind], kind) != 0)
        c->kind++;
    if (c->kind == LS_COLUMN_KINDS || is_label != (c->kind >= LS_COLUMN_CLASS))
        return ls_json_fail(at, LS_ERR_DATA, "kind \"%.40s\"; expected %s", kind,
                            is_label ? "class, integer or real" : "number or text");
    if (c->kind == LS_COLUMN_TEXT || c->kind == LS_COLUMN_CLASS)
        return read_values(at, c);
    if (c->kind != LS_COLUMN_NUMBER)
        return LS_OK;
    LS_TRY(ls_json_get_f64(at, "median", &c->median));
    LS_TRY(ls_json_get_f64(at, "mean", &c->mean));
    LS_TRY(ls_json_get_f64(at, "deviation", &c->deviation));
    return c->deviation > 0 ? LS_OK : ls_json_fail(at, LS_ERR_DATA, "deviation must be above 0 (is %g)", c->deviation);
}

static ls_status read_table(const ls_json_at *root, ls_table *table)
{
    static const char *const keys[] = { "lockstep_table", "header", "missing", "columns", "label" };
    ls_json_at list, at;
    int64_t format;
    const char *missing;
    LS_TRY(ls_json_is_object(root));
    LS_TRY(ls_json_get_i64(root, "lockstep_table", &format));
    if (format != FORMAT)
        return ls_json_fail(root, LS_ERR_UNSUPPORTED, "format %lld of tables; only %d is supported", (long long)format,
                            FORMAT);
    LS_TRY(ls_json_known_keys(root, keys, sizeof keys / sizeof *keys));
    LS_TRY(ls_json_get_bool(root, "header", &table->has_header));
    LS_TRY(ls_json_get_string(root, "missing", &missing));
    table->missing = strcmp(missing, "error") == 0 ? LS_MISSING_ERROR : LS_MISSING_FILL;
    if (table->missing == LS_MISSING_FILL && strcmp(missing, "fill") != 0)
        return ls_json_fail(root, LS_ERR_DATA, "missing is \"%.40s\"; expected fill or error", missing);
    LS_TRY(ls_json_get_array(root, "columns", &list));
    size_t count = ls_json_count(&list);
    if (count == 0)
        return ls_json_fail(&list, LS_ERR_DATA, "expected at least one column");
    table->columns = calloc(count, sizeof *table->columns);
    if (!table->columns)
        return ls_fail(LS_ERR_MEMORY, "no memory for a table of %zu columns", count);
    while (table->count < count) {
        LS_TRY(ls_json_element(&list, table->count, &at));
        LS_TRY(read_column(&at, false, &table->columns[table->count++]));
    }
    LS_TRY(ls_json_get(root, "label", &at));
    return read_column(&at, true, &table->label);
}

ls_status ls_table_load(const char *path, ls_table **out)
{
    LS_OWN_FP_MODE;
    json_t *json = NULL;
    if (!path || !out)
        return ls_fail(LS_ERR_INVALID, "ls_table_load: path or out is NULL");
    LS_TRY(ls_json_read_file(path, &json));
    ls_table *table = calloc(1, sizeof *table);
    ls_status status = table ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for a table");
    if (table) {
        atomic_init(&table->handles, 1);
        ls_json_at root = ls_json_root(json, "table");
        status = ls_fail_within(read_table(&root, table), "'%s'", path);
    }
    json_decref(json);
    if (status == LS_OK)
        *out = table;
    else
        ls_table_destroy(table);
    return status;
}

/* ---- Text ---- */

static void describe_values(ls_text *text, const ls_column *c)
{
    for (size_t i = 0; i < c->value_count && i < MOST_SHOWN; i++) {
        char value[64]; /* one line, whatever the file has */
        snprintf(value, sizeof value, "%s", c->values[i][0] ? c->values[i] : "(missing)");
        ls_make_printable(value, strlen(value));
        ls_text_add(text, "%s%s", i ? ", " : ": ", value);
    }
    if (c->value_count > MOST_SHOWN)
        ls_text_add(text, " and %zu more", c->value_count - MOST_SHOWN);
}

static void describe_column(ls_text *text, const ls_column *c)
{
    ls_text_add(text, "  %s: ", c->name);
    switch (c->kind) {
    case LS_COLUMN_NUMBER:
        ls_text_add(text, "number, mean %.4g, standard deviation %.4g, median %.4g", c->mean, c->deviation, c->median);
        break;
    case LS_COLUMN_TEXT:
        ls_text_add(text, "text, %zu categor%s", c->value_count, c->value_count == 1 ? "y" : "ies");
        describe_values(text, c);
        break;
    case LS_COLUMN_CLASS:
        ls_text_add(text, "label, %zu class%s", c->value_count, c->value_count == 1 ? "" : "es");
        describe_values(text, c);
        break;
    case LS_COLUMN_INTEGER:
        ls_text_put(text, "label, integer");
        break;
    case LS_COLUMN_REAL:
    case LS_COLUMN_KINDS:
        ls_text_put(text, "label, number");
        break;
    }
    ls_text_put(text, "\n");
}

ls_status ls_table_describe(const ls_table *table, char **out)
{
    LS_OWN_FP_MODE;
    ls_text text = { 0 };
    if (!table || !out)
        return ls_fail(LS_ERR_INVALID, "ls_table_describe: table or out is NULL");
    ls_text_add(&text, "table: %zu column%s with %lld features\n", table->count + 1, table->count ? "s" : "",
                (long long)ls_table_width(table));
    for (size_t i = 0; i < table->count; i++)
        describe_column(&text, &table->columns[i]);
    describe_column(&text, &table->label);
    return ls_text_take(&text, out);
}
