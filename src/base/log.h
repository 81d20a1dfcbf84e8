/* Logger of a context: a level and a sink. (ls_log is the logarithm.) */
#ifndef LS_BASE_LOG_H
#define LS_BASE_LOG_H

#include <pthread.h>

#include "lockstep/base.h"

typedef struct ls_logger {
    ls_log_level level;
    ls_log_sink sink; /* never NULL after ls_log_init */
    void *user;
    pthread_mutex_t mutex; /* serializes calls of the sink */
} ls_logger;

/* Without a sink (NULL) lines go to standard error. */
ls_status ls_log_init(ls_logger *log, ls_log_level level, ls_log_sink sink, void *user);
void ls_log_destroy(ls_logger *log);

/* Writes one line of at most 1,023 characters, or nothing if the level is disabled or `log` is
 * NULL. */
void ls_log_write(ls_logger *log, ls_log_level level, const char *format, ...) LS_PRINTF(3, 4);

/* Returns whether to log now what the caller waits for since `since`: 3 s after that, then every
 * 10 s. *next is the caller's, and 0 at first. */
bool ls_log_wait_is_due(double *next, double since, double now);

/* Ignores the level: for output that the user requested. */
void ls_log_always(ls_logger *log, const char *format, ...) LS_PRINTF(2, 3);

#endif
