/* --data: its flags, images in the model's size, and tables with the columns of training. */
#include "tool/tool.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TABLE_ENDING      ".table.json"
#define CHARACTERS_ENDING ".tokenizer.json"
#define TEXT_PREFIX       "text:"
#define CHARACTERS        ",tokenizer=chars"
#define MOST_CLASSES      20 /* classes whose names are printed */

static bool is_folder(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

static bool has_images(const char *data)
{
    return is_folder(data) || ls_ends_with(data, ".tar");
}

static bool is_table(const char *data)
{
    return ls_ends_with(data, ".csv") || ls_ends_with(data, ".tsv");
}

static ls_status read_image_size(const char *text, int64_t size[2])
{
    if (tool_read_numbers(text, 'x', 1, 65535, size, 2) != 2)
        return ls_fail(LS_ERR_INVALID, "--image-size %s: expected height and width from 1 to 65535, as in 96x96", text);
    return LS_OK;
}

ls_status tool_check_data_flags(const tool_settings *settings)
{
    int64_t size[2];
    const char *image = settings->image_size ? "--image-size" : settings->skip_broken ? "--skip-broken" : NULL;
    const char *table = settings->label          ? "--label"
                        : settings->drop_columns ? "--drop-columns"
                        : settings->text_columns ? "--text-columns"
                        : settings->missing      ? "--missing"
                        : settings->table        ? "--table"
                                                 : NULL;
    if (image && !has_images(settings->data))
        return ls_fail(LS_ERR_INVALID, "%s is for a folder of images or .tar files; --data %s is neither", image,
                       settings->data);
    if (table && !is_table(settings->data))
        return ls_fail(LS_ERR_INVALID, "%s is for tables; --data %s is not a .csv or .tsv file", table, settings->data);
    if (settings->table && (settings->label || settings->drop_columns || settings->text_columns || settings->missing))
        return ls_fail(LS_ERR_INVALID, "%s cannot be used with --table %s, which already has it", table,
                       settings->table);
    return settings->image_size ? read_image_size(settings->image_size, size) : LS_OK;
}

/* Images get the size of the model's input [N,height,width,channels], unless a flag gives it. */
static ls_status image_options(const tool_settings *settings, const tool_session *session, ls_image_options *out)
{
    *out = (ls_image_options){ .skip_broken = settings->skip_broken };
    ls_shape input = ls_model_input_shape(session->model, 0);
    if (input.rank == 4 && (input.dims[3] == 1 || input.dims[3] == 3))
        out->channels = input.dims[3];
    if (settings->image_size)
        return read_image_size(settings->image_size, out->size);
    if (input.rank == 4 && input.dims[1] > 0 && input.dims[2] > 0) {
        out->size[0] = input.dims[1];
        out->size[1] = input.dims[2];
    }
    return LS_OK;
}

/* Searches for "weights.table.json", then for table.json in the folder of a checkpoint. */
static bool find_beside(const char *weights, const char *ending, char out[PATH_MAX])
{
    char folder[PATH_MAX];
    if (snprintf(out, PATH_MAX, "%s%s", weights, ending) < PATH_MAX && access(out, F_OK) == 0)
        return true;
    snprintf(folder, sizeof folder, "%s", weights);
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(folder, '/');
        if (slash)
            *slash = '\0';
        if (snprintf(out, PATH_MAX, "%s/%s", slash ? folder : ".", ending + 1) < PATH_MAX && access(out, F_OK) == 0)
            return true;
        if (!slash)
            break;
    }
    return false;
}

/* Names the file beside weights that are saved to `path`, or in the folder `path`. */
static ls_status name_beside(const char *path, const char *ending, char out[PATH_MAX])
{
    bool folder = is_folder(path);
    if (snprintf(out, PATH_MAX, "%s%s%s", path, folder ? "/" : "", ending + folder) >= PATH_MAX)
        return ls_fail(LS_ERR_IO, "'%s': the path is too long", path);
    return LS_OK;
}

/* ---- Characters ---- */

/* Returns the place of CHARACTERS in the name of a text; NULL: its characters are not learned. */
static const char *learned_characters(const char *data)
{
    const char *at = strncmp(data, TEXT_PREFIX, strlen(TEXT_PREFIX)) == 0 ? strstr(data, CHARACTERS) : NULL;
    return at && strchr(",", at[strlen(CHARACTERS)]) ? at : NULL;
}

static ls_status save_characters(const char *data, const char *name)
{
    ls_tokenizer *tokenizer = NULL;
    char path[PATH_MAX], *text = NULL;
    size_t bytes = 0;
    snprintf(path, sizeof path, "%.*s", (int)strcspn(data, ","), data);
    LS_TRY(ls_file_read(path, SIZE_MAX, &text, &bytes));
    ls_status status = ls_tokenizer_from_characters(text, bytes, &tokenizer);
    if (status == LS_OK)
        status = ls_tokenizer_save(tokenizer, name);
    ls_tokenizer_destroy(tokenizer);
    free(text);
    return status;
}

bool tool_learns_characters(const tool_settings *settings)
{
    return settings->data && learned_characters(settings->data);
}

/* evaluate and predict use the characters of training. *out is NULL if none are saved. */
static ls_status use_saved_characters(const tool_settings *settings, char **out)
{
    const char *at = learned_characters(settings->data);
    char path[PATH_MAX];
    ls_text name = { 0 };
    *out = NULL;
    if (!at || !find_beside(settings->weights ? settings->weights : settings->model, CHARACTERS_ENDING, path))
        return LS_OK;
    ls_text_put_bytes(&name, settings->data, (size_t)(at - settings->data));
    ls_text_add(&name, ",tokenizer=%s%s", path, at + strlen(CHARACTERS));
    return ls_text_take(&name, out);
}

