/* Lists all state of a job that must be saved, for checkpoints, the state hash and snapshots. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "graph/claim.h"
#include "graph/shared_weights.h"
#include "nn/model.h"
#include "train/job/job.h"
#include "train/callback/callback.h"
#include "train/checkpoint/state_list.h"

/* ---- The list ---- */

typedef struct list {
    ls_state_entry *entry;
    size_t count;
} list;

static ls_state_entry *add(list *l, ls_state_entry_kind kind, const char *name)
{
    ls_state_entry *e = &l->entry[l->count++];
    *e = (ls_state_entry){ .kind = kind, .name = name };
    return e;
}

static void add_variable(list *l, ls_state_entry_kind kind, const ls_tensor *node)
{
    ls_state_entry *e = add(l, kind, ls_tensor_name(node));
    e->variable = node->attr.variable.variable;
    e->bytes = e->variable->bytes;
}

static ls_state_entry *add_numbers(list *l, ls_state_entry_kind kind, const char *name, ls_state_entry_type type,
                                   void *data, size_t bytes)
{
    ls_state_entry *e = add(l, kind, name);
    e->type = type;
    e->data = data;
    e->bytes = bytes;
    return e;
}

static void add_text(list *l, const char *name, const char *text)
{
    add_numbers(l, LS_STATE_FIXED, name, LS_STATE_TEXT, (void *)text, strlen(text));
}

#define NUMBER(l, name, type, at) add_numbers(l, LS_STATE_NUMBER, name, LS_STATE_##type, &(at), sizeof(at))
#define FIXED(l, name, type, at)  add_numbers(l, LS_STATE_FIXED, name, LS_STATE_##type, &(at), sizeof(at))

static void add_variables(list *l, const ls_job *job)
{
    const ls_model *model = job->model;
    for (int trainable = 1; trainable >= 0; trainable--)
        for (size_t i = 0; i < ls_model_variable_count(model); i++)
            if (ls_model_variable_is_trainable(model, i) == (trainable == 1))
                add_variable(l, LS_STATE_VARIABLE, ls_model_variable(model, i));
    for (size_t i = 0; i < job->state.count; i++)
        add_variable(l, LS_STATE_SLOT, job->state.all[i]);
}

/* Layers and losses are covered by the variables, and by the hash of the loss nodes in a
 * checkpoint. */
static void add_optimizer(list *l, ls_job *job)
{
    ls_optimizer_options *o = &job->optimizer.options;
    ls_schedule *s = &o->schedule;
    add_text(l, "optimizer", ls_optimizer_name(&job->optimizer));
    FIXED(l, "optimizer/learning_rate", F64, o->learning_rate);
    FIXED(l, "optimizer/momentum", F64, o->momentum);
    FIXED(l, "optimizer/nesterov", BOOL, o->nesterov);
    FIXED(l, "optimizer/beta_1", F64, o->beta_1);
    FIXED(l, "optimizer/beta_2", F64, o->beta_2);
    FIXED(l, "optimizer/rho", F64, o->rho);
    FIXED(l, "optimizer/epsilon", F64, o->epsilon);
    FIXED(l, "optimizer/weight_decay", F64, o->weight_decay);
    FIXED(l, "optimizer/clipvalue", F64, o->clipvalue);
    FIXED(l, "optimizer/clipnorm", F64, o->clipnorm);
    FIXED(l, "optimizer/global_clipnorm", F64, o->global_clipnorm);
    FIXED(l, "optimizer/gradient_accumulation_steps", I64, o->gradient_accumulation_steps);
    FIXED(l, "optimizer/initial_accumulator_value", F64, o->initial_accumulator_value);
    FIXED(l, "schedule/kind", INT, s->kind);
    FIXED(l, "schedule/rate", F64, s->rate);
    FIXED(l, "schedule/decay", F64, s->decay);
    FIXED(l, "schedule/alpha", F64, s->alpha);
    FIXED(l, "schedule/from", F64, s->from);
    FIXED(l, "schedule/steps", I64, s->steps);
    FIXED(l, "schedule/warmup", I64, s->warmup);
    FIXED(l, "schedule/staircase", BOOL, s->staircase);
    FIXED(l, "schedule/count", INT, s->count);
    size_t points = s->count < 0 ? 0 : s->count > LS_SCHEDULE_POINTS ? LS_SCHEDULE_POINTS : (size_t)s->count;
    FIXED(l, "schedule/boundaries", I64, s->boundaries)->bytes = points * sizeof(*s->boundaries);
    FIXED(l, "schedule/values", F64, s->values)->bytes = points * sizeof(*s->values);
}

