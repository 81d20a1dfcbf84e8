/* Datasets by name: the training and test parts are read on first use. */
#include <limits.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fpmode.h"
#include "base/names.h"
#include "base/text.h"
#include "data/dataset.h"
#include "data/image_set.h"
#include "data/readers.h"
#include "data/text_set.h"
#include "device/context.h"
#include "graph/shape.h"

#define PARTS 2 /* training and test */

static const char *const part_names[PARTS] = { "train", "test" };

typedef struct part_source {
    ls_status (*read)(const struct part_source *source, ls_array *features, ls_array *labels);
    int part;
    char features[PATH_MAX], labels[PATH_MAX]; /* file paths, or names in the archive */
    char archive[PATH_MAX];
    ls_synthetic synthetic;
    ls_dataset *made; /* the dataset itself, which reads its files when it is first used; then `read` is NULL */
} part_source;

/* ---- Reading ---- */

static ls_status read_idx(const part_source *p, ls_array *features, ls_array *labels)
{
    char text[LS_SHAPE_TEXT];
    LS_TRY(ls_idx_read(p->features, features));
    LS_TRY(ls_idx_read(p->labels, labels));
    if (labels->shape.rank != 1)
        return ls_fail(LS_ERR_DATA, "'%s': labels of shape %s; expected one axis", p->labels,
                       ls_shape_format(&labels->shape, text));
    return LS_OK;
}

static ls_status read_npz(const part_source *p, ls_array *features, ls_array *labels)
{
    LS_TRY(ls_npz_read(p->archive, p->features, features));
    return ls_npz_read(p->archive, p->labels, labels);
}

static ls_status read_synthetic(const part_source *p, ls_array *features, ls_array *labels)
{
    return ls_synthetic_make(&p->synthetic, (uint32_t)p->part, features, labels);
}

static bool is_finite(const ls_array *array, int64_t i)
{
    return array->dtype == LS_F32 ? isfinite(((const float *)array->data)[i])
                                  : isfinite(((const double *)array->data)[i]);
}

/* Reports NaN and infinity here, where the element can be named, not later in a loss. */
static ls_status check_finite(const char *name, const ls_array *array)
{
    int64_t count = 0;
    if (array->dtype != LS_F32 && array->dtype != LS_F64)
        return LS_OK;
    ls_shape_count(&array->shape, 0, &count);
    for (int64_t i = 0; i < count; i++)
        if (!is_finite(array, i))
            return ls_fail(LS_ERR_NOT_FINITE, "'%s': element %lld, of sample %lld, is NaN or infinite", name,
                           (long long)i, (long long)(i / (count / array->shape.dims[0])));
    return LS_OK;
}

static ls_status check_part(const part_source *p, const ls_array *features, const ls_array *labels)
{
    char a[LS_SHAPE_TEXT], b[LS_SHAPE_TEXT];
    if (features->shape.rank < 2 || labels->shape.rank < 1)
        return ls_fail(LS_ERR_DATA, "'%s' has shape %s and '%s' %s: expected an axis of samples and one of features",
                       p->features, ls_shape_format(&features->shape, a), p->labels,
                       ls_shape_format(&labels->shape, b));
    if (features->shape.dims[0] != labels->shape.dims[0])
        return ls_fail(LS_ERR_DATA, "'%s' has %lld samples, but '%s' has %lld labels", p->features,
                       (long long)features->shape.dims[0], p->labels, (long long)labels->shape.dims[0]);
    LS_TRY(check_finite(p->features, features));
    return check_finite(p->labels, labels);
}

static ls_status load(void *state, ls_element *out)
{
    const part_source *p = state;
    ls_array features = { .data = NULL }, labels = { .data = NULL };
    ls_status status = p->read(p, &features, &labels);
    if (status == LS_OK)
        status = check_part(p, &features, &labels);
    if (status != LS_OK) {
        free(features.data);
        free(labels.data);
        return status;
    }
    if (features.dtype == LS_U8 && features.shape.rank == 3) /* images without a channel axis */
        features.shape.dims[features.shape.rank++] = 1;
    out->count = 2;
    out->component[0] = features;
    out->component[1] = labels;
    return LS_OK;
}

