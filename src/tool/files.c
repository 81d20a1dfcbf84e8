/* Output files: each can be written, none is an input, no two are the same. Checked before anything
 * is computed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tool/tool.h"

/* ---- Outputs are not inputs ---- */

typedef struct named_file {
    const char *flag, *path;
} named_file;

/* Compares files, not names: links may lead to the same file. */
static bool is_same(const char *a, const char *b)
{
    struct stat about_a, about_b;
    if (stat(a, &about_a) == 0 && stat(b, &about_b) == 0)
        return S_ISREG(about_a.st_mode) && about_a.st_dev == about_b.st_dev && about_a.st_ino == about_b.st_ino;
    char target_a[PATH_MAX], target_b[PATH_MAX];
    return ls_file_target(a, target_a) == LS_OK && ls_file_target(b, target_b) == LS_OK &&
           strcmp(target_a, target_b) == 0;
}

static bool is_in_folder(const char *folder, const char *path)
{
    bool found = false;
    DIR *list = opendir(folder);
    if (list == NULL)
        return false;
    for (struct dirent *entry; !found && (entry = readdir(list)) != NULL;) {
        char name[PATH_MAX];
        int length = snprintf(name, sizeof name, "%s/%s", folder, entry->d_name);
        found = length > 0 && (size_t)length < sizeof name && is_same(name, path);
    }
    closedir(list);
    return found;
}

/* Data may be a file or a folder, text:FILE with options, or a name in $LOCKSTEP_DATA. */
static bool is_data(const char *data, const char *path)
{
    struct stat about;
    char named[PATH_MAX];
    if (strncmp(data, "text:", 5) == 0) {
        snprintf(named, sizeof named, "%.*s", (int)strcspn(data + 5, ","), data + 5);
        return is_same(named, path);
    }
    const char *folder = getenv("LOCKSTEP_DATA");
    if (stat(data, &about) == 0)
        return S_ISDIR(about.st_mode) ? is_in_folder(data, path) : is_same(data, path);
    if (folder == NULL || folder[0] == '\0' || strpbrk(data, ":/"))
        return false;
    int length = snprintf(named, sizeof named, "%s/%s", folder, data);
    return is_in_folder(folder, path) || (length > 0 && (size_t)length < sizeof named && is_in_folder(named, path));
}

ls_status tool_check_outputs(const tool_settings *settings)
{
    const named_file outputs[] = { { "--save", settings->save },
                                   { "--log", settings->log },
                                   { "--trace", settings->trace },
                                   { "--status", settings->status },
                                   { "--output", settings->output },
                                   { "--csv", settings->csv },
                                   { "--save-best", settings->save_best },
                                   { "--save-epochs", settings->save_epochs },
                                   { "--save-tokenizer", settings->save_tokenizer } };
    const named_file inputs[] = { { "MODEL", settings->model },
                                  { "--weights", settings->weights },
                                  { "--table", settings->table },
                                  { "--tokenizer", settings->tokenizer } };
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
        const char *path = outputs[i].path;
        if (path == NULL)
            continue;
        for (size_t k = 0; k < sizeof inputs / sizeof *inputs; k++)
            if (inputs[k].path && is_same(path, inputs[k].path))
                return ls_fail(LS_ERR_INVALID, "%s %s would overwrite the file of %s: choose another name",
                               outputs[i].flag, path, inputs[k].flag);
        for (size_t k = 0; k < settings->file_count; k++)
            if (is_same(path, settings->files[k]))
                return ls_fail(LS_ERR_INVALID, "%s %s would overwrite %s: choose another name", outputs[i].flag, path,
                               settings->files[k]);
        if (settings->data && is_data(settings->data, path))
            return ls_fail(LS_ERR_INVALID, "%s %s would overwrite a file of --data: choose another name",
                           outputs[i].flag, path);
        for (size_t k = 0; k < i; k++)
            if (outputs[k].path && is_same(path, outputs[k].path))
                return ls_fail(LS_ERR_INVALID, "%s and %s name the same file, %s: choose another name", outputs[i].flag,
                               outputs[k].flag, path);
    }
    return LS_OK;
}

/* ---- Outputs can be written ---- */

ls_status tool_check_writable(const char *flag, const char *path)
{
    return path == NULL ? LS_OK : ls_fail_within(ls_file_try(path), "%s", flag);
}

/* A log is written in place, so it may also be a terminal or a pipe. */
static ls_status try_log(const char *path)
{
    char target[PATH_MAX];
    struct stat about;
    if (stat(path, &about) == 0) {
        if (S_ISDIR(about.st_mode) || S_ISBLK(about.st_mode) || S_ISSOCK(about.st_mode))
            return ls_fail(LS_ERR_IO, "'%s' is %s", path,
                           S_ISDIR(about.st_mode)   ? "a folder"
                           : S_ISBLK(about.st_mode) ? "a disk"
                                                    : "a socket");
        return access(path, W_OK) == 0 ? LS_OK : ls_fail(LS_ERR_IO, "cannot write '%s': %s", path, strerror(errno));
    }
    LS_TRY(ls_file_target(path, target));
    int fd = open(target, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return ls_fail(LS_ERR_IO, "cannot write '%s': %s", path, strerror(errno));
    unlink(target); /* training creates the log */
    close(fd);
    return LS_OK;
}

ls_status tool_check_log_file(const char *path)
{
    return path == NULL ? LS_OK : ls_fail_within(try_log(path), "--log");
}

ls_status tool_check_weights(const char *path, const ls_model *model)
{
    return path == NULL ? LS_OK : ls_fail_within(ls_model_save_weights(model, path, .dry_run = true), "--save");
}
