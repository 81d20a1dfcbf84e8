/* Datasets of image files: a folder for each class, or any list of files (image_set.h). Images are
 * decoded when they are needed, in threads, a batch ahead of training (on_demand.c). */
#include "data/image_set.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/grow.h"
#include "base/names.h"
#include "base/thread.h"
#include "data/stream.h"

#define MOST_BYTES   ((size_t)1 << 30) /* largest size of a file */
#define MOST_LINES   20                /* lines about files that are left out */
#define MOST_THREADS 16

/* ---- Lists of files ---- */

ls_status ls_image_set_add_file(ls_image_set *set, char *path)
{
    ls_status status = path ? ls_grow(&set->files, set->file_count, &set->file_room, sizeof *set->files)
                            : ls_fail(LS_ERR_MEMORY, "no memory for the names of images");
    if (status == LS_OK)
        set->files[set->file_count++] = path;
    else
        free(path);
    return status;
}

ls_status ls_image_set_add_item(ls_image_set *set, ls_image_item item)
{
    LS_TRY(ls_grow(&set->items, set->count, &set->room, sizeof *set->items));
    set->items[set->count++] = item;
    return LS_OK;
}

ls_status ls_image_set_broken(ls_image_set *set, ls_status status)
{
    if (!set->options.skip_broken || (status != LS_ERR_DATA && status != LS_ERR_UNSUPPORTED && status != LS_ERR_IO))
        return status;
    if (set->left_out++ < MOST_LINES)
        ls_text_add(&set->left_out_lines, "%s\n", ls_last_error());
    return LS_OK;
}

/* ---- Folders ---- */