/* ---- IDX files in folders ---- */

static const char *const file_names[PARTS][2] = {
    { "train-images-idx3-ubyte", "train-labels-idx1-ubyte" },
    { "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte" },
};

/* "-idx3" may also be written ".idx3". */
static bool find_file(const char *folder, const char *name, char out[PATH_MAX])
{
    static const char *const endings[] = { "", ".gz" };
    for (int dotted = 0; dotted < 2; dotted++) {
        for (int ending = 0; ending < 2; ending++) {
            int length = snprintf(out, PATH_MAX, "%s/%s%s", folder, name, endings[ending]);
            if (length < 0 || length >= PATH_MAX)
                return false;
            if (dotted)
                *strstr(out + strlen(folder), "-idx") = '.';
            if (access(out, F_OK) == 0)
                return true;
        }
    }
    return false;
}

/* Lists missing files in `missing`. */
static void find_parts(const char *folder, const bool wanted[PARTS], part_source sources[PARTS], ls_text *missing)
{
    for (int part = 0; part < PARTS; part++) {
        for (int i = 0; wanted[part] && i < 2; i++) {
            const char *name = file_names[part][i];
            if (!find_file(folder, name, i == 0 ? sources[part].features : sources[part].labels))
                ls_text_add(missing, "%s%s", missing->length ? ", " : "", name);
        }
        sources[part].read = read_idx;
    }
}

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static ls_status find_idx_folder(const char *folder, const bool wanted[PARTS], part_source sources[PARTS])
{
    ls_text missing = { 0 };
    find_parts(folder, wanted, sources, &missing);
    ls_status status = LS_OK;
    if (missing.length || missing.failed)
        status =
            ls_fail(LS_ERR_NOT_FOUND, "the folder '%s' has no %s (plain or with .gz)", folder, ls_text_get(&missing));
    ls_text_free(&missing);
    return status;
}

/* ---- Known datasets ---- */

#define MOST_FOLDERS 4

typedef struct known_set {
    const char *name;
    const char *folder; /* folder of its Debian package, or NULL */
    const char *hint;
} known_set;

static const known_set known_sets[] = {
    { "fashion-mnist", "/usr/share/datasets/fashion-mnist",
      "Debian's package dataset-fashion-mnist has them (apt install dataset-fashion-mnist); or set LOCKSTEP_DATA to a "
      "folder with them" },
    { "mnist", NULL,
      "No Debian package has them: put the four files into one of these folders, or set LOCKSTEP_DATA to a folder with "
      "them" },
};

