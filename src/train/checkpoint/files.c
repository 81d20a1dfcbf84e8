/* Folders of checkpoints: each is complete or absent. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/grow.h"
#include "base/numbers.h"
#include "nn/model.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/state_list.h"

#define STEP_NAME   "step-%08" PRId64
#define OLD         ".old"
#define TEMPORARY   ".step-" /* begins names of folders that are being written or removed */
#define STATE_LIMIT ((size_t)64 << 20)

/* ---- Names ---- */

/* "step-00000500" or "step-00000500.old". */
static bool parse_name(const char *name, ls_named_checkpoint *out)
{
    char digits[24];
    if (strncmp(name, "step-", 5) != 0)
        return false;
    size_t count = strspn(name + 5, "0123456789");
    if (count < 8 || count >= sizeof(digits))
        return false;
    snprintf(digits, sizeof(digits), "%.*s", (int)count, name + 5);
    const char *rest = name + 5 + count;
    out->replaced = strcmp(rest, OLD) == 0;
    return (out->replaced || *rest == '\0') && ls_parse_i64(digits, &out->step);
}

static void checkpoint_path(const char *dir, const ls_named_checkpoint *named, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%s/" STEP_NAME "%s", dir, named->step, named->replaced ? OLD : "");
}

/* The longest name in the folder must fit. */
static ls_status check_length(const char *dir)
{
    if (strlen(dir) + 128 > PATH_MAX)
        return ls_fail(LS_ERR_INVALID, "the name of the folder for checkpoints is too long (%zu bytes)", strlen(dir));
    return LS_OK;
}

static int newest_first(const void *a, const void *b)
{
    const ls_named_checkpoint *x = a, *y = b;
    if (x->step != y->step)
        return x->step < y->step ? 1 : -1;
    return (int)x->replaced - (int)y->replaced;
}

ls_status ls_checkpoints_list(const char *dir, ls_named_checkpoint **out, size_t *count)
{
    ls_named_checkpoint *list = NULL, found;
    size_t n = 0, room = 0;
    LS_TRY(check_length(dir));
    *out = NULL;
    *count = 0;
    DIR *folder = opendir(dir);
    if (!folder)
        return errno == ENOENT ? LS_OK : ls_fail(LS_ERR_IO, "cannot read the folder '%s': %s", dir, strerror(errno));
    ls_status status = LS_OK;
    for (struct dirent *entry; status == LS_OK && (entry = readdir(folder)) != NULL;) {
        if (!parse_name(entry->d_name, &found))
            continue;
        status = ls_grow(&list, n, &room, sizeof(*list));
        if (status == LS_OK)
            list[n++] = found;
    }
    closedir(folder);
    if (status != LS_OK) {
        free(list);
        return status;
    }
    if (n > 1)
        qsort(list, n, sizeof(*list), newest_first);
    *out = list;
    *count = n;
    return LS_OK;
}

/* ---- Reading ---- */

void ls_checkpoint_close(ls_checkpoint *c)
{
    if (!c)
        return;
    json_decref(c->state);
    ls_safetensors_close(c->model);
    ls_safetensors_close(c->optimizer);
    free(c);
}

static ls_status join(const char *path, const char *name, char out[PATH_MAX])
{
    int length = snprintf(out, PATH_MAX, "%s/%s", path, name);
    return length > 0 && length < PATH_MAX ? LS_OK : ls_fail(LS_ERR_INVALID, "the path '%s' is too long", path);
}

static ls_status open_state(ls_checkpoint *c, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) /* a FIFO would block */
        return ls_fail(LS_ERR_DATA, "'%s' is not a regular file", path);
    LS_TRY(ls_file_read(path, STATE_LIMIT, &text, &bytes));
    ls_status status = ls_state_parse(path, text, bytes, &c->state);
    free(text);
    if (status == LS_OK)
        c->step = json_integer_value(json_object_get(c->state, "step"));
    return status;
}

