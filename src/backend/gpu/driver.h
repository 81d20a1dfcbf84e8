/* A device that runs the kernels of src/backend/gpu. A driver (OpenCL, CUDA) is a small table of
 * functions: memory, one in-order queue, kernels. device.h and its files implement
 * lockstep/backend.h on top of it. */
#ifndef LS_BACKEND_GPU_DRIVER_H
#define LS_BACKEND_GPU_DRIVER_H

#include "backend/gpu/chains.h"

/* A launch for several lanes; the table has one entry per lane. */
typedef struct ls_gpu_grid {
    const char *kernel; /* for messages */
    void *memory[LS_GPU_PLACES];
    int places;
    ls_memory_place table;
    size_t entry;     /* bytes of an entry */
    int64_t items[2]; /* largest of all lanes */
    int lanes, group; /* group: items per work group */
} ls_gpu_grid;

/* `device` is the handle passed to ls_gpu_open. Work is queued and executed in order. */
typedef struct ls_gpu_driver {
    const char *name; /* "opencl"; also the folder of its compiled kernels */
    void (*close)(void *device);

    ls_status (*alloc)(void *device, size_t bytes, void **memory);
    void (*free)(void *device, void *memory);
    /* Host memory that the device reads fast; NULL: use malloc and free. */
    void *(*host_alloc)(void *device, size_t bytes);
    void (*host_free)(void *device, void *bytes);
    /* Asynchronous: `from` must not change until `wait`, which also releases *done, has
     * returned. */
    ls_status (*write)(void *device, void *memory, size_t offset, const void *from, size_t bytes, void **done);
    ls_status (*wait)(void *device, void *done);
    /* Returns after all earlier work and this read. */
    ls_status (*read)(void *device, void *memory, size_t offset, void *to, size_t bytes);
    ls_status (*copy)(void *device, void *to, size_t to_offset, void *other, void *from, size_t from_offset,
                      size_t bytes);
    /* Whether `copy` works from `other`; otherwise data goes through the host. NULL: always. */
    bool (*reaches)(void *device, void *other);
    /* Copies between devices of the driver whose queues are empty; returns when complete. *can
     * false: it did nothing and the caller uses `copy`. NULL: never possible. */
    ls_status (*transfer)(const ls_transfer *list, int count, bool *can);
    ls_status (*flush)(void *device);  /* NULL: queued work starts by itself */
    ls_status (*finish)(void *device); /* waits for queued work */

    /* Compile a module, or load an earlier result of `binary` (false: not possible). name: for
     * messages. */
    ls_status (*compile)(void *device, const char *source, const char *name, void **program);
    bool (*load)(void *device, const void *binary, size_t bytes, void **program);
    /* *bytes is malloc'd */
    bool (*binary)(void *device, void *program, void **bytes, size_t *size);
    void (*release)(void *device, void *program);
    ls_status (*kernel)(void *device, void *program, const char *name, void **kernel);
    void (*release_kernel)(void *device, void *kernel); /* NULL: released with their program */
    ls_status (*launch)(void *device, void *kernel, const ls_gpu_grid *grid);

    /* A vendor's library; both NULL: none. `ask` sets *can if the library accepts a call within the
     * workspace that the call has on entry. `at`: the call's places, the workspace last. */
    ls_status (*ask)(void *device, ls_gpu_call *call, bool *can);
    ls_status (*call)(void *device, const ls_gpu_call *call, const ls_memory_place *at);
} ls_gpu_driver;

typedef struct ls_gpu_opening {
    const ls_gpu_driver *driver;
    void *device; /* closed with the device, even if opening fails */
    const ls_gpu_tuning *tuning;
    const char *name; /* for messages; must outlive the device */
    /* Identifies compiled kernels together with their source: options, device, driver. "": do not
     * cache. */
    const char *key;
} ls_gpu_opening;

ls_status ls_gpu_open(const ls_gpu_opening *opening, void **out);

/* ---- Functions for a backend's table; `device` is from ls_gpu_open ---- */

void ls_gpu_close(void *device);
ls_status ls_gpu_alloc(void *device, size_t bytes, void **memory);
void ls_gpu_free(void *device, void *memory);
ls_status ls_gpu_upload(void *device, void *memory, size_t offset, const void *from, size_t bytes);
ls_status ls_gpu_download(void *device, void *memory, size_t offset, void *to, size_t bytes);
ls_status ls_gpu_copy_from(void *to_device, void *to, size_t to_offset, void *from_device, void *from,
                           size_t from_offset, size_t bytes);
ls_status ls_gpu_join_lanes_on(void *device, const ls_join_lanes_call *call);
ls_status ls_gpu_join_on(void *device, const ls_join_call *call);
ls_status ls_gpu_is_finite(void *device, ls_dtype dtype, ls_memory_place from, int64_t count, bool *out);
ls_status ls_gpu_are_finite(void *device, const ls_finite_call *list, int count, bool *out);
ls_status ls_gpu_plan_create(void *device, const ls_program *program, void **out);
ls_status ls_gpu_plan_run(void *device, void *plan, const ls_program_run *run);
ls_status ls_gpu_plan_run_lanes(void *device, void *plan, const ls_program_run *runs, int count);
void ls_gpu_plan_destroy(void *device, void *plan);
void ls_gpu_plan_scratch(void *device, const void *plan, ls_plan_scratch *out);
ls_status ls_gpu_use_scratch(void *device, ls_memory_place at, size_t bytes);
ls_status ls_gpu_sync(void *device);

