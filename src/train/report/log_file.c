/* The file of a log. The chief writes each line at once; other workers keep their last lines. When
 * the chief is lost, its successor removes an incomplete last line, writes the missing lines and
 * continues.
 *
 * A record is identified by its event and number: {"event":"step","step":12. A start record is
 * identified by the steps done and the weights, which shows whether a log belongs to this run. */
#include "train/report/log_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/append.h"
#include "device/context.h"
#include "lockstep/cluster.h"
#include "run/peers.h"
#include "train/report/lease.h"
#include "train/report/log.h"

#define KEPT 100 /* records */
/* records read from the end of a file; more than the lost chief can have been ahead */
#define SEEN 256
#define ID   LS_LOG_ID

struct ls_train_log {
    ls_append file;
    char path[PATH_MAX];
    ls_context *ctx;
    bool append;      /* to the log of an earlier run */
    bool quiet;       /* another worker writes */
    bool handed_over; /* another worker writes the log, or nobody */
    ls_lease lease;
    char start[ID];   /* id of the start record of this run */
    char *kept[KEPT]; /* if quiet: record n is at n % KEPT */
    size_t kept_count;
    /* ids of the lost chief's last records; NULL: this worker did not take over */
    char (*seen)[ID];
    size_t seen_count;
};

/* ---- Opening ---- */

/* A FIFO without a reader must not block forever. */
static ls_status open_file(ls_train_log *log, int flags)
{
    int fd = open(log->path, flags | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0666);
    if (fd < 0)
        return ls_fail(LS_ERR_IO, "cannot open the log '%s': %s", log->path,
                       errno == ENXIO ? "it is a FIFO that no process reads" : strerror(errno));
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    log->file = (ls_append){ .fd = fd };
    return LS_OK;
}

static bool is_plain(const ls_train_log *log)
{
    struct stat about;
    return fstat(log->file.fd, &about) == 0 && S_ISREG(about.st_mode);
}

/* A killed run may have left one. */
static void remove_torn_line(ls_train_log *log)
{
    char tail[4096];
    int fd = log->file.fd;
    off_t end = lseek(fd, 0, SEEK_END), from = end > (off_t)sizeof(tail) ? end - (off_t)sizeof(tail) : 0;
    ssize_t got = end > 0 ? pread(fd, tail, sizeof(tail), from) : 0;
    const char *newline = got > 0 ? memrchr(tail, '\n', (size_t)got) : NULL;
    if (newline || from == 0)
        end = newline ? from + (newline - tail) + 1 : 0;
    if (end >= 0)
        ls_append_truncate(&log->file, end);
}

static void stop_writing(ls_train_log *log)
{
    log->handed_over = true;
    ls_peers_depose(log->ctx->peers);
    ls_log_write(&log->ctx->log, LS_LOG_WARNING, "another worker writes the log '%s' now; this worker stops writing it",
                 log->path);
}

/* Without a lease, only a worker that resumes after a long stop would not notice that it was
 * replaced. */
static void claim_lease(ls_train_log *log)
{
    char path[PATH_MAX + 8];
    snprintf(path, sizeof(path), "%s.lease", log->path);
    ls_status status = ls_lease_claim(&log->lease, log->ctx, path);
    if (status == LS_ERR_PEER)
        stop_writing(log);
    else if (status != LS_OK)
        ls_log_write(&log->ctx->log, LS_LOG_WARNING, "writing the log '%s' without a lease: %s", log->path,
                     ls_last_error());
}

void ls_train_log_renew_lease(ls_train_log *log)
{
    if (log && log->lease.path[0] && !log->handed_over)
        claim_lease(log);
}

