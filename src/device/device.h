/* Devices of a context: kinds, what the machine has (physical), and what an open context runs on (logical). */
#ifndef LS_DEVICE_DEVICE_H
#define LS_DEVICE_DEVICE_H

#include <pthread.h>

#include "device/cores.h"
#include "device/memory.h"
#include "lockstep/backend.h"

#define LS_CPU       0 /* the kind that is always there */
#define LS_MAX_KINDS 9

typedef struct ls_kind {
    char name[16];
    ls_backend backend; /* all zeros for the CPU */
    bool only_named;    /* it has devices because somebody named one: no work goes there by itself */
    bool vendor;        /* its products and convolutions are computed by its vendor's libraries, with other bits */
    bool asleep;        /* not looked for until somebody names it, or lists what there is: drivers take time to load */
} ls_kind;

/* A device of the machine, and how it is to be used. */
typedef struct ls_physical {
    int kind, number;
    char about[256];
    size_t memory;
    bool visible;
    bool only_named, gpu;     /* ls_backend_device's */
    bool hidden;              /* by the environment or by .reference: it cannot be made visible */
    int growth;               /* 0: not said; 1: on; -1: off */
    ls_logical_device *parts; /* NULL: one, without a limit of its own */
    int part_count;
} ls_physical;

/* A device of an open context. Its index is what maps, plans and executors speak of; CPU devices come first. */
typedef struct ls_device {
    int index, kind, number, physical;
    char name[80]; /* full */
    const ls_backend *backend;
    void *handle;          /* the backend's */
    pthread_mutex_t mutex; /* of calls to it (calls.c) */
    bool scratch_moves;    /* under `mutex`: no program may run (scratch.c) until */
    pthread_cond_t moved;
    ls_memory *memory;
    size_t limit;
    bool growth;
    pthread_mutex_t scratch_mutex;  /* of the next three (scratch.c) */
    ls_block *scratch;              /* that programs of all its plans use while they run; NULL: none */
    int scratch_users;              /* plans that need some */
    bool scratch_lacks;             /* the last that asked for some did not get it */
    int first_worker, worker_count; /* of the crew; others than CPUs have one that drives them */
    /* Work that its tasks have done so far, in FLOPs, and the time that a worker took for it; under `mutex`. */
    double flops, seconds;
} ls_device;

/* FLOPs a second of all its workers; 0: nothing was measured yet. */
double ls_device_speed(ls_device *device);

#endif
