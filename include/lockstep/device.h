/* lockstep/device.h: the context that owns devices and options. There is no global runtime: several may be open. */
#ifndef LOCKSTEP_DEVICE_H
#define LOCKSTEP_DEVICE_H

#include "lockstep/base.h"
#include "lockstep/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_context_options {
    ls_log_level log_level; /* 0: warnings and errors */
    ls_log_sink log_sink;   /* NULL: standard error */
    void *log_user;
    int cpu_devices; /* CPU devices that share the cores out; 0: one */
    int threads;     /* worker threads of all of them together; 0: one for each core this process may use */
    bool reference;  /* compute with the plain reference kernels alone */
} ls_context_options;

#define LS_MAX_WORKERS 1024

/* options NULL: the defaults. Graphs made in the context must be destroyed before it is closed. */
LS_API ls_status ls_context_open(const ls_context_options *options, ls_context **out);
LS_API void ls_context_close(ls_context *ctx);

#ifdef __cplusplus
}
#endif
#endif