/* ---- Tables ---- */

/* Loads the columns that another file was read with; *out stays NULL if there are none. */
static ls_status open_table(const tool_settings *settings, tool_set taken, ls_table **out)
{
    char path[PATH_MAX];
    if (!is_table(settings->data))
        return LS_OK;
    if (settings->table)
        return ls_fail_within(ls_table_load(settings->table, out), "--table");
    if (taken == TOOL_SET_TEST &&
        find_beside(settings->weights ? settings->weights : settings->model, TABLE_ENDING, path))
        return ls_table_load(path, out);
    return LS_OK;
}

ls_status tool_save_learned(const tool_settings *settings, const tool_session *session, const char *path)
{
    char table[PATH_MAX], characters[PATH_MAX];
    LS_TRY(name_beside(path, TABLE_ENDING, table));
    LS_TRY(name_beside(path, CHARACTERS_ENDING, characters));
    if (session->table)
        LS_TRY(ls_table_save(session->table, table));
    else if (!is_folder(path)) /* it describes weights that are replaced */
        unlink(table);
    if (tool_learns_characters(settings))
        return save_characters(settings->data + strlen(TEXT_PREFIX), characters);
    if (!is_folder(path))
        unlink(characters);
    return LS_OK;
}

/* ---- Opening ---- */

static ls_status load(const tool_settings *settings, tool_session *session, tool_set taken, ls_table *table)
{
    char *name = NULL;
    ls_load_options options = {
        .train = settings->set == TOOL_SET_TEST ? NULL : &session->train,
        .test = settings->set == TOOL_SET_TRAIN ? NULL : &session->test,
        .columns = { .label = settings->label,
                     .drop = settings->drop_columns,
                     .text = settings->text_columns,
                     .missing = (ls_missing)settings->missing,
                     .take = settings->take,
                     .validation_split = settings->validation_split },
        .table = table,
        .learned = &session->table,
    };
    LS_TRY(image_options(settings, session, &options.image));
    if (taken == TOOL_SET_TEST)
        LS_TRY(use_saved_characters(settings, &name));
    ls_status status = ls_load_data_with(session->ctx, name ? name : settings->data, options);
    free(name);
    LS_TRY(status);
    if (session->table && taken == TOOL_SET_TEST)
        return ls_fail(LS_ERR_INVALID,
                       "--data %s: the columns that training learned are not beside --weights; give the file that "
                       "train wrote with --table FILE" TABLE_ENDING,
                       settings->data);
    return LS_OK;
}

ls_status tool_load_data(const tool_settings *settings, tool_session *session, tool_set taken)
{
    ls_table *table = NULL;
    if (tool_has_model_sizes(settings->data))
        return tool_open_synthetic(settings, session);
    LS_TRY(open_table(settings, taken, &table));
    ls_status status = load(settings, session, taken, table);
    if (table && status == LS_OK && taken != TOOL_SET_TEST)
        session->table = table; /* saved with the weights */
    else
        ls_table_destroy(table);
    if (status == LS_OK && session->table && settings->data_worker > 0)
        return ls_fail(LS_ERR_INVALID,
                       "--data-worker %" PRId64 ": a table must be read by worker 0, which saves its columns",
                       settings->data_worker);
    return status;
}

/* ---- Printing ---- */

static ls_status print_classes(ls_dataset *data, const ls_model *model)
{
    ls_shape shape = ls_model_output_shape(model, 0);
    int64_t outputs = shape.rank == 2 ? shape.dims[1] : 0;
    const char *const *names;
    int64_t count;
    LS_TRY(ls_dataset_classes(data, &names, &count));
    if (count == 0)
        return LS_OK;
    printf("%" PRId64 " class%s: ", count, count == 1 ? "" : "es");
    for (int64_t i = 0; i < count && i < MOST_CLASSES; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s", names[i]);
        ls_make_printable(name, strlen(name));
        printf("%s%s", i ? ", " : "", name);
    }
    if (count > MOST_CLASSES)
        printf(" and %" PRId64 " more", count - MOST_CLASSES);
    printf("\n");
    if (outputs > count)
        printf("the model has %" PRId64 " outputs; --head %" PRId64 " gives it one for each class\n", outputs, count);
    return LS_OK;
}

static ls_status print_left_out(ls_dataset *data)
{
    const char *lines;
    int64_t count;
    if (!data)
        return LS_OK;
    LS_TRY(ls_dataset_left_out(data, &count, &lines));
    if (count == 0)
        return LS_OK;
    printf("left out %" PRId64 " broken file%s:\n", count, count == 1 ? "" : "s");
    char *copy = strdup(lines);
    if (!copy)
        return ls_fail(LS_ERR_MEMORY, "no memory for the names of files");
    tool_print_lines(copy);
    free(copy);
    return LS_OK;
}

ls_status tool_print_data(tool_session *session)
{
    char *text = NULL;
    if (session->table) {
        LS_TRY(ls_table_describe(session->table, &text));
        tool_print_lines(text);
        free(text);
    } else {
        LS_TRY(print_classes(session->train, session->model));
    }
    LS_TRY(print_left_out(session->train));
    return print_left_out(session->test);
}
