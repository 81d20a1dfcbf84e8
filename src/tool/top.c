/* lockstep top: redraws every second on a terminal; otherwise prints once. */
#include "tool/tool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

/* ---- Status files ---- */

/* Creates an empty file; from now on the folder is not removed. */
static bool make_file(const char *folder, const char *path)
{
    if ((mkdir(folder, 0700) != 0 && errno != EEXIST) || !ls_socket_folder_is_own(folder))
        return false;
    int fd = ls_file_open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

void tool_remove_status_file(const char *path)
{
    char folder[PATH_MAX];
    unlink(path);
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    rmdir(folder); /* fails, as intended, while other files are there */
}

/* Returns whether the job has ended. Removes its file: a killed job cannot. */
static bool is_gone(const char *folder, const char *name)
{
    char path[PATH_MAX], *end;
    long pid = strtol(name, &end, 10);
    if (pid <= 0 || strcmp(end, ".json") != 0 || kill((pid_t)pid, 0) == 0 || errno != ESRCH)
        return false;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path)
        tool_remove_status_file(path);
    return true;
}

static void remove_gone(const char *folder)
{
    DIR *all = ls_socket_folder_is_own(folder) ? opendir(folder) : NULL;
    for (const struct dirent *entry; all && (entry = readdir(all)) != NULL;)
        (void)is_gone(folder, entry->d_name);
    if (all)
        closedir(all);
}

bool tool_status_file(char path[PATH_MAX])
{
    char folder[LS_SOCKET_FOLDER_CHARS];
    bool made = false;
    if (!ls_socket_folder_find(folder) || snprintf(path, PATH_MAX, "%s/%ld.json", folder, (long)getpid()) >= PATH_MAX)
        return false;
    remove_gone(folder);
    /* Another job may remove the folder between the two calls. */
    for (int i = 0; i < 10 && !made; i++)
        made = make_file(folder, path);
    return made;
}

/* ---- Reading ---- */

typedef struct worker {
    int64_t rank, lanes;
    double step_seconds;
} worker;

typedef struct job {
    int64_t pid, started, updated, size, epoch, epochs, step, steps, waiting_for;
    double step_seconds, idle_seconds, loss;
    char model[64], host[64], doing[32], log[PATH_MAX];
    worker workers[LS_MAX_CLUSTER];
    size_t count;
} job;

static ls_status read_workers(const ls_json_at *root, job *out)
{
    ls_json_at list, at;
    LS_TRY(ls_json_get_array(root, "workers", &list));
    for (size_t i = 0; i < ls_json_count(&list) && i < LS_MAX_CLUSTER; i++) {
        worker *w = &out->workers[out->count++];
        LS_TRY(ls_json_element(&list, i, &at));
        LS_TRY(ls_json_get_i64(&at, "rank", &w->rank));
        LS_TRY(ls_json_get_i64(&at, "lanes", &w->lanes));
        LS_TRY(ls_json_opt_f64(&at, "step_seconds", &w->step_seconds));
    }
    return LS_OK;
}

static ls_status read_name(const ls_json_at *root, const char *key, char *out, size_t size)
{
    const char *text = "";
    LS_TRY(ls_json_opt_string(root, key, &text));
    snprintf(out, size, "%s", text);
    ls_make_printable(out, strlen(out));
    return LS_OK;
}

static ls_status read_members(const ls_json_at *root, job *out)
{
    *out = (job){ .steps = -1, .waiting_for = -1, .size = 1, .loss = NAN };
    LS_TRY(ls_json_get_i64(root, "pid", &out->pid));
    LS_TRY(ls_json_get_i64(root, "started", &out->started));
    LS_TRY(ls_json_get_i64(root, "updated", &out->updated));
    LS_TRY(ls_json_get_i64(root, "epoch", &out->epoch));
    LS_TRY(ls_json_get_i64(root, "epochs", &out->epochs));
    LS_TRY(ls_json_get_i64(root, "step", &out->step));
    LS_TRY(ls_json_opt_i64(root, "steps", &out->steps));
    LS_TRY(ls_json_opt_i64(root, "size", &out->size));
    LS_TRY(ls_json_opt_i64(root, "waiting_for", &out->waiting_for));
    LS_TRY(ls_json_opt_f64(root, "step_seconds", &out->step_seconds));
    LS_TRY(ls_json_opt_f64(root, "idle_seconds", &out->idle_seconds));
    LS_TRY(ls_json_opt_f64(root, "loss", &out->loss));
    LS_TRY(read_name(root, "model", out->model, sizeof out->model));
    LS_TRY(read_name(root, "host", out->host, sizeof out->host));
    LS_TRY(read_name(root, "doing", out->doing, sizeof out->doing));
    LS_TRY(read_name(root, "log", out->log, sizeof out->log));
    return read_workers(root, out);
}