/* Lists the folders to search, in order. */
static int list_folders(const known_set *set, char folders[MOST_FOLDERS][PATH_MAX])
{
    const char *data = getenv("LOCKSTEP_DATA"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int count = 0;
    if (data && *data) {
        snprintf(folders[count++], PATH_MAX, "%s/%s", data, set->name);
        snprintf(folders[count++], PATH_MAX, "%s", data);
    }
    if (cache && *cache)
        snprintf(folders[count++], PATH_MAX, "%s/lockstep/%s", cache, set->name);
    else if (home && *home)
        snprintf(folders[count++], PATH_MAX, "%s/.cache/lockstep/%s", home, set->name);
    if (set->folder)
        snprintf(folders[count++], PATH_MAX, "%s", set->folder);
    return count;
}

static ls_status fail_known(const known_set *set, const bool wanted[PARTS], ls_text *searched)
{
    ls_text files = { 0 };
    for (int part = 0; part < PARTS; part++)
        for (int i = 0; wanted[part] && i < 2; i++)
            ls_text_add(&files, "%s%s", files.length ? ", " : "", file_names[part][i]);
    ls_status status =
        ls_fail(LS_ERR_NOT_FOUND, "cannot find %s: its files are %s (plain or with .gz); searched: %s. %s.", set->name,
                ls_text_get(&files), searched->length ? ls_text_get(searched) : "no folder", set->hint);
    ls_text_free(&files);
    return status;
}

static ls_status find_known(const known_set *set, const bool wanted[PARTS], part_source sources[PARTS])
{
    char(*folders)[PATH_MAX] = malloc(MOST_FOLDERS * sizeof *folders);
    if (!folders)
        return ls_fail(LS_ERR_MEMORY, "no memory to look for %s", set->name);
    ls_text searched = { 0 };
    bool found = false;
    int count = list_folders(set, folders);
    for (int i = 0; i < count && !found; i++) {
        ls_text missing = { 0 };
        find_parts(folders[i], wanted, sources, &missing);
        found = !missing.length && !missing.failed;
        if (!is_folder(folders[i]))
            ls_text_add(&searched, "%s%s (no such folder)", i ? "; " : "", folders[i]);
        else
            ls_text_add(&searched, "%s%s (without %s)", i ? "; " : "", folders[i], ls_text_get(&missing));
        ls_text_free(&missing);
    }
    ls_status status = found ? LS_OK : fail_known(set, wanted, &searched);
    ls_text_free(&searched);
    free(folders);
    return status;
}

/* ---- Any name ---- */

static ls_status find_npz(const char *path, bool wanted[PARTS], part_source sources[PARTS])
{
    bool has_test = true;
    if (wanted[1])
        LS_TRY(ls_npz_has(path, "x_test", &has_test));
    wanted[1] = wanted[1] && has_test;
    for (int part = 0; part < PARTS; part++) {
        snprintf(sources[part].features, PATH_MAX, "x_%s", part_names[part]);
        snprintf(sources[part].labels, PATH_MAX, "y_%s", part_names[part]);
        snprintf(sources[part].archive, PATH_MAX, "%s", path);
        sources[part].read = read_npz;
    }
    return LS_OK;
}

/* Learns from the file, unless another file's table is given. */
static ls_status find_table(const char *path, const ls_load_options *options, part_source *source)
{
    ls_table *table = NULL;
    if (!options->table)
        LS_TRY(ls_table_create_with(path, options->columns, &table));
    source->made = ls_from_table(options->table ? options->table : table, path);
    if (options->learned)
        *options->learned = table;
    else
        ls_table_destroy(table);
    return LS_OK;
}

/* A .csv file of numbers, for which no columns are named, is read as it is: ls_csv_read. */
static ls_status find_csv(const char *path, const ls_load_options *options, bool wanted[PARTS],
                          part_source sources[PARTS])
{
    const ls_table_options *columns = &options->columns;
    ls_array features = { .data = NULL }, labels = { .data = NULL };
    snprintf(sources[0].features, PATH_MAX, "%s", path);
    wanted[1] = false;
    if (!wanted[0])
        return LS_OK;
    if (!ls_ends_with(path, ".csv") || options->table || columns->label || columns->drop || columns->text ||
        columns->missing == LS_MISSING_ERROR)
        return find_table(path, options, &sources[0]);
    ls_status status = ls_csv_read(path, &features, &labels);
    if (status == LS_ERR_DATA)
        return find_table(path, options, &sources[0]);
    LS_TRY(status);
    sources[0].made = ls_from_tensor_slices(features, labels, .keep = LS_KEEP_OWNED);
    return LS_OK;
}

/* "x.npy,y.npy", or one array without labels. */
static ls_status find_array_files(const char *name, bool wanted[PARTS], part_source sources[PARTS])
{
    const char *comma = strchr(name, ',');
    char features[PATH_MAX];
    snprintf(sources[0].features, PATH_MAX, "%s", name);
    snprintf(features, sizeof features, "%.*s", comma ? (int)(comma - name) : PATH_MAX - 1, name);
    wanted[1] = false;
    if (wanted[0])
        sources[0].made = ls_from_array_files(features, comma ? comma + 1 : NULL);
    return LS_OK;
}

static ls_status find_shards(const char *name, const ls_load_options *options, bool wanted[PARTS],
                             part_source sources[PARTS])
{
    snprintf(sources[0].features, PATH_MAX, "%s", name);
    wanted[1] = false;
    if (wanted[0])
        sources[0].made = ls_from_image_shards_with(name, options->image);
    return LS_OK;
}

/* photos/{train,test}/CLASS/FILE, or photos/CLASS/FILE. The classes of the test set have the
 * numbers of those of the training set. */
static ls_status find_images(const char *folder, const ls_load_options *options, bool wanted[PARTS],
                             part_source sources[PARTS])
{
    ls_image_options image = options->image;
    char **names = NULL;
    int64_t count = 0;
    char path[PATH_MAX];
    bool parted = snprintf(path, sizeof path, "%s/train", folder) < (int)sizeof path && is_folder(path);
    if (!image.classes)
        LS_TRY(ls_image_classes(parted ? path : folder, &names, &count));
    image.classes = names ? (const char *const *)names : image.classes;
    image.class_count = names ? count : image.class_count;
    for (int part = 0; part < PARTS; part++) {
        snprintf(sources[part].features, PATH_MAX, "%.*s%s%s", PATH_MAX - 8, folder, parted ? "/" : "",
                 parted ? part_names[part] : "");
        wanted[part] = wanted[part] && (part == 0 || (parted && is_folder(sources[part].features)));
        if (wanted[part])
            sources[part].made = ls_from_image_folder_with(sources[part].features, image);
    }
    ls_image_classes_free(names, count);
    return LS_OK;
}

static ls_status find_synthetic(const char *name, part_source sources[PARTS])
{
    for (int part = 0; part < PARTS; part++) {
        LS_TRY(ls_synthetic_parse(name, &sources[part].synthetic));
        snprintf(sources[part].features, PATH_MAX, "%.200s", name);
        sources[part].read = read_synthetic;
    }
    return LS_OK;
}

static ls_status find_text(const char *name, bool wanted[PARTS], part_source sources[PARTS])
{
    ls_dataset *parts[PARTS] = { NULL, NULL };
    LS_TRY(ls_text_by_name(name, wanted, parts));
    for (int part = 0; part < PARTS; part++) {
        snprintf(sources[part].features, PATH_MAX, "%s", name);
        sources[part].made = parts[part];
        wanted[part] = parts[part] != NULL;
    }
    return LS_OK;
}

static ls_status find_folder(const char *folder, const ls_load_options *options, bool wanted[PARTS],
                             part_source sources[PARTS])
{
    if (!ls_has_folders(folder) && ls_has_images(folder))
        return ls_fail(LS_ERR_DATA,
                       "the folder '%s' has images, but no folder for each class; move them to '%s/CLASS' (for "
                       "predictions, any name of a class will do)",
                       folder, folder);
    return ls_has_folders(folder) ? find_images(folder, options, wanted, sources)
                                  : find_idx_folder(folder, wanted, sources);
}

/* Clears wanted[1] if the dataset has no test part. */
static ls_status find(const char *name, const ls_load_options *options, bool wanted[PARTS], part_source sources[PARTS])
{
    static const char *const names[] = { "fashion-mnist", "mnist", "synthetic:", LS_TEXT_PREFIX };
    if (strlen(name) >= PATH_MAX)
        return ls_fail(LS_ERR_INVALID, "the name has %zu characters; at most %d are possible", strlen(name),
                       PATH_MAX - 1);
    if (strncmp(name, "synthetic:", strlen("synthetic:")) == 0)
        return find_synthetic(name, sources);
    if (strncmp(name, LS_TEXT_PREFIX, strlen(LS_TEXT_PREFIX)) == 0)
        return find_text(name, wanted, sources);
    for (size_t i = 0; i < sizeof known_sets / sizeof *known_sets; i++)
        if (strcmp(name, known_sets[i].name) == 0)
            return find_known(&known_sets[i], wanted, sources);
    if (is_folder(name))
        return find_folder(name, options, wanted, sources);
    if (ls_ends_with(name, ".npz"))
        return find_npz(name, wanted, sources);
    if (ls_ends_with(name, ".csv") || ls_ends_with(name, ".tsv"))
        return find_csv(name, options, wanted, sources);
    if (ls_ends_with(name, ".npy") || strchr(name, ',') || strstr(name, ".safetensors:"))
        return find_array_files(name, wanted, sources);
    if (ls_ends_with(name, ".tar"))
        return find_shards(name, options, wanted, sources);
    return ls_fail(
        LS_ERR_NOT_FOUND,
        "no data named '%s': it is not a folder, .npz, .npy, .csv, .tsv or .tar file; give fashion-mnist, mnist, a "
        "FOLDER of images or IDX files, FILE.npz, X.npy,Y.npy, FILE.csv, FILE.tsv, shards-{000..009}.tar, "
        "text:FILE,context=256 or synthetic:224x224x3,classes=1000,count=64%s",
        name, ls_suggest_name(name, names, sizeof names / sizeof *names).text);
}

static ls_status make_part(const part_source *found, int part, ls_dataset **out)
{
    if (found->made) {
        *out = found->made;
        return LS_OK;
    }
    part_source *state = malloc(sizeof *state);
    if (!state)
        return ls_fail(LS_ERR_MEMORY, "no memory for a dataset");
    *state = *found;
    state->part = part;
    *out = ls_dataset_from_loader(load, state, free);
    return LS_OK;
}

static void log_part(ls_context *ctx, const char *name, const part_source *p, const ls_dataset *d)
{
    char text[LS_SHAPE_TEXT];
    if (ctx)
        ls_log_write(&ctx->log, LS_LOG_INFO, "data %s: %lld training samples, %s %s, from %s", name,
                     (long long)d->count, ls_dtype_name(d->spec.component[0].dtype),
                     ls_shape_format(&d->spec.component[0].shape, text),
                     p->read == read_npz ? p->archive : p->features);
}

static ls_status load_parts(ls_context *ctx, const char *name, const ls_load_options *options, bool wanted[PARTS],
                            part_source sources[PARTS], ls_dataset *sets[PARTS])
{
    LS_TRY(find(name, options, wanted, sources));
    for (int part = 0; part < PARTS; part++)
        if (wanted[part])
            LS_TRY(make_part(&sources[part], part, &sets[part]));
    if (sets[0]) {
        LS_TRY(ls_dataset_prepare(sets[0]));
        log_part(ctx, name, &sources[0], sets[0]);
    }
    return LS_OK;
}

ls_status ls_load_data_with(ls_context *ctx, const char *name, ls_load_options options)
{
    LS_OWN_FP_MODE;
    bool wanted[PARTS] = { options.train != NULL, options.test != NULL };
    ls_dataset *sets[PARTS] = { NULL, NULL };
    if (!name)
        return ls_fail(LS_ERR_INVALID, "ls_load_data: the name is NULL");
    part_source *sources = calloc(PARTS, sizeof *sources);
    if (!sources)
        return ls_fail(LS_ERR_MEMORY, "no memory to look for '%.200s'", name);
    if (options.learned)
        *options.learned = NULL;
    ls_status status = load_parts(ctx, name, &options, wanted, sources, sets);
    free(sources);
    if (status != LS_OK) {
        ls_dataset_destroy(sets[0]);
        ls_dataset_destroy(sets[1]);
        if (options.learned) {
            ls_table_destroy(*options.learned);
            *options.learned = NULL;
        }
        return status;
    }
    if (options.train)
        *options.train = sets[0];
    if (options.test)
        *options.test = sets[1];
    return LS_OK;
}