static ls_status open_tensors(const ls_checkpoint *c, const char *name, const char *path, ls_safetensors **out)
{
    const json_t *about = json_object_get(json_object_get(c->state, "files"), name);
    const char *expected = json_string_value(json_object_get(about, "sha256"));
    size_t size = (size_t)json_integer_value(json_object_get(about, "bytes")), bytes = 0;
    char hex[65];
    LS_TRY(ls_file_sha256(path, hex, &bytes));
    if (bytes != size)
        return ls_fail(LS_ERR_DATA, "'%s' is damaged: it has %zu bytes, but " LS_CHECKPOINT_STATE " says %zu", path,
                       bytes, size);
    if (strcmp(hex, expected) != 0)
        return ls_fail(LS_ERR_DATA, "'%s' was changed: its SHA-256 is %s, but " LS_CHECKPOINT_STATE " says %s", path,
                       hex, expected);
    return ls_safetensors_open(path, out);
}

ls_status ls_checkpoint_open_files(const char *name, const ls_checkpoint_paths *paths, ls_checkpoint **out)
{
    ls_checkpoint *c = calloc(1, sizeof(*c));
    if (!c)
        return ls_fail(LS_ERR_MEMORY, "no memory to open '%s'", name);
    snprintf(c->path, sizeof(c->path), "%s", name);
    ls_status status = open_state(c, paths->state);
    if (status == LS_OK)
        status = open_tensors(c, LS_CHECKPOINT_MODEL, paths->model, &c->model);
    if (status == LS_OK)
        status = open_tensors(c, LS_CHECKPOINT_OPTIMIZER, paths->optimizer, &c->optimizer);
    if (status == LS_OK)
        *out = c;
    else
        ls_checkpoint_close(c);
    return status;
}

static ls_status open_checkpoint(const char *path, ls_checkpoint **out)
{
    ls_checkpoint_paths paths;
    LS_TRY(join(path, LS_CHECKPOINT_MODEL, paths.model));
    LS_TRY(join(path, LS_CHECKPOINT_OPTIMIZER, paths.optimizer));
    LS_TRY(join(path, LS_CHECKPOINT_STATE, paths.state));
    return ls_checkpoint_open_files(path, &paths, out);
}

static ls_status find_newest(const char *dir, ls_logger *log, ls_checkpoint **out)
{
    ls_named_checkpoint *list = NULL;
    size_t count = 0;
    char path[PATH_MAX], newest[PATH_MAX] = "";
    ls_error first = { .status = LS_OK };
    LS_TRY(ls_checkpoints_list(dir, &list, &count));
    ls_status status = LS_OK;
    for (size_t i = 0; i < count; i++) {
        checkpoint_path(dir, &list[i], path);
        status = open_checkpoint(path, out);
        if (status == LS_OK || status == LS_ERR_MEMORY)
            break;
        ls_log_write(log, LS_LOG_WARNING, "skipping the checkpoint '%s': %s", path, ls_last_error());
        if (i == 0) {
            ls_error_keep(&first, status);
            snprintf(newest, sizeof(newest), "%s", path);
        }
    }
    free(list);
    if (count == 0 || status == LS_OK || status == LS_ERR_MEMORY)
        return status;
    return ls_fail(first.status, "none of the %zu checkpoints in '%s' is complete; the newest is '%s': %.1000s", count,
                   dir, newest, first.message);
}

static bool has_state(const char *path)
{
    char name[PATH_MAX];
    return join(path, LS_CHECKPOINT_STATE, name) == LS_OK && access(name, F_OK) == 0;
}

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

ls_status ls_checkpoint_find(const char *from, ls_logger *log, ls_checkpoint **out)
{
    ls_named_checkpoint named;
    *out = NULL;
    LS_TRY(check_length(from));
    if (has_state(from) || parse_name(last_name(from), &named))
        return ls_fail_within(open_checkpoint(from, out), "the checkpoint '%s'", from);
    return find_newest(from, log, out);
}

/* ---- Writing ---- */

/* Removes only the files of a checkpoint. Allocates no memory, because there may be none. */
static void remove_folder(const ls_file_ops *ops, const char *path)
{
    static const char *const names[] = { LS_CHECKPOINT_STATE, LS_CHECKPOINT_OPTIMIZER, LS_CHECKPOINT_MODEL };
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        char name[PATH_MAX];
        int length = snprintf(name, sizeof(name), "%s/%s", path, names[i]);
        if (length > 0 && (size_t)length < sizeof(name))
            ops->unlink(ops->user, name);
    }
    ops->rmdir(ops->user, path);
}

