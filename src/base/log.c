/* Log lines: the caller's thread formats a line and passes it to the sink, one line at a time. */
#include "base/log.h"

#include <stdarg.h>
#include <string.h>

#include "base/status.h"
#include "base/text.h"

#define LINE_BYTES 1024

static const char *level_name(ls_log_level level)
{
    switch (level) {
    case LS_LOG_SILENT:
        break;
    case LS_LOG_ERROR:
        return "error: ";
    case LS_LOG_WARNING:
        return "warning: ";
    case LS_LOG_INFO:
        return "";
    case LS_LOG_DEBUG:
        return "debug: ";
    }
    return "";
}

static void standard_error(void *user, ls_log_level level, const char *line)
{
    (void)user;
    fprintf(stderr, "lockstep: %s%s\n", level_name(level), line);
}

ls_status ls_log_init(ls_logger *log, ls_log_level level, ls_log_sink sink, void *user)
{
    if (level < LS_LOG_SILENT || level > LS_LOG_DEBUG)
        return ls_fail(LS_ERR_INVALID, "the log level must be %d (silent) to %d (debug), got %d", LS_LOG_SILENT,
                       LS_LOG_DEBUG, (int)level);
    *log = (ls_logger){
        .level = level, .sink = sink == NULL ? standard_error : sink, .user = user, .mutex = PTHREAD_MUTEX_INITIALIZER
    };
    return LS_OK;
}

void ls_log_destroy(ls_logger *log)
{
    if (log == NULL || log->sink == NULL)
        return;
    pthread_mutex_destroy(&log->mutex);
    log->sink = NULL; /* destroying twice is harmless */
}

static void write_line(ls_logger *log, ls_log_level level, const char *format, va_list args)
{
    char line[LINE_BYTES];
    if (vsnprintf(line, sizeof line, format, args) < 0)
        return;
    ls_make_printable(line, strlen(line));
    pthread_mutex_lock(&log->mutex);
    log->sink(log->user, level, line);
    pthread_mutex_unlock(&log->mutex);
}

void ls_log_write(ls_logger *log, ls_log_level level, const char *format, ...)
{
    if (log == NULL || level > log->level || level <= LS_LOG_SILENT)
        return;
    va_list args;
    va_start(args, format);
    write_line(log, level, format, args);
    va_end(args);
}

#define FIRST_WAIT_LINE 3.0  /* seconds */
#define NEXT_WAIT_LINE  10.0 /* seconds */

bool ls_log_wait_is_due(double *next, double since, double now)
{
    if (*next <= since)
        *next = since + FIRST_WAIT_LINE;
    if (now < *next)
        return false;
    *next = now + NEXT_WAIT_LINE;
    return true;
}

void ls_log_always(ls_logger *log, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_line(log, LS_LOG_INFO, format, args);
    va_end(args);
}
