/* Internals of a device of driver.h: one in-order queue. Work is deferred; download, finite and
 * sync wait for it. Its functions:
 *   device.c    opening, memory, copies
 *   uploads.c   uploads of host memory; small ones are combined
 *   launches.c  collects launches and submits them together with one table
 *   together.c  merges joins or updates that touch different memory into one launch
 *   programs.c  plans: compiles what they need, runs lanes, repeats the last run
 *   checks.c    data errors that programs found, and checks for finite values */
#ifndef LS_BACKEND_GPU_DEVICE_H
#define LS_BACKEND_GPU_DEVICE_H

#include "backend/gpu/driver.h"

#define MOST_LANES 4096

/* Bytes of the device's own buffer. */
#define FAULTS_AT 0 /* one fault per lane */
#define ZEROS_AT  (MOST_LANES * sizeof(ls_gpu_fault))
#define ZEROS     2048
#define FLAGS_AT  (ZEROS_AT + ZEROS)
#define FLAGS     ((size_t)64 * LS_GPU_FLAGS) /* read at once */
#define OWN_BYTES (FLAGS_AT + FLAGS)

#define STAGES 16 /* queued uploads */

/* Host memory that is being uploaded. */
typedef struct stage {
    void *bytes;
    size_t room;
    void *done; /* NULL: no upload */
} stage;

/* Small uploads to the same memory are sent together, and a kernel copies them to their places: a
 * driver command costs more than copying a lane's labels. */
#define INBOX_BYTES  ((size_t)1 << 20)
#define INBOX_PIECE  ((size_t)1 << 14) /* bytes of one piece */
#define INBOX_PIECES 512
/* The kernel's table follows the pieces. */
#define INBOX_ENTRY (LS_GPU_PLACES * sizeof(i64) + sizeof(ls_gpu_flat))

typedef struct inbox {
    void *memory; /* NULL: not allocated yet */
    stage *host;  /* NULL: nothing is pending */
    void *to;
    size_t used;
    size_t end; /* end of the pieces in `to` */
    struct {
        size_t offset, at, bytes;
    } piece[INBOX_PIECES];
    int count;
} inbox;

/* Consecutive joins or updates that touch different bytes become one launch, like lanes. */
#define TOGETHER      16   /* maximum number merged */
#define MOST_TOGETHER 1024 /* pieces of memory read, and written */
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
    together_kind kind;     /* kind of the last pending launch */
    const void *updates_of; /* their plan */
    int count;
    pieces read, written;
} together;

#define PENDING 64 /* programs whose data errors are unchecked */
/* A fault encodes its step and its program's index in `pending`. */
#define STEPS_MOST (1 << 20)

typedef struct device {
    const ls_gpu_driver *driver;
    void *own_device; /* the driver's */
    const char *name;
    const ls_gpu_tuning *tuning;
    ls_gpu_kernels *kernels;
    ls_gpu_record *record; /* launches to submit */
    bool waits;            /* `record` has launches that are not queued yet */
    together last;         /* the last pending launch */
    void *own;             /* faults, zeros and flags of `finite` */
    void *table;           /* tables of launches, as large as the largest so far */
    size_t table_bytes;
    /* Partial sums and workspaces, at a multiple of 256; set by use_scratch, not owned. */
    ls_memory_place scratch;
    size_t scratch_bytes;
    stage stages[STAGES];
    int next_stage;
    inbox in;
    const ls_program *pending[PENDING];
    int pending_count, pending_lanes; /* pending_lanes: the maximum */
    ls_gpu_fault faults[MOST_LANES];
    unsigned char flags[FLAGS];
    i64 tree[sizeof(ls_gpu_tree) / sizeof(i64) + 2 * MOST_LANES];
} device;

ls_status ls_gpu_write_now(device *d, void *memory, size_t offset, const void *from, size_t bytes);

/* Uploads and launches are never pending at the same time. */
ls_status ls_gpu_send_waiting(device *d);

/* ---- uploads.c ---- */

/* Returns the next stage with no pending upload. */
ls_status ls_gpu_next_stage(device *d, size_t bytes, stage **out);

/* send_uploads queues pending uploads after all queued work; empty_inbox discards them. */
ls_status ls_gpu_send_uploads(device *d);
void ls_gpu_empty_inbox(inbox *in);

void ls_gpu_free_uploads(device *d);

/* ---- launches.c ---- */

/* Settings for lowering steps on this device. lane: index among the lanes run together. */
ls_gpu_lowering ls_gpu_lowering_of(device *d, ls_gpu_launcher *launch, int lane);
/* Adds to the pending launches. */
ls_gpu_launcher ls_gpu_record_launch;

/* Launches lowered between these two calls follow the pending ones without being merged with them,
 * so that small programs and joins share one table. A failed `status` removes them again. */
ls_status ls_gpu_begin_launches(device *d, int lanes);
ls_status ls_gpu_end_launches(device *d, ls_status status);

/* Submits the pending launches; their table is queued after all readers of the previous one. */
ls_status ls_gpu_send_launches(device *d);

ls_status ls_gpu_need_table(device *d, size_t bytes);

static inline int ls_gpu_group_of(const device *d, const ls_gpu_launch *launch)
{
    return launch->heavy ? d->tuning->heavy : d->tuning->group;
}

/* ---- together.c ---- */

/* Merging: call next_together, add the memory that the next launch reads and writes to d->last,
 * then call begin_together instead of ls_gpu_begin_launches. */
typedef struct next_together {
    together_kind kind;
    int read, written; /* pieces of the pending launches */
} next_together;
next_together ls_gpu_next_together(device *d, together_kind kind);
void ls_gpu_add_piece(pieces *to, ls_memory_place at, size_t bytes);
ls_status ls_gpu_begin_together(device *d, next_together next);

/* ---- checks.c ---- */

/* check_later registers a program whose lanes may find data errors; forget_checks precedes its
 * destruction. */
void ls_gpu_check_later(device *d, const ls_program *program, int lanes);
void ls_gpu_forget_checks(device *d, const ls_program *program);

/* Fails with the first lane's error if programs have found errors in their data since the last
 * check. */
ls_status ls_gpu_report_faults(device *d);

#endif
