/* A device that runs kernels of this folder, as a backend (lockstep/backend.h): one queue, in order; what was asked for
 * is done later, and waited for by download, finite and sync. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/gpu/driver.h"
#include "base/work.h"

#define STAGES     16 /* uploads that may wait in a queue */
#define PENDING    64 /* programs that may have found something wrong, and were not asked yet */
#define MOST_LANES 4096
#define FAULTS_AT  0 /* in the device's own buffer, in bytes: one by lane */
#define ZEROS_AT   (MOST_LANES * sizeof(ls_gpu_fault))
#define ZEROS      2048
#define FLAGS_AT   (ZEROS_AT + ZEROS)
#define FLAGS      ((size_t)64 * LS_GPU_FLAGS) /* that are read at once */
#define OWN_BYTES  (FLAGS_AT + FLAGS)
#define STEPS_MOST (1 << 20) /* of a program: faults name theirs beside its number among the pending */

#define ALIGNMENT       256 /* of scratch memory, as libraries want it */
#define ALIGNED(bytes)  (((bytes) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT)
#define PARTS_MOST      ((size_t)64 << 20) /* bytes of partial sums at once, of all lanes; */
#define PARTS_SHARE     8                  /* of a limit, at most the 8th part */
#define WORKSPACE_MOST  ((size_t)1 << 30)
#define WORKSPACE_SHARE 4 /* of a limit, a library's workspace is at most the 4th part */

/* Host memory on its way to the device, until `done`. */
typedef struct stage {
    void *bytes;
    size_t room;
    void *done; /* NULL: nothing waits */
} stage;

/* Small uploads to one memory wait in a stage, and go to the device together, where a kernel takes them to their
 * places: a command of a driver costs more than the bytes of a lane's labels. */
#define INBOX_BYTES  ((size_t)1 << 20)
#define INBOX_PIECE  ((size_t)1 << 14) /* bytes, at most */
#define INBOX_PIECES 512
#define INBOX_ENTRY  (LS_GPU_PLACES * sizeof(i64) + sizeof(ls_gpu_flat)) /* of the kernel's table, behind the pieces */

typedef struct inbox {
    void *memory; /* the device's; NULL: not yet */
    stage *host;  /* NULL: nothing waits */
    void *to;
    size_t used;
    size_t end; /* of what it goes to: the largest */
    struct {
        size_t offset, at, bytes;
    } piece[INBOX_PIECES];
    int count;
} inbox;

/* Joins, or updates, one behind the other that do not touch each other's bytes become one launch, as lanes do. */
#define TOGETHER      16   /* of them, at most */
#define MOST_TOGETHER 1024 /* pieces of memory that they read, and that they write */
typedef struct piece {
    const void *memory;
    size_t from, end; /* bytes */
} piece;
typedef struct pieces {
    piece list[MOST_TOGETHER];
    int count;
} pieces;
typedef enum together_kind { ALONE, JOINS, UPDATES } together_kind;
typedef struct together {
    together_kind kind;     /* of what waits last */
    const void *updates_of; /* the plan */
    int count;
    pieces read, written;
} together;

/* Launches of a plan's last run: the next is often the same to the byte, as far as kernels see. */
typedef struct last_run {
    ls_gpu_saved launches;
    ls_program_run *runs;
    int count; /* of lanes; 0: there is none */
    int pending;
    ls_memory_place scratch;
    bool checks;
} last_run;

typedef struct plan {
    ls_program program;
    size_t scratch;                /* bytes of a lane */
    size_t shared;                 /* bytes of the library's workspace, of all lanes */
    int scratch_step, shared_step; /* that need most of them */
    ls_gpu_chain_steps *chains;    /* in order */
    int chain_count;
    last_run last;
    bool updates; /* and nothing else */
} plan;

typedef struct device {
    const ls_gpu_driver *driver;
    void *own_device; /* the driver's */
    const char *name;
    const ls_gpu_tuning *tuning;
    ls_gpu_kernels *kernels;
    ls_gpu_record *record; /* of what is to be launched */
    bool waits;            /* it has launches that are not in the queue yet */
    together last;         /* of these */
    void *own;             /* memory: faults, zeros, and flags of `finite` */
    void *table;           /* memory for the tables of launches; the largest so far */
    size_t table_bytes;
    ls_memory_place scratch; /* memory for partial sums and workspaces, at a multiple of 256; not ours: use_scratch */
    size_t scratch_bytes;
    stage stages[STAGES];
    int next_stage;
    inbox in;
    const plan *pending[PENDING];
    int pending_count, pending_lanes; /* lanes: the most of any of them */
    ls_gpu_fault faults[MOST_LANES];
    unsigned char flags[FLAGS];
    i64 tree[sizeof(ls_gpu_tree) / sizeof(i64) + 2 * MOST_LANES];
} device;

/* ---- Opening ---- */

static void *host_alloc(device *d, size_t bytes)
{
    return d->driver->host_alloc ? d->driver->host_alloc(d->own_device, bytes) : malloc(bytes);
}

static void host_free(device *d, void *bytes)
{
    if (!d->driver->host_free)
        free(bytes);
    else if (bytes)
        d->driver->host_free(d->own_device, bytes);
}

void ls_gpu_close(void *device_)
{
    device *d = device_;
    d->driver->finish(d->own_device);
    for (int i = 0; i < STAGES; i++) {
        if (d->stages[i].done)
            d->driver->wait(d->own_device, d->stages[i].done);
        host_free(d, d->stages[i].bytes);
    }
    if (d->own)
        d->driver->free(d->own_device, d->own);
    if (d->in.memory)
        d->driver->free(d->own_device, d->in.memory);
    if (d->table)
        d->driver->free(d->own_device, d->table);
    ls_gpu_record_destroy(d->record);
    ls_gpu_kernels_destroy(d->kernels);
    d->driver->close(d->own_device);
    free(d);
}