static ls_status temporary_path(const char *dir, int64_t step, const char *what, char out[PATH_MAX])
{
    int length = snprintf(out, PATH_MAX, "%s/" TEMPORARY "%08" PRId64 ".%ld.%s.tmp", dir, step, (long)getpid(), what);
    return length > 0 && length < PATH_MAX ? LS_OK : ls_fail(LS_ERR_INVALID, "the path '%s' is too long", dir);
}

static bool is_temporary(const char *name)
{
    size_t length = strlen(name);
    return strncmp(name, TEMPORARY, strlen(TEMPORARY)) == 0 && length > 4 && strcmp(name + length - 4, ".tmp") == 0;
}

/* With callback states that are too large for JSON in the optimizer's file. */
static size_t pick_entries(const ls_content *content, ls_state_entry_kind kind, ls_safetensors_entry *out)
{
    size_t count = 0;
    const json_t *state = json_object_get(content->state, "state");
    for (size_t i = 0; i < content->snapshot->count; i++) {
        const ls_state_entry_bytes *k = &content->snapshot->entry[i];
        size_t prefix = kind == LS_STATE_SLOT ? content->prefix : 0;
        if (k->kind == kind)
            out[count++] = (ls_safetensors_entry){
                .name = k->name + prefix, .dtype = k->dtype, .shape = k->shape, .data = k->bytes
            };
        else if (kind == LS_STATE_SLOT && k->kind == LS_STATE_CALLBACK &&
                 json_is_object(json_object_get(state, k->name)))
            out[count++] = (ls_safetensors_entry){
                .name = k->name, .dtype = LS_U8, .shape = LS_SHAPE((int64_t)k->count), .data = k->bytes
            };
    }
    return count;
}

static ls_status note_file(json_t *files, const char *name, const char *hex, size_t bytes)
{
    json_t *about = json_object();
    if (json_object_set_new(files, name, about) != 0 ||
        json_object_set_new(about, "bytes", json_integer((json_int_t)bytes)) != 0 ||
        json_object_set_new(about, "sha256", json_string(hex)) != 0)
        return ls_fail(LS_ERR_MEMORY, "no memory for the state of a checkpoint");
    return LS_OK;
}

static ls_status write_tensors(const ls_file_ops *ops, const char *folder, const char *name, ls_state_entry_kind kind,
                               const ls_content *content, json_t *files, size_t *total)
{
    static const ls_safetensors_pair metadata[] = { { "format", "lockstep" } };
    ls_safetensors_entry *entries = calloc(content->snapshot->count + 1, sizeof(*entries));
    ls_file_part *parts = NULL;
    char path[PATH_MAX], hex[65];
    size_t bytes = 0;
    if (!entries)
        return ls_fail(LS_ERR_MEMORY, "no memory for the names of %zu tensors", content->snapshot->count);
    size_t count = pick_entries(content, kind, entries);
    ls_status status = join(folder, name, path);
    if (status == LS_OK)
        status = ls_safetensors_make(path, entries, count, metadata, 1, &parts);
    if (status == LS_OK)
        status = ls_ops_write_file(ops, path, parts, count + 1, hex, &bytes);
    ls_safetensors_free_parts(parts);
    free(entries);
    *total += bytes;
    return status == LS_OK ? note_file(files, name, hex, bytes) : status;
}

static ls_status write_state(const ls_file_ops *ops, const char *folder, const json_t *state, size_t *total)
{
    char path[PATH_MAX], hex[65], *text = NULL;
    size_t bytes = 0;
    LS_TRY(join(folder, LS_CHECKPOINT_STATE, path));
    LS_TRY(ls_state_text(state, &text, &bytes));
    ls_status status = ls_ops_write_file(ops, path, &(ls_file_part){ text, bytes }, 1, hex, &bytes);
    free(text);
    *total += bytes;
    return status;
}

ls_status ls_checkpoint_write_files(const ls_file_ops *ops, const char *folder, const ls_content *content,
                                    size_t *total)
{
    json_t *files = json_object();
    if (json_object_set_new(content->state, "files", files) != 0)
        return ls_fail(LS_ERR_MEMORY, "no memory for the state of a checkpoint");
    LS_TRY(write_tensors(ops, folder, LS_CHECKPOINT_MODEL, LS_STATE_VARIABLE, content, files, total));
    LS_TRY(write_tensors(ops, folder, LS_CHECKPOINT_OPTIMIZER, LS_STATE_SLOT, content, files, total));
    LS_TRY(write_state(ops, folder, content->state, total));
    return ls_ops_sync_folder(ops, folder);
}

