/* A device of driver.h, from the inside: one queue, in order; what was asked for is done later, and waited for by
 * download, finite and sync. Its functions:
 *   device.c    opening, memory, copies
 *   uploads.c   host memory on its way to the device, small pieces of it together
 *   launches.c  launches wait, and go to the device together with one table
 *   together.c  joins, or updates, that do not touch each other's bytes become one launch
 *   programs.c  plans: what they need is compiled; lanes of them are run, and the last run again
 *   checks.c    what programs have found wrong with their data, and which values are finite */
#ifndef LS_BACKEND_GPU_DEVICE_H
#define LS_BACKEND_GPU_DEVICE_H

#include "backend/gpu/driver.h"

#define MOST_LANES 4096

/* The device's own buffer, in bytes. */
#define FAULTS_AT 0 /* one by lane */
#define ZEROS_AT  (MOST_LANES * sizeof(ls_gpu_fault))
#define ZEROS     2048
#define FLAGS_AT  (ZEROS_AT + ZEROS)
#define FLAGS     ((size_t)64 * LS_GPU_FLAGS) /* that are read at once */
#define OWN_BYTES (FLAGS_AT + FLAGS)

#define STAGES 16 /* uploads that may wait in a queue */

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

#define PENDING    64        /* programs that may have found something wrong, and were not asked yet */
#define STEPS_MOST (1 << 20) /* of a program: faults name theirs beside its number among the pending */

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
    const ls_program *pending[PENDING];
    int pending_count, pending_lanes; /* lanes: the most of any of them */
    ls_gpu_fault faults[MOST_LANES];
    unsigned char flags[FLAGS];
    i64 tree[sizeof(ls_gpu_tree) / sizeof(i64) + 2 * MOST_LANES];
} device;

/* Writes a few bytes, and waits. */
ls_status ls_gpu_write_now(device *d, void *memory, size_t offset, const void *from, size_t bytes);

/* Everything that was asked for goes to the queue: of uploads and launches, only one kind waits at a time. */
ls_status ls_gpu_send_waiting(device *d);

/* ---- uploads.c ---- */

/* The next piece of host memory that nothing waits in. */
ls_status ls_gpu_next_stage(device *d, size_t bytes, stage **out);

/* What waits goes to its places, behind everything that was queued; or it is forgotten. */
ls_status ls_gpu_send_uploads(device *d);
void ls_gpu_empty_inbox(inbox *in);

void ls_gpu_free_uploads(device *d);

/* ---- launches.c ---- */

/* How steps are lowered on this device. lane: of those that are run together. */
ls_gpu_lowering ls_gpu_lowering_of(device *d, ls_gpu_launcher *launch, int lane);
ls_gpu_launcher ls_gpu_record_launch; /* of such a lowering: the launch waits */

/* What is lowered between the two waits to be launched, behind what waits already, of which it is no part: small
 * programs and joins come in rows, and have one table together. With a status of failure nothing of it is left. */
ls_status ls_gpu_begin_launches(device *d, int lanes);
ls_status ls_gpu_end_launches(device *d, ls_status status);

/* Launches what waits: its table first, behind everything that reads the one before. */
ls_status ls_gpu_send_launches(device *d);

/* Room for a table. */
ls_status ls_gpu_need_table(device *d, size_t bytes);

static inline int ls_gpu_group_of(const device *d, const ls_gpu_launch *launch)
{
    return launch->heavy ? d->tuning->heavy : d->tuning->group;
}

/* ---- together.c ---- */

/* What comes next is of this kind; it is told what it reads and writes, in d->last, and begun in place of
 * ls_gpu_begin_launches: with what waits, or behind it. */
typedef struct next_together {
    together_kind kind;
    int read, written; /* pieces of what waits */
} next_together;
next_together ls_gpu_next_together(device *d, together_kind kind);
void ls_gpu_add_piece(pieces *to, ls_memory_place at, size_t bytes);
ls_status ls_gpu_begin_together(device *d, next_together next);

/* ---- checks.c ---- */

/* A program whose lanes may find something wrong: it is asked later, or is about to go. */
void ls_gpu_ask_later(device *d, const ls_program *program, int lanes);
void ls_gpu_ask_no_more(device *d, const ls_program *program);

/* What programs have found wrong with their data since they were last asked: of several lanes the first tells. */
ls_status ls_gpu_tell_faults(device *d);

#endif