/* Writes a few bytes, and waits. */
static ls_status write_now(device *d, void *memory, size_t offset, const void *from, size_t bytes)
{
    void *done = NULL;
    LS_TRY(d->driver->write(d->own_device, memory, offset, from, bytes, &done));
    return d->driver->wait(d->own_device, done);
}

ls_status ls_gpu_open(const ls_gpu_opening *opening, void **out)
{
    static const char zeros[FLAGS_AT];
    device *d = calloc(1, sizeof(*d));
    if (!d) {
        opening->driver->close(opening->device);
        return ls_fail(LS_ERR_MEMORY, "no memory for %s", opening->name);
    }
    d->driver = opening->driver;
    d->own_device = opening->device;
    d->name = opening->name;
    d->tuning = opening->tuning;
    d->kernels = ls_gpu_kernels_create(opening);
    d->record = ls_gpu_record_create();
    ls_status status = d->kernels && d->record ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for kernels");
    if (status == LS_OK)
        status = d->driver->alloc(d->own_device, OWN_BYTES, &d->own);
    if (status == LS_OK)
        status = write_now(d, d->own, 0, zeros, FLAGS_AT);
    if (status != LS_OK) {
        ls_gpu_close(d);
        return status;
    }
    *out = d;
    return LS_OK;
}

/* ---- Memory ---- */

static ls_status send_waiting(device *d);
static ls_status send_launches(device *d);

static void empty_inbox(device *d)
{
    d->in.host = NULL;
    d->in.to = NULL;
    d->in.used = 0;
    d->in.end = 0;
    d->in.count = 0;
}

ls_status ls_gpu_alloc(void *device_, size_t bytes, void **memory)
{
    device *d = device_;
    return ls_fail_within(d->driver->alloc(d->own_device, bytes, memory), "%zu bytes", bytes);
}

void ls_gpu_free(void *device_, void *memory)
{
    device *d = device_;
    if (d->in.to == memory) /* nobody needs what was on its way there */
        empty_inbox(d);
    (void)send_waiting(d);
    d->driver->finish(d->own_device);
    d->driver->free(d->own_device, memory);
}

/* The next piece of host memory that nothing waits in. */
static ls_status next_stage(device *d, size_t bytes, stage **out)
{
    stage *s = &d->stages[d->next_stage];
    d->next_stage = (d->next_stage + 1) % STAGES;
    if (s->done) {
        void *done = s->done;
        s->done = NULL;
        LS_TRY(d->driver->wait(d->own_device, done));
    }
    if (s->room < bytes) {
        host_free(d, s->bytes);
        s->bytes = host_alloc(d, bytes);
        s->room = s->bytes ? bytes : 0;
        if (!s->bytes)
            return ls_fail(LS_ERR_MEMORY, "no host memory for %zu bytes on their way to %s", bytes, d->name);
    }
    *out = s;
    return LS_OK;
}

/* The table of the kernel, an entry for each piece as for a lane; the most items that one has. */
static int64_t write_pieces(const inbox *in, int which, unsigned char *to)
{
    int64_t most = 1;
    for (int i = 0; i < in->count; i++) {
        i64 offset[LS_GPU_PLACES] = { (i64)in->piece[i].offset, (i64)in->piece[i].at, [LS_GPU_WHICH] = which };
        ls_gpu_flat p = { .n = (i64)in->piece[i].bytes };
        int64_t items = (p.n + 63) / 64;
        memcpy(to + (size_t)i * INBOX_ENTRY, offset, sizeof(offset));
        memcpy(to + (size_t)i * INBOX_ENTRY + sizeof(offset), &p, sizeof(p));
        most = items > most ? items : most;
    }
    return most;
}

/* What waits goes to its places, behind everything that was queued. */
static ls_status send_inbox(device *d)
{
    inbox in = d->in;
    ls_gpu_kernel_of kernel;
    bool first;
    if (!in.host)
        return LS_OK;
    empty_inbox(d);
    if (in.count == 1)
        return d->driver->write(d->own_device, in.to, in.piece[0].offset, in.host->bytes, in.piece[0].bytes,
                                &in.host->done);
    LS_TRY(ls_gpu_kernel(d->kernels, LS_GPU_MOVES, "scatter", &kernel, &first));
    ls_gpu_grid grid = { .kernel = "scatter",
                         .memory = { in.to, in.memory, in.to, in.to },
                         .places = kernel.places,
                         .table = { in.memory, in.used },
                         .entry = INBOX_ENTRY,
                         .lanes = in.count,
                         .group = d->tuning->group };
    grid.items[0] = write_pieces(&in, kernel.which, (unsigned char *)in.host->bytes + in.used);
    grid.items[1] = 1;
    LS_TRY(d->driver->write(d->own_device, in.memory, 0, in.host->bytes, in.used + (size_t)in.count * INBOX_ENTRY,
                            &in.host->done));
    return d->driver->launch(d->own_device, kernel.handle, &grid);
}

/* Whether one of the pieces that wait goes to some of these bytes: pieces are taken to their places in no order. Most
 * come with rising offsets. */
