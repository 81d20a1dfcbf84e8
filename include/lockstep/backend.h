/* lockstep/backend.h: adding another kind of device from outside the library.
 *
 * A backend is a table of functions that a context gets before it is opened. The library decides
 * what runs where and in which order. A backend manages memory and runs *programs*: a few steps,
 * each of one node, on some samples.
 *
 * The library calls a device from one thread at a time, though not always the same thread, in
 * the order in which calls must take effect. Calls may return before the work is done, except
 * `download`, `finite` and `sync`. The library may change the source of `upload` as soon as it
 * returns. A function that fails calls ls_backend_fail and returns a status. If work fails after
 * its call has returned, the device's next `download`, `finite` or `sync` returns the error
 * once; every unit of work ends in one of them. The run then fails as a whole and writes
 * nothing, and the device stays in use.
 *
 * State stays on a device: variables and optimizer slots have two buffers there that
 * outlive programs, so that a run reads one and writes the other. Partial sums stay there
 * too, and `join` joins them.
 *
 * Offsets, bases and sizes of `alloc` are multiples of 64. A step's output
 * overlaps none of its inputs. */
#ifndef LOCKSTEP_BACKEND_H
#define LOCKSTEP_BACKEND_H

#include "lockstep/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Memory areas that a program's values are in. Each run gives the address of each area. */
typedef enum ls_room {
    LS_ROOM_PLAN,      /* whole values, and kept values of all lanes */
    LS_ROOM_LANE,      /* for one lane; kept from program to program */
    LS_ROOM_PARTIALS,  /* for the partial results of one lane's reductions */
    LS_ROOM_STATE,     /* variables and optimizer slots that the run reads */
    LS_ROOM_NEW_STATE, /* variables and optimizer slots that the run writes */
    LS_ROOM_TASK,      /* for one lane while a program runs */
    LS_ROOM_COUNT,
} ls_room;

typedef struct ls_program_slot {
    ls_room room;
    size_t offset; /* offset in the room, in bytes */
    size_t unit;   /* bytes of one sample; for a whole value: all its bytes */
    /* sample i of a run is at offset + unit * i; if kept, at offset + unit * (row + i) */
    bool per_sample;
    bool kept;
} ls_program_slot;

/* clang-format off */
typedef struct ls_program_step {
    /* what to compute; read it with the ls_tensor_ accessors (lockstep/graph.h) */
    const ls_tensor *node;
    const ls_program_slot *in; /* one for each input of the node */
    /* for a node that reduces the batch: the partial result of these samples */
    ls_program_slot out;
    /* For `apply`: the variable, then its slots, and where each new value
     * goes (out is new_state[0]). */
    const ls_program_slot *state, *new_state;
    int state_count;
} ls_program_step;
/* clang-format on */

typedef struct ls_program {
    /* Steps of the program. They, and all they point to, live as long as
     * the plan made from them. */
    const ls_program_step *steps;
    int step_count;
    /* Maximum number of samples in a run, at least 1; 1 without a batch axis. */
    int64_t samples;
    /* Maximum number of runs in a call of plan_run_lanes, at least 1. */
    int lanes;
    /* Batch size of every run. */
    int64_t batch;
    /* Limit of the device's memory in bytes; 0: none. */
    size_t limit;
} ls_program;

/* Memory that a plan uses while it runs, in addition to its rooms: partial sums,
 * workspaces of libraries. */
typedef struct ls_plan_scratch {
    size_t bytes; /* 0: none */
    int step;     /* step that needs most of it, for messages */
} ls_plan_scratch;

/* Address in memory from `alloc`. */
typedef struct ls_memory_place {
    void *memory;
    size_t offset;
} ls_memory_place;

typedef struct ls_program_run {
    /* Start of each room; memory NULL: the program has nothing there. */
    ls_memory_place room[LS_ROOM_COUNT];
    /* Number of samples in this run. */
    int64_t samples;
    /* Index of the first sample in kept values. */
    int64_t row;
    /* Index of the first sample in the batch. */
    int64_t first;
    /* Number of samples in the whole batch; -1: no batch axis. */
    int64_t batch;
    uint64_t seed, run;
} ls_program_run;

/* How two partial results are combined, element by element. Sums are rounded once, to nearest,
 * left operand first. The maximum or minimum of a NaN and anything is NaN. */
typedef enum ls_join_kind { LS_JOIN_SUM, LS_JOIN_MAX, LS_JOIN_MIN } ls_join_kind;

typedef struct ls_join_call {
    ls_join_kind kind;
    ls_dtype dtype;
    int64_t count; /* elements */
    /* All on one device; `to` may be `left`. right.memory NULL: copies `left`. */
    ls_memory_place to, left, right;
} ls_join_call;

/* Combines the partial results of several lanes with the tree of docs/bits.md: T[a,b) is lane
 * a's own value if b-a is 1, otherwise T[a,a+k) joined with T[a+k,b), where k is the largest
 * power of two below b-a. A missing value joined with x is x. */
typedef struct ls_join_lanes_call {
    ls_join_kind kind;
    ls_dtype dtype;
    int64_t count; /* elements */
    /* Value of each lane, all in one memory; memory NULL: the lane has none. */
    const ls_memory_place *lane;
    int lanes; /* number of lanes; at least one of them has a value */
    /* Address of the result, in the same memory; it may be the address of a lane's value. */
    ls_memory_place to;
} ls_join_lanes_call;