static ls_status rename_folder(const ls_file_ops *ops, const char *from, const char *to)
{
    if (ops->rename(ops->user, from, to) != 0)
        return ls_fail(LS_ERR_IO, "cannot rename '%s' to '%s': %s", from, to, strerror(ls_ops_note(errno)));
    return LS_OK;
}

/* Renames first: an incomplete checkpoint never has a checkpoint's name. */
static void remove_checkpoint(const ls_file_ops *ops, const char *dir, const ls_named_checkpoint *named)
{
    char path[PATH_MAX], gone[PATH_MAX];
    checkpoint_path(dir, named, path);
    if (temporary_path(dir, named->step, named->replaced ? "old" : "gone", gone) == LS_OK &&
        ops->rename(ops->user, path, gone) == 0)
        remove_folder(ops, gone);
}

/* Renames a checkpoint of the same step first, and syncs between the renames, so that one of the
 * two always exists. */
static ls_status put_in_place(const ls_file_ops *ops, const char *dir, int64_t step, const char *temporary)
{
    const ls_named_checkpoint named = { .step = step }, aside = { .step = step, .replaced = true };
    char path[PATH_MAX], old[PATH_MAX];
    struct stat info;
    checkpoint_path(dir, &named, path);
    checkpoint_path(dir, &aside, old);
    bool replaces = stat(path, &info) == 0;
    if (replaces) {
        remove_checkpoint(ops, dir, &aside);
        LS_TRY(rename_folder(ops, path, old));
        LS_TRY(ls_ops_sync_folder(ops, dir));
    }
    ls_status status = rename_folder(ops, temporary, path);
    /* the old one is found under its other name, too */
    if (status != LS_OK && replaces)
        ops->rename(ops->user, old, path);
    LS_TRY(status);
    LS_TRY(ls_ops_sync_folder(ops, dir));
    remove_checkpoint(ops, dir, &aside);
    return LS_OK;
}

/* The caller holds the lock. */
static void clean(const ls_file_ops *ops, const char *dir)
{
    DIR *list = opendir(dir);
    if (!list)
        return;
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        char path[PATH_MAX];
        if (!is_temporary(entry->d_name) || join(dir, entry->d_name, path) != LS_OK)
            continue;
        ops->unlink(ops->user, path); /* if it is a link */
        remove_folder(ops, path);
    }
    closedir(list);
}

ls_status ls_checkpoint_write(const ls_file_ops *ops, const char *dir, const ls_content *content,
                              ls_permission permission, size_t *bytes)
{
    char temporary[PATH_MAX];
    size_t total = 0;
    LS_TRY(temporary_path(dir, content->step, "new", temporary));
    clean(ops, dir);
    if (ops->mkdir(ops->user, temporary, 0777) != 0)
        return ls_fail(LS_ERR_IO, "cannot create the folder '%s': %s", temporary, strerror(ls_ops_note(errno)));
    ls_status status = ls_checkpoint_write_files(ops, temporary, content, &total);
    if (status == LS_OK && permission.ask)
        status = permission.ask(permission.user);
    if (status == LS_OK)
        status = put_in_place(ops, dir, content->step, temporary);
    if (status == LS_OK) {
        *bytes = total;
        return LS_OK;
    }
    ls_error failure;
    ls_error_keep(&failure, status);
    remove_folder(ops, temporary);
    return ls_error_give(&failure);
}

void ls_checkpoint_link(const ls_file_ops *ops, const char *dir, const char *name, int64_t step)
{
    char target[32], path[PATH_MAX], temporary[PATH_MAX];
    snprintf(target, sizeof(target), STEP_NAME, step);
    if (join(dir, name, path) != LS_OK || temporary_path(dir, step, "link", temporary) != LS_OK)
        return;
    if (ops->symlink(ops->user, target, temporary) == 0 && ops->rename(ops->user, temporary, path) != 0)
        ops->unlink(ops->user, temporary);
}