static bool meets(const inbox *in, size_t offset, size_t bytes)
{
    if (offset >= in->end)
        return false;
    for (int i = 0; i < in->count; i++)
        if (offset < in->piece[i].offset + in->piece[i].bytes && in->piece[i].offset < offset + bytes)
            return true;
    return false;
}

/* A piece that waits for the very same bytes, as where labels are fed twice: what is newer takes its place. */
static bool replace_piece(const inbox *in, const void *memory, size_t offset, const void *from, size_t bytes)
{
    if (!in->host || in->to != memory || offset >= in->end)
        return false;
    for (int i = in->count - 1; i >= 0; i--)
        if (in->piece[i].offset == offset && in->piece[i].bytes == bytes) {
            memcpy((unsigned char *)in->host->bytes + in->piece[i].at, from, bytes);
            return true;
        }
    return false;
}

/* Room in the inbox for a piece that goes to this memory. */
static ls_status open_inbox(device *d, void *memory, size_t offset, size_t bytes)
{
    inbox *in = &d->in;
    if (in->host &&
        (in->to != memory || in->count == INBOX_PIECES || in->used + bytes > INBOX_BYTES || meets(in, offset, bytes)))
        LS_TRY(send_inbox(d));
    if (!in->memory)
        LS_TRY(d->driver->alloc(d->own_device, INBOX_BYTES + INBOX_PIECES * INBOX_ENTRY, &in->memory));
    if (!in->host)
        LS_TRY(next_stage(d, INBOX_BYTES + INBOX_PIECES * INBOX_ENTRY, &in->host));
    in->to = memory;
    return LS_OK;
}

ls_status ls_gpu_upload(void *device_, void *memory, size_t offset, const void *from, size_t bytes)
{
    device *d = device_;
    stage *s;
    LS_TRY(send_launches(d));
    if (bytes > INBOX_PIECE) {
        LS_TRY(send_inbox(d));
        LS_TRY(next_stage(d, bytes, &s));
        memcpy(s->bytes, from, bytes);
        return d->driver->write(d->own_device, memory, offset, s->bytes, bytes, &s->done);
    }
    inbox *in = &d->in;
    if (replace_piece(in, memory, offset, from, bytes))
        return LS_OK;
    LS_TRY(open_inbox(d, memory, offset, bytes));
    memcpy((unsigned char *)in->host->bytes + in->used, from, bytes);
    in->piece[in->count].offset = offset;
    in->piece[in->count].at = in->used;
    in->piece[in->count++].bytes = bytes;
    in->used += (bytes + 15) / 16 * 16;
    in->end = offset + bytes > in->end ? offset + bytes : in->end;
    return LS_OK;
}

/* Everything that was asked for goes to the queue: of uploads and launches, only one kind waits at a time. */
static ls_status send_waiting(device *d)
{
    LS_TRY(send_inbox(d));
    return send_launches(d);
}

/* What programs have found wrong with their data since they were last asked: of several lanes the first tells. */
static ls_status tell_faults(device *d)
{
    static const ls_gpu_fault none[MOST_LANES];
    size_t bytes = (size_t)d->pending_lanes * sizeof(*none);
    int lane = 0;
    if (d->pending_count == 0)
        return LS_OK;
    d->pending_count = 0;
    LS_TRY(d->driver->read(d->own_device, d->own, FAULTS_AT, d->faults, bytes));
    while (lane < d->pending_lanes && d->faults[lane].kind == LS_GPU_FAULT_NONE)
        lane++;
    if (lane == d->pending_lanes)
        return LS_OK;
    LS_TRY(write_now(d, d->own, FAULTS_AT, none, bytes));
    const ls_gpu_fault *fault = &d->faults[lane];
    return ls_gpu_fault_status(fault, &d->pending[fault->step / STEPS_MOST]->program.steps[fault->step % STEPS_MOST]);
}

ls_status ls_gpu_download(void *device_, void *memory, size_t offset, void *to, size_t bytes)
{
    device *d = device_;
    LS_TRY(send_waiting(d));
    LS_TRY(tell_faults(d));
    return d->driver->read(d->own_device, memory, offset, to, bytes);
}

ls_status ls_gpu_copy_from(void *to_device, void *to, size_t to_offset, void *from_device, void *from,
                           size_t from_offset, size_t bytes)
{
    device *d = to_device, *other = from_device;
    stage *s;
    LS_TRY(send_waiting(d)); /* the other's queue is done */
    if (!d->driver->reaches || d->driver->reaches(d->own_device, other->own_device))
        return d->driver->copy(d->own_device, to, to_offset, other->own_device, from, from_offset, bytes);
    LS_TRY(next_stage(d, bytes, &s));
    LS_TRY(d->driver->read(other->own_device, from, from_offset, s->bytes, bytes));
    return d->driver->write(d->own_device, to, to_offset, s->bytes, bytes, &s->done);
}

/* One by one; then all devices that something came to are waited for. */
static ls_status copy_all(const ls_transfer *list, int count)
{
    for (int i = 0; i < count; i++)
        LS_TRY(ls_gpu_copy_from(list[i].to_device, list[i].to.memory, list[i].to.offset, list[i].from_device,
                                list[i].from.memory, list[i].from.offset, list[i].bytes));
    for (int i = 0; i < count; i++) {
        const device *d = list[i].to_device;
        bool waited = false;
        for (int k = 0; k < i && !waited; k++)
            waited = list[k].to_device == d;
        if (!waited)
            LS_TRY(d->driver->finish(d->own_device));
    }
    return LS_OK;
}

