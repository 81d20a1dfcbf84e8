/* Records a timeline, and writes the file in the trace event format. */
#include "run/timeline.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/grow.h"
#include "base/text.h"
#include "run/executor_private.h"
#include "run/peers.h"
#include "run/runs.h"

#define BUFFER_EVENTS 256
#define BUFFERS       1024
#define NAME_BYTES    160
#define EVENT_BYTES   400 /* Upper bound of an event's size in the file. */
/* Seconds. Pieces of a join or an update with a shorter gap become one event. */
#define GAP 20e-6

typedef enum activity { TASK, WHOLE, PREPARE, JOIN, SHARE, CHECK, UPDATE, COPY, ACTIVITIES } activity;

typedef struct event {
    double start, end;
    int64_t step, amount; /* Number of pieces; for a copy, of bytes. */
    int name;             /* -1: none. */
    short lane, from, to; /* -1: none. */
    short what;           /* Activity; in the caller's row, ls_call_kind. */
} event;

/* The events of one thread. The first row is the caller's. */
typedef struct row {
    int buffer; /* Current buffer; -1: none yet. */
    event *last;
} row;

struct ls_timeline {
    const ls_context *ctx;
    /* Number among the graph's timelines, by which executors register names. */
    uint64_t number;
    event *events; /* All buffers, one after the other. */
    int row_of[BUFFERS], used[BUFFERS];
    atomic_int buffers; /* Number of buffers in use. */
    row *rows;
    int row_count;
    char **names;
    size_t name_count, name_room;
    double zero;
    /* Rank of the process in a cluster; -1: no cluster. */
    int worker;
    double shift; /* Seconds that this clock is ahead of the chief's. */
    char *others; /* Chief only: rows and events of the others, as text. */
    double worst; /* Largest error of the other workers' clocks. */
    int64_t first, last, step;
    int64_t cut; /* The first step for which there was no buffer; 0: none. */
    bool on;
    atomic_bool full;
    char failure[LS_ERROR_BYTES];
};

/* ---- Creation ---- */

ls_status ls_timeline_create(ls_graph *graph, int64_t first, int64_t last, ls_timeline **out)
{
    ls_runs *runs = NULL;
    ls_runtime *runtime = NULL;
    LS_TRY(ls_runs_of(graph, &runs));
    LS_TRY(ls_runtime_of(graph->context, &runtime));
    ls_timeline *t = calloc(1, sizeof(*t));
    if (t) {
        t->row_count = runtime->threads + 1;
        t->rows = calloc((size_t)t->row_count, sizeof(*t->rows));
        /* Pages that are not written take no memory. */
        t->events = calloc((size_t)BUFFERS * BUFFER_EVENTS, sizeof(*t->events));
    }
    if (!t || !t->rows || !t->events) {
        ls_timeline_destroy(t);
        return ls_fail(LS_ERR_MEMORY, "no memory for a timeline");
    }
    for (int i = 0; i < t->row_count; i++)
        t->rows[i].buffer = -1;
    t->ctx = graph->context;
    t->number = ++runs->timelines;
    t->worker = graph->context->peers ? graph->context->peers->rank : -1;
    t->first = first;
    t->last = last;
    t->zero = ls_clock_now();
    *out = t;
    return LS_OK;
}

void ls_timeline_destroy(ls_timeline *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->name_count; i++)
        free(t->names[i]);
    free(t->names);
    free(t->others);
    free(t->events);
    free(t->rows);
    free(t);
}

/* ---- Names ---- */

static void add_name(ls_timeline *t, const char *name)
{
    char *copy = NULL;
    if (ls_grow(&t->names, t->name_count, &t->name_room, sizeof(*t->names)) == LS_OK)
        copy = strdup(name);
    if (!copy) { /* Without names, no more events can be recorded. */
        atomic_store(&t->full, true);
        return;
    }
    t->names[t->name_count++] = copy;
}

/* Nodes created after the loss are gradients. */
static uint32_t loss_of(const ls_plan *plan)
{
    uint32_t id = UINT32_MAX;
    for (int i = 0; i < plan->guard_count && plan->update_count > 0; i++) {
        const ls_tensor *node = plan->nodes[plan->guards[i]].node;
        if (!ls_node_is(node, LS_TRAIT_WRITES))
            id = node->id;
    }
    return id;
}

/* Names a segment by its layers, in the order of its work: "conv2d .. dense", "dense .. conv2d
 * (backward)". A node that no layer made has its op's name. */