/* Elements to check. */
typedef struct ls_finite_call {
    ls_dtype dtype;
    ls_memory_place from;
    int64_t count;
} ls_finite_call;

/* A copy from one device of a backend to another. */
typedef struct ls_transfer {
    void *from_device, *to_device;
    ls_memory_place from, to;
    size_t bytes;
} ls_transfer;

typedef struct ls_backend_device {
    char about[256]; /* "NVIDIA H100 80GB" */
    size_t memory;   /* bytes; 0: unknown */
    bool growth;     /* allocates memory on demand, unless the user sets otherwise */
    /* The device is used only if the user names it. For devices that compute on the host's
     * cores. */
    bool only_named;
    /* For kinds not named GPU or CUDA: "gpu:N" includes this device, after those of CUDA. */
    bool gpu;
} ls_backend_device;

typedef struct ls_backend {
    size_t size;      /* sizeof(ls_backend) */
    const char *kind; /* "GPU" */
    void *user;       /* passed to probe, query, supports, open and transfer */

    /* Returns the number of devices. */
    int (*probe)(void *user);
    /* Describes a device. NULL: nothing is known about the devices. */
    ls_status (*query)(void *user, int number, ls_backend_device *out);
    /* Returns whether devices can compute this node. Not called for leaves, nor for nodes that
     * write variables other than `apply`. NULL: they can compute everything. A kind without
     * `apply` can train too: the host then updates the variables and uploads them. */
    bool (*supports)(void *user, const ls_tensor *node);
    /* Opens a device; called once for each logical device. */
    ls_status (*open)(void *user, int number, void **device);
    /* Closes a device. NULL: nothing to do. */
    void (*close)(void *device);

    ls_status (*alloc)(void *device, size_t bytes, void **memory);
    void (*free)(void *device, void *memory);
    ls_status (*upload)(void *device, void *memory, size_t offset, const void *from, size_t bytes);
    ls_status (*download)(void *device, void *memory, size_t offset, void *to, size_t bytes);
    /* Copies from another device of this backend, or the same one. The source is complete and
     * stays until `to_device` is synced; another thread may be calling the source device. NULL:
     * copies go through the host. */
    ls_status (*copy)(void *to_device, void *to, size_t to_offset, void *from_device, void *from, size_t from_offset,
                      size_t bytes);
    /* Combines two partial results. */
    ls_status (*join)(void *device, const ls_join_call *call);
    /* Sets *out to whether all elements are finite. Returns when all earlier work is done. */
    ls_status (*finite)(void *device, ls_dtype dtype, ls_memory_place from, int64_t count, bool *out);
    /* Checks several lists at once, with an answer for each. NULL: the library
     * calls `finite` for each. */
    ls_status (*finite_all)(void *device, const ls_finite_call *list, int count, bool *out);

    ls_status (*plan_create)(void *device, const ls_program *program, void **plan);
    /* Runs a program; must not allocate. */
    ls_status (*plan_run)(void *device, void *plan, const ls_program_run *run);
    /* Runs the program on several lanes at once. Lanes have their own rooms LANE, TASK and
     * PARTIALS, and their sizes may differ by one sample. If this or join_lanes is NULL, the
     * library calls plan_run for each lane. */
    ls_status (*plan_run_lanes)(void *device, void *plan, const ls_program_run *runs, int count);
    /* Joins the values of lanes. NULL: the library calls `join` for two values at a time. */
    ls_status (*join_lanes)(void *device, const ls_join_lanes_call *call);
    void (*plan_destroy)(void *device, void *plan);
    /* Waits until all work of the device is done. NULL: work is always
     * done when its call returns. */
    ls_status (*sync)(void *device);
    /* Makes all these copies at once, between any of the backend's devices, and returns when
     * they are done. Sources are complete, and no thread calls these devices meanwhile. NULL:
     * the library calls `copy` for each device. */
    ls_status (*transfer)(void *user, const ls_transfer *list, int count);
    /* The library allocates scratch memory, so that it counts towards the device's limit: one
     * block for all plans, as large as the largest plan needs. plan_scratch returns a plan's
     * need; use_scratch gives the backend the block before a plan's first run and whenever it
     * changes (memory NULL: it is gone). Both NULL: the backend allocates its own scratch
     * memory, which counts nowhere. */
    void (*plan_scratch)(void *device, const void *plan, ls_plan_scratch *out);
    ls_status (*use_scratch)(void *device, ls_memory_place at, size_t bytes);
} ls_backend;

/* Adds a kind of device to a context that is not open yet. The table is copied; what it points
 * to must outlive the context. Kinds that are added later are preferred. */
LS_API ls_status ls_add_backend(ls_context *ctx, const ls_backend *backend);

/* Sets the thread's last error and returns `status`. */
LS_API ls_status ls_backend_fail(ls_status status, const char *format, ...) LS_PRINTF(2, 3);

/* Run the reference kernels, which every other kernel is tested against, on arrays that the caller
 * owns. They read samples, first, batch, seed and run of `run`. state and new_state: the variable
 * and its slots for `apply`, NULL for other nodes. */
LS_API ls_status ls_reference_run(const ls_tensor *node, const ls_program_run *run, const void *const *in,
                                  const void *const *state, void *out, void *const *new_state);
LS_API void ls_reference_join(ls_join_kind kind, ls_dtype dtype, const void *left, const void *right, int64_t count,
                              void *to);

#ifdef __cplusplus
}
#endif
#endif