ls_status ls_gpu_transfer(void *user, const ls_transfer *list, int count)
{
    const device *first = list[0].from_device;
    bool can = false;
    (void)user;
    ls_transfer *own = first->driver->transfer ? malloc((size_t)count * sizeof(*own)) : NULL;
    for (int i = 0; own && i < count; i++) {
        own[i] = list[i];
        own[i].from_device = ((const device *)list[i].from_device)->own_device;
        own[i].to_device = ((const device *)list[i].to_device)->own_device;
    }
    ls_status status = own ? first->driver->transfer(own, count, &can) : LS_OK;
    free(own);
    return status != LS_OK || can ? status : copy_all(list, count);
}

/* ---- Launches ---- */

static int group_of(const device *d, const ls_gpu_launch *launch)
{
    return launch->heavy ? d->tuning->heavy : d->tuning->group;
}

static ls_status record_launch(void *user, const ls_gpu_launch *launch)
{
    device *d = user;
    ls_gpu_kernel_of kernel = { .which = -1 };
    bool first;
    if (!launch->is_call)
        LS_TRY(ls_gpu_kernel(d->kernels, launch->module, launch->kernel, &kernel, &first));
    return ls_gpu_record_add(d->record, kernel, launch, group_of(d, launch));
}

static ls_status ask_library(void *user, ls_gpu_call *call, bool *can)
{
    device *d = user;
    return d->driver->ask(d->own_device, call, can);
}

static ls_status call_library(device *d, const ls_gpu_recorded *of)
{
    ls_memory_place at[LS_GPU_PLACES];
    for (int lane = 0; lane < of->grid.lanes; lane++) {
        const ls_gpu_call *call = ls_gpu_record_call(d->record, of, lane, at);
        LS_TRY(d->driver->call(d->own_device, call, at));
    }
    return LS_OK;
}

/* Room for a table. What is queued may still read the one that is there. */
static ls_status need_table(device *d, size_t bytes)
{
    void *larger = NULL;
    if (bytes <= d->table_bytes)
        return LS_OK;
    bytes = bytes > 2 * d->table_bytes ? bytes : 2 * d->table_bytes;
    LS_TRY(ls_fail_within(d->driver->alloc(d->own_device, bytes, &larger), "%zu bytes for launches", bytes));
    d->driver->finish(d->own_device);
    if (d->table)
        d->driver->free(d->own_device, d->table);
    d->table = larger;
    d->table_bytes = bytes;
    return LS_OK;
}

/* Launches what was recorded: its table first, behind everything that reads the one before. */
static ls_status send_launches(device *d)
{
    size_t bytes;
    int count;
    stage *s;
    const void *table = ls_gpu_record_table(d->record, &bytes);
    const ls_gpu_recorded *list = ls_gpu_record_list(d->record, &count);
    bool waits = d->waits;
    d->waits = false;
    d->last.kind = ALONE;
    if (!waits || count == 0)
        return LS_OK;
    LS_TRY(need_table(d, bytes));
    LS_TRY(next_stage(d, bytes, &s));
    memcpy(s->bytes, table, bytes);
    LS_TRY(d->driver->write(d->own_device, d->table, 0, s->bytes, bytes, &s->done));
    for (int i = 0; i < count; i++) {
        if (!list[i].kernel.handle) {
            LS_TRY(call_library(d, &list[i]));
            continue;
        }
        ls_gpu_grid grid = list[i].grid;
        grid.kernel = list[i].name;
        grid.table = (ls_memory_place){ d->table, list[i].table_at };
        LS_TRY(d->driver->launch(d->own_device, list[i].kernel.handle, &grid));
    }
    ls_gpu_count_launches(count);
    return LS_OK;
}

/* Compiles the kernel, and lets it run with nothing to do: drivers finish compiling when a kernel is first run. */
static ls_status warm_launch(void *user, const ls_gpu_launch *launch)
{
    device *d = user;
    ls_gpu_kernel_of kernel;
    bool first;
    ls_work_tell("compiling kernels for", d->name, 0, 0); /* shown from the second second on */
    LS_TRY(ls_gpu_record_add(d->record, (ls_gpu_kernel_of){ .which = -1 }, launch, 0));
    if (launch->is_call)
        return LS_OK;
    LS_TRY(ls_gpu_kernel(d->kernels, launch->module, launch->kernel, &kernel, &first));
    if (!first)
        return LS_OK;
    ls_gpu_grid idle = { .kernel = launch->kernel,
                         .places = kernel.places > 0 ? kernel.places : launch->places,
                         .table = { d->own, ZEROS_AT },
                         .items = { 1, 1 },
                         .lanes = 1,
                         .group = group_of(d, launch) };
    for (int i = 0; i < idle.places; i++)
        idle.memory[i] = d->own;
    LS_TRY(d->driver->launch(d->own_device, kernel.handle, &idle));
    return ls_fail_within(d->driver->finish(d->own_device), "%s: kernel %s does not run", d->name, launch->kernel);
}

/* lane: of those that are run together. */
static ls_gpu_lowering lowering_of(device *d, ls_gpu_launcher *launch, int lane)
{
    return (ls_gpu_lowering){ .tuning = d->tuning,
                              .launch = launch,
                              .ask = d->driver->ask ? ask_library : NULL,
                              .user = d,
                              .lanes = 1,
                              .scratch = d->scratch,
                              .first_scratch = d->scratch.offset,
                              .fault = { d->own, FAULTS_AT + (size_t)lane * sizeof(ls_gpu_fault) } };
}

