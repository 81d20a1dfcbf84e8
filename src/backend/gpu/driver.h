/* A device that runs the kernels of src/backend/gpu, whoever its driver is. A driver (OpenCL, CUDA) is a table of few
 * functions: memory, one queue in order, kernels. What is made of them is here, once: device.h and its files are the
 * functions of lockstep/backend.h, kernels.c compiles modules when they are first needed and keeps them on disk. */
#ifndef LS_BACKEND_GPU_DRIVER_H
#define LS_BACKEND_GPU_DRIVER_H

#include "backend/gpu/chains.h"

/* A launch of a kernel for some lanes: an entry of the table for each, one behind the other. */
typedef struct ls_gpu_grid {
    const char *kernel; /* for messages */
    void *memory[LS_GPU_PLACES];
    int places;
    ls_memory_place table;
    size_t entry;     /* bytes */
    int64_t items[2]; /* of the lane that has most */
    int lanes, group; /* group: items of a work group */
} ls_gpu_grid;

/* `device` is the driver's own, as it was given to ls_gpu_open. Work is queued, and done in order. */
typedef struct ls_gpu_driver {
    const char *name; /* "opencl": folder of its compiled kernels */
    void (*close)(void *device);

    ls_status (*alloc)(void *device, size_t bytes, void **memory);
    void (*free)(void *device, void *memory);
    /* Host memory that the device reads well; NULL: malloc and free. */
    void *(*host_alloc)(void *device, size_t bytes);
    void (*host_free)(void *device, void *bytes);
    /* Returns at once; `from` may not change until `wait` has returned for *done, which it also gives back. */
    ls_status (*write)(void *device, void *memory, size_t offset, const void *from, size_t bytes, void **done);
    ls_status (*wait)(void *device, void *done);
    /* Returns when everything before, and this, is done. */
    ls_status (*read)(void *device, void *memory, size_t offset, void *to, size_t bytes);
    ls_status (*copy)(void *device, void *to, size_t to_offset, void *other, void *from, size_t from_offset,
                      size_t bytes);
    bool (*reaches)(void *device, void *other); /* whether `copy` can; NULL: always. Otherwise by way of the host */
    /* Between devices of the driver, whose queues are empty; returns when all is done. *can false: it cannot do these,
     * and did nothing: they go by `copy`. NULL: it never can. */
    ls_status (*transfer)(const ls_transfer *list, int count, bool *can);
    ls_status (*flush)(void *device);  /* what is queued begins; NULL: it does so by itself */
    ls_status (*finish)(void *device); /* returns when everything is done */

    /* A module is compiled, or loaded from what `binary` gave before (false: it cannot be). name: for messages. */
    ls_status (*compile)(void *device, const char *source, const char *name, void **program);
    bool (*load)(void *device, const void *binary, size_t bytes, void **program);
    bool (*binary)(void *device, void *program, void **bytes, size_t *size); /* malloc'd */
    void (*release)(void *device, void *program);
    ls_status (*kernel)(void *device, void *program, const char *name, void **kernel);
    void (*release_kernel)(void *device, void *kernel); /* NULL: they go with their program */
    ls_status (*launch)(void *device, void *kernel, const ls_gpu_grid *grid);

    /* A vendor's library, for calls that it takes (*can), with no larger workspace than the call has when it is asked;
     * both NULL: there is none. `at`: the call's places, and the workspace last. */
    ls_status (*ask)(void *device, ls_gpu_call *call, bool *can);
    ls_status (*call)(void *device, const ls_gpu_call *call, const ls_memory_place *at);
} ls_gpu_driver;

/* What a device is opened with. */
typedef struct ls_gpu_opening {
    const ls_gpu_driver *driver;
    void *device; /* the driver's; closed with this one, also when opening fails */
    const ls_gpu_tuning *tuning;
    const char *name; /* for messages; outlives the device */
    const char *key;  /* decides compiled kernels, beside their source: options, device, driver. "": none are kept */
} ls_gpu_opening;

ls_status ls_gpu_open(const ls_gpu_opening *opening, void **out);

/* ---- Functions of a backend's table, on what ls_gpu_open gave ---- */

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

/* Of those that have it: list is of what ls_gpu_open gave. */
ls_status ls_gpu_transfer(void *user, const ls_transfer *list, int count);

