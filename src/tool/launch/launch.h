/* lockstep launch. start.c starts worker processes, rendezvous.c makes their shared folders,
 * lines.c prints their output, launch.c supervises them. */
#ifndef LS_TOOL_LAUNCH_LAUNCH_H
#define LS_TOOL_LAUNCH_LAUNCH_H

#include <signal.h>
#include <sys/types.h>

#include "tool/tool.h"

#define LAUNCH_LINE 4096 /* longer lines are split */

/* One of a worker's two outputs. */
typedef struct launch_stream {
    int fd; /* -1: at its end, or the worker writes directly */
    size_t used;
    char line[LAUNCH_LINE];
} launch_stream;

typedef struct launch_worker {
    pid_t pid;                     /* 0: not running; also the id of its process group */
    int returns;                   /* number of restarts within the job that the others continue */
    bool overdue;                  /* was asked to end, because the job is over */
    double started_at, restart_at; /* restart_at 0: no restart planned */
    double delay;                  /* delay before its last restart */
    launch_stream out[2];
} launch_worker;

typedef struct launch {
    const tool_settings *settings;
    const char **program; /* with its arguments; ends with NULL */
    char job[64], *key_file;
    /* Folder for the rendezvous over TCP, and the key made there; "": none. */
    char folder[256], made_key[300];
    char journal[256]; /* folder for the journals of parameter servers; "": none */
    /* Locks of journal and folder; -1: none. */
    int locks[2];
    int count, running;
    launch_worker *workers;
    int *cores, core_count, share; /* share: cores per worker */
    int signals;                   /* a signalfd */
    /* Descriptor of a file in memory that workers read. */
    int shared_fd;
    char *ended; /* its content: by rank, whether the worker has ended for good */
    sigset_t mask, old_mask;
    /* The worker whose lines are printed without rank, and whose exit status is that of the job:
     * the chief, as it announces itself (fabric/start/launcher.h). If none does: the lowest running
     * rank; changes only when that worker fails. -1: none is left. */
    int chief;
    bool begun;      /* a chief was announced: earlier failures did not end the job */
    bool finished;   /* the chief has ended with status 0 */
    int failed, how; /* the first worker that failed, and its wait status; -1: none */
    int restarts;    /* restarts done or planned, of workers and of the whole job */
    double job_delay;
    int signal;              /* signal received that ends all */
    double over_at, kill_at; /* times when hanging workers are asked to end, and killed; 0: never */
} launch;

/* ---- start.c ---- */

ls_status launch_find_cores(launch *l);
/* writes_itself: the worker inherits standard output and error, and standard input unless that is a
 * terminal. */
ls_status launch_start_worker(launch *l, int rank, bool writes_itself);
void launch_close_streams(launch_worker *w);

/* ---- rendezvous.c ---- */

/* Makes a folder for the rendezvous over TCP, and a key unless one was given. */
ls_status launch_make_rendezvous(launch *l);
void launch_set_rendezvous(const launch *l); /* in the worker's process */
void launch_remove_rendezvous(launch *l);    /* including files left by killed workers */

/* Share with workers that are still connecting which others have ended for good
 * (fabric/start/launcher.h). Without this file they wait for the join limit. */
void launch_make_shared(launch *l);
void launch_share_ends(launch *l, bool none);
/* Returns the running worker that announced itself as chief; -1: none. */
int launch_find_chief(const launch *l);
void launch_remove_shared(launch *l);

/* ---- lines.c ---- */

/* end: prints an incomplete last line, too. */
void launch_read_worker(launch *l, int rank, bool end);

#endif
