/* Parses names of devices:
 *
 * clang-format off
 *     /job:localhost/replica:0/task:0/device:GPU:1    full name; job, replica, task are optional
 *     /job:worker/replica:0/task:3/device:GPU:1       full name on worker 3 of a cluster
 *     /physical_device:GPU:0                          same as /device:GPU:0
 *     /gpu:0, gpu                                     number 0 is the default
 *     gpu:1       kind GPU; if there is none, first CUDA devices, then GPUs of other kinds
 *     cuda:1      kind CUDA; kind GPU if CUDA has no devices
 *     cpu:0-3             a range
 *     cpu:0[2,5-7]        cores of a CPU
 *     cpu:0, gpu:0-1      a list
 * clang-format on
 *
 * Kinds are not case-sensitive. */
#ifndef LS_DEVICE_NAMES_H
#define LS_DEVICE_NAMES_H

#include "base/status.h"

/* A kind of device and its number of devices. */
typedef struct ls_kind_count {
    const char *kind; /* "GPU" */
    int count;
    /* Bit N: device N of this kind (not CUDA or GPU) is a GPU, which "gpu" may name. */
    uint64_t gpus;
    bool made_as_named; /* devices after number 0 share its cores */
} ls_kind_count;

typedef struct ls_named_device {
    int kind; /* index of the kind */
    int number;
    char cores[64]; /* text in brackets, "0-3,5"; "": none */
} ls_named_device;

/* Parses a list of devices; the caller frees *out. Fails if a part is not a name, does not exist or
 * occurs twice; the message quotes it and lists the existing devices. worker: rank of this process,
 * or LS_NO_WORKER. */
#define LS_NO_WORKER (-1)
ls_status ls_names_read(const char *text, const ls_kind_count *kinds, int kind_count, int worker, ls_named_device **out,
                        int *count);

ls_status ls_names_read_one(const char *text, const ls_kind_count *kinds, int kind_count, int worker,
                            ls_named_device *out);

/* Fails if a name chooses cores: logical devices are opened after cores are chosen. */
ls_status ls_names_refuse_cores(const char *text, const ls_named_device *found);

/* "2,5-7" gives { 2, 5, 6, 7 }. Numbers must increase. The caller frees *out. */
ls_status ls_names_read_cores(const char *text, int **out, int *count);

#endif