static bool is_folder(const char *folder, const char *name)
{
    struct stat about;
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    return length > 0 && (size_t)length < sizeof path && stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Lists folders or files, sorted, without names that begin with a dot. */
static ls_status list_names(const char *folder, bool folders, char ***names, int64_t *count)
{
    size_t room = 0;
    *names = NULL;
    *count = 0;
    DIR *list = opendir(folder);
    if (!list)
        return ls_file_fail("open the folder", folder, errno);
    ls_status status = LS_OK;
    for (struct dirent *entry; status == LS_OK && (entry = readdir(list)) != NULL;) {
        if (entry->d_name[0] == '.' || is_folder(folder, entry->d_name) != folders)
            continue;
        status = ls_grow(names, (size_t)*count, &room, sizeof **names);
        char *copy = status == LS_OK ? strdup(entry->d_name) : NULL;
        if (copy)
            (*names)[(*count)++] = copy;
        else if (status == LS_OK)
            status = ls_fail(LS_ERR_MEMORY, "no memory for the names in '%s'", folder);
    }
    closedir(list);
    if (status != LS_OK) {
        ls_image_classes_free(*names, *count);
        *names = NULL;
    } else if (*count > 0) {
        qsort(*names, (size_t)*count, sizeof **names, by_bytes);
    }
    return status;
}

bool ls_has_folders(const char *path)
{
    char **names = NULL;
    int64_t count = 0;
    bool has = list_names(path, true, &names, &count) == LS_OK && count > 0;
    ls_image_classes_free(names, count);
    return has;
}

ls_status ls_image_classes(const char *path, char ***names, int64_t *count)
{
    LS_TRY(list_names(path, true, names, count));
    return *count > 0
               ? LS_OK
               : ls_fail(LS_ERR_DATA,
                         "'%s' has no folders; expected a folder of .jpg, .jpeg and .png files for each class", path);
}

void ls_image_classes_free(char **names, int64_t count)
{
    for (int64_t i = 0; names && i < count; i++)
        free(names[i]);
    free(names);
}

static bool is_image_name(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && (strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0 || strcasecmp(dot, ".png") == 0);
}

bool ls_has_images(const char *path)
{
    char **names = NULL;
    int64_t count = 0;
    bool has = false;
    if (list_names(path, false, &names, &count) != LS_OK)
        return false;
    for (int64_t i = 0; i < count; i++)
        has = has || is_image_name(names[i]);
    ls_image_classes_free(names, count);
    return has;
}

static ls_status add_image(ls_image_set *set, const char *folder, const char *name, int64_t label)
{
    ls_text path = { 0 };
    char *text = NULL;
    if (!is_image_name(name))
        return ls_image_set_broken(
            set, ls_fail(LS_ERR_DATA, "'%s/%s' is not an image: expected a name that ends in .jpg, .jpeg or .png",
                         folder, name));
    ls_text_add(&path, "%s/%s", folder, name);
    LS_TRY(ls_text_take(&path, &text));
    LS_TRY(ls_image_set_add_file(set, text));
    return ls_image_set_add_item(set, (ls_image_item){ .file = set->file_count - 1, .label = label });
}

static ls_status list_class(ls_image_set *set, const char *name)
{
    char **names;
    int64_t count, label = 0;
    char folder[PATH_MAX];
    while (label < set->class_count && strcmp(set->classes[label], name) != 0)
        label++;
    if (label == set->class_count)
        return ls_fail(LS_ERR_DATA, "'%s/%s' is the folder of a class that the training set does not have%s", set->path,
                       name, ls_advise_name(name, (const char *const *)set->classes, (size_t)set->class_count).text);
    if (snprintf(folder, sizeof folder, "%s/%s", set->path, name) >= (int)sizeof folder)
        return ls_fail(LS_ERR_DATA, "'%.200s': the path is too long", set->path);
    LS_TRY(list_names(folder, false, &names, &count));
    ls_status status = LS_OK;
    for (int64_t i = 0; i < count && status == LS_OK; i++)
        status = add_image(set, folder, names[i], label);
    ls_image_classes_free(names, count);
    return status;
}

static ls_status list_folder(ls_image_set *set)
{
    char **names;
    int64_t count;
    LS_TRY(ls_image_classes(set->path, &names, &count));
    ls_status status = LS_OK;
    if (set->class_count == 0) {
        set->classes = names;
        set->class_count = count;
    }
    for (int64_t i = 0; i < count && status == LS_OK; i++)
        status = list_class(set, names[i]);
    if (names != set->classes)
        ls_image_classes_free(names, count);
    return status;
}

/* ---- One image ---- */

/* Regular files only: a pipe would block a thread. */
static ls_status read_item(const ls_image_set *set, const ls_image_item *item, uint8_t **bytes, size_t *count)
{
    ls_data_file file;
    LS_TRY(ls_data_file_open(set->files[item->file], &file));
    uint64_t whole = item->bytes > 0 ? item->bytes : file.bytes;
    ls_status status = LS_OK;
    if (whole > MOST_BYTES)
        status = ls_fail(LS_ERR_DATA, "'%s': an image of %llu bytes; at most %zu are accepted", file.path,
                         (unsigned long long)whole, MOST_BYTES);
    else if (!(*bytes = malloc((size_t)whole + 1)))
        status =
            ls_fail(LS_ERR_MEMORY, "'%s': no memory for an image of %llu bytes", file.path, (unsigned long long)whole);
    else if (whole > 0)
        status = ls_data_file_at(&file, item->offset, *bytes, (size_t)whole, "an image");
    *count = (size_t)whole;
    ls_data_file_close(&file);
    return status;
}

static ls_status decode_item(const ls_image_set *set, const ls_image_item *item, int64_t channels, bool only_size,
                             ls_image *out)
{
    const char *path = set->files[item->file];
    uint8_t *bytes = NULL;
    size_t count = 0;
    char name[PATH_MAX + 32];
    if (item->bytes > 0)
        snprintf(name, sizeof name, "%s', byte %llu: the image", path, (unsigned long long)item->offset);
    ls_status status = read_item(set, item, &bytes, &count);
    if (status == LS_OK)
        status = ls_image_decode(item->bytes > 0 ? name : path, bytes, count, channels, only_size, out);
    free(bytes);
    return status;
}

static ls_status make_image(const ls_dataset *d, int64_t row, ls_slot *slot)
{
    const ls_image_set *set = d->u.images;
    const ls_image_item *item = &set->items[row];
    ls_array *to = &slot->element.component[0];
    ls_image image;
    LS_TRY(decode_item(set, item, set->options.channels, false, &image));
    ls_image_resize(&image, to->shape.dims[0], to->shape.dims[1], to->data);
    free(image.pixels);
    *(int64_t *)slot->element.component[1].data = item->label;
    return LS_OK;
}

/* ---- Looking at every image first ---- */

typedef struct finding {
    ls_status status;
    char *message; /* NULL: the image is good, or there was no memory */
} finding;

typedef struct check {
    const ls_image_set *set;
    pthread_mutex_t mutex;
    size_t next;
    finding *findings; /* one for each item */
} check;

static void *check_images(void *user)
{
    check *c = user;
    for (;;) {
        ls_image image;
        pthread_mutex_lock(&c->mutex);
        size_t at = c->next++;
        pthread_mutex_unlock(&c->mutex);
        if (at >= c->set->count)
            return NULL;
        finding *f = &c->findings[at];
        f->status = decode_item(c->set, &c->set->items[at], c->set->options.channels, false, &image);
        if (f->status == LS_OK)
            free(image.pixels);
        else
            f->message = strdup(ls_last_error());
    }
}

static void run_checks(check *c, int threads)
{
    pthread_t list[MOST_THREADS];
    int started = 0;
    while (started < threads - 1 && ls_thread_start(&list[started], check_images, c) == 0)
        started++;
    check_images(c);
    for (int i = 0; i < started; i++)
        pthread_join(list[i], NULL);
}

static ls_status leave_out_broken(ls_image_set *set, int threads)
{
    check c = { .set = set, .findings = calloc(set->count, sizeof *c.findings) };
    if (!c.findings)
        return ls_fail(LS_ERR_MEMORY, "no memory to check %zu images", set->count);
    pthread_mutex_init(&c.mutex, NULL);
    run_checks(&c, threads);
    pthread_mutex_destroy(&c.mutex);
    size_t kept = 0;
    ls_status status = LS_OK;
    for (size_t i = 0; i < set->count; i++) {
        const finding *f = &c.findings[i];
        if (f->status == LS_OK)
            set->items[kept++] = set->items[i];
        else if (status == LS_OK)
            status = ls_image_set_broken(set, ls_fail(f->status, "%s", f->message ? f->message : "a broken image"));
        free(f->message);
    }
    free(c.findings);
    set->count = kept;
    return status;
}

/* ---- The dataset ---- */

static int count_threads(const ls_image_options *options)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int most = options->threads > 0 ? options->threads : (int)cores;
    return most < 1 ? 1 : most > MOST_THREADS ? MOST_THREADS : most;
}