void ls_checkpoints_prune(const ls_file_ops *ops, const char *dir, int keep, int64_t last, int64_t best)
{
    ls_named_checkpoint *list = NULL;
    size_t count = 0;
    if (ls_checkpoints_list(dir, &list, &count) != LS_OK)
        return;
    for (size_t i = 0, kept = 0; i < count; i++) {
        bool stays = !list[i].replaced && (kept < (size_t)keep || list[i].step == last || list[i].step == best);
        if (stays)
            kept++;
        else
            remove_checkpoint(ops, dir, &list[i]);
    }
    free(list);
}

int64_t ls_checkpoints_make_room(const ls_file_ops *ops, const char *dir, int64_t best)
{
    ls_named_checkpoint *list = NULL;
    size_t count = 0, oldest;
    int64_t removed = -1;
    if (ls_checkpoints_list(dir, &list, &count) != LS_OK)
        return -1;
    for (oldest = count; oldest > 0; oldest--)
        if (list[oldest - 1].replaced || list[oldest - 1].step != best)
            break;
    if (oldest > 0 && count > 1) {
        removed = list[oldest - 1].step;
        remove_checkpoint(ops, dir, &list[oldest - 1]);
        if (oldest == 1)
            ls_checkpoint_link(ops, dir, "last", list[1].step);
    }
    free(list);
    return removed;
}

ls_status ls_checkpoint_set_aside(const ls_file_ops *ops, const char *dir, const ls_named_checkpoint *named)
{
    char path[PATH_MAX], aside[PATH_MAX + 16];
    checkpoint_path(dir, named, path);
    snprintf(aside, sizeof(aside), "%s.damaged", path);
    if (strlen(aside) >= PATH_MAX)
        return check_length(aside);
    remove_folder(ops, aside);
    return rename_folder(ops, path, aside);
}

/* ---- The folder ---- */

/* Syncs the parent: a power failure could otherwise remove the folder with all checkpoints. */
static ls_status make_folder(const ls_file_ops *ops, const char *path)
{
    char parent[PATH_MAX];
    if (ops->mkdir(ops->user, path, 0777) != 0)
        return errno == EEXIST ? LS_OK : ls_fail(LS_ERR_IO, "cannot create the folder '%s': %s", path, strerror(errno));
    const char *slash = strrchr(path, '/');
    snprintf(parent, sizeof(parent), "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    return ls_ops_sync_folder(ops, *parent ? parent : "/");
}

static ls_status make_folders(const ls_file_ops *ops, const char *dir)
{
    char path[PATH_MAX];
    struct stat info;
    snprintf(path, sizeof(path), "%s", dir);
    for (char *at = path + 1;; at++) {
        char kept = *at;
        if (kept != '/' && kept != '\0')
            continue;
        *at = '\0';
        if (stat(path, &info) != 0)
            LS_TRY(make_folder(ops, path));
        *at = kept;
        if (kept == '\0')
            break;
    }
    if (stat(dir, &info) == 0 && !S_ISDIR(info.st_mode))
        return ls_fail(LS_ERR_IO, "'%s' is not a folder", dir);
    return LS_OK;
}

/* Fails now, not after hours of training. */
static ls_status try_folder(const ls_file_ops *ops, const char *dir)
{
    char path[PATH_MAX];
    LS_TRY(temporary_path(dir, 0, "try", path));
    if (ops->mkdir(ops->user, path, 0777) != 0)
        return ls_fail(LS_ERR_IO, "cannot write to the folder '%s': %s", dir, strerror(errno));
    ops->rmdir(ops->user, path);
    return LS_OK;
}

ls_status ls_checkpoint_lock(const ls_file_ops *ops, const char *dir, int *lock)
{
    LS_TRY(check_length(dir));
    if (!*dir)
        return ls_fail(LS_ERR_INVALID, "the name of the folder for checkpoints is empty; give a name");
    LS_TRY(make_folders(ops, dir));
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return ls_fail(LS_ERR_IO, "cannot open the folder '%s': %s", dir, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        close(fd);
        return ls_fail(LS_ERR_STATE, "another run writes checkpoints to '%s'; use another folder for this run", dir);
    }
    clean(ops, dir);
    ls_status status = try_folder(ops, dir);
    if (status == LS_OK)
        *lock = fd;
    else
        close(fd);
    return status;
}
