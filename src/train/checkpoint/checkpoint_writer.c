/* Saves checkpoints while a fit runs: training only waits for a copy of its state, which a thread
 * writes. If that fails, training continues, and the next save tries again. On a full disk it
 * removes the oldest checkpoint. A fit whose last state could not be saved returns
 * LS_ERR_UNSAVED. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fpmode.h"
#include "base/numbers.h"
#include "base/thread.h"
#include "lockstep/cluster.h"
#include "nn/model.h"
#include "train/checkpoint/checkpoint.h"
#include "train/report/lease.h"
#include "train/job/job.h"
#include "train/job/step.h"
#include "train/report/log.h"

/* ---- The writer ---- */

typedef struct order {
    ls_content *content;
    int64_t best; /* step of the best result so far; -1: none */
} order;

typedef struct outcome {
    int64_t step;
    double seconds;
    size_t bytes;
    int64_t removed; /* to free disk space; -1: none */
    ls_error failure;
} outcome;

/* read by the training thread before each order */
#define OUTCOMES 4

struct ls_checkpoint_writer {
    ls_job *job;
    ls_logger *log;
    ls_train_log *train_log;
    const ls_fit_options *options;
    ls_facts facts;
    json_t *other_bits;
    ls_checkpoint *found; /* to resume from; NULL once the fit has begun */
    bool resumes;         /* from `from`, at step `from_step` */
    char from[PATH_MAX];
    int64_t from_step;
    char *difference; /* in bits, which was allowed; NULL: none */
    const ls_file_ops *ops;
    bool saves; /* there is a folder to save to */
    /* This worker writes. Others keep the copy that they would have written last, in case they
     * replace a lost chief. */
    bool leads;
    ls_content *kept;
    int64_t kept_best; /* best step when `kept` was copied; -1: none */
    int lock;          /* descriptor; -1: none */
    ls_lease lease;
    /* ---- When to save ---- */
    ls_period every;
    int keep;
    double saved_at;   /* time of the last save */
    int requested;     /* last value of options->save */
    bool due, stopped; /* stopped: inside an epoch; nothing more to save */
    ls_position saved; /* position of the last order */
    int64_t saved_step;
    /* ---- The best result ---- */
    char monitor[96];
    bool larger; /* larger values are better */
    ls_best best;
    /* ---- The thread ---- */
    pthread_t thread;
    bool started;
    pthread_mutex_t mutex; /* protects the fields up to outcome_count, and `lease` */
    pthread_cond_t changed;
    order next; /* content is NULL if there is none */
    bool busy, ends;
    outcome outcomes[OUTCOMES];
    size_t outcome_count;
    /* ---- Summary at the end ---- */
    int64_t written, failed;
    ls_error unsaved; /* why the last state is not saved; LS_OK: it is */
    /* ---- Used by the thread ---- */
    int64_t best_listed; /* best checkpoint that could be written; -1: none */
};

static ls_context *context_of(const ls_checkpoint_writer *s)
{
    return ls_model_graph(s->job->model)->context;
}

/* ---- The thread ---- */

/* This worker may have been replaced while it was stopped. */
static ls_status check_lease(void *user)
{
    ls_checkpoint_writer *s = user;
    pthread_mutex_lock(&s->mutex);
    bool holds = ls_lease_holds(&s->lease);
    pthread_mutex_unlock(&s->mutex);
    if (holds)
        return LS_OK;
    ls_peers_depose(context_of(s)->peers);
    return ls_fail(LS_ERR_PEER, "another worker writes to the folder '%s' now", s->options->checkpoint);
}

static ls_status write_content(ls_checkpoint_writer *s, const ls_content *content, size_t *bytes)
{
    LS_TRY(check_lease(s));
    return ls_checkpoint_write(s->ops, s->options->checkpoint, content, (ls_permission){ check_lease, s }, bytes);
}