/* Sizes that are not given are those of the first image. */
static ls_status choose_sizes(ls_image_set *set)
{
    ls_image_options *o = &set->options;
    ls_image first;
    if (o->size[0] > 0 && o->size[1] > 0 && o->channels > 0)
        return LS_OK;
    LS_TRY(decode_item(set, &set->items[0], o->channels, true, &first));
    if (o->size[0] == 0 || o->size[1] == 0) {
        o->size[0] = first.height;
        o->size[1] = first.width;
    }
    o->channels = first.channels;
    return LS_OK;
}

static ls_status prepare_images(ls_dataset *d)
{
    ls_image_set *set = d->u.images;
    int threads = count_threads(&set->options);
    LS_TRY(set->list(set));
    if (set->options.skip_broken && set->count > 0)
        LS_TRY(leave_out_broken(set, threads));
    if (set->count == 0)
        return ls_fail(LS_ERR_DATA, "'%s' has no images%s", set->path,
                       set->left_out ? ": all files were left out as broken" : "");
    LS_TRY(choose_sizes(set));
    const ls_image_options *o = &set->options;
    d->spec = LS_ELEMENT(LS_SPEC(LS_U8, LS_SHAPE(o->size[0], o->size[1], o->channels)), LS_SPEC(LS_I64, LS_SCALAR));
    d->count = (int64_t)set->count;
    d->maker = d;
    d->make_threads = threads;
    d->classes = (const char *const *)set->classes;
    d->class_count = set->class_count;
    d->left_out = set->left_out;
    d->left_out_lines = ls_text_get(&set->left_out_lines);
    return ls_element_spec_check(&d->spec, false, d->type->name);
}

