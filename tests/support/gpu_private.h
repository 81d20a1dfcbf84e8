/* The inside of the tests' GPU backend (gpu.h): gpu_queue.c counts calls, and has a device's queue
 * and the thread that works it off; gpu_programs.c has programs; gpu.c has memory, copies, joins,
 * devices and the table. */
#ifndef TESTS_GPU_PRIVATE_H
#define TESTS_GPU_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"

#define MESSAGE 512
#define SPOILED ((size_t)8 << 20) /* bytes of a new buffer that are made NaNs: more would only take time */

typedef struct failure {
    int in; /* calls until it comes; 0: never */
    bool late;
} failure;

/* A device that will be lost, or is. */
typedef struct loss {
    gpu_call call;
    int in; /* calls of that kind until it comes; 0: never */
    bool lost;
} loss;

struct gpu {
    gpu_settings settings;
    ls_backend table;
    char *deny;
    size_t *used;          /* memory of each device, by number */
    pthread_mutex_t mutex; /* guards the following fields, and `used` */
    pthread_cond_t let_go;
    gpu_counts counts;
    failure failures[GPU_CALLS];
    struct loss *losses; /* by device */
    bool held;
};

/* Two mappings: the handle, which is never accessible, and the bytes, whose place only this file
 * knows. A handle stays mapped until the device is closed, so that no later buffer has the same
 * one. */
typedef struct buffer {
    struct buffer *next;
    void *handle;
    unsigned char *bytes; /* NULL: freed */
    size_t size, mapped;
} buffer;

typedef struct device device;

typedef struct plan {
    device *owner;
    ls_program program;
    const void **in, **state; /* room for those of any step; the thread's own */
    void **new_state;
} plan;

typedef enum kind { UPLOAD, DOWNLOAD, COPY, JOIN, FINITE, RUN } kind;

/* A command in a queue. Its staging grows and is kept, so that calls soon allocate nothing. */
typedef struct command {
    kind kind;
    bool fails; /* a test made it fail, late */
    buffer *at;
    size_t offset, bytes;
    unsigned char *staging; /* upload */
    size_t staging_bytes;
    void *to;     /* download: host memory */
    buffer *from; /* copy: of any device; join: what is on the left */
    size_t from_offset;
    buffer *right; /* join; NULL: nothing is */
    ls_join_call join;
    ls_dtype dtype; /* finite */
    bool *finite;
    plan *plan;
    buffer *room[LS_ROOM_COUNT];
    ls_program_run run;
} command;

struct device {
    gpu *gpu;
    int number;
    atomic_bool inside; /* a call runs */
    buffer *buffers;
    command *ring;
    uint64_t length;
    uint32_t random;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards the following fields, and `buffers` */
    pthread_cond_t changed;
    uint64_t asked, done; /* commands so far; the next goes to ring[asked % length] */
    bool closing;
    ls_status status; /* first failure since the last report */
    char message[MESSAGE];
};

/* Bytes of a buffer. */
typedef struct range {
    const buffer *at;
    size_t begin, end;
} range;

/* ---- gpu_queue.c ---- */

/* Whether the device is lost, or is lost by this call. */
bool gpu_is_lost(gpu *g, int device, gpu_call call);

/* Counts a call. True: it must fail at once. *late: it must fail when it is carried out. */
bool gpu_count_call(gpu *g, gpu_call call, size_t bytes, bool *late);

void gpu_count_change(gpu *g, int *count, int by);

/* Takes memory of a device, or gives it back. False: there is not enough. */
bool gpu_count_memory(device *d, size_t bytes, bool taken);

/* Counts a mistake of the caller, and is the error for it. */
LS_PRINTF(2, 3) ls_status gpu_misuse(device *d, const char *format, ...);

/* The next command, when the queue has room for it. The thread does not look at it until
 * gpu_post. */
command *gpu_claim(device *d, kind kind);
void gpu_post(device *d);

void gpu_wait_idle(device *d);

/* Waits, and returns the first failure since the last call. */
ls_status gpu_wait_and_tell(device *d);

/* Memory of a command for bytes of an upload. */
ls_status gpu_stage(device *d, command *c, size_t bytes);

const char *gpu_node_name(const ls_tensor *node); /* or that of its op */
size_t gpu_slot_begin(const ls_program_slot *slot, const ls_program_run *run);
size_t gpu_slot_end(const ls_program_slot *slot, const ls_program_run *run);

/* The thread of a device. */
void *gpu_work(void *argument);

/* ---- gpu.c ---- */

/* Begin and end of every call: two at once are a misuse. */
ls_status gpu_enter(device *d);
void gpu_leave(device *d);

/* gpu_enter; counts the call, which fails if the test asked for it. */
ls_status gpu_enter_call(device *d, gpu_call call, size_t bytes, bool *late);

/* The buffer of these bytes. NULL: they are not in one, which is a misuse. */
buffer *gpu_find_bytes(device *d, void *handle, size_t offset, size_t bytes);

bool gpu_overlap(range a, range b);

/* ---- gpu_programs.c: functions of the table ---- */

ls_status gpu_plan_create(void *device_, const ls_program *program, void **out);
void gpu_plan_destroy(void *device_, void *plan_);
ls_status gpu_plan_run(void *device_, void *plan_, const ls_program_run *run);
ls_status gpu_plan_run_lanes(void *device_, void *plan_, const ls_program_run *runs, int count);
ls_status gpu_sync(void *device_);

#endif