/* Settings that determine the next steps, in addition to variables and slots. */
static void add_settings(list *l, ls_job *job)
{
    ls_graph *graph = ls_model_graph(job->model);
    NUMBER(l, "random/seed", U64, graph->seed);
    NUMBER(l, "random/step", U64, graph->step);
    NUMBER(l, "random/run", U64, graph->run);
    NUMBER(l, "learning_rate", F64, job->rate);
    FIXED(l, "data/seed", U64, job->data_seed)->of_fit = true;
    FIXED(l, "data/batch_size", I64, job->batch_size)->of_fit = true;
    FIXED(l, "lanes", I64, job->lanes)->of_fit = true;
    FIXED(l, "norms_by_lane", I64, job->lane_norms);
}

static void add_progress(list *l, ls_job *job)
{
    NUMBER(l, "position/epoch", I64, job->position.epoch);
    NUMBER(l, "position/step", I64, job->position.step);
    NUMBER(l, "position/pass", I64, job->position.pass);
    NUMBER(l, "position/batch", I64, job->position.batch);
    NUMBER(l, "tally/loss", F64, job->tally.loss);
    NUMBER(l, "tally/losses", F64, job->tally.losses);
    NUMBER(l, "tally/samples", I64, job->tally.samples);
    NUMBER(l, "tally/steps", I64, job->tally.steps);
    for (size_t i = 0; i < job->metric_count; i++) {
        size_t bytes = ls_metric_sums_count(&job->metrics[i]) * sizeof(double);
        ls_state_entry *e = add_numbers(l, LS_STATE_NUMBER, NULL, LS_STATE_F64, job->tally.sums[i], bytes);
        snprintf(e->text, sizeof(e->text), "tally/metric/%zu", i);
        e->name = e->text;
    }
}

/* "callback/csv_logger/1": kind, and index within it, so that a callback of another kind does not
 * change the names. */
static void add_callbacks(list *l, const ls_job *job)
{
    for (size_t i = 0; i < job->callback_count; i++) {
        const char *name = ls_callback_name(&job->callbacks[i]);
        size_t before = 0;
        if (!job->callbacks[i].save)
            continue;
        for (size_t k = 0; k < i; k++)
            before += job->callbacks[k].save && strcmp(ls_callback_name(&job->callbacks[k]), name) == 0;
        ls_state_entry *e = add(l, LS_STATE_CALLBACK, NULL);
        snprintf(e->text, sizeof(e->text), LS_STATE_CALLBACKS "%s/%zu", name, before);
        e->name = e->text;
        e->callback = &job->callbacks[i];
    }
}

#define NUMBERS 64 /* most entries that are single numbers */

ls_status ls_job_list(ls_job *job, ls_state_entry **out, size_t *count)
{
    size_t room = ls_model_variable_count(job->model) + job->state.count + job->metric_count + job->callback_count;
    list l = { .entry = calloc(room + NUMBERS, sizeof(*l.entry)) };
    if (!l.entry)
        return ls_fail(LS_ERR_MEMORY, "no memory for a list of %zu entries", room);
    add_variables(&l, job);
    add_optimizer(&l, job);
    add_settings(&l, job);
    add_progress(&l, job);
    add_callbacks(&l, job);
    *out = l.entry;
    *count = l.count;
    return LS_OK;
}

/* ---- Hash ---- */

static ls_status hash_list(ls_sha256 *hash, const ls_state_entry *entries, size_t count)
{
    bool stepped = false;
    const int64_t none = 0;
    for (size_t i = 0; i < count; i++) {
        const ls_state_entry *e = &entries[i];
        if (e->kind != LS_STATE_VARIABLE && e->kind != LS_STATE_SLOT)
            continue;
        LS_TRY(ls_variable_sync_to_host(e->variable));
        LS_TRY(ls_sha256_add(hash, e->variable->data, e->bytes));
        stepped |= e->kind == LS_STATE_SLOT;
    }
    /* without an optimizer: step 0 */
    return stepped ? LS_OK : ls_sha256_add(hash, &none, sizeof(none));
}

/* Slots are in creation order; the step, an i64, is last. */
static ls_status hash_state(ls_job *job, char hex[65])
{
    ls_state_entry *entries = NULL;
    size_t count = 0;
    ls_sha256 *hash = NULL;
    LS_TRY(ls_job_list(job, &entries, &count));
    ls_status status = ls_sha256_begin(&hash);
    if (status == LS_OK)
        status = hash_list(hash, entries, count);
    free(entries);
    if (status == LS_OK)
        return ls_sha256_end(hash, hex);
    ls_sha256_destroy(hash);
    return status;
}

ls_status ls_model_state_sha256(ls_model *model, char hex[65])
{
    LS_CLAIM(ls_model_claimed(model));
    ls_use use;
    if (!hex)
        return ls_fail(LS_ERR_INVALID, "ls_model_state_sha256: out is NULL");
    LS_TRY(ls_use_begin(&use, model, "ls_model_state_sha256", false));
    ls_status status = hash_state(use.job, hex);
    ls_use_end(&use);
    return status;
}

