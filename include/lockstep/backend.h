/* lockstep/backend.h: devices of another kind, added from outside the library.
 *
 * A backend is a table of functions that a context is given before it is opened. The library decides what runs where
 * and in which order; a backend holds memory and runs *programs*: a few steps, one node each, on some samples.
 *
 * Calls for one device come from one thread at a time, though not always the same, and in the order in which they must
 * take effect. They may return before the work is done, except `download`, `finite` and `sync`; what `upload` was given
 * may change as soon as it returns. A function that fails returns a status and says why with ls_backend_fail. Work that
 * fails after its call has returned is told once, by the device's next `download`, `finite` or `sync`, and every unit
 * of work ends in one of them. The run then fails as a whole, nothing that it was to write is written, and the device
 * is used again.
 *
 * State stays on a device: variables and optimizer slots have room there that outlives programs, twice, so that a run
 * reads the one and writes the other. Partial sums stay there, too, and are joined by `join`.
 *
 * Offsets, bases and sizes of `alloc` are multiples of 64. A step's output overlaps none of its inputs. */
#ifndef LOCKSTEP_BACKEND_H
#define LOCKSTEP_BACKEND_H

#include "lockstep/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The rooms that a program's values are in. A run says where each of them is. */
typedef enum ls_room {
    LS_ROOM_PLAN,      /* for the program */
    LS_ROOM_LANE,      /* for one lane, from program to program */
    LS_ROOM_PARTIALS,  /* for one lane's parts of reductions */
    LS_ROOM_STATE,     /* variables and optimizer slots, as the run reads them */
    LS_ROOM_NEW_STATE, /* and as it leaves them */
    LS_ROOM_TASK,      /* for one lane, while a program runs */
    LS_ROOM_COUNT,
} ls_room;

typedef struct ls_program_slot {
    ls_room room;
    size_t offset;   /* in its room */
    size_t unit;     /* bytes of one sample; of a whole value: all of them */
    bool per_sample; /* sample i of a run is at offset + unit * (i, or row + i where kept) */
    bool kept;
} ls_program_slot;

/* clang-format off */
typedef struct ls_program_step {
    const ls_tensor *node;     /* what to compute: ls_tensor_op and the other ls_tensor_ accessors (lockstep/graph.h) */
    const ls_program_slot *in; /* one for each of its inputs */
    ls_program_slot out;       /* of a node that reduces the batch: the part of these samples */
    /* of `apply`: the variable, then its slots, and where each new value goes (out is new_state[0]) */
    const ls_program_slot *state, *new_state;
    int state_count;
} ls_program_step;
/* clang-format on */

typedef struct ls_program {
    const ls_program_step *steps; /* live, with all they point to, as long as the plan made from them */
    int step_count;
    int64_t samples; /* upper bound per run, at least 1; 1 where there is no batch axis */
    int lanes;       /* upper bound of the runs that plan_run_lanes is given at once, at least 1 */
    int64_t batch;   /* that of every run */
    size_t limit;    /* of the device's memory, in bytes; 0: there is none */
} ls_program;

/* Memory that a plan uses while it runs, beside its rooms: partial sums, workspaces of libraries. */
typedef struct ls_plan_scratch {
    size_t bytes; /* 0: none */
    int step;     /* that needs most of it, for messages */
} ls_plan_scratch;

/* A place in memory of `alloc`. */
typedef struct ls_memory_place {
    void *memory;
    size_t offset;
} ls_memory_place;

typedef struct ls_program_run {
    ls_memory_place room[LS_ROOM_COUNT]; /* where offsets count from; memory NULL: the program has nothing there */
    int64_t samples;                     /* of this run */
    int64_t row;                         /* where its first sample is in kept values */
    int64_t first;                       /* where its first sample is in the batch */
    int64_t batch;                       /* samples in the whole batch; -1: there is no batch axis */
    uint64_t seed, run;
} ls_program_run;

/* How two partial results become one, element by element. Sums are rounded once, to nearest, left operand first; the
 * larger or smaller of a NaN and anything is NaN. */
typedef enum ls_join_kind { LS_JOIN_SUM, LS_JOIN_MAX, LS_JOIN_MIN } ls_join_kind;

typedef struct ls_join_call {
    ls_join_kind kind;
    ls_dtype dtype;
    int64_t count;                   /* elements */
    ls_memory_place to, left, right; /* of one device; `to` may be `left`. right.memory NULL: left alone, a copy */
} ls_join_call;

/* Partial results of several lanes become one, by the tree of docs/bits.md: T[a,b) is lane a's own value if b-a is 1,
 * else T[a,a+k) joined with T[a+k,b), k the largest power of two below b-a; nothing joined with x is x. */
typedef struct ls_join_lanes_call {
    ls_join_kind kind;
    ls_dtype dtype;
    int64_t count;               /* elements */
    const ls_memory_place *lane; /* by lane, all in one memory; memory NULL: it has nothing */
    int lanes;                   /* at least one of them has something */
    ls_memory_place to;          /* where the result goes, in the same memory; it may be where a lane's is */
} ls_join_lanes_call;