static void name_segment(const ls_plan *plan, const ls_segment *segment, char text[NAME_BYTES])
{
    uint32_t loss = loss_of(plan);
    const char *first = NULL, *last = NULL, *turn = NULL;
    bool forward = false, backward = false;
    for (int i = 0; i < segment->step_count; i++) {
        const ls_tensor *node = segment->steps[i].group->root;
        bool back = node->id > loss;
        /* Recomputed for the steps that follow. */
        if (segment->steps[i].group->segment != segment->index)
            continue;
        forward = forward || !back;
        backward = backward || back;
        if (!node->layer)
            continue;
        first = first ? first : node->layer;
        last = node->layer;
        turn = back ? turn : node->layer;
    }
    char label[LS_NODE_TEXT];
    if (!first)
        first = last = turn = ls_node_label(segment->steps[0].group->root, label);
    if (forward && backward && turn)
        last = turn;
    const char *way = !backward ? "" : forward ? " (forward and backward)" : " (backward)";
    if (strcmp(first, last) == 0)
        snprintf(text, NAME_BYTES, "%.60s%s", first, way);
    else
        snprintf(text, NAME_BYTES, "%.60s .. %.60s%s", first, last, way);
}

static void add_names(ls_timeline *t, ls_executor *e)
{
    const ls_plan *plan = e->plan;
    char text[NAME_BYTES], label[LS_NODE_TEXT];
    e->names = (int)t->name_count;
    for (int s = 0; s < plan->segment_count && !atomic_load(&t->full); s++) {
        name_segment(plan, &plan->segments[s], text);
        add_name(t, text);
    }
    for (int i = 0; i < plan->node_count && !atomic_load(&t->full); i++)
        add_name(t, ls_node_label(plan->nodes[i].node, label));
}

/* ---- The caller ---- */

void ls_timeline_step(ls_timeline *t, int64_t step)
{
    if (!t || t->cut)
        return;
    if (atomic_load(&t->full))
        t->cut = t->step;
    t->step = step;
    t->on = !t->cut && step >= t->first && (t->last == 0 || step <= t->last);
}

bool ls_timeline_run(ls_timeline *t, ls_executor *e)
{
    e->timeline = NULL;
    if (!t || !t->on || atomic_load(&t->full))
        return false;
    bool met = e->timeline_number == t->number;
    if (!met)
        add_names(t, e);
    e->timeline_number = t->number;
    e->timeline = atomic_load(&t->full) ? NULL : t;
    return !met;
}

void ls_timeline_failed(ls_timeline *t, const char *message)
{
    if (t)
        snprintf(t->failure, sizeof(t->failure), "%s", message);
}

/* ---- Events ---- */

/* Only the row's thread may call this. NULL: no buffer is left. */
static event *next_event(ls_timeline *t, int number)
{
    row *r = &t->rows[number];
    if (atomic_load_explicit(&t->full, memory_order_relaxed))
        return NULL;
    if (r->buffer < 0 || t->used[r->buffer] == BUFFER_EVENTS) {
        int buffer = atomic_fetch_add(&t->buffers, 1);
        if (buffer >= BUFFERS) {
            atomic_store(&t->full, true);
            return NULL;
        }
        r->buffer = buffer;
        t->row_of[buffer] = number;
    }
    r->last = &t->events[(size_t)r->buffer * BUFFER_EVENTS + (size_t)t->used[r->buffer]++];
    *r->last = (event){ .step = t->step, .name = -1, .lane = -1, .from = -1, .to = -1 };
    return r->last;
}

void ls_timeline_call(ls_timeline *t, ls_call_kind kind, double start, double end)
{
    event *v = t && t->on ? next_event(t, 0) : NULL;
    if (!v)
        return;
    v->what = (short)kind;
    v->start = start;
    v->end = end;
}

static event *add(ls_executor *e, int thread, activity what, int name, double start, double end)
{
    event *v = next_event(e->timeline, thread + 1);
    if (!v)
        return NULL;
    v->what = (short)what;
    v->name = e->names + name;
    v->start = start;
    v->end = end;
    return v;
}

static void add_of_lane(ls_executor *e, int thread, activity what, int segment, int lane, double start, double end)
{
    event *v = add(e, thread, what, segment, start, end);
    if (v)
        v->lane = (short)lane;
}

void ls_timeline_task(ls_executor *e, int thread, int segment, int lane, double start)
{
    add_of_lane(e, thread, TASK, segment, lane, start, ls_clock_now());
}

