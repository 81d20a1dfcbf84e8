/* The status file of a running fit for `lockstep top` and other programs, complete at any time. A
 * thread writes it every second, even while training waits for a worker; a step only stores a few
 * numbers. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "base/thread.h"
#include "device/context.h"
#include "nn/model.h"
#include "run/peers.h"
#include "train/job/job.h"
#include "train/report/status.h"
#include "train/report/worker_times.h"

#define EVERY 1 /* seconds */

struct ls_fit_status {
    ls_context *ctx;
    char path[PATH_MAX], *head; /* head: JSON that never changes */
    pthread_t thread;
    pthread_mutex_t mutex; /* protects all fields below */
    pthread_cond_t wakes;
    bool ends, reported;
    char failure[256]; /* failure of a write, until it is logged */
    ls_fit_at at;
    double noted; /* time of the last note */
    int last;     /* holds up the others; -1: none */
    int count;
    int64_t steps; /* that `workers` covers */
    ls_worker_time workers[LS_MAX_CLUSTER];
};

/* ---- The file ---- */

/* The worker that this process waits for if training has not moved for a while, else the one that
 * is usually slowest. */
static int waiting_for(const ls_fit_status *s, double idle)
{
    const ls_peers *peers = s->ctx->peers;
    int now = peers && peers->waits_for ? atomic_load_explicit(peers->waits_for, memory_order_relaxed) : -1;
    return now >= 0 && idle > EVERY ? now : s->last;
}

static void put_number(ls_text *text, const char *key, double value)
{
    ls_text_add(text, ",\"%s\":", key);
    if (isfinite(value))
        ls_text_put_f64(text, value);
    else
        ls_text_put(text, "null");
}

static void put_workers(const ls_fit_status *s, ls_text *text)
{
    ls_text_put(text, ",\"workers\":[");
    for (int i = 0; i < s->count; i++) {
        const ls_worker_time *t = &s->workers[i];
        ls_text_add(text, "%s{\"rank\":%d,\"lanes\":%d", i ? "," : "", t->rank, t->lanes);
        put_number(text, "step_seconds", t->seconds / (double)(s->steps > 0 ? s->steps : 1));
        ls_text_put(text, "}");
    }
    ls_text_put(text, "]");
}

/* Call with the mutex locked. */
static void describe(const ls_fit_status *s, ls_text *text)
{
    const ls_fit_at *at = &s->at;
    double idle = ls_clock_now() - s->noted;
    int last = waiting_for(s, idle);
    ls_text_put(text, s->head);
    ls_text_add(text, ",\"updated\":%lld,\"doing\":\"%s\"", (long long)time(NULL), at->doing);
    ls_text_add(text, ",\"epoch\":%" PRId64 ",\"epochs\":%" PRId64 ",\"step\":%" PRId64, at->epoch, at->epochs,
                at->step);
    if (at->steps >= 0)
        ls_text_add(text, ",\"steps\":%" PRId64, at->steps);
    put_number(text, "step_seconds", at->step_seconds);
    put_number(text, "idle_seconds", idle);
    put_number(text, "loss", at->loss);
    if (last >= 0)
        ls_text_add(text, ",\"waiting_for\":%d", last);
    put_workers(s, text);
    ls_text_put(text, "}\n");
}

/* Call with the mutex locked; unlocks it while it writes the file. */
static void write_file(ls_fit_status *s)
{
    ls_text text = { 0 };
    describe(s, &text);
    pthread_mutex_unlock(&s->mutex);
    ls_status status = text.failed ? ls_fail(LS_ERR_MEMORY, "no memory for the text")
                                   : ls_file_write(s->path, ls_text_get(&text), text.length);
    ls_text_free(&text);
    pthread_mutex_lock(&s->mutex);
    if (status != LS_OK && !s->reported)
        snprintf(s->failure, sizeof(s->failure), "%s", ls_last_error());
}