static ls_status read_job(const char *path, job *out)
{
    char *data = NULL;
    size_t bytes = 0;
    json_t *root = NULL;
    LS_TRY(ls_file_read(path, 1 << 20, &data, &bytes));
    ls_status status = ls_json_read_buffer(path, data, bytes, &root);
    free(data);
    LS_TRY(status);
    ls_json_at at = ls_json_root(root, path);
    status = read_members(&at, out);
    json_decref(root);
    return status;
}

/* ---- Showing ---- */

static void add_seconds(ls_text *text, double seconds)
{
    if (seconds >= 1)
        ls_text_add(text, "%.2f s", seconds);
    else
        ls_text_add(text, "%.1f ms", seconds * 1e3);
}

static int ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Lower median of the step times of workers that have lanes; 0: none has. */
static double median(const job *j)
{
    double values[LS_MAX_CLUSTER];
    size_t count = 0;
    for (size_t i = 0; i < j->count; i++)
        if (j->workers[i].lanes > 0)
            values[count++] = j->workers[i].step_seconds;
    qsort(values, count, sizeof *values, ascending);
    return count > 0 ? values[(count - 1) / 2] : 0;
}

#define SILENT 5 /* seconds without an update of the file */

static void add_job(ls_text *text, const job *j)
{
    double middle = median(j);
    long long silent = (long long)time(NULL) - (long long)j->updated;
    ls_text_add(text, "%s: process %lld on %s, %s", j->model, (long long)j->pid, j->host, j->doing);
    if (j->epochs > 0) /* 0: before the first epoch */
        ls_text_add(text, ", epoch %lld/%lld, step %lld", (long long)j->epoch, (long long)j->epochs,
                    (long long)j->step);
    if (j->epochs > 0 && j->steps >= 0)
        ls_text_add(text, "/%lld", (long long)j->steps);
    if (j->step_seconds > 0) {
        ls_text_put(text, ", ");
        add_seconds(text, j->step_seconds);
        ls_text_put(text, " per step");
    }
    if (isfinite(j->loss))
        ls_text_add(text, ", loss %.4f", j->loss);
    ls_text_put(text, "\n");
    if (j->log[0])
        ls_text_add(text, "  log %s\n", j->log);
    if (silent > SILENT)
        ls_text_add(text, "  no update for %lld s: the process is stopped, or its machine is down\n", silent);
    if (j->count > 0) {
        ls_text_add(text, "  %zu of %lld workers", j->count, (long long)j->size);
        if (j->waiting_for >= 0)
            ls_text_add(text, ", waiting for %lld", (long long)j->waiting_for);
        if (j->idle_seconds > 2)
            ls_text_add(text, "; no step for %.0f s", j->idle_seconds);
        ls_text_put(text, "\n  worker  lanes    work per step   times median\n");
    }
    for (size_t i = 0; i < j->count; i++) {
        const worker *w = &j->workers[i];
        ls_text_add(text, "  %6lld  %5lld  %12.2f ms", (long long)w->rank, (long long)w->lanes, w->step_seconds * 1e3);
        if (middle > 0)
            ls_text_add(text, "  %13.1f", w->step_seconds / middle);
        ls_text_put(text, w->rank == j->waiting_for ? "  <\n" : "\n");
    }
}