void ls_timeline_tasks(ls_executor *e, int thread, int segment, const ls_unit *const *units, int count, double start)
{
    double end = ls_clock_now();
    for (int i = 0; i < count; i++)
        add_of_lane(e, thread, TASK, segment, units[i]->lane, start, end);
}

void ls_timeline_siblings(ls_executor *e, int thread, int segment, int lane, double start)
{
    add_of_lane(e, thread, JOIN, segment, lane, start, ls_clock_now());
}

void ls_timeline_copy(ls_executor *e, int thread, int value, int from, int to, size_t bytes, double start)
{
    event *v = add(e, thread, COPY, e->plan->segment_count + value, start, ls_clock_now());
    if (!v)
        return;
    v->from = (short)from;
    v->to = (short)to;
    v->amount = (int64_t)bytes;
}

static int subject(const ls_plan *plan, const ls_phase *phase, const ls_unit *u)
{
    switch (phase->kind) {
    case LS_PHASE_WHOLE:
    case LS_PHASE_TILES:
        return plan->whole_steps[u->index].group->value;
    case LS_PHASE_PREPARE:
        return plan->prepared[u->index].value;
    case LS_PHASE_EXCHANGE:
    case LS_PHASE_REDUCE:
    case LS_PHASE_SETTLE:
    case LS_PHASE_POST:
    case LS_PHASE_COLLECT:
    case LS_PHASE_COMMIT:
        return plan->fetches[0];
    case LS_PHASE_GUARD:
        return plan->guards[u->index];
    case LS_PHASE_CHECK:
    case LS_PHASE_UPDATE:
        return plan->updates[u->index].in[0].value;
    default:
        return plan->joins[u->index].group->value;
    }
}

/* Merges pieces of one phase into one event. Tasks record themselves. */
void ls_timeline_unit(ls_executor *e, int thread, const ls_phase *phase, const ls_unit *u, double start, double end)
{
    static const short doing[LS_PHASE_KINDS] = {
        [LS_PHASE_WHOLE] = WHOLE,  [LS_PHASE_TILES] = WHOLE,  [LS_PHASE_PREPARE] = PREPARE, [LS_PHASE_LANES] = TASK,
        [LS_PHASE_HOME] = SHARE,   [LS_PHASE_PAIR] = JOIN,    [LS_PHASE_JOIN] = JOIN,       [LS_PHASE_SHARE] = SHARE,
        [LS_PHASE_FINISH] = JOIN,  [LS_PHASE_GATHER] = SHARE, [LS_PHASE_EXCHANGE] = SHARE,  [LS_PHASE_COLLECT] = SHARE,
        [LS_PHASE_REDUCE] = SHARE, [LS_PHASE_SETTLE] = SHARE, [LS_PHASE_POST] = SHARE,      [LS_PHASE_COMMIT] = SHARE,
        [LS_PHASE_GUARD] = CHECK,  [LS_PHASE_CHECK] = CHECK,  [LS_PHASE_UPDATE] = UPDATE
    };
    event *last = e->timeline->rows[thread + 1].last;
    if (phase->kind == LS_PHASE_LANES)
        return;
    if (phase->kind == LS_PHASE_PAIR) {
        add_of_lane(e, thread, JOIN, u->index, u->lane, start, end);
        return;
    }
    if (last && last->what == doing[phase->kind] && last->lane < 0 && start - last->end < GAP) {
        last->end = end;
        last->amount++;
        return;
    }
    event *v =
        add(e, thread, (activity)doing[phase->kind], e->plan->segment_count + subject(e->plan, phase, u), start, end);
    if (v)
        v->amount = 1;
}

/* ---- The file ---- */

static const char *const categories[ACTIVITIES] = { "task",  "values", "weights", "join",
                                                    "share", "check",  "update",  "copy" };

/* Microseconds with three decimals, independent of the locale. */
static void put_time(ls_text *text, const char *key, double seconds)
{
    long long ns = (long long)(seconds * 1e9 + 0.5);
    ls_text_add(text, ",\"%s\":%lld.%03lld", key, ns / 1000, ns % 1000);
}

/* A worker of a cluster is one process in the file; without a cluster there are several. */
static int process_of(const ls_timeline *t, int process)
{
    return t->worker < 0 ? process : t->worker + 1;
}

static void put_span(ls_text *text, const ls_timeline *t, const event *v, int process, int thread)
{
    double start = v->start - t->shift - t->zero;
    ls_text_add(text, ",\"ph\":\"X\",\"pid\":%d,\"tid\":%d", process_of(t, process), thread);
    put_time(text, "ts", start > 0 ? start : 0);
    put_time(text, "dur", v->end > v->start ? v->end - v->start : 0);
    ls_text_add(text, ",\"args\":{\"step\":%lld", (long long)v->step);
}

