/* The log of one context: a level and one sink. (The type is not called ls_log: that is the logarithm, in math.h.) */
#ifndef LS_BASE_LOG_H
#define LS_BASE_LOG_H

#include <pthread.h>

#include "lockstep/base.h"

typedef struct ls_logger {
    ls_log_level level;
    ls_log_sink sink; /* never NULL after ls_log_init */
    void *user;
    pthread_mutex_t mutex; /* the sink is called one line at a time */
} ls_logger;

/* sink NULL: lines go to standard error. */
ls_status ls_log_init(ls_logger *log, ls_log_level level, ls_log_sink sink, void *user);
void ls_log_destroy(ls_logger *log);

/* Cut at 1,023 characters; nothing is formatted when the level is off or log is NULL. */
void ls_log_write(ls_logger *log, ls_log_level level, const char *format, ...) LS_PRINTF(3, 4);

/* What was asked for by name, whatever the level. */
void ls_log_always(ls_logger *log, const char *format, ...) LS_PRINTF(2, 3);

#endif
