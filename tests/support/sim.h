/* A simulated network and clock, for tests of the protocols of workers. A world has workers, each a
 * thread of this process that uses the transport ls_transport_sim. Only one of them runs at a time:
 * the world chooses it, and how long bytes travel, by a seed. A worker goes on to run until a call
 * of the transport hands over to another one, and when all wait, the clock jumps to the next moment
 * at which one of them has something to do. So a world whose workers use no other clock and no
 * other randomness happens again exactly as it did, for the same settings, workers and events.
 *
 * What is said of a transport holds for this one, at its worst: few bytes move at a time, other
 * workers go on between any two calls, a wait ends for nothing now and then. A call costs 1
 * simulated microsecond, and what a worker does between calls nothing. */
#ifndef LS_TESTS_SIM_H
#define LS_TESTS_SIM_H

#include "fabric/transport/transport.h"

#define LS_MAX_SIM_WORKERS 32

typedef struct ls_sim ls_sim;

typedef struct ls_sim_settings {
    uint64_t seed;
    double least_delay, most_delay; /* seconds that bytes travel; one in 32 takes 10 times as long; 0: 50 us, 2 ms */
    double limit;                   /* simulated seconds after which the world ends with an error; 0: 600 */
    size_t window;                  /* bytes in flight in one direction of a line, at most; 0: 64 KiB */
    bool local; /* all workers are on one machine: an end does not tell a closed line from a dead worker */
    bool story; /* keep what happens as text; it happens alike without */
} ls_sim_settings;

typedef enum ls_sim_fate {
    LS_SIM_KILL,   /* the worker ends. The last bytes it sent may be lost, and then its lines end for the others */
    LS_SIM_VANISH, /* its machine is gone: it ends, and the others hear nothing more, not even of the end of their lines
                    */
    LS_SIM_STOP,   /* it stands still for `seconds` */
    LS_SIM_CUT,    /* its lines to worker `other` (-1: all) end; a part of the bytes in flight arrives, or none */
    LS_SIM_SPLIT,  /* for `seconds` nothing comes through between the workers of `side` and the others; later it does */
} ls_sim_fate;

typedef struct ls_sim_event {
    ls_sim_fate fate;
    int worker;     /* the worker, in the order of ls_sim_add_worker */
    int64_t call;   /* when this worker makes its call number `call` of the transport, the first is 1; 0: at `time` */
    double time;    /* simulated seconds */
    double seconds; /* STOP, SPLIT: for so long; may be INFINITY */
    bool waiting;   /* with `call`: at the worker's next wait from that call on */
    int other;      /* CUT */
    uint32_t side;  /* SPLIT: one bit for each worker */
    bool one_way;   /* SPLIT: what comes from `side` is lost, what goes there arrives */
    bool cuts;      /* SPLIT: connections across it are reset, too */
} ls_sim_event;

ls_status ls_sim_create(const ls_sim_settings *settings, ls_sim **out);
void ls_sim_destroy(ls_sim *sim);

/* Before the run. A worker begins at a moment of simulated time; several may have the same rank one
 * after another. When it is killed, and also when the world has ended, all its calls of the
 * transport fail with LS_ERR_STATE, and its work must return soon. */
typedef void (*ls_sim_work)(void *user);
ls_status ls_sim_add_worker(ls_sim *sim, double begins, ls_sim_work work, void *user);
ls_status ls_sim_add_event(ls_sim *sim, const ls_sim_event *event);

/* Returns when every worker's work has returned. LS_ERR_STATE: all waited and nothing could come
 * any more, or the limit was reached; the message lists each worker and what it waited for.
 * LS_ERR_INTERNAL: a worker used the transport wrongly (a line after it was hung up; lines left at
 * its end; calls of two threads at once; many calls after its death). */
ls_status ls_sim_run(ls_sim *sim);

/* Results. */
double ls_sim_time(const ls_sim *sim);
uint64_t ls_sim_hash(const ls_sim *sim); /* hash of all calls, of the bytes they moved, and of the times */
int64_t ls_sim_calls(const ls_sim *sim, int worker);
bool ls_sim_was_killed(const ls_sim *sim, int worker);
const char *ls_sim_story(const ls_sim *sim); /* one line for each call; "" without settings.story */

/* The worker, by the order of adding, that this thread is; -1: none. */
int ls_sim_self(void);

extern const ls_transport_table ls_transport_sim;

#endif