/* Of a plan: with what its device's limit leaves for scratch memory. */
static ls_gpu_lowering lowering_for(device *d, const plan *p, ls_gpu_launcher *launch, int lane)
{
    size_t limit = p->program.limit;
    ls_gpu_lowering l = lowering_of(d, launch, lane);
    l.lanes = p->program.lanes;
    l.scratch.offset += (size_t)lane * p->scratch;
    l.parts_limit = (int64_t)(limit > 0 && limit / PARTS_SHARE < PARTS_MOST ? limit / PARTS_SHARE : PARTS_MOST);
    l.workspace_limit = ls_gpu_workspace_limit(limit);
    return l;
}

/* What is lowered between the two waits to be launched, behind what waits already, of which it is no part: small
 * programs and joins come in rows, and have one table together. */
static ls_status begin_launches(device *d, int lanes)
{
    d->last.kind = ALONE;
    LS_TRY(send_inbox(d));
    if (d->waits)
        ls_gpu_record_more(d->record, lanes);
    else
        ls_gpu_record_begin(d->record, lanes);
    return LS_OK;
}

static ls_status end_launches(device *d, ls_status status)
{
    d->waits = d->waits || status == LS_OK;
    if (status != LS_OK) {
        ls_gpu_record_drop(d->record);
        d->last.kind = ALONE;
    }
    return status;
}

/* ---- Joins and updates together ---- */

static void add_piece(pieces *to, ls_memory_place at, size_t bytes)
{
    if (to->count < MOST_TOGETHER)
        to->list[to->count] = (piece){ at.memory, at.offset, at.offset + bytes };
    to->count++; /* also beyond the last: then there are too many */
}

/* Whether one of those from number `first` on touches one of these. */
static bool touch(const pieces *some, int first, const pieces *others, int count)
{
    for (int i = first; i < some->count; i++)
        for (int k = 0; k < count; k++) {
            const piece *a = &some->list[i], *b = &others->list[k];
            if (a->memory == b->memory && a->from < b->end && b->from < a->end)
                return true;
        }
    return false;
}

/* What reads and writes the pieces behind the first `read` and `written` of d->last is launched with what waits, or
 * begins a new list. */
static ls_status begin_together(device *d, together_kind kind, int read, int written)
{
    together *t = &d->last;
    bool few = t->read.count <= MOST_TOGETHER && t->written.count <= MOST_TOGETHER;
    if (few && t->kind == kind && t->count < TOGETHER && !touch(&t->written, written, &t->written, written) &&
        !touch(&t->written, written, &t->read, read) && !touch(&t->read, read, &t->written, written)) {
        t->count++;
        ls_gpu_record_lane(d->record);
        return LS_OK;
    }
    LS_TRY(begin_launches(d, TOGETHER));
    t->count = 1;
    if (!few)
        return LS_OK;
    for (int i = 0; i < 2; i++) { /* only the new ones are left */
        pieces *p = i ? &t->written : &t->read;
        p->count -= i ? written : read;
        memmove(p->list, p->list + (i ? written : read), (size_t)p->count * sizeof(*p->list));
    }
    t->kind = kind;
    return LS_OK;
}

/* Where the pieces of what comes next begin; nothing of what waits is asked about where that is of another kind. */
static void count_pieces(device *d, together_kind kind, int *read, int *written)
{
    if (d->last.kind != kind)
        d->last.read.count = d->last.written.count = 0;
    *read = d->last.read.count;
    *written = d->last.written.count;
}

/* ---- Programs ---- */

size_t ls_gpu_workspace_limit(size_t limit)
{
    size_t most = WORKSPACE_MOST;
    while (limit > 0 && most > limit / WORKSPACE_SHARE)
        most /= 2;
    return most;
}

/* What is queued may still use the one that was there. */
ls_status ls_gpu_use_scratch(void *device_, ls_memory_place at, size_t bytes)
{
    device *d = device_;
    size_t skipped = ALIGNED(at.offset) - at.offset;
    ls_status status = send_waiting(d);
    if (status == LS_OK)
        status = d->driver->finish(d->own_device);
    if (status != LS_OK && at.memory)
        return status;
    d->scratch = (ls_memory_place){ at.memory, at.offset + skipped };
    d->scratch_bytes = bytes > skipped ? bytes - skipped : 0;
    return status;
}

/* Joins of lanes, checks and small uploads are warm before the first of them is needed; joins of two devices' parts,
 * which few strategies have, are not. */
static ls_status warm_joins(device *d)
{
    ls_gpu_lowering l = lowering_of(d, warm_launch, 0);
    ls_memory_place own = { d->own, 0 };
    for (int i = 0; i < 2; i++) {
        ls_dtype dtype = i ? LS_F64 : LS_F32;
        ls_join_lanes_call call = {
            .kind = LS_JOIN_SUM, .dtype = dtype, .count = 1, .lane = &own, .lanes = 1, .to = own
        };
        LS_TRY(ls_gpu_join_lanes(&l, &call, d->tree));
    }
    ls_gpu_flat nothing = { .n = 0 };
    LS_TRY(warm_launch(d, &(ls_gpu_launch){ .module = LS_GPU_MOVES,
                                            .kernel = "scatter",
                                            .place = { own, own },
                                            .places = 2,
                                            .numbers = &nothing,
                                            .size = sizeof(nothing),
                                            .items = { 1, 1 } }));
    return ls_gpu_finite(&l, LS_F32, own, 1, own, 1);
}