static void destroy_images(ls_dataset *d)
{
    ls_image_set *set = d->u.images;
    if (!set)
        return;
    for (size_t i = 0; i < set->file_count; i++)
        free(set->files[i]);
    ls_image_classes_free(set->classes, set->class_count);
    ls_text_free(&set->left_out_lines);
    free(set->files);
    free(set->items);
    free(set->path);
    free(set);
}

static const ls_dataset_type type_images = { .name = "ls_from_image_folder",
                                             .prepare = prepare_images,
                                             .destroy = destroy_images,
                                             .state_bytes = sizeof(int64_t),
                                             .next = ls_next_row,
                                             .make = make_image,
                                             .index_of = ls_same_index };

static ls_status check_options(const char *name, const char *path, const ls_image_options *o)
{
    if (!path)
        return ls_fail(LS_ERR_INVALID, "%s: the path is NULL", name);
    if (o->size[0] < 0 || o->size[1] < 0 || (o->size[0] == 0) != (o->size[1] == 0) || o->size[0] > 65535 ||
        o->size[1] > 65535)
        return ls_fail(LS_ERR_INVALID, "%s: the size is %lld x %lld; give height and width from 1 to 65535, or neither",
                       name, (long long)o->size[0], (long long)o->size[1]);
    if (o->channels != 0 && o->channels != 1 && o->channels != 3)
        return ls_fail(LS_ERR_INVALID, "%s: %lld channels; 1 (grey) and 3 (colours) are supported", name,
                       (long long)o->channels);
    if (o->threads < 0)
        return ls_fail(LS_ERR_INVALID, "%s: the number of threads must be at least 0 (got %d)", name, o->threads);
    if (o->class_count < 0 || (o->class_count > 0 && !o->classes))
        return ls_fail(LS_ERR_INVALID, "%s: class_count is %lld, but classes is NULL", name, (long long)o->class_count);
    for (int64_t i = 0; i < o->class_count; i++)
        if (!o->classes[i])
            return ls_fail(LS_ERR_INVALID, "%s: the name of class %lld is NULL", name, (long long)i);
    return LS_OK;
}

static ls_status fill_set(ls_image_set *set, const char *path, const ls_image_options *o)
{
    set->options = *o;
    set->path = strdup(path);
    set->classes = calloc((size_t)o->class_count + 1, sizeof *set->classes);
    bool failed = !set->path || !set->classes;
    for (; !failed && set->class_count < o->class_count; set->class_count += !failed) {
        set->classes[set->class_count] = strdup(o->classes[set->class_count]);
        failed = !set->classes[set->class_count];
    }
    if (!failed && o->class_count == 0) {
        free(set->classes);
        set->classes = NULL;
    }
    return failed ? ls_fail(LS_ERR_MEMORY, "no memory for a dataset of images") : LS_OK;
}

ls_dataset *ls_from_image_set(const char *name, const char *path, ls_status (*list)(ls_image_set *set),
                              const ls_image_options *options)
{
    ls_dataset *d = ls_dataset_node(&type_images, NULL);
    if (ls_dataset_is_lost(d))
        return d;
    ls_status status = check_options(name, path, options);
    if (status == LS_OK) {
        d->u.images = calloc(1, sizeof *d->u.images);
        status = d->u.images ? fill_set(d->u.images, path, options) : ls_fail(LS_ERR_MEMORY, "no memory for a dataset");
    }
    if (status != LS_OK)
        return ls_dataset_fail(d, status, "%s", ls_last_error());
    d->u.images->list = list;
    return d;
}

ls_dataset *ls_from_image_folder_with(const char *path, ls_image_options options)
{
    return ls_from_image_set("ls_from_image_folder", path, list_folder, &options);
}
