/* lockstep/base.h: what every call shares: statuses, the last error, logging, element types.
 *
 * Every function that can fail returns ls_status. The function that knows the cause writes one message; read it with
 * ls_last_error() on the same thread. Outputs are set only on success.
 *
 * Outputs are the last arguments of a function. In a call that ends in a list of any length, of layers or of options by
 * name, they stand right before that list: ls_sequential(ctx, "cnn", &cnn, layers...), ls_graph_create(ctx, &graph,
 * .seed = 1). Such calls are macros around functions whose names end in _with and that have outputs last. An
 * output that may be left out can be an option (.history). A buffer, in
 * or out, is followed by its size in bytes. */
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

/* Of a macro's arguments the first, the second, ..., and those after the first ones, of which there may be none. The
 * call ends its list with one more comma: a list of options may then be empty. */
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

/* The hundreds say what is lost. */
typedef enum ls_status {
    LS_OK = 0,
    /* usage: the call was wrong; nothing is lost, correct the call */
    LS_ERR_INVALID = 100,
    LS_ERR_SHAPE = 101,
    LS_ERR_DTYPE = 102,
    LS_ERR_NOT_FOUND = 103,
    LS_ERR_UNSUPPORTED = 104, /* right in itself, but not something we do */
    LS_ERR_STATE = 105,       /* right call, wrong moment */
    /* resource: ask for less, or give more */
    LS_ERR_MEMORY = 200,
    LS_ERR_OVERFLOW = 201,
    /* device: the device is lost, others work on */
    LS_ERR_DEVICE = 300,
    /* peer: another worker is lost */
    LS_ERR_PEER = 400,
    /* data: a file or a value in it is bad */
    LS_ERR_DATA = 500,
    LS_ERR_NOT_FINITE = 501, /* NaN or infinity where a run must not go on */
    LS_ERR_IO = 502,
    LS_ERR_UNSAVED = 503, /* ls_fit trained to its end, but could not save its last checkpoint */
    /* internal: our mistake; please report it */
    LS_ERR_INTERNAL = 600,
} ls_status;

/* "LS_ERR_SHAPE" and so on; never NULL. */
LS_API const char *ls_status_name(ls_status status);

/* The message of the last call that failed on this thread; "" if none did. Valid until the next failure. */
LS_API const char *ls_last_error(void);

/* For user programs: print the last error with its place and exit with 1. The library itself never does this. */
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

/* Receives each log line, without a newline. May be called from any of the library's threads, one at a time. */
typedef void (*ls_log_sink)(void *user, ls_log_level level, const char *line);

/* From now on, calls of this thread that take longer than a second (reading data and weights, writing them, evaluating,
 * predicting, saving and restoring checkpoints) show how far they are on `out`, if it is a terminal: a line that goes
 * when the work is done. NULL: no more. Calls show nothing before; ls_fit has progress of its own. */
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

LS_API size_t ls_dtype_bytes(ls_dtype dtype);
LS_API const char *ls_dtype_name(ls_dtype dtype); /* "float32", as NumPy names it */

#ifdef __cplusplus
}
#endif
#endif