/* Optional in a table. The devices in the list are from ls_gpu_open. */
ls_status ls_gpu_transfer(void *user, const ls_transfer *list, int count);

#define LS_GPU_FUNCTIONS                                                                                               \
    .close = ls_gpu_close, .alloc = ls_gpu_alloc, .free = ls_gpu_free, .upload = ls_gpu_upload,                        \
    .download = ls_gpu_download, .copy = ls_gpu_copy_from, .join = ls_gpu_join_on, .finite = ls_gpu_is_finite,         \
    .finite_all = ls_gpu_are_finite, .plan_create = ls_gpu_plan_create, .plan_run = ls_gpu_plan_run,                   \
    .plan_run_lanes = ls_gpu_plan_run_lanes, .join_lanes = ls_gpu_join_lanes_on, .plan_destroy = ls_gpu_plan_destroy,  \
    .plan_scratch = ls_gpu_plan_scratch, .use_scratch = ls_gpu_use_scratch, .sync = ls_gpu_sync

/* ---- Merging the launches of several lanes (lanes.c) ---- */

typedef struct ls_gpu_kernel_of {
    void *handle; /* the driver's; NULL: a call of the library */
    int which;    /* number within `small`; -1: a kernel of its own */
    int places;   /* places; 0: as many as the launch has */
} ls_gpu_kernel_of;

static inline int ls_gpu_places(const ls_gpu_kernel_of *kernel, const ls_gpu_launch *launch)
{
    return kernel->places > 0 ? kernel->places : launch->places;
}

typedef struct ls_gpu_record ls_gpu_record;

typedef struct ls_gpu_recorded {
    ls_gpu_kernel_of kernel; /* without a handle: one library call per lane */
    char name[48];
    size_t table_at;
    ls_gpu_grid grid;
} ls_gpu_recorded;

ls_gpu_record *ls_gpu_record_create(void); /* NULL: no memory */
void ls_gpu_record_destroy(ls_gpu_record *record);

void ls_gpu_record_begin(ls_gpu_record *record, int lanes);
/* record_more continues the list with a new part; record_drop removes that part; record_step begins
 * a step of all lanes, record_lane the next lane of the step. */
void ls_gpu_record_more(ls_gpu_record *record, int lanes);
void ls_gpu_record_drop(ls_gpu_record *record);
void ls_gpu_record_step(ls_gpu_record *record);
void ls_gpu_record_lane(ls_gpu_record *record);

/* Adds a lane's launch. It is merged with an equal one of an earlier lane after the launch that
 * this lane joined last. */
ls_status ls_gpu_record_add(ls_gpu_record *record, ls_gpu_kernel_of kernel, const ls_gpu_launch *launch, int group);

/* Saves the launches since record_begin or record_more, to append them again while they are
 * valid. */
typedef struct ls_gpu_saved {
    ls_gpu_recorded *list;
    int count;
    size_t room;
    unsigned char *table;
    size_t bytes, table_room;
} ls_gpu_saved;
ls_status ls_gpu_record_save(const ls_gpu_record *record, ls_gpu_saved *to);
ls_status ls_gpu_record_again(ls_gpu_record *record, const ls_gpu_saved *from);
void ls_gpu_saved_free(ls_gpu_saved *saved);

const ls_gpu_recorded *ls_gpu_record_list(const ls_gpu_record *record, int *count);
const void *ls_gpu_record_table(const ls_gpu_record *record, size_t *bytes);

const ls_gpu_call *ls_gpu_record_call(const ls_gpu_record *record, const ls_gpu_recorded *of, int lane,
                                      ls_memory_place at[LS_GPU_PLACES]);

/* ---- Kernels of an open device ---- */

typedef struct ls_gpu_kernels ls_gpu_kernels;

ls_gpu_kernels *ls_gpu_kernels_create(const ls_gpu_opening *opening); /* NULL: no memory */
void ls_gpu_kernels_destroy(ls_gpu_kernels *kernels);

/* Compiles the kernel if necessary. *first: it is requested for the first time under any name. */
ls_status ls_gpu_kernel(ls_gpu_kernels *kernels, ls_gpu_module module, const char *name, ls_gpu_kernel_of *out,
                        bool *first);

/* *taken false: the driver's compiler rejects its source. */
ls_status ls_gpu_kernels_chain(ls_gpu_kernels *kernels, const ls_gpu_chain_steps *chain, bool *taken);

/* Writes new kernels to disk. Ignores errors. */
void ls_gpu_kernels_keep(ls_gpu_kernels *kernels);

#endif