ls_status ls_train_log_open(const char *path, ls_log_mode mode, ls_context *ctx, ls_train_log **out)
{
    ls_train_log *log = calloc(1, sizeof(*log));
    if (!log)
        return ls_fail(LS_ERR_MEMORY, "no memory for a log");
    int length = snprintf(log->path, sizeof(log->path), "%s", path);
    log->file.fd = -1;
    log->ctx = ctx;
    log->append = mode.append;
    log->quiet = mode.quiet;
    ls_status status = LS_OK;
    if (length >= PATH_MAX)
        status = ls_fail(LS_ERR_IO, "cannot open the log '%.100s...': %s", path, strerror(ENAMETOOLONG));
    else if (!log->quiet)
        status = open_file(log, mode.append ? O_RDWR : O_WRONLY | O_TRUNC);
    if (status != LS_OK) {
        free(log);
        return status;
    }
    if (!log->quiet && is_plain(log))
        claim_lease(log);
    if (!log->quiet && !log->handed_over && mode.append)
        remove_torn_line(log);
    *out = log;
    return LS_OK;
}

/* ---- What identifies a record ---- */

static bool is_event(const char *line, const char *event)
{
    static const char key[] = "{\"event\":\"";
    size_t length = strlen(event);
    return strncmp(line, key, strlen(key)) == 0 && strncmp(line + strlen(key), event, length) == 0 &&
           line[strlen(key) + length] == '"';
}

static void identify(const char *line, char id[ID])
{
    if (is_event(line, "start")) {
        const char *steps = strstr(line, "\"steps_done\":"), *weights = strstr(line, "\"weights_sha256\":");
        snprintf(id, ID, "start %.*s %.*s", steps ? (int)strcspn(steps, ",}") : 0, steps ? steps : "",
                 weights ? (int)strcspn(weights, ",}") : 0, weights ? weights : "");
        return;
    }
    size_t first = strcspn(line, ",}"), second = first;
    if (line[first] == ',' && !is_event(line, "end"))
        second += 1 + strcspn(line + first + 1, ",}");
    snprintf(id, ID, "%.*s", (int)second, line);
}

static bool is_seen(const ls_train_log *log, const char *id)
{
    for (size_t i = log->seen_count > SEEN ? log->seen_count - SEEN : 0; i < log->seen_count; i++)
        if (strcmp(log->seen[i % SEEN], id) == 0)
            return true;
    return false;
}

bool ls_train_log_has_checkpoint(const ls_train_log *log, int64_t step)
{
    char id[ID];
    snprintf(id, sizeof(id), "{\"event\":\"checkpoint\",\"step\":%lld", (long long)step);
    return !log || is_seen(log, id);
}

/* ---- Lines ---- */

static void keep_line(ls_train_log *log, const char *line)
{
    char **oldest = &log->kept[log->kept_count % KEPT];
    free(*oldest);
    *oldest = strdup(line); /* NULL without memory: one record less */
    log->kept_count++;
}

/* A full disk must not cost hours of training: the first failure ends the log, which then has
 * complete lines only. */
static void write_line(ls_train_log *log, const char *line, size_t bytes)
{
    if (log->handed_over)
        return;
    if (!ls_lease_holds(&log->lease)) {
        stop_writing(log);
        return;
    }
    if (ls_append_write(&log->file, line, bytes) != LS_OK)
        ls_log_write(&log->ctx->log, LS_LOG_WARNING, "cannot write the log '%s': %s; training continues without it",
                     log->path, ls_last_error());
}

/* Skips records that the lost chief wrote, except checkpoints, which only the worker that saved
 * them logs. */
static void put_line(ls_train_log *log, const char *line, size_t bytes)
{
    char id[ID];
    identify(line, id);
    if (log->start[0] == '\0' && is_event(line, "start"))
        snprintf(log->start, sizeof(log->start), "%s", id);
    if (log->quiet)
        keep_line(log, line);
    else if (is_event(line, "checkpoint") || !is_seen(log, id))
        write_line(log, line, bytes);
}