/* Elements that are to be looked at. */
typedef struct ls_finite_call {
    ls_dtype dtype;
    ls_memory_place from;
    int64_t count;
} ls_finite_call;

/* Bytes on their way from one device of a backend to another. */
typedef struct ls_transfer {
    void *from_device, *to_device;
    ls_memory_place from, to;
    size_t bytes;
} ls_transfer;

typedef struct ls_backend_device {
    char about[256]; /* "NVIDIA H100 80GB" */
    size_t memory;   /* bytes; 0: not known */
    bool growth;     /* memory is taken as it is needed, unless the user says otherwise */
    bool only_named; /* used only where it is made visible by name: one that computes on the host's cores */
    bool gpu;        /* of a kind that is not called GPU or CUDA: "gpu:N" counts it, behind those of CUDA */
} ls_backend_device;

typedef struct ls_backend {
    size_t size;      /* sizeof(ls_backend) */
    const char *kind; /* "GPU" */
    void *user;       /* given to probe, query, supports and open */

    int (*probe)(void *user);                                           /* how many devices there are */
    ls_status (*query)(void *user, int number, ls_backend_device *out); /* NULL: nothing is known of them */
    /* Asked of what is computed: no leaves, and of what writes variables only `apply`. NULL: everything. A kind without
     * `apply` trains, too: the host then updates variables and sends them. */
    bool (*supports)(void *user, const ls_tensor *node);
    ls_status (*open)(void *user, int number, void **device); /* once for each logical device */
    void (*close)(void *device);                              /* NULL: nothing to do */

    ls_status (*alloc)(void *device, size_t bytes, void **memory);
    void (*free)(void *device, void *memory);
    ls_status (*upload)(void *device, void *memory, size_t offset, const void *from, size_t bytes);
    ls_status (*download)(void *device, void *memory, size_t offset, void *to, size_t bytes);
    /* From another device of this backend, or the same, where it is all there and stays until `to_device` is synced; a
     * thread may be calling for that device at the time. NULL: by way of the host. */
    ls_status (*copy)(void *to_device, void *to, size_t to_offset, void *from_device, void *from, size_t from_offset,
                      size_t bytes);
    ls_status (*join)(void *device, const ls_join_call *call);
    /* Whether all elements are finite numbers: answers when everything asked for before is done. */
    ls_status (*finite)(void *device, ls_dtype dtype, ls_memory_place from, int64_t count, bool *out);
    /* The same of several at once, an answer for each. NULL: by `finite`, one after the other. */
    ls_status (*finite_all)(void *device, const ls_finite_call *list, int count, bool *out);

    ls_status (*plan_create)(void *device, const ls_program *program, void **plan);
    ls_status (*plan_run)(void *device, void *plan, const ls_program_run *run); /* allocates nothing */
    /* The program on several lanes at once, which have rooms LANE, TASK and PARTIALS of their own, and may differ by a
     * sample. NULL, or join_lanes NULL: plan_run is called for one after the other. */
    ls_status (*plan_run_lanes)(void *device, void *plan, const ls_program_run *runs, int count);
    ls_status (*join_lanes)(void *device, const ls_join_lanes_call *call); /* NULL: by `join`, two at a time */
    void (*plan_destroy)(void *device, void *plan);
    ls_status (*sync)(void *device); /* returns when everything asked for is done; NULL: it always is */
    /* All of these at once, between any of its devices, none of which is called for meanwhile; what is read is all
     * there. Returns when they are done. NULL: by `copy`, each device for itself. */
    ls_status (*transfer)(void *user, const ls_transfer *list, int count);
    /* Scratch memory is the library's to take, so that it counts in the device's limit: one piece for all plans, as
     * large as the largest needs, of which the backend is told before a plan's first run, and when it changes; memory
     * NULL: it is no longer there. Both NULL: the backend takes what it needs by itself, and it counts nowhere. */
    void (*plan_scratch)(void *device, const void *plan, ls_plan_scratch *out);
    ls_status (*use_scratch)(void *device, ls_memory_place at, size_t bytes);
} ls_backend;

/* The table is copied; what it points to must outlive the context. Kinds added later are preferred. */
LS_API ls_status ls_add_backend(ls_context *ctx, const ls_backend *backend);

/* Writes the thread's last error and returns `status`. */
LS_API ls_status ls_backend_fail(ls_status status, const char *format, ...) LS_PRINTF(2, 3);

/* The reference kernels, on arrays in memory: what every kernel is tested against. Of a run, samples, first, batch,
 * seed and run are looked at. state, new_state: of `apply`, the variable and its slots; NULL for other nodes. */
LS_API ls_status ls_reference_run(const ls_tensor *node, const ls_program_run *run, const void *const *in,
                                  const void *const *state, void *out, void *const *new_state);
LS_API void ls_reference_join(ls_join_kind kind, ls_dtype dtype, const void *left, const void *right, int64_t count,
                              void *to);

#ifdef __cplusplus
}
#endif
#endif
