/* lockstep/base.h: what every call shares: statuses, the last error, logging and element types.
 *
 * A function that can fail returns ls_status. The function that finds the cause writes one
 * message; read it with ls_last_error() on the same thread. Outputs are set only on success.
 *
 * Outputs are the last arguments. Calls that end in a variable list (layers, or options by name)
 * have their outputs right before that list: ls_sequential(ctx, "cnn", &cnn, layers...),
 * ls_graph_create(ctx, &graph, .seed = 1). These calls are macros around functions whose names
 * end in _with, where outputs are last. Optional outputs can be options (.history). A buffer
 * argument, input or output, is followed by its size in bytes. */
#ifndef LOCKSTEP_BASE_H
#define LOCKSTEP_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(__GNUC__)
#define LS_API                 __attribute__((visibility("default")))
#define LS_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define LS_API
#define LS_PRINTF(text, first)
#endif

/* LS_ARGUMENT_N_ is argument N of a macro's list; LS_AFTER_N_ is the arguments after the first
 * N. The call appends a comma to its list, so the list of options may be empty. */
#define LS_ARGUMENT_1_(a, ...)          a
#define LS_ARGUMENT_2_(a, b, ...)       b
#define LS_ARGUMENT_3_(a, b, c, ...)    c
#define LS_ARGUMENT_4_(a, b, c, d, ...) d
#define LS_AFTER_1_(a, ...)             __VA_ARGS__
#define LS_AFTER_2_(a, b, ...)          __VA_ARGS__
#define LS_AFTER_3_(a, b, c, ...)       __VA_ARGS__
#define LS_AFTER_4_(a, b, c, d, ...)    __VA_ARGS__

#ifdef __cplusplus
extern "C" {
#endif

#define LS_VERSION "0.1.0"

/* Result of a call, and what to do about it. The hundreds digit is the category. A call that fails
 * changes nothing, unless it says otherwise. */
typedef enum ls_status {
    LS_OK = 0,
    /* 1xx usage: correct the call. */
    LS_ERR_INVALID = 100,     /* an argument or option is wrong: correct the one that is named */
    LS_ERR_SHAPE = 101,       /* shapes do not fit: compare the shapes in the message */
    LS_ERR_DTYPE = 102,       /* wrong element type: convert it with ls_op_cast */
    LS_ERR_NOT_FOUND = 103,   /* no such file, name or device: correct the name */
    LS_ERR_UNSUPPORTED = 104, /* valid, but not supported: use what the message suggests */
    LS_ERR_STATE = 105,       /* not allowed now: make the call that the message names first */
    /* 2xx resource: request less, or provide more. */
    LS_ERR_MEMORY = 200,   /* out of memory: use a smaller batch (see ls_explain_fit) */
    LS_ERR_OVERFLOW = 201, /* a size or count is too large for its type: make it smaller */
    /* 3xx device: continue on other devices, which keep working (.continue_last of ls_fit). */
    LS_ERR_DEVICE = 300,
    /* 4xx peer: another worker is lost or differs. Start it again and resume from a checkpoint. */
    LS_ERR_PEER = 400,
    /* 5xx data: correct the file or the value. */
    LS_ERR_DATA = 500,       /* the contents of a file are wrong: correct or replace it */
    LS_ERR_NOT_FINITE = 501, /* a NaN or an infinity stopped the run: lower the learning rate */
    LS_ERR_IO = 502,         /* reading or writing failed: check disk space and permissions */
    LS_ERR_UNSAVED = 503,    /* training ended, but not saved: save the model now */
    /* 6xx internal: a bug in this library; please report it with the message. */
    LS_ERR_INTERNAL = 600,
} ls_status;

/* Returns the name of a status, such as "LS_ERR_SHAPE"; never NULL. */
LS_API const char *ls_status_name(ls_status status);

/* Returns the message of the last call that failed on this thread, or "" if none failed. The
 * string is valid until the next failure on this thread. */
LS_API const char *ls_last_error(void);

/* For user programs: if the call fails, prints the error with file and line to standard error
 * and exits with status 1. The library itself never exits. */
#define LS_CHECK(call)                                                                                                 \
    do {                                                                                                               \
        ls_status ls_check_status_ = (call);                                                                           \
        if (ls_check_status_ != LS_OK) {                                                                               \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, ls_status_name(ls_check_status_), ls_last_error()); \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

typedef enum ls_log_level {
    LS_LOG_SILENT = 0,
    LS_LOG_ERROR = 1,
    LS_LOG_WARNING = 2,
    LS_LOG_INFO = 3,
    LS_LOG_DEBUG = 4,
} ls_log_level;

/* Receives each log line, without a newline. Any thread of the library may call
 * it, but only one at a time. */
typedef void (*ls_log_sink)(void *user, ls_log_level level, const char *line);

/* Shows the progress of long calls of this thread on `out`, if `out` is a terminal: a status
 * line for reading and writing data and weights, evaluation, prediction and checkpoints that
 * take longer than a second. The line is erased when the work is done. NULL turns it off (the
 * default). ls_fit has its own progress output. */
LS_API void ls_show_work(FILE *out);

typedef enum ls_dtype {
    LS_F32 = 0,
    LS_F64,
    LS_I32,
    LS_I64,
    LS_U8,
    LS_BOOL, /* one byte, 0 or 1 */
    LS_DTYPE_COUNT,
} ls_dtype;

/* Returns the size of one element in bytes. */
LS_API size_t ls_dtype_bytes(ls_dtype dtype);
/* Returns NumPy's name of the type, such as "float32". */
LS_API const char *ls_dtype_name(ls_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