/* Steps from number *step on, that one kernel or one step is: *step is then behind them. *chain: the next one. */
static ls_status lower_next(ls_gpu_lowering *l, const plan *p, const ls_program_run *run, int *step, int *chain)
{
    const ls_gpu_chain_steps *c = &p->chains[*chain];
    if (*chain < p->chain_count && c->first == *step) {
        *step += c->count;
        ++*chain;
        return (c->tail ? ls_gpu_lower_tail : ls_gpu_lower_chain)(l, &p->program, c, run);
    }
    return ls_gpu_lower(l, &p->program.steps[(*step)++], run);
}

static ls_status find_chains(device *d, plan *p)
{
    p->chains = calloc((size_t)p->program.step_count + 1, sizeof(*p->chains));
    if (!p->chains)
        return ls_fail(LS_ERR_MEMORY, "no memory for the chains of a program of %d steps", p->program.step_count);
    for (int i = 0; i < p->program.step_count;) {
        ls_gpu_chain_steps *c = &p->chains[p->chain_count];
        bool taken = true;
        int count = ls_gpu_find_tail(&p->program, i, d->driver->ask != NULL, c);
        if (count > 1) {
            p->chain_count++;
        } else if ((count = ls_gpu_find_chain(&p->program, i, c)) > 1) {
            ls_work_tell("compiling kernels for", d->name, 0, 0);
            LS_TRY(ls_gpu_kernels_chain(d->kernels, c, &taken));
            c->any = !taken;
            p->chain_count++;
        }
        i += count;
    }
    return LS_OK;
}

/* As for lanes of this size, of which there are two, one sample apart. */
static ls_status warm_steps(device *d, plan *p, int64_t samples)
{
    ls_gpu_lowering l = lowering_for(d, p, warm_launch, 0);
    ls_program_run run = { .samples = samples, .batch = p->program.batch };
    size_t bytes;
    ls_gpu_record_begin(d->record, p->program.lanes);
    for (int i = 0, chain = 0, step = 0; i < p->program.step_count; step = i) {
        ls_gpu_record_step(d->record);
        LS_TRY(lower_next(&l, p, &run, &i, &chain));
        if (l.needs > p->scratch) {
            p->scratch = l.needs;
            p->scratch_step = step;
        }
        if (l.shared_needs > p->shared) {
            p->shared = l.shared_needs;
            p->shared_step = step;
        }
    }
    (void)ls_gpu_record_table(d->record, &bytes);
    return need_table(d, bytes);
}

/* Of all lanes; the library's workspace is behind it, at a multiple of 256. */
static size_t scratch_bytes(const plan *p)
{
    return ALIGNED(p->scratch * (size_t)p->program.lanes);
}

void ls_gpu_plan_scratch(void *device_, const void *plan_, ls_plan_scratch *out)
{
    const plan *p = plan_;
    size_t bytes = scratch_bytes(p) + p->shared;
    (void)device_;
    out->bytes = bytes > 0 ? bytes + ALIGNMENT : 0; /* wherever it begins */
    out->step = p->shared > scratch_bytes(p) ? p->shared_step : p->scratch_step;
}

static ls_status warm_program(device *d, plan *p)
{
    ls_gpu_record_begin(d->record, 1);
    LS_TRY(warm_joins(d));
    LS_TRY(find_chains(d, p));
    if (p->program.samples > 1)
        LS_TRY(warm_steps(d, p, p->program.samples - 1));
    LS_TRY(warm_steps(d, p, p->program.samples));
    ls_gpu_kernels_keep(d->kernels);
    return LS_OK;
}

static bool is_update(const ls_program_step *s)
{
    bool whole = s->node->op == LS_OP_apply;
    for (int i = 0; whole && i < s->node->input_count; i++)
        whole = !s->in[i].per_sample;
    for (int i = 0; whole && i < s->state_count; i++)
        whole = !s->state[i].per_sample && !s->new_state[i].per_sample;
    return whole;
}

/* A program that is nothing but updates of whole values. */
static bool has_updates(const ls_program *program)
{
    bool all = program->step_count > 0;
    for (int i = 0; all && i < program->step_count; i++)
        all = is_update(&program->steps[i]);
    return all;
}

ls_status ls_gpu_plan_create(void *device_, const ls_program *program, void **out)
{
    device *d = device_;
    if (program->step_count >= STEPS_MOST || program->lanes > MOST_LANES)
        return ls_fail(LS_ERR_UNSUPPORTED, "a program of %d steps for %d lanes", program->step_count, program->lanes);
    plan *p = calloc(1, sizeof(*p));
    if (!p)
        return ls_fail(LS_ERR_MEMORY, "no memory for a program of %d steps", program->step_count);
    ls_status status = send_waiting(d); /* the record is needed */
    p->program = *program;
    p->program.lanes = program->lanes > 1 ? program->lanes : 1;
    p->updates = has_updates(program);
    if (p->updates && p->program.lanes < TOGETHER) /* each has scratch of its own */
        p->program.lanes = TOGETHER;
    if (status == LS_OK)
        status = warm_program(d, p);
    ls_work_end();
    if (status != LS_OK) {
        free(p->chains);
        free(p);
        return status;
    }
    *out = p;
    return LS_OK;
}

void ls_gpu_plan_destroy(void *device_, void *plan_)
{
    device *d = device_;
    (void)send_waiting(d);
    d->driver->finish(d->own_device);
    for (int i = 0; i < d->pending_count; i++)
        if (d->pending[i] == plan_)
            d->pending_count = 0; /* nobody asked: nobody needs to know */
    plan *p = plan_;
    ls_gpu_saved_free(&p->last.launches);
    free(p->last.runs);
    free(p->chains);
    free(p);
}