/* Adds this user's jobs. A job that ended meanwhile is no error. */
static size_t add_jobs(ls_text *text)
{
    char folder[LS_SOCKET_FOLDER_CHARS], path[PATH_MAX];
    size_t count = 0;
    job j;
    struct dirent **names = NULL;
    int found =
        ls_socket_folder_find(folder) && ls_socket_folder_is_own(folder) ? scandir(folder, &names, NULL, alphasort) : 0;
    for (int i = 0; i < found; i++) {
        const char *name = names[i]->d_name;
        if (ls_ends_with(name, ".json") && !is_gone(folder, name) &&
            snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path && read_job(path, &j) == LS_OK) {
            add_job(text, &j);
            count++;
        }
        free(names[i]);
    }
    free(names);
    return count;
}

static ls_status list_jobs(const tool_settings *settings, ls_text *text)
{
    job j;
    for (size_t i = 0; i < settings->file_count; i++) {
        LS_TRY(read_job(settings->files[i], &j));
        add_job(text, &j);
    }
    if (settings->file_count == 0 && add_jobs(text) == 0)
        ls_text_put(text, "no training job of this user is running on this machine\n");
    return text->failed ? ls_fail(LS_ERR_MEMORY, "no memory for a list of jobs") : LS_OK;
}

/* ---- On a terminal ---- */

static void draw(const char *text)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0)
        size = (struct winsize){ .ws_row = 24, .ws_col = 80 };
    printf("\033[H");
    for (int row = 1; *text && row < size.ws_row; row++) {
        int length = (int)strcspn(text, "\n");
        printf("%.*s\033[K\n", length < size.ws_col ? length : size.ws_col - 1, text);
        text += length + (text[length] == '\n');
    }
    printf("\033[J(q: quit)\033[K");
    fflush(stdout);
}

static ls_status redraw(const tool_settings *settings, const volatile int *stop)
{
    ls_status status = LS_OK;
    bool ends = false, keys = true;
    while (!ends && !*stop && status == LS_OK) {
        ls_text text = { 0 };
        status = list_jobs(settings, &text);
        if (status == LS_OK)
            draw(ls_text_get(&text));
        ls_text_free(&text);
        struct pollfd in = { .fd = keys ? STDIN_FILENO : -1, .events = POLLIN };
        char key = 'q';
        if (status == LS_OK && poll(&in, 1, 1000) > 0) {
            ssize_t got = read(STDIN_FILENO, &key, 1);
            ends = got == 1 && (key == 'q' || key == 4);
            keys = got > 0;
        }
    }
    return status;
}

static ls_status show(const tool_settings *settings)
{
    struct termios before, raw;
    bool set = tcgetattr(STDIN_FILENO, &before) == 0;
    if (set) {
        raw = before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        set = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
    }
    printf("\033[?1049h"); /* alternate screen */
    ls_status status = redraw(settings, tool_catch_signals());
    printf("\033[?1049l");
    fflush(stdout);
    if (set)
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
    tool_release_signals();
    return status;
}

static ls_status run(const tool_settings *settings, int *stopped_by)
{
    const char *kind = getenv("TERM");
    ls_text text = { 0 };
    (void)stopped_by; /* a signal is a normal way to end it */
    if (isatty(STDOUT_FILENO) && kind && strcmp(kind, "dumb") != 0)
        return show(settings);
    ls_status status = list_jobs(settings, &text);
    if (status == LS_OK)
        printf("%s", ls_text_get(&text));
    ls_text_free(&text);
    return status;
}

const tool_command tool_top = {
    .name = "top",
    .arguments = "[FILE...]",
    .summary = "watch running jobs: workers, epoch, step, seconds per step, the slowest worker",
    .details = "Shows this user's training jobs on this machine, or those whose --status FILE is given (also of jobs "
               "on other\n"
               "machines, if the file can be reached): epoch, step and seconds per step; for each worker of a cluster, "
               "its lanes and\n"
               "the seconds per step of its own work, without waiting. '<' marks the worker that the others wait for. "
               "On a terminal,\n"
               "redraws every second until you type q; otherwise prints once.",
    .takes_files = TOOL_ANY_FILES,
    .run = run,
};