static void write_one(ls_checkpoint_writer *s, const order *o, outcome *out)
{
    double start = ls_clock_now();
    *out = (outcome){ .step = o->content->step, .removed = -1 };
    ls_status status = write_content(s, o->content, &out->bytes);
    if (status == LS_ERR_IO && ls_ops_disk_is_full() && s->keep != LS_KEEP_ALL) {
        out->removed = ls_checkpoints_make_room(s->ops, s->options->checkpoint, s->best_listed);
        if (out->removed >= 0)
            status = write_content(s, o->content, &out->bytes);
    }
    ls_error_keep(&out->failure, status);
    if (status == LS_OK) {
        ls_checkpoint_link(s->ops, s->options->checkpoint, "last", o->content->step);
        if (o->best == o->content->step) {
            ls_checkpoint_link(s->ops, s->options->checkpoint, "best", o->best);
            s->best_listed = o->best;
        }
        if (s->keep != LS_KEEP_ALL)
            ls_checkpoints_prune(s->ops, s->options->checkpoint, s->keep, o->content->step, s->best_listed);
    }
    out->seconds = ls_clock_now() - start;
}

static void *writer(void *user)
{
    ls_fp_begin_thread();
    ls_checkpoint_writer *s = user;
    pthread_mutex_lock(&s->mutex);
    for (;;) {
        while (!s->next.content && !s->ends)
            pthread_cond_wait(&s->changed, &s->mutex);
        if (!s->next.content)
            break;
        order o = s->next;
        outcome result;
        s->next = (order){ .content = NULL };
        s->busy = true;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->mutex);
        write_one(s, &o, &result);
        ls_content_destroy(o.content);
        pthread_mutex_lock(&s->mutex);
        s->outcomes[s->outcome_count++] = result;
        s->busy = false;
        pthread_cond_broadcast(&s->changed);
        while (s->outcome_count == OUTCOMES && !s->ends)
            pthread_cond_wait(&s->changed, &s->mutex);
    }
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

/* ---- Reporting ---- */

static void report(ls_checkpoint_writer *s, const outcome *o)
{
    const char *error = o->failure.status == LS_OK ? NULL : o->failure.message;
    s->written += !error;
    s->failed += error != NULL;
    s->unsaved = o->failure;
    if (o->removed >= 0)
        ls_log_write(s->log, LS_LOG_WARNING,
                     "the disk of '%s' is full: the checkpoint of step %" PRId64 " was removed to make room for step "
                     "%" PRId64 "; keep fewer checkpoints (--keep) to avoid this",
                     s->options->checkpoint, o->removed, o->step);
    if (error)
        ls_log_write(s->log, LS_LOG_WARNING,
                     "NO CHECKPOINT of step %" PRId64 " could be saved: %s; training continues, %s", o->step, error,
                     o->removed >= 0 ? "the other checkpoints are kept" : "older checkpoints are unchanged");
    else
        ls_log_write(s->log, LS_LOG_INFO, "checkpoint of step %" PRId64 " saved in %.2f s, %zu bytes", o->step,
                     o->seconds, o->bytes);
    ls_train_log_checkpoint(
        s->train_log,
        &(ls_checkpoint_event){
            .step = o->step, .seconds = o->seconds, .bytes = o->bytes, .waited = s->job->times.save, .error = error });
}

static void collect(ls_checkpoint_writer *s)
{
    outcome done[OUTCOMES];
    pthread_mutex_lock(&s->mutex);
    size_t count = s->outcome_count;
    memcpy(done, s->outcomes, count * sizeof(*done));
    s->outcome_count = 0;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
    for (size_t i = 0; i < count; i++)
        report(s, &done[i]);
}

/* ---- Orders ---- */

static bool is_saved(const ls_checkpoint_writer *s)
{
    const ls_position *a = &s->saved, *b = &s->job->position;
    int64_t step = -2;
    return ls_job_step(s->job, &step) == LS_OK && step == s->saved_step && a->epoch == b->epoch && a->step == b->step &&
           a->pass == b->pass && a->batch == b->batch;
}

#define PATIENCE 0.2 /* seconds between two progress reports */

/* Reports what training waits for if the thread takes long. Call with the mutex locked. */
static void wait_a_while(ls_checkpoint_writer *s)
{
    if (ls_cond_wait_until(&s->changed, &s->mutex, ls_clock_now() + PATIENCE))
        return;
    pthread_mutex_unlock(&s->mutex);
    ls_work_report("saving to", s->options->checkpoint, 0, 0);
    pthread_mutex_lock(&s->mutex);
}

