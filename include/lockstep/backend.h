/* lockstep/backend.h: devices of another kind, added from outside the library.
 *
 * A backend is a table of functions that a context is given before it is opened. The library decides what runs where
 * and in which order; a backend holds memory and runs *programs*: a few steps, one node each, on some samples.
 *
 * Calls for one device come from one thread at a time, though not always the same, and in the order in which they must
 * take effect. They may return before the work is done, except `download` and `sync`; what `upload` was given may
 * change as soon as it returns. A function that fails returns a status and says why with ls_backend_fail. Work that
 * fails after its call has returned is told once, by the device's next `download` or `sync`, and every task ends in one
 * of them. The run then fails as a whole, nothing that it was to write is written, and the device is used again.
 *
 * Offsets, `base` and sizes of `alloc` are multiples of 64. A step's output overlaps none of its inputs. */
#ifndef LOCKSTEP_BACKEND_H
#define LOCKSTEP_BACKEND_H

#include "lockstep/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where a value is in the program's memory. */
typedef struct ls_program_slot {
    size_t offset;
    size_t unit;     /* bytes of one sample; of a whole value: all of them */
    bool per_sample; /* sample i of a run is at offset + unit * (i, or row + i where kept) */
    bool kept;
} ls_program_slot;

typedef struct ls_program_step {
    const ls_tensor *node;     /* what to compute: ls_tensor_op and its sisters (lockstep/graph.h) */
    const ls_program_slot *in; /* one for each of its inputs */
    ls_program_slot out;       /* of a node that reduces the batch: the part of these samples */
} ls_program_step;

typedef struct ls_program {
    const ls_program_step *steps; /* live, with all they point to, as long as the plan made from them */
    int step_count;
    int64_t samples; /* most that a run will have, and none has 0; 1 where there is no batch axis */
} ls_program;

typedef struct ls_program_run {
    void *memory; /* of `alloc`: slots are offsets from `base` in it */
    size_t base;
    int64_t samples; /* of this run */
    int64_t row;     /* where its first sample is in kept values */
    int64_t first;   /* where its first sample is in the batch */
    int64_t batch;   /* samples in the whole batch; -1: there is no batch axis */
    uint64_t seed, run;
} ls_program_run;

typedef struct ls_backend_device {
    char about[256]; /* "NVIDIA H100 80GB" */
    size_t memory;   /* bytes; 0: not known */
} ls_backend_device;

typedef struct ls_backend {
    size_t size;      /* sizeof(ls_backend) */
    const char *kind; /* "GPU" */
    void *user;       /* given to probe, query, supports and open */

    int (*probe)(void *user);                                           /* how many devices there are */
    ls_status (*query)(void *user, int number, ls_backend_device *out); /* NULL: nothing is known of them */
    /* Asked of what is computed: no leaves, and nothing that writes variables. NULL: everything. */
    bool (*supports)(void *user, const ls_tensor *node);
    ls_status (*open)(void *user, int number, void **device); /* once for each logical device */
    void (*close)(void *device);                              /* NULL: nothing to do */

    ls_status (*alloc)(void *device, size_t bytes, void **memory);
    void (*free)(void *device, void *memory);
    ls_status (*upload)(void *device, void *memory, size_t offset, const void *from, size_t bytes);
    ls_status (*download)(void *device, void *memory, size_t offset, void *to, size_t bytes);
    /* From another device of this backend, where it is all there and stays until `to_device` is synced; a thread may be
     * calling for that device at the time. NULL: by way of the host. */
    ls_status (*copy)(void *to_device, void *to, size_t to_offset, void *from_device, void *from, size_t from_offset,
                      size_t bytes);

    ls_status (*plan_create)(void *device, const ls_program *program, void **plan);
    ls_status (*plan_run)(void *device, void *plan, const ls_program_run *run); /* allocates nothing */
    void (*plan_destroy)(void *device, void *plan);
    ls_status (*sync)(void *device); /* returns when everything asked for is done; NULL: it always is */
} ls_backend;

/* The table is copied; what it points to must outlive the context. Kinds added later are preferred. */
LS_API ls_status ls_add_backend(ls_context *ctx, const ls_backend *backend);

/* Writes the thread's last error and returns `status`. */
LS_API ls_status ls_backend_fail(ls_status status, const char *format, ...) LS_PRINTF(2, 3);

/* The reference kernel of a node, on arrays in memory: what every kernel is tested against. Of a run, samples, first,
 * batch, seed and run are looked at. */
LS_API ls_status ls_reference_run(const ls_tensor *node, const void *const *in, void *out, const ls_program_run *run);

#ifdef __cplusplus
}
#endif
#endif
