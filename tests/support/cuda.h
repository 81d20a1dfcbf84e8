/* The stand-in for CUDA (standin_cuda/standin.h), for tests: every CUDA device of a test program is
 * one of its, even where the machine has real ones. */
#ifndef TESTS_CUDA_H
#define TESTS_CUDA_H

#include "lockstep/device.h"

/* Before the first context: from now on it is loaded in the place of CUDA. False: it was not built,
 * and a line reports it. Whether it was started already does not matter. */
bool cuda_stand_in(void);

/* A context in which these devices ("cuda:0") are visible. False: there are none, and a line has
 * the reason. */
bool cuda_open(const ls_context_options *options, const char *devices, ls_context **out);

/* Its controls. */
typedef struct cuda_controls {
    bool (*fail_next)(const char *call, int nth, int error);
    void (*lose)(int device, int nth, int error);
    long (*count)(const char *call);
    bool (*break_device)(int device, const char *fault);
    int (*held)(void);
    int (*misuses)(void);
} cuda_controls;
cuda_controls cuda_control(void);

#endif
