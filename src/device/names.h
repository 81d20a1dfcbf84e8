/* Names of devices: "/job:localhost/replica:0/task:0/device:GPU:1" (of worker 3 of a cluster also
 * "/job:worker/replica:0/task:3/device:GPU:1"), any part of it that has the device, "/gpu:0", "gpu"
 * (number 0), "cuda:1" (a GPU: a kind CUDA, or GPU, whichever has devices), "gpu:1" (a kind GPU; where there is none,
 * devices of a kind CUDA, and behind them those of other kinds that are GPUs), "cpu:0-3", "cpu:0[2,5-7]" (cores), and
 * lists of them: "cpu:0, gpu:0-1". Kinds compare without case. "/physical_device:GPU:0" is read as "/device:GPU:0". */
#ifndef LS_DEVICE_NAMES_H
#define LS_DEVICE_NAMES_H

#include "base/status.h"

/* A kind of device and how many of it there are. */
typedef struct ls_kind_count {
    const char *kind; /* "GPU" */
    int count;
    uint64_t gpus;      /* by bit: devices of another kind that "gpu:N" counts, too */
    bool made_as_named; /* number 0 exists, the others are made when they are named and share its cores */
} ls_kind_count;

typedef struct ls_named_device {
    int kind; /* index in the table of kinds */
    int number;
    char cores[64]; /* what stood in brackets, "0-3,5": "" if nothing */
} ls_named_device;

/* Every device of a list, in its order; the list is the caller's to free. Fails if a part is not a name, if a device is
 * not there, or stands twice: the message has the whole text, the part that is wrong, and what there is. worker: which
 * one of a cluster this process is; LS_NO_WORKER: it is alone. */
#define LS_NO_WORKER (-1)
ls_status ls_names_read(const char *text, const ls_kind_count *kinds, int kind_count, int worker, ls_named_device **out,
                        int *count);

/* The same for exactly one device. */
ls_status ls_names_read_one(const char *text, const ls_kind_count *kinds, int kind_count, int worker,
                            ls_named_device *out);

/* Where logical devices are named: cores are chosen before a context is opened. */
ls_status ls_names_refuse_cores(const char *text, const ls_named_device *found);

/* "2,5-7" to { 2, 5, 6, 7 }; must be rising and without repeats; the caller frees the list. */
ls_status ls_names_read_cores(const char *text, int **out, int *count);

#endif