/* Whether the last run had all that these launches depend on. */
static bool is_last(const device *d, const plan *p, const ls_program_run *runs, int count)
{
    const last_run *last = &p->last;
    if (last->count != count || last->pending != d->pending_count || last->scratch.memory != d->scratch.memory ||
        last->scratch.offset != d->scratch.offset)
        return false;
    for (int v = 0; v < count; v++) {
        const ls_program_run *a = &last->runs[v], *b = &runs[v];
        if (a->samples != b->samples || a->row != b->row || a->first != b->first || a->batch != b->batch)
            return false;
        for (int i = 0; i < LS_ROOM_COUNT; i++)
            if (a->room[i].memory != b->room[i].memory || a->room[i].offset != b->room[i].offset)
                return false;
    }
    return true;
}

static ls_status save_last(device *d, plan *p, const ls_program_run *runs, int count, bool checks)
{
    last_run *last = &p->last;
    last->count = 0;
    if (!last->runs && !(last->runs = calloc((size_t)p->program.lanes, sizeof(*last->runs))))
        return ls_fail(LS_ERR_MEMORY, "no memory for %d lanes", p->program.lanes);
    LS_TRY(ls_gpu_record_save(d->record, &last->launches));
    memcpy(last->runs, runs, (size_t)count * sizeof(*runs));
    last->pending = d->pending_count;
    last->scratch = d->scratch;
    last->checks = checks;
    last->count = count;
    return LS_OK;
}

/* All lanes' launches. *needs: bytes of scratch that a lane wants. */
static ls_status lower_lanes(device *d, plan *p, const ls_program_run *runs, int count, bool *checks, size_t *needs,
                             size_t *shared)
{
    bool random = false;
    LS_TRY(begin_launches(d, count));
    for (int i = 0, chain = 0, next = 0, next_chain = 0; i < p->program.step_count; i = next, chain = next_chain) {
        unsigned made = 0;
        ls_gpu_record_step(d->record);
        for (int v = 0; v < count; v++) {
            ls_gpu_lowering l = lowering_for(d, p, record_launch, v);
            l.made = &made;
            l.shared = (ls_memory_place){ d->scratch.memory, d->scratch.offset + scratch_bytes(p) };
            l.step = d->pending_count * STEPS_MOST + i;
            ls_gpu_record_lane(d->record);
            next = i;
            next_chain = chain;
            LS_TRY(lower_next(&l, p, &runs[v], &next, &next_chain));
            *checks = *checks || l.checks;
            random = random || l.random;
            *needs = l.needs > *needs ? l.needs : *needs;
            *shared = l.shared_needs > *shared ? l.shared_needs : *shared;
        }
    }
    p->last.count = 0;
    return random ? LS_OK : save_last(d, p, runs, count, *checks);
}

static ls_memory_place place_of(const ls_program_run *run, const ls_program_slot *slot)
{
    return (ls_memory_place){ run->room[slot->room].memory, run->room[slot->room].offset + slot->offset };
}

static ls_status record_update(device *d, const plan *p, const ls_program_step *s, const ls_program_run *run)
{
    int read, written;
    count_pieces(d, UPDATES, &read, &written);
    for (int i = 0; i < s->node->input_count; i++)
        add_piece(&d->last.read, place_of(run, &s->in[i]), s->in[i].unit);
    for (int i = 0; i < s->state_count; i++) {
        add_piece(&d->last.read, place_of(run, &s->state[i]), s->state[i].unit);
        add_piece(&d->last.written, place_of(run, &s->new_state[i]), s->new_state[i].unit);
    }
    LS_TRY(begin_together(d, UPDATES, read, written));
    ls_gpu_lowering l = lowering_for(d, p, record_launch, d->last.count - 1);
    return ls_gpu_lower(&l, s, run);
}

static ls_status record_updates(device *d, const plan *p, const ls_program_run *run)
{
    if (d->last.updates_of != p)
        d->last.kind = ALONE; /* each has scratch of its own, and that of another plan's may be elsewhere */
    d->last.updates_of = p;
    for (int i = 0; i < p->program.step_count; i++) {
        ls_status status = record_update(d, p, &p->program.steps[i], run);
        LS_TRY(end_launches(d, status)); /* the next may begin a list behind it */
    }
    return LS_OK;
}

static ls_status record_lanes(device *d, plan *p, const ls_program_run *runs, int count, bool *checks, size_t *needs,
                              size_t *shared)
{
    if (count == 1 && p->updates)
        return record_updates(d, p, runs);
    if (!is_last(d, p, runs, count))
        return lower_lanes(d, p, runs, count, checks, needs, shared);
    LS_TRY(begin_launches(d, count));
    *checks = p->last.checks;
    return ls_gpu_record_again(d->record, &p->last.launches);
}

ls_status ls_gpu_plan_run_lanes(void *device_, void *plan_, const ls_program_run *runs, int count)
{
    device *d = device_;
    plan *p = plan_;
    size_t needs = 0, shared = 0;
    bool checks = false;
    if (count > p->program.lanes)
        return ls_fail(LS_ERR_INVALID, "%d lanes of a program for %d", count, p->program.lanes);
    if (d->pending_count == PENDING) {
        LS_TRY(send_waiting(d));
        LS_TRY(tell_faults(d));
    }
    LS_TRY(end_launches(d, record_lanes(d, p, runs, count, &checks, &needs, &shared)));
    if (needs > p->scratch || shared > p->shared || scratch_bytes(p) + p->shared > d->scratch_bytes) {
        ls_gpu_record_drop(d->record);
        d->last.kind = ALONE;
        p->last.count = 0;
        return ls_fail(LS_ERR_INTERNAL,
                       "%s: kernels need %zu bytes of scratch memory a lane and %zu of all: %zu, %zu were "
                       "planned, %zu are there",
                       d->name, needs, shared, p->scratch, p->shared, d->scratch_bytes);
    }
    if (checks) {
        d->pending_lanes = d->pending_count == 0 || count > d->pending_lanes ? count : d->pending_lanes;
        d->pending[d->pending_count++] = p;
    }
    if (count == 1)
        return LS_OK;
    LS_TRY(send_launches(d));
    return d->driver->flush ? d->driver->flush(d->own_device) : LS_OK;
}