static void *writer(void *user)
{
    ls_fit_status *s = user;
    pthread_mutex_lock(&s->mutex);
    while (!s->ends) {
        write_file(s);
        double next = ls_clock_now() + EVERY;
        while (!s->ends && ls_cond_wait_until(&s->wakes, &s->mutex, next))
            continue;
    }
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

/* ---- Opening and closing ---- */

/* The part that never changes:
 *
 * {"pid":1234,"host":"a","started":1790000000,"model":"mnist-cnn","size":4,"log":"/run.jsonl" */
static ls_status make_head(ls_fit_status *s, const ls_job *job, const char *log)
{
    ls_text text = { 0 };
    char host[256] = "", full[PATH_MAX];
    gethostname(host, sizeof(host) - 1);
    ls_text_add(&text, "{\"pid\":%ld,\"host\":", (long)getpid());
    ls_text_put_json(&text, host);
    ls_text_add(&text, ",\"started\":%lld,\"model\":", (long long)time(NULL));
    ls_text_put_json(&text, ls_model_name(job->model));
    ls_text_add(&text, ",\"size\":%d", ls_cluster_size(s->ctx));
    if (log) {
        ls_text_put(&text, ",\"log\":");
        ls_text_put_json(&text, ls_file_target(log, full) == LS_OK ? full : log);
    }
    return ls_text_take(&text, &s->head);
}

static ls_status open_status(ls_fit_status *s, const char *path, const ls_job *job, const char *log)
{
    if (strlen(path) >= sizeof(s->path))
        return ls_fail(LS_ERR_IO, "'%.100s...': %s", path, strerror(ENAMETOOLONG));
    snprintf(s->path, sizeof(s->path), "%s", path);
    LS_TRY(make_head(s, job, log));
    pthread_mutex_init(&s->mutex, NULL);
    ls_cond_init(&s->wakes);
    if (ls_thread_start(&s->thread, writer, s) == 0)
        return LS_OK;
    pthread_cond_destroy(&s->wakes);
    pthread_mutex_destroy(&s->mutex);
    return ls_fail(LS_ERR_MEMORY, "cannot start the thread that writes it");
}

void ls_fit_status_open(const char *path, ls_job *job, const char *log, ls_fit_status **out)
{
    ls_context *ctx = ls_model_graph(job->model)->context;
    ls_fit_status *s = calloc(1, sizeof(*s));
    ls_status status = LS_ERR_MEMORY;
    if (s) {
        *s = (ls_fit_status){
            .ctx = ctx, .last = -1, .at = { .doing = "starting", .loss = NAN }, .noted = ls_clock_now()
        };
        status = open_status(s, path, job, log);
    }
    if (status == LS_OK) {
        *out = s;
        return;
    }
    ls_log_write(&ctx->log, LS_LOG_WARNING, "cannot write the status file for `lockstep top`: %s", ls_last_error());
    free(s ? s->head : NULL);
    free(s);
}

/* Another worker may have replaced the file by its own. */
static void remove_own(const ls_fit_status *s)
{
    char *found = NULL;
    size_t bytes;
    if (ls_file_read(s->path, 1 << 20, &found, &bytes) == LS_OK && strncmp(found, s->head, strlen(s->head)) == 0)
        unlink(s->path);
    free(found);
    ls_clear_error();
}

void ls_fit_status_close(ls_fit_status *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->mutex);
    s->ends = true;
    pthread_cond_signal(&s->wakes);
    pthread_mutex_unlock(&s->mutex);
    pthread_join(s->thread, NULL);
    remove_own(s);
    pthread_cond_destroy(&s->wakes);
    pthread_mutex_destroy(&s->mutex);
    free(s->head);
    free(s);
}

/* ---- Updates ---- */

void ls_fit_status_note(ls_fit_status *s, const ls_fit_at *at)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->mutex);
    s->at = *at;
    s->noted = ls_clock_now();
    bool failed = s->failure[0] && !s->reported;
    s->reported |= failed;
    pthread_mutex_unlock(&s->mutex);
    if (failed) /* log here: the thread must not call the user's log function */
        ls_log_write(&s->ctx->log, LS_LOG_WARNING, "cannot write the status file for `lockstep top`: %s", s->failure);
}

void ls_fit_status_workers(ls_fit_status *s, const ls_worker_times *times, int64_t steps)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->mutex);
    s->count = times->count;
    s->steps = steps;
    s->last = ls_worker_times_last(times);
    memcpy(s->workers, times->list, (size_t)times->count * sizeof(*s->workers));
    pthread_mutex_unlock(&s->mutex);
}
