/* Failing: the function that knows the cause calls ls_fail once; callers pass the status up with LS_TRY. */
#ifndef LS_BASE_STATUS_H
#define LS_BASE_STATUS_H

#include <stdarg.h>

#include "lockstep/base.h"

/* Sets this thread's last error, one printable line, and returns `status`, which is looked at twice. A macro, so that
 * compilers see which status is returned: they warn of outputs that a failure left unset otherwise. */
#define ls_fail(status, ...) (ls_fail_write(status, __VA_ARGS__), ls_fail_status(status))
void ls_fail_write(ls_status status, const char *format, ...) LS_PRINTF(2, 3);
ls_status ls_fail_v(ls_status status, const char *format, va_list args);

/* Puts "<format>: " in front of the last error, or of the status's name where there is none, and returns `status`;
 * LS_OK: nothing happens. */
ls_status ls_fail_within(ls_status status, const char *format, ...) LS_PRINTF(2, 3);

/* A failure on its way to another thread, or past calls that may fail themselves: kept with this thread's last error;
 * given, it is the last error again, and its status is returned. */
#define LS_ERROR_BYTES 2048
typedef struct ls_error {
    ls_status status;
    char message[LS_ERROR_BYTES];
} ls_error;
void ls_error_keep(ls_error *error, ls_status status);
ls_status ls_error_give(const ls_error *error);

/* Forgets this thread's last error: what stands there later came later. */
void ls_clear_error(void);

static inline ls_status ls_fail_status(ls_status status)
{
    return status;
}

/* Returns from the caller when `call` fails; the message is already written. */
#define LS_TRY(call)                                                                                                   \
    do {                                                                                                               \
        ls_status ls_try_status_ = (call);                                                                             \
        if (ls_try_status_ != LS_OK)                                                                                   \
            return ls_try_status_;                                                                                     \
    } while (0)

/* The same, leaving through a cleanup label named for what it undoes; `status` is the caller's variable. */
#define LS_TRY_GOTO(status, call, label)                                                                               \
    do {                                                                                                               \
        (status) = (call);                                                                                             \
        if ((status) != LS_OK)                                                                                         \
            goto label;                                                                                                \
    } while (0)

#endif