/* Examples: "conv2d .. dense, lane 3"; "join"; "copy of dense/kernel". */
static void put_name(ls_text *text, const event *v, const char *name)
{
    char label[NAME_BYTES + 32];
    if (v->what == TASK)
        snprintf(label, sizeof(label), "%s, lane %d", name, v->lane);
    else if (v->what == COPY)
        snprintf(label, sizeof(label), "copy of %s", name);
    else if (v->what == JOIN && v->lane >= 0)
        snprintf(label, sizeof(label), "join, lane %d with its neighbour", v->lane);
    else
        snprintf(label, sizeof(label), "%s", categories[v->what]);
    ls_text_put(text, ",\n{\"name\":");
    ls_text_put_json(text, label);
    ls_text_add(text, ",\"cat\":\"%s\"", categories[v->what]);
}

static void put_work(ls_text *text, const ls_timeline *t, const event *v, int thread)
{
    const ls_device *devices = t->ctx->devices;
    char from[LS_SHORT_NAME], to[LS_SHORT_NAME];
    int device = 0;
    while (device + 1 < t->ctx->device_count && thread >= devices[device].first_thread + devices[device].thread_count)
        device++;
    put_name(text, v, t->names[v->name]);
    put_span(text, t, v, device + 2, thread + 2);
    if (v->lane >= 0)
        ls_text_add(text, ",\"lane\":%d", v->lane);
    if (v->what != TASK) {
        ls_text_put(text, v->what == COPY ? ",\"of\":" : ",\"first\":");
        ls_text_put_json(text, t->names[v->name]);
    }
    if (v->what == COPY)
        ls_text_add(text, ",\"from\":\"%s\",\"to\":\"%s\",\"bytes\":%lld", ls_device_short_name(t->ctx, v->from, from),
                    ls_device_short_name(t->ctx, v->to, to), (long long)v->amount);
    else if (v->amount > 0)
        ls_text_add(text, ",\"pieces\":%lld", (long long)v->amount);
    ls_text_put(text, "}}");
}

static void put_call(ls_text *text, const ls_timeline *t, const event *v)
{
    static const char *const names[] = { "", "waiting for data", "validation", "planning", "copying variables" };
    static const char *const kinds[] = { "step", "data", "validation", "plan", "state" };
    if (v->what == LS_CALL_STEP)
        ls_text_add(text, ",\n{\"name\":\"step %lld\"", (long long)v->step);
    else
        ls_text_add(text, ",\n{\"name\":\"%s\"", names[v->what]);
    ls_text_add(text, ",\"cat\":\"%s\"", kinds[v->what]);
    put_span(text, t, v, 1, 1);
    ls_text_put(text, "}}");
}

static void put_meta(ls_text *text, const char *what, int process, int thread, const char *name)
{
    ls_text_add(text, ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"args\":{\"name\":\"%s\"}}", process,
                thread, what, name);
    ls_text_add(text,
                ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"%.7s_sort_index\",\"args\":{\"sort_index\":%d}}",
                process, thread, strcmp(what, "thread_name") == 0 ? "thread" : "process",
                strcmp(what, "thread_name") == 0 ? thread : process);
}

/* A process for the caller and one for each device; in a cluster one for all. */
static void put_rows(ls_text *text, const ls_timeline *t)
{
    char name[LS_SHORT_NAME + 32] = "training", short_name[LS_SHORT_NAME];
    if (t->worker >= 0)
        snprintf(name, sizeof(name), "worker %d", t->worker);
    put_meta(text, "process_name", process_of(t, 1), 1, name);
    put_meta(text, "thread_name", process_of(t, 1), 1, "fit");
    for (int d = 0; d < t->ctx->device_count; d++) {
        const ls_device *device = &t->ctx->devices[d];
        ls_device_short_name(t->ctx, d, short_name);
        if (t->worker < 0)
            put_meta(text, "process_name", d + 2, 0, short_name);
        for (int w = 0; w < device->thread_count; w++) {
            snprintf(name, sizeof(name), "%s thread %d", short_name, w);
            put_meta(text, "thread_name", process_of(t, d + 2), device->first_thread + w + 2, name);
        }
    }
}

static bool is_kept(const ls_timeline *t, const event *v)
{
    return t->cut == 0 || v->step < t->cut;
}