void ls_train_log_put(ls_train_log *log, ls_text *text)
{
    ls_text_put(text, "}\n");
    if (!text->failed) {
        put_line(log, ls_text_get(text), text->length);
    } else if (log->file.error == 0) {
        log->file.error = ENOMEM;
        ls_log_write(&log->ctx->log, LS_LOG_WARNING,
                     "cannot write the log '%s': no memory for a line; training continues without it", log->path);
    }
    ls_text_free(text);
}

void ls_train_log_run_id(const ls_train_log *log, char id[LS_LOG_ID])
{
    snprintf(id, LS_LOG_ID, "%s", log ? log->start : "");
}

void ls_train_log_join_run(ls_train_log *log, const char id[LS_LOG_ID])
{
    if (log)
        snprintf(log->start, sizeof(log->start), "%.*s", LS_LOG_ID - 1, id);
}

/* ---- Replacing a lost chief ---- */

/* Reads the newest SEEN ids of the last run. Returns whether it is this run. */
static bool look_at_file(ls_train_log *log)
{
    char *line = NULL, id[ID];
    size_t room = 0;
    bool ours = false;
    FILE *file = fopen(log->path, "re");
    for (ssize_t got; file && (got = getline(&line, &room, file)) > 0 && line[got - 1] == '\n';) {
        identify(line, id);
        if (is_event(line, "start")) {
            log->seen_count = 0;
            ours = strcmp(id, log->start) == 0;
        }
        snprintf(log->seen[log->seen_count++ % SEEN], ID, "%s", id);
    }
    free(line);
    if (file)
        fclose(file);
    if (!ours)
        log->seen_count = 0;
    return ours;
}

/* Replaces the log of another run, as the chief would have done, unless this run appends to it. If
 * the chief wrote more than is kept here, this is not the chief's file. */
static void replace_other_run(ls_train_log *log)
{
    if (log->kept_count > KEPT)
        ls_log_write(&log->ctx->log, LS_LOG_WARNING,
                     "this worker cannot see what was written to the log '%s' so far; its file begins with the last %d "
                     "records; put the log into a folder that all workers can reach",
                     log->path, KEPT);
    if (!log->append && log->start[0])
        ls_append_truncate(&log->file, 0);
}

static ls_status take_over(ls_train_log *log)
{
    log->seen = calloc(SEEN, sizeof(*log->seen));
    if (!log->seen)
        return ls_fail(LS_ERR_MEMORY, "no memory to continue a log");
    LS_TRY(open_file(log, O_RDWR));
    log->quiet = false;
    if (!is_plain(log)) /* a pipe cannot be read back */
        return LS_OK;
    claim_lease(log);
    if (log->handed_over)
        return LS_OK;
    remove_torn_line(log);
    if (!look_at_file(log))
        replace_other_run(log);
    for (size_t i = log->kept_count > KEPT ? log->kept_count - KEPT : 0; i < log->kept_count; i++) {
        const char *line = log->kept[i % KEPT];
        if (line)
            put_line(log, line, strlen(line));
    }
    return LS_OK;
}

void ls_train_log_take_over(ls_train_log *log)
{
    if (!log || !log->quiet || take_over(log) == LS_OK)
        return;
    ls_log_write(
        &log->ctx->log, LS_LOG_WARNING,
        "worker %d cannot continue the log: %s; the log ends with what the lost worker wrote; training continues; put "
        "the log into a folder that all workers can reach",
        ls_cluster_rank(log->ctx), ls_last_error());
    log->handed_over = true; /* no worker writes it any more */
    log->quiet = false;
}

/* ---- The end ---- */

void ls_train_log_end(ls_train_log *log)
{
    ls_append_close(&log->file); /* keeps the failure in `error` */
    if (log->file.error != 0)
        ls_log_write(&log->ctx->log, LS_LOG_WARNING, "the log '%s' is incomplete: %s", log->path,
                     strerror(log->file.error));
    ls_lease_end(&log->lease);
    for (size_t i = 0; i < KEPT; i++)
        free(log->kept[i]);
    free(log->seen);
    free(log);
}
