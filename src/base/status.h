/* The function that knows the cause calls ls_fail once; callers pass the status up with LS_TRY. */
#ifndef LS_BASE_STATUS_H
#define LS_BASE_STATUS_H

#include <stdarg.h>

#include "lockstep/base.h"

/* Sets this thread's last error to one printable line and returns `status`. A macro, so that
 * compilers see the returned status and do not warn about outputs that a failure leaves unset. */
#define ls_fail(status, ...) (ls_fail_write(status, __VA_ARGS__), ls_fail_status(status))
void ls_fail_write(ls_status status, const char *format, ...) LS_PRINTF(2, 3);
ls_status ls_fail_v(ls_status status, const char *format, va_list args);

/* Prepends "<format>: " to the last error, or to the status's name if there is none. Does nothing
 * for LS_OK. */
ls_status ls_fail_within(ls_status status, const char *format, ...) LS_PRINTF(2, 3);

/* Moves an error to another thread, or preserves it across calls that may fail: ls_error_keep
 * copies the last error; ls_error_give sets it again and returns its status. */
#define LS_ERROR_BYTES 2048
typedef struct ls_error {
    ls_status status;
    char message[LS_ERROR_BYTES];
} ls_error;
void ls_error_keep(ls_error *error, ls_status status);
ls_status ls_error_give(const ls_error *error);

void ls_clear_error(void);

static inline ls_status ls_fail_status(ls_status status)
{
    return status;
}

/* Returns from the calling function if `call` fails. */
#define LS_TRY(call)                                                                                                   \
    do {                                                                                                               \
        ls_status ls_try_status_ = (call);                                                                             \
        if (ls_try_status_ != LS_OK)                                                                                   \
            return ls_try_status_;                                                                                     \
    } while (0)

/* Same with a cleanup label, which is named for what it undoes. */
#define LS_TRY_GOTO(status, call, label)                                                                               \
    do {                                                                                                               \
        (status) = (call);                                                                                             \
        if ((status) != LS_OK)                                                                                         \
            goto label;                                                                                                \
    } while (0)

#endif