/* Whether an order can be given now; `must`: waits until it can. */
static bool may_order(ls_checkpoint_writer *s, bool must)
{
    pthread_mutex_lock(&s->mutex);
    while (must && s->next.content)
        wait_a_while(s);
    bool room = must || (!s->next.content && !s->busy);
    pthread_mutex_unlock(&s->mutex);
    ls_work_end();
    return room;
}

static void submit(ls_checkpoint_writer *s, ls_content *content, int64_t best)
{
    if (!s->leads) {
        ls_content_destroy(s->kept);
        s->kept = content;
        s->kept_best = best;
        return;
    }
    pthread_mutex_lock(&s->mutex);
    s->next = (order){ .content = content, .best = best };
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

static ls_status make_content(ls_job *job, const ls_checkpoint_writer *s, const ls_facts *facts, ls_content **out)
{
    ls_state_extras extras = { .facts = facts, .history = job->fit ? *job->fit->history : NULL };
    if (s) {
        extras.other_bits = s->other_bits;
        extras.best = &s->best;
        extras.monitor = s->monitor;
    }
    return ls_content_make(job, &extras, out);
}

ls_status ls_job_content(ls_job *job, ls_content **out)
{
    ls_facts facts;
    LS_TRY(ls_facts_make(job, &facts));
    ls_status status = make_content(job, job->writer, &facts, out);
    ls_facts_free(&facts);
    return status;
}

/* Copies the state for the thread. */
static void save(ls_checkpoint_writer *s)
{
    ls_content *content = NULL;
    ls_status status = make_content(s->job, s, &s->facts, &content);
    if (status == LS_OK) {
        s->saved = s->job->position;
        s->saved_step = content->step;
        submit(s, content, s->best.known ? s->best.step : -1);
    } else if (s->leads) {
        outcome failed = { .removed = -1 };
        ls_error_keep(&failed.failure, status);
        ls_job_step(s->job, &failed.step);
        report(s, &failed);
    }
    s->due = false;
    s->saved_at = ls_clock_now();
}

/* Waits for a step at which the thread is idle, unless `must` is set. */
static void save_if_possible(ls_checkpoint_writer *s, bool must)
{
    double start = ls_clock_now();
    collect(s);
    if (!is_saved(s) && may_order(s, must))
        save(s);
    s->job->times.save += ls_clock_now() - start;
}

static bool is_requested(ls_checkpoint_writer *s)
{
    int now = s->options->save ? *s->options->save : 0;
    bool changed = now != s->requested;
    s->requested = now;
    return changed;
}

static void look_if_due(ls_checkpoint_writer *s, int64_t step)
{
    if (s->every.unit == LS_EVERY_STEPS && step % (int64_t)s->every.count == 0)
        s->due = true;
    if (s->every.unit == LS_EVERY_SECONDS && s->leads && ls_clock_now() - s->saved_at >= s->every.count)
        s->due = true;
}

bool ls_checkpoint_writer_wants(ls_checkpoint_writer *s, int64_t step)
{
    if (!s || !s->saves || s->stopped)
        return false;
    look_if_due(s, step);
    return s->due || (s->options->save && *s->options->save != s->requested);
}

void ls_checkpoint_writer_step(ls_checkpoint_writer *s, bool stopping)
{
    int64_t step = 0;
    if (!s || !s->saves || s->stopped || ls_job_step(s->job, &step) != LS_OK)
        return;
    collect(s);
    bool requested = is_requested(s);
    look_if_due(s, step);
    if (requested || stopping || s->due)
        save_if_possible(s, requested || stopping);
    s->stopped = stopping;
}

/* ---- The best ---- */

static bool find_result(const ls_results *results, const char *name, double *out)
{
    for (size_t i = 0; results && i < results->count; i++)
        if (strcmp(results->names[i], name) == 0) {
            *out = results->values[i];
            return true;
        }
    return false;
}

static bool is_better(const ls_checkpoint_writer *s, double value)
{
    if (isnan(value))
        return false;
    return !s->best.known || (s->larger ? value > s->best.value : value < s->best.value);
}

void ls_checkpoint_writer_epoch(ls_checkpoint_writer *s, const ls_results *results, const ls_results *validation)
{
    double value = NAN;
    if (!s || !s->saves || s->stopped)
        return;
    bool of_validation = strncmp(s->monitor, "val_", 4) == 0, requested = is_requested(s);
    find_result(of_validation ? validation : results, s->monitor + (of_validation ? 4 : 0), &value);
    bool better = is_better(s, value);
    if (better) {
        s->best = (ls_best){ .known = true, .value = value };
        ls_job_step(s->job, &s->best.step);
    }
    if (s->every.unit == LS_EVERY_EPOCHS && s->job->position.epoch % (int64_t)s->every.count == 0)
        s->due = true;
    if (requested || better || s->due)
        save_if_possible(s, requested || better);
}

/* ---- Beginning ---- */

static bool is_larger_better(const char *monitor)
{
    static const char *const words[] = { "acc", "auc", "precision", "recall", "top_k" };
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (strstr(monitor, words[i]))
            return true;
    return false;
}

static ls_status choose_monitor(ls_checkpoint_writer *s)
{
    const ls_fit_facts *fit = s->job->fit;
    const char *name = s->options->monitor;
    bool known = !name;
    snprintf(s->monitor, sizeof(s->monitor), "%s", name ? name : fit->validation ? "val_loss" : "loss");
    for (size_t i = 0; i < s->job->name_count && !known; i++)
        known = strcmp(name, s->job->names[i]) == 0 ||
                (fit->validation && strncmp(name, "val_", 4) == 0 && strcmp(name + 4, s->job->names[i]) == 0);
    if (!known)
        return ls_fail(LS_ERR_NOT_FOUND, "ls_fit: monitor is \"%.80s\", but training has no such result%s", name,
                       fit->validation ? "" : " (results that begin with val_ need validation data)");
    s->larger = is_larger_better(s->monitor);
    return LS_OK;
}

static const char *resume_from(const ls_fit_options *o)
{
    return strcmp(o->resume, "auto") == 0 ? o->checkpoint : o->resume;
}

static ls_status find(ls_checkpoint_writer *s)
{
    const ls_fit_options *o = s->options;
    const char *from = resume_from(o);
    if (!from)
        return ls_fail(
            LS_ERR_INVALID,
            "ls_fit: resume is \"auto\", but no folder for checkpoints was given; set checkpoint (--checkpoint)");
    LS_TRY(ls_checkpoint_find(from, s->log, &s->found));
    if (!s->found) {
        ls_log_always(s->log, "no checkpoint in '%s' yet: training starts at step 1", from);
        return LS_OK;
    }
    s->resumes = true;
    return ls_checkpoint_fits(s->found, s->job, (ls_fits){ .in_fit = true, .allow_other_bits = o->allow_other_bits },
                              &s->difference);
}

static bool is_same_folder(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Newer checkpoints would be mistaken for those of this run. Renames damaged ones, which resume
 * skipped; others are an error. */
static ls_status clear_newer(const ls_checkpoint_writer *s)
{
    const char *dir = s->options->checkpoint;
    ls_named_checkpoint *list = NULL;
    size_t count = 0;
    bool passed_over = s->found && is_same_folder(dir, resume_from(s->options));
    int64_t first = s->found ? s->found->step : -1;
    ls_status status = LS_OK;
    LS_TRY(ls_checkpoints_list(dir, &list, &count));
    for (size_t i = 0; i < count && list[i].step > first && status == LS_OK; i++)
        status = passed_over ? ls_checkpoint_set_aside(s->ops, dir, &list[i])
                             : ls_fail(LS_ERR_STATE,
                                       "'%s' has checkpoints of an earlier run, up to step %" PRId64
                                       "; resume from them (--resume), choose another folder, or remove them",
                                       dir, list[i].step);
    free(list);
    return status;
}

static ls_status start(ls_checkpoint_writer *s)
{
    if (ls_thread_start(&s->thread, writer, s) != 0)
        return ls_fail(
            LS_ERR_MEMORY,
            "cannot start the thread that writes checkpoints; end other programs, or train without checkpoints");
    s->started = true;
    return LS_OK;
}

static ls_status claim_lease(ls_checkpoint_writer *s)
{
    char path[PATH_MAX];
    /* fits: ls_checkpoint_lock checked the length */
    snprintf(path, sizeof(path), "%s/.lease", s->options->checkpoint);
    pthread_mutex_lock(&s->mutex);
    ls_status status = ls_lease_claim(&s->lease, context_of(s), path);
    pthread_mutex_unlock(&s->mutex);
    if (status == LS_ERR_PEER)
        ls_peers_depose(context_of(s)->peers);
    return status;
}

/* If this fails, the old lease stays valid until another worker claims it. */
void ls_checkpoint_writer_renew_lease(ls_checkpoint_writer *s)
{
    if (s && s->leads && claim_lease(s) != LS_OK)
        ls_log_write(s->log, LS_LOG_WARNING, "%s", ls_last_error());
}

/* The members send their state to a worker that joins. */
static bool joins(const ls_checkpoint_writer *s)
{
    const ls_peers *peers = context_of(s)->peers;
    return peers && peers->joins;
}

static ls_status open_writer(ls_checkpoint_writer *s)
{
    const ls_fit_options *o = s->options;
    s->every = (ls_period){ LS_EVERY_EPOCHS, 1 };
    if (o->save_every && !ls_parse_period(o->save_every, &s->every))
        return ls_fail(LS_ERR_INVALID, "ls_fit: save_every is \"%.40s\": expected " LS_PERIODS, o->save_every);
    LS_TRY(choose_monitor(s));
    if (o->keep < LS_KEEP_ALL)
        return ls_fail(LS_ERR_INVALID, "ls_fit: keep must be positive, 0 (the default) or %d (all), got %d",
                       LS_KEEP_ALL, o->keep);
    LS_TRY(ls_facts_make(s->job, &s->facts));
    s->saves = o->checkpoint != NULL;
    s->leads = s->saves && ls_is_chief(context_of(s));
    if (s->leads)
        LS_TRY(ls_checkpoint_lock(s->ops, o->checkpoint, &s->lock));
    if (o->resume && !joins(s))
        LS_TRY(find(s));
    if (!s->leads)
        return LS_OK;
    LS_TRY(clear_newer(s));
    LS_TRY(claim_lease(s));
    return start(s);
}

ls_status ls_checkpoint_writer_open(ls_job *job, ls_checkpoint_writer **out)
{
    const ls_fit_options *o = job->fit->options;
    if (!o->checkpoint && !o->resume)
        return LS_OK;
    ls_checkpoint_writer *s = calloc(1, sizeof(*s));
    json_t *other_bits = json_array();
    if (!s || !other_bits) {
        free(s);
        json_decref(other_bits);
        return ls_fail(LS_ERR_MEMORY, "no memory to save checkpoints");
    }
    *s = (ls_checkpoint_writer){
        .job = job, .options = o, .lock = -1, .other_bits = other_bits, .saved_step = -1, .best_listed = -1
    };
    s->log = &context_of(s)->log;
    s->ops = job->file_ops ? job->file_ops : &ls_system_file_ops;
    s->keep = o->keep ? o->keep : 3;
    s->requested = o->save ? *o->save : 0;
    s->saved_at = ls_clock_now();
    pthread_mutex_init(&s->mutex, NULL);
    ls_cond_init(&s->changed);
    ls_status status = open_writer(s);
    if (status == LS_OK) {
        *out = s;
        return LS_OK;
    }
    ls_error failure;
    ls_error_keep(&failure, status);
    ls_checkpoint_writer_close(s);
    return ls_error_give(&failure);
}

bool ls_checkpoint_writer_resumes(const ls_checkpoint_writer *s)
{
    return s && s->resumes;
}

/* Records allowed differences in every later checkpoint. */
static ls_status note_other_bits(ls_checkpoint_writer *s)
{
    char text[1024];
    const json_t *before = json_object_get(s->found->state, "other_bits");
    json_t *all = json_deep_copy(before);
    if (!all)
        return ls_fail(LS_ERR_MEMORY, "no memory to go on from a checkpoint");
    json_decref(s->other_bits);
    s->other_bits = all;
    if (!s->difference)
        return LS_OK;
    snprintf(text, sizeof(text), "from step %" PRId64 " on: %.900s", s->found->step, s->difference);
    ls_log_write(s->log, LS_LOG_WARNING, "later steps have other bits than in the saved run, %s", text);
    if (json_array_append_new(all, json_string(text)) != 0)
        return ls_fail(LS_ERR_MEMORY, "no memory to go on from a checkpoint");
    return LS_OK;
}

void ls_checkpoint_writer_log(ls_checkpoint_writer *s, ls_train_log *log)
{
    if (!s)
        return;
    s->train_log = log;
    if (s->resumes)
        ls_train_log_resume(log, s->from, s->from_step, s->difference);
}

static ls_status restore(ls_checkpoint_writer *s)
{
    LS_TRY(note_other_bits(s));
    LS_TRY(ls_checkpoint_best(s->found, s->monitor, &s->best));
    LS_TRY(ls_checkpoint_history(s->found, s->job->fit->history));
    LS_TRY(ls_checkpoint_put(s->found, s->job));
    s->from_step = s->found->step;
    s->saved = s->job->position;
    s->best_listed = s->best.known ? s->best.step : -1;
    return LS_OK;
}

static void report_start(const ls_checkpoint_writer *s)
{
    const ls_position *at = &s->job->position;
    bool chief = ls_is_chief(context_of(s));
    const int64_t epochs = s->options->epochs ? s->options->epochs : 1;
    if (chief && at->epoch >= epochs)
        ls_log_always(s->log,
                      "nothing left to train: '%s' is the end of a run with %" PRId64 " epochs, at step %" PRId64
                      ", and %" PRId64 " epochs are requested",
                      s->found->path, at->epoch, s->found->step, epochs);
    else if (chief)
        ls_log_always(
            s->log, "continuing from '%s': epoch %" PRId64 ", %" PRId64 " of its steps done, step %" PRId64 " in total",
            s->found->path, at->epoch + 1, at->step, s->found->step);
}

ls_status ls_checkpoint_writer_resume(ls_checkpoint_writer *s)
{
    if (!s || !s->found)
        return LS_OK;
    LS_TRY(restore(s));
    report_start(s);
    snprintf(s->from, sizeof(s->from), "%s", s->found->path);
    if (s->saves && is_same_folder(s->options->checkpoint, resume_from(s->options)))
        s->saved_step = s->found->step;
    ls_checkpoint_close(s->found); /* it takes as much memory as the model */
    s->found = NULL;
    return LS_OK;
}

ls_status ls_checkpoint_writer_resume_from(ls_checkpoint_writer *s, ls_checkpoint *found)
{
    s->found = found;
    ls_status status = restore(s);
    ls_checkpoint_close(found);
    s->found = NULL;
    return status;
}

/* ---- Replacing a lost writer ---- */

#define LOCK_PATIENCE 0.2 /* seconds; the other workers wait meanwhile */

/* A process that was only stopped still holds the lock; the lease keeps it from writing. */
static ls_status lock_again(ls_checkpoint_writer *s)
{
    double until = ls_clock_now() + LOCK_PATIENCE;
    ls_status status;
    while ((status = ls_checkpoint_lock(s->ops, s->options->checkpoint, &s->lock)) == LS_ERR_STATE &&
           ls_clock_now() < until)
        usleep(10000);
    return status == LS_ERR_STATE ? LS_OK : status;
}

static bool is_listed(const ls_named_checkpoint *list, size_t count, int64_t step)
{
    for (size_t i = 0; i < count; i++)
        if (list[i].step == step && !list[i].replaced)
            return true;
    return false;
}

/* Writes the copy kept here if the lost chief did not complete or log that checkpoint. */
static ls_status complete_folder(ls_checkpoint_writer *s)
{
    const char *dir = s->options->checkpoint;
    ls_named_checkpoint *list = NULL;
    size_t count = 0;
    LS_TRY(ls_checkpoints_list(dir, &list, &count));
    int64_t newest = count ? list[0].step : -1;
    if (count)
        ls_checkpoint_link(s->ops, dir, "last", newest);
    s->best_listed = s->best.known && is_listed(list, count, s->best.step) ? s->best.step : -1;
    if (s->best_listed >= 0)
        ls_checkpoint_link(s->ops, dir, "best", s->best_listed);
    bool missing =
        s->kept && s->kept->step >= newest &&
        (!is_listed(list, count, s->kept->step) || !ls_train_log_has_checkpoint(s->train_log, s->kept->step));
    free(list);
    LS_TRY(start(s));
    s->leads = true;
    if (missing)
        submit(s, s->kept, s->kept_best);
    else
        ls_content_destroy(s->kept);
    s->kept = NULL;
    return LS_OK;
}

static ls_status take_over(ls_checkpoint_writer *s)
{
    struct stat info;
    bool there = stat(s->options->checkpoint, &info) == 0;
    LS_TRY(lock_again(s));
    LS_TRY(claim_lease(s));
    if (!there && s->saved_step >= 0)
        ls_log_write(
            s->log, LS_LOG_WARNING,
            "worker %d, which writes the checkpoints from now on, cannot see earlier ones in '%s'; use a folder "
            "that all workers can reach",
            ls_cluster_rank(context_of(s)), s->options->checkpoint);
    return complete_folder(s);
}

void ls_checkpoint_writer_take_over(ls_checkpoint_writer *s)
{
    if (!s || !s->saves || s->leads)
        return;
    ls_status status = take_over(s);
    /* the lost chief's last save is unknown */
    s->due |= s->every.unit == LS_EVERY_SECONDS;
    if (status == LS_OK)
        return;
    ls_log_write(s->log, LS_LOG_WARNING,
                 "NO MORE CHECKPOINTS: worker %d cannot continue those in '%s': %s; training continues; use a folder "
                 "that all workers can reach",
                 ls_cluster_rank(context_of(s)), s->options->checkpoint, ls_last_error());
    ls_error_keep(&s->unsaved, status);
    s->saves = false;
}

/* ---- The end ---- */

void ls_checkpoint_writer_finish(ls_checkpoint_writer *s)
{
    if (s && s->saves && !s->stopped && !ls_peers_is_deposed(context_of(s)->peers))
        save_if_possible(s, true);
}

static void wait_for_thread(ls_checkpoint_writer *s)
{
    pthread_mutex_lock(&s->mutex);
    while (s->started && (s->next.content || s->busy)) {
        pthread_mutex_unlock(&s->mutex);
        collect(s);
        pthread_mutex_lock(&s->mutex);
        if (s->next.content || s->busy)
            wait_a_while(s);
    }
    pthread_mutex_unlock(&s->mutex);
    ls_work_end();
}

bool ls_checkpoint_writer_wait_idle(ls_checkpoint_writer *s, const char *dir)
{
    if (!s || !s->leads || !is_same_folder(s->options->checkpoint, dir))
        return false;
    wait_for_thread(s);
    return true;
}

static void end_thread(ls_checkpoint_writer *s)
{
    wait_for_thread(s);
    pthread_mutex_lock(&s->mutex);
    s->ends = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
    if (s->started)
        pthread_join(s->thread, NULL);
    collect(s);
}

static ls_status final_status(const ls_checkpoint_writer *s)
{
    return s->unsaved.status == LS_OK
               ? LS_OK
               : ls_fail(LS_ERR_UNSAVED,
                         "training has ended, but its last checkpoint could not be saved to '%s': %.1000s; save the "
                         "model elsewhere before the program ends",
                         s->options->checkpoint, s->unsaved.message);
}

ls_status ls_checkpoint_writer_close(ls_checkpoint_writer *s)
{
    if (!s)
        return LS_OK;
    double start = ls_clock_now();
    end_thread(s);
    s->job->times.flush = ls_clock_now() - start;
    if (s->failed > 0)
        ls_log_write(s->log, LS_LOG_WARNING,
                     "%" PRId64 " checkpoints could not be saved to '%s'; %" PRId64 " were saved", s->failed,
                     s->options->checkpoint, s->written);
    ls_status status = final_status(s);
    ls_lease_end(&s->lease);
    if (s->lock >= 0)
        close(s->lock); /* releases the lock */
    pthread_mutex_destroy(&s->mutex);
    pthread_cond_destroy(&s->changed);
    ls_facts_free(&s->facts);
    json_decref(s->other_bits);
    free(s->difference);
    ls_checkpoint_close(s->found);
    ls_content_destroy(s->kept);
    free(s);
    return status;
}
