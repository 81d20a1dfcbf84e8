/* lockstep launch: what its files share. launch_start.c starts a worker's process, launch_meeting.c has the place
 * where workers meet over tcp, launch_lines.c prints what workers write, launch.c watches them: who goes on, who is
 * started again, and with which status all ends. */
#ifndef LS_TOOL_LAUNCH_H
#define LS_TOOL_LAUNCH_H

#include <signal.h>
#include <sys/types.h>

#include "tool/tool.h"

#define LAUNCH_LINE 4096 /* a longer line is printed in pieces */

/* What a worker writes to one of its two outputs; whole lines are passed on. */
typedef struct launch_stream {
    int fd; /* -1: at its end, or the worker writes by itself */
    size_t used;
    char line[LAUNCH_LINE];
} launch_stream;

typedef struct launch_worker {
    pid_t pid;                     /* 0: it does not run; its process group has the same number */
    int returns;                   /* how often it was started again, to go on in the job that the others have kept */
    bool overdue;                  /* it was asked to end, because the job is over */
    double started_at, restart_at; /* restart_at 0: it is not started again */
    double delay;                  /* before its last restart */
    launch_stream out[2];
} launch_worker;

typedef struct launch {
    const tool_settings *settings;
    const char **program; /* with its arguments; NULL behind the last */
    char job[64], *key_file;
    char folder[256], made_key[300]; /* where workers meet over tcp, and the key that was made there; "": neither */
    char journal[256];               /* where parameter servers keep what they need to come back; "": nowhere */
    int locks[2];                    /* of both folders, while this process lives; -1: none */
    int count, running;
    launch_worker *workers;
    int *cores, core_count, share; /* the cores, and how many of them a worker gets */
    int signals;                   /* a descriptor */
    int gone;                      /* one of the file in memory that workers share with this process */
    char *told;                    /* what it says */
    sigset_t mask, old_mask;
    /* The worker whose lines have no rank before them and whose status is the job's: the chief, as that says itself
     * (fabric/launcher.h). Of programs that say nothing: the lowest rank that runs, from worker 0 on; another one only
     * when it fails. -1: nobody is left. */
    int voice;
    bool begun;              /* there was a chief: failures before that did not end the job */
    bool finished;           /* the voice has ended with 0 */
    int failed, how;         /* the first worker that failed, and how it ended; -1: none has */
    int restarts;            /* done or planned, of workers and of the whole job together */
    double job_delay;        /* before the last restart of the whole job */
    int signal;              /* that came and ends all */
    double over_at, kill_at; /* when workers that hang at the end are asked to end; when they are killed; 0: never */
} launch;

double launch_now(void);

/* ---- launch_start.c ---- */

ls_status launch_find_cores(launch *l);
/* A worker that writes by itself has this process's outputs, and its input where that is no terminal. */
ls_status launch_start_worker(launch *l, int rank, bool writes_itself);
void launch_close_streams(launch_worker *w);

/* ---- launch_meeting.c ---- */

/* A folder where workers meet over tcp, with a key for this job unless it has one. */
ls_status launch_make_meeting(launch *l);
void launch_set_meeting(const launch *l); /* in a worker's process */
void launch_remove_meeting(launch *l);    /* with what workers that were killed have left there */

/* Tells workers that still meet who has ended and is not started again (fabric/launcher.h). Without such a file they
 * wait for the join limit. */
void launch_make_word(launch *l);
void launch_tell_ends(launch *l, bool none);
/* Returns the worker that has said that it is the chief, and runs; -1: there is none. */
int launch_find_chief(const launch *l);
void launch_remove_word(launch *l);

/* ---- launch_lines.c ---- */

/* Prints what a worker has written up to now; at the end also a last line that has no end. */
void launch_read_worker(launch *l, int rank, bool end);

#endif