/* All of them, for the table of a backend. */
#define LS_GPU_FUNCTIONS                                                                                               \
    .close = ls_gpu_close, .alloc = ls_gpu_alloc, .free = ls_gpu_free, .upload = ls_gpu_upload,                        \
    .download = ls_gpu_download, .copy = ls_gpu_copy_from, .join = ls_gpu_join_on, .finite = ls_gpu_is_finite,         \
    .finite_all = ls_gpu_are_finite, .plan_create = ls_gpu_plan_create, .plan_run = ls_gpu_plan_run,                   \
    .plan_run_lanes = ls_gpu_plan_run_lanes, .join_lanes = ls_gpu_join_lanes_on, .plan_destroy = ls_gpu_plan_destroy,  \
    .plan_scratch = ls_gpu_plan_scratch, .use_scratch = ls_gpu_use_scratch, .sync = ls_gpu_sync

/* ---- Launches of several lanes become one (lanes.c) ---- */

/* What a launch asks the driver for. */
typedef struct ls_gpu_kernel_of {
    void *handle; /* the driver's; NULL: calls of the library */
    int which;    /* of what `small` can do; -1: a kernel of its own */
    int places;   /* that it wants; 0: those of the launch */
} ls_gpu_kernel_of;

static inline int ls_gpu_places(const ls_gpu_kernel_of *kernel, const ls_gpu_launch *launch)
{
    return kernel->places > 0 ? kernel->places : launch->places;
}

typedef struct ls_gpu_record ls_gpu_record;

typedef struct ls_gpu_recorded {
    ls_gpu_kernel_of kernel; /* without a handle: calls of the library, one for each lane */
    char name[48];
    size_t table_at;
    ls_gpu_grid grid;
} ls_gpu_recorded;

ls_gpu_record *ls_gpu_record_create(void); /* NULL: no memory */
void ls_gpu_record_destroy(ls_gpu_record *record);

/* Begins a list of launches of at most so many lanes; a step of all of them; one of these lanes. */
void ls_gpu_record_begin(ls_gpu_record *record, int lanes);
/* The same behind what the list has; and that, but no more, is left of it. */
void ls_gpu_record_more(ls_gpu_record *record, int lanes);
void ls_gpu_record_drop(ls_gpu_record *record);
void ls_gpu_record_step(ls_gpu_record *record);
void ls_gpu_record_lane(ls_gpu_record *record);

/* A lane's launch of this kernel: it joins that of lanes before it, where there is one behind the lane's last. */
ls_status ls_gpu_record_add(ls_gpu_record *record, ls_gpu_kernel_of kernel, const ls_gpu_launch *launch, int group);

/* What the list has got since it was begun, or more was; and the same put behind it again, as long as nothing of it has
 * changed. */
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

/* The launches in order, and the table for all of them. */
const ls_gpu_recorded *ls_gpu_record_list(const ls_gpu_record *record, int *count);
const void *ls_gpu_record_table(const ls_gpu_record *record, size_t *bytes);

/* A lane's call of the library, and its places. */
const ls_gpu_call *ls_gpu_record_call(const ls_gpu_record *record, const ls_gpu_recorded *of, int lane,
                                      ls_memory_place at[LS_GPU_PLACES]);

/* ---- Kernels of an open device ---- */

typedef struct ls_gpu_kernels ls_gpu_kernels;

ls_gpu_kernels *ls_gpu_kernels_create(const ls_gpu_opening *opening); /* NULL: no memory */
void ls_gpu_kernels_destroy(ls_gpu_kernels *kernels);

/* A kernel, compiled if it is not yet. *first: it is asked for the first time, under this name or another. */
ls_status ls_gpu_kernel(ls_gpu_kernels *kernels, ls_gpu_module module, const char *name, ls_gpu_kernel_of *out,
                        bool *first);

/* The kernel of a chain is compiled, if it is not yet. Not taken: the driver's compiler refuses its text. */
ls_status ls_gpu_kernels_chain(ls_gpu_kernels *kernels, const ls_gpu_chain_steps *chain, bool *taken);

/* Kernels that were compiled and are not on disk yet go there. What fails is left out. */
void ls_gpu_kernels_keep(ls_gpu_kernels *kernels);

#endif
