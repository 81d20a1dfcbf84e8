/* The last error of each thread, and the names of status codes. */
#include "base/status.h"

#include <string.h>

#include "base/text.h"

static _Thread_local char last_error[LS_ERROR_BYTES];

void ls_fail_write(ls_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    ls_fail_v(status, format, args);
    va_end(args);
}

ls_status ls_fail_v(ls_status status, const char *format, va_list args)
{
    /* Callers pass ls_last_error() as an argument to wrap a message. */
    char message[LS_ERROR_BYTES];
    int length = vsnprintf(message, sizeof message, format, args);
    if (length < 0)
        snprintf(message, sizeof message, "(the message could not be formatted)");
    else if ((size_t)length >= sizeof message)
        memcpy(message + sizeof message - 4, "...", 4);
    ls_make_printable(message, strlen(message));
    memcpy(last_error, message, strlen(message) + 1);
    return status;
}

ls_status ls_fail_within(ls_status status, const char *format, ...)
{
    char where[LS_ERROR_BYTES];
    if (status == LS_OK)
        return LS_OK;
    va_list args;
    va_start(args, format);
    if (vsnprintf(where, sizeof where, format, args) < 0)
        where[0] = '\0';
    va_end(args);
    return ls_fail(status, "%s: %s", where, last_error[0] ? last_error : ls_status_name(status));
}

void ls_error_keep(ls_error *error, ls_status status)
{
    error->status = status;
    memcpy(error->message, last_error, sizeof(error->message));
}

ls_status ls_error_give(const ls_error *error)
{
    return error->status == LS_OK ? LS_OK : ls_fail(error->status, "%s", error->message);
}

void ls_clear_error(void)
{
    last_error[0] = '\0';
}

const char *ls_last_error(void)
{
    return last_error;
}

const char *ls_status_name(ls_status status)
{
    switch (status) { /* no default: the compiler reports a status without a name */
    case LS_OK:
        return "LS_OK";
    case LS_ERR_INVALID:
        return "LS_ERR_INVALID";
    case LS_ERR_SHAPE:
        return "LS_ERR_SHAPE";
    case LS_ERR_DTYPE:
        return "LS_ERR_DTYPE";
    case LS_ERR_NOT_FOUND:
        return "LS_ERR_NOT_FOUND";
    case LS_ERR_UNSUPPORTED:
        return "LS_ERR_UNSUPPORTED";
    case LS_ERR_STATE:
        return "LS_ERR_STATE";
    case LS_ERR_MEMORY:
        return "LS_ERR_MEMORY";
    case LS_ERR_OVERFLOW:
        return "LS_ERR_OVERFLOW";
    case LS_ERR_DEVICE:
        return "LS_ERR_DEVICE";
    case LS_ERR_PEER:
        return "LS_ERR_PEER";
    case LS_ERR_DATA:
        return "LS_ERR_DATA";
    case LS_ERR_NOT_FINITE:
        return "LS_ERR_NOT_FINITE";
    case LS_ERR_IO:
        return "LS_ERR_IO";
    case LS_ERR_UNSAVED:
        return "LS_ERR_UNSAVED";
    case LS_ERR_INTERNAL:
        return "LS_ERR_INTERNAL";
    }
    return "LS_ERR_(unknown)";
}
