/* A machine for tests of devices: a context with the tests' GPU backend (gpu.h) beside the CPU, and
 * its log. Functions without a status fail the running test; threads other than the main one use
 * none of them. Linked into every test program. */
#ifndef TESTS_MACHINE_H
#define TESTS_MACHINE_H

#include "check.h"
#include "gpu.h"
#include "lockstep/device.h"
#include "lockstep/run.h"
#include "sanitized.h"

#define CPU(n) "/job:localhost/replica:0/task:0/device:CPU:" #n
#define GPU(n) "/job:localhost/replica:0/task:0/device:GPU:" #n

typedef struct machine {
    gpu *g; /* NULL: there is none */
    ls_context *ctx;
    char log[32768]; /* lines with newlines; what is too much is lost */
} machine;

/* gpu.devices 0: none. Parts not 0: GPU:0 is cut into that many logical devices. */
typedef struct machine_settings {
    gpu_settings gpu;
    ls_context_options options; /* but for the sink */
    int parts;
} machine_settings;

/* Created, with the backend, but not opened (unless there are parts: then configured). */
void machine_create(machine *m, machine_settings settings);
void machine_close(machine *m); /* and nothing is left of it in the backend, and nothing was misused */

/* The call failed with this status, and the message has all of these words, up to a NULL. */
void machine_failed(ls_status found, ls_status expected, const char *const *words);
#define FAILS(call, status, ...) machine_failed(call, status, (const char *const[]){ __VA_ARGS__, NULL })

void machine_has(const char *text, const char *words);
void machine_lacks(const char *text, const char *words);
size_t machine_count(const char *text, const char *words); /* how often */

/* How many logical devices there are, of a kind or (NULL) all. */
size_t machine_devices(ls_context *ctx, const char *kind);

ls_memory_info machine_memory(ls_context *ctx, const char *device);

/* A context with two CPU devices and two threads. */
ls_context *open_two_cpus(void);

/* Pages of this process in memory, in bytes. */
size_t machine_resident(void);

#endif