ls_status ls_gpu_plan_run(void *device_, void *plan_, const ls_program_run *run)
{
    return ls_gpu_plan_run_lanes(device_, plan_, run, 1);
}

ls_status ls_gpu_join_lanes_on(void *device_, const ls_join_lanes_call *call)
{
    device *d = device_;
    for (int v = 0; v < call->lanes; v++)
        if (call->lanes > MOST_LANES || (call->lane[v].memory && call->lane[v].memory != call->to.memory))
            return ls_fail(LS_ERR_INVALID, "%d lanes: up to %d can be joined, in one memory", call->lanes, MOST_LANES);
    int read, written;
    count_pieces(d, JOINS, &read, &written);
    size_t bytes = (size_t)call->count * ls_dtype_bytes(call->dtype);
    for (int v = 0; v < call->lanes; v++)
        if (call->lane[v].memory)
            add_piece(&d->last.read, call->lane[v], bytes);
    add_piece(&d->last.written, call->to, bytes);
    LS_TRY(begin_together(d, JOINS, read, written));
    ls_gpu_lowering l = lowering_of(d, record_launch, 0);
    return end_launches(d, ls_gpu_join_lanes(&l, call, d->tree));
}

ls_status ls_gpu_join_on(void *device_, const ls_join_call *call)
{
    device *d = device_;
    size_t bytes = (size_t)call->count * ls_dtype_bytes(call->dtype);
    bool in_place = call->to.memory == call->left.memory && call->to.offset == call->left.offset;
    if (!in_place)
        LS_TRY(ls_gpu_copy_from(d, call->to.memory, call->to.offset, d, call->left.memory, call->left.offset, bytes));
    if (!call->right.memory)
        return LS_OK;
    LS_TRY(begin_launches(d, 1));
    ls_gpu_lowering l = lowering_of(d, record_launch, 0);
    return end_launches(d, ls_gpu_join(&l, call));
}

static bool is_real(const ls_finite_call *call)
{
    return (call->dtype == LS_F32 || call->dtype == LS_F64) && call->count > 0;
}

/* So many items look at a value, and leave a flag each. */
static size_t flags_of(const ls_finite_call *call)
{
    int64_t wanted = (call->count + 63) / 64;
    return is_real(call) ? (size_t)(wanted < LS_GPU_FLAGS ? wanted : LS_GPU_FLAGS) : 0;
}

/* Values whose flags have room together: one launch for all that are in one memory. */
static ls_status record_checks(device *d, const ls_finite_call *list, int count)
{
    size_t at = FLAGS_AT;
    ls_gpu_record_step(d->record);
    for (int i = 0; i < count; i++) {
        ls_gpu_lowering l = lowering_of(d, record_launch, 0);
        size_t flags = flags_of(&list[i]);
        ls_gpu_record_lane(d->record);
        if (flags > 0)
            LS_TRY(ls_gpu_finite(&l, list[i].dtype, list[i].from, list[i].count, (ls_memory_place){ d->own, at },
                                 (int64_t)flags));
        at += flags;
    }
    return LS_OK;
}

static ls_status check_some(device *d, const ls_finite_call *list, int count, size_t flags, bool *out)
{
    const unsigned char *flag = d->flags;
    LS_TRY(begin_launches(d, count));
    LS_TRY(end_launches(d, record_checks(d, list, count)));
    LS_TRY(send_launches(d));
    if (flags > 0)
        LS_TRY(d->driver->read(d->own_device, d->own, FLAGS_AT, d->flags, flags));
    for (int i = 0; i < count; i++) {
        const unsigned char *end = flag + flags_of(&list[i]);
        out[i] = true;
        for (; flag < end; flag++)
            out[i] = out[i] && !*flag;
    }
    return LS_OK;
}

ls_status ls_gpu_are_finite(void *device_, const ls_finite_call *list, int count, bool *out)
{
    device *d = device_;
    size_t flags = 0;
    int first = 0;
    LS_TRY(send_waiting(d));
    LS_TRY(tell_faults(d));
    for (int i = 0; i < count; i++) {
        if (flags + flags_of(&list[i]) > FLAGS) {
            LS_TRY(check_some(d, list + first, i - first, flags, out + first));
            first = i;
            flags = 0;
        }
        flags += flags_of(&list[i]);
    }
    LS_TRY(check_some(d, list + first, count - first, flags, out + first));
    return flags > 0 ? LS_OK : d->driver->finish(d->own_device);
}

ls_status ls_gpu_is_finite(void *device_, ls_dtype dtype, ls_memory_place from, int64_t count, bool *out)
{
    return ls_gpu_are_finite(device_, &(ls_finite_call){ dtype, from, count }, 1, out);
}

ls_status ls_gpu_sync(void *device_)
{
    device *d = device_;
    LS_TRY(send_waiting(d));
    LS_TRY(d->driver->finish(d->own_device));
    return tell_faults(d);
}