/* Returns the last complete step. */
static int64_t put_events(ls_text *text, const ls_timeline *t)
{
    int64_t last = 0;
    int buffers = atomic_load(&t->buffers);
    for (int buffer = 0; buffer < buffers && buffer < BUFFERS; buffer++)
        for (int i = 0; i < t->used[buffer]; i++) {
            const event *v = &t->events[(size_t)buffer * BUFFER_EVENTS + (size_t)i];
            if (!is_kept(t, v))
                continue;
            if (t->row_of[buffer] == 0)
                put_call(text, t, v);
            else
                put_work(text, t, v, t->row_of[buffer] - 1);
            last = v->step > last ? v->step : last;
        }
    return last;
}

static size_t count_before(const ls_timeline *t, int64_t step)
{
    size_t count = 0;
    int buffers = atomic_load(&t->buffers);
    for (int buffer = 0; buffer < buffers && buffer < BUFFERS; buffer++)
        for (int i = 0; i < t->used[buffer]; i++)
            count += t->events[(size_t)buffer * BUFFER_EVENTS + (size_t)i].step < step;
    return count;
}

/* Drops the last steps so that at most `most` events remain. */
static void cut_after(ls_timeline *t, size_t most)
{
    int64_t low = 0, high = t->cut ? t->cut : t->step + 1;
    if (count_before(t, high) <= most)
        return;
    while (high - low > 1) { /* Steps before `low` fit; steps before `high` do not. */
        int64_t middle = low + (high - low) / 2;
        *(count_before(t, middle) <= most ? &low : &high) = middle;
    }
    t->cut = low;
}

ls_status ls_timeline_describe(ls_timeline *t, const ls_timeline_clock *clock, size_t most, ls_text *text)
{
    if (atomic_load(&t->full) && !t->cut)
        t->cut = t->step;
    cut_after(t, most / EVENT_BYTES);
    t->shift = clock->shift;
    t->zero = clock->zero;
    put_rows(text, t);
    put_events(text, t);
    if (t->cut)
        ls_text_add(
            text,
            ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":1,\"name\":\"process_labels\",\"args\":{\"labels\":\"without steps "
            "from %lld on\"}}",
            process_of(t, 1), (long long)t->cut);
    return text->failed || text->length > most ? ls_fail(LS_ERR_MEMORY, "no memory for a timeline") : LS_OK;
}

double ls_timeline_zero(const ls_timeline *t)
{
    return t->zero;
}

void ls_timeline_take_others(ls_timeline *t, char *events, double bound)
{
    free(t->others);
    t->others = events;
    t->worst = bound;
}

ls_status ls_timeline_write(ls_timeline *t, const char *path, int64_t *kept)
{
    ls_text text = { 0 };
    if (atomic_load(&t->full) && !t->cut)
        t->cut = t->step;
    ls_text_put(&text, "{\"displayTimeUnit\":\"ms\",\n\"traceEvents\":[\n");
    ls_text_add(
        &text,
        "{\"ph\":\"M\",\"pid\":%d,\"tid\":1,\"name\":\"process_labels\",\"args\":{\"labels\":\"lockstep " LS_VERSION
        "\"}}",
        process_of(t, 1));
    put_rows(&text, t);
    int64_t last = put_events(&text, t);
    ls_text_put(&text, t->others ? t->others : "");
    if (t->failure[0]) {
        ls_text_add(
            &text, ",\n{\"name\":\"training failed\",\"cat\":\"failure\",\"ph\":\"i\",\"s\":\"g\",\"pid\":%d,\"tid\":1",
            process_of(t, 1));
        put_time(&text, "ts", ls_clock_now() - t->zero);
        ls_text_put(&text, ",\"args\":{\"message\":");
        ls_text_put_json(&text, t->failure);
        ls_text_put(&text, "}}");
    }
    ls_text_add(&text, "\n],\n\"otherData\":{\"last_step\":%lld", (long long)last);
    if (t->cut)
        ls_text_add(&text, ",\"left_out\":\"steps from %lld on: a timeline has room for %d events\"", (long long)t->cut,
                    BUFFERS * BUFFER_EVENTS);
    if (t->others)
        ls_text_add(&text, ",\"clocks\":\"of other workers: within %.1f us of the first one\'s\"", t->worst * 1e6);
    ls_text_put(&text, "}}\n");
    ls_status status = text.failed ? ls_fail(LS_ERR_MEMORY, "no memory to write a timeline")
                                   : ls_file_write(path, ls_text_get(&text), text.length);
    ls_text_free(&text);
    if (status == LS_OK)
        *kept = last;
    return status;
}
