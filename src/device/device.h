/* Kinds of devices, physical devices of the machine, and logical devices, on which a context
 * runs. */
#ifndef LS_DEVICE_DEVICE_H
#define LS_DEVICE_DEVICE_H

#include <pthread.h>

#include "device/cores.h"
#include "device/memory.h"
#include "lockstep/backend.h"

#define LS_CPU       0 /* always kind 0 */
#define LS_MAX_KINDS 9

typedef struct ls_kind {
    char name[16];
    ls_backend backend; /* all zeros for the CPU */
    /* Its devices exist only when named; no work is placed there by default. */
    bool only_named;
    /* Its products and convolutions use the vendor's libraries, with other bits. */
    bool vendor;
    /* Enumerated only when named or listed, because its driver loads slowly. */
    bool asleep;
} ls_kind;

/* A physical device and its configuration. */
typedef struct ls_physical {
    int kind, number;
    char about[256];
    size_t memory;
    bool visible;
    bool only_named, gpu;     /* copied from ls_backend_device */
    bool hidden;              /* cannot be made visible, because of the environment or .reference */
    int growth;               /* memory growth 1: on; -1: off; 0: not set */
    ls_logical_device *parts; /* NULL: one logical device, without a limit of its own */
    int part_count;
} ls_physical;

/* A logical device of an open context, referred to by its index. CPU devices come first. */
typedef struct ls_device {
    int index, kind, number, physical;
    char name[80];
    const ls_backend *backend;
    void *handle;
    pthread_mutex_t mutex; /* serializes backend calls (calls.c) */
    /* Protected by `mutex`. While scratch memory moves, programs wait for `moved` (scratch.c). */
    bool scratch_moves;
    pthread_cond_t moved;
    ls_memory *memory;
    size_t limit;
    bool growth;
    pthread_mutex_t scratch_mutex; /* protects the next three fields */
    ls_block *scratch;             /* for all plans; NULL: none */
    int scratch_users;             /* plans that need it */
    bool scratch_lacks;            /* the last request failed */
    /* Threads in the pool. A device that is not a CPU has one, which drives it. */
    int first_thread, thread_count;
    /* FLOPs and seconds of finished tasks; protected by `mutex`. */
    double flops, seconds;
} ls_device;

/* FLOPs per second of all its threads; 0: not measured yet. */
double ls_device_speed(ls_device *device);

#endif