/* ---- Snapshots ---- */

void ls_snapshot_destroy(ls_snapshot *s)
{
    for (size_t i = 0; s && i < s->count; i++) {
        free(s->entry[i].name);
        free(s->entry[i].bytes);
    }
    if (s)
        free(s->entry);
    free(s);
}

static ls_status keep(const ls_state_entry *e, ls_state_entry_bytes *to)
{
    to->name = strdup(e->name);
    to->kind = e->kind;
    if (to->name && e->kind == LS_STATE_CALLBACK)
        return e->callback->save(e->callback->user, &to->bytes, &to->count);
    if (e->variable) {
        LS_TRY(ls_variable_sync_to_host(e->variable));
        to->dtype = e->variable->node->dtype;
        to->shape = e->variable->node->shape;
    }
    to->bytes = malloc(e->bytes + 1);
    if (!to->name || !to->bytes)
        return ls_fail(LS_ERR_MEMORY, "no memory to keep %zu bytes of \"%s\"", e->bytes, e->name);
    if (e->bytes)
        memcpy(to->bytes, e->variable ? e->variable->data : e->data, e->bytes);
    to->count = e->bytes;
    return LS_OK;
}

ls_status ls_job_save(ls_job *job, ls_snapshot **out)
{
    ls_state_entry *entries = NULL;
    size_t count = 0;
    LS_TRY(ls_job_list(job, &entries, &count));
    ls_snapshot *s = calloc(1, sizeof(*s));
    if (s)
        s->entry = calloc(count, sizeof(*s->entry));
    ls_status status = s && s->entry ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for a snapshot");
    for (size_t i = 0; i < count && status == LS_OK; i++)
        status = keep(&entries[i], &s->entry[s->count++]);
    free(entries);
    if (status != LS_OK)
        ls_snapshot_destroy(s);
    else
        *out = s;
    return status;
}

static ls_status check_kept(const ls_state_entry *e, const ls_state_entry_bytes *k)
{
    if (strcmp(e->name, k->name) != 0)
        return ls_fail(LS_ERR_INVALID, "the snapshot has \"%s\" where the job has \"%s\"", k->name, e->name);
    bool same_size = e->bytes == k->count;
    if (e->kind == LS_STATE_FIXED && (!same_size || memcmp(e->data, k->bytes, e->bytes) != 0))
        return ls_fail(LS_ERR_INVALID, "the snapshot was taken with another value of \"%s\"", e->name);
    if (e->kind != LS_STATE_CALLBACK && !same_size)
        return ls_fail(LS_ERR_INVALID, "\"%s\" has %zu bytes in the snapshot but %zu in the job", e->name, k->count,
                       e->bytes);
    return LS_OK;
}

static ls_status put_back(const ls_state_entry *e, const ls_state_entry_bytes *k)
{
    bool missing = e->kind == LS_STATE_CALLBACK && !k->bytes;
    if (missing && ls_callback_may_differ(e->name + strlen(LS_STATE_CALLBACKS)))
        return LS_OK; /* a new callback: it starts now */
    if (e->kind == LS_STATE_CALLBACK)
        return e->callback->load ? e->callback->load(e->callback->user, k->bytes, k->count) : LS_OK;
    ls_variable *variable = e->variable;
    if (variable)
        LS_TRY(ls_writes_begin(variable->node->graph, &variable, 1));
    if (e->bytes)
        memcpy(variable ? variable->data : e->data, k->bytes, e->bytes);
    if (variable) {
        ls_variable_written(variable, true);
        ls_writes_end(variable->node->graph);
    }
    return LS_OK;
}

static ls_status load(const ls_state_entry *entries, size_t count, const ls_snapshot *s)
{
    if (count != s->count)
        return ls_fail(LS_ERR_INVALID, "the snapshot has %zu entries but the job has %zu", s->count, count);
    for (size_t i = 0; i < count; i++)
        LS_TRY(check_kept(&entries[i], &s->entry[i]));
    /* callbacks are last; load them first, because they can fail */
    for (size_t i = count; i-- > 0;)
        LS_TRY(put_back(&entries[i], &s->entry[i]));
    return LS_OK;
}

ls_status ls_job_load(ls_job *job, const ls_snapshot *snapshot)
{
    ls_state_entry *entries = NULL;
    size_t count = 0;
    LS_TRY(ls_job_list(job, &entries, &count));
    ls_graph *graph = ls_model_graph(job->model);
    ls_status status = ls_writes_begin(graph, NULL, 0); /* one write for views, not one for each variable */
    if (status == LS_OK) {
        status = load(entries, count, snapshot);
        ls_writes_end(graph);
    }
    free(entries);
    return status;
}
