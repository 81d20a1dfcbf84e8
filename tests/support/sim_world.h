/* The inside of a simulated world, for sim.c (who runs when) and sim_lines.c (the transport). Only
 * the worker whose turn it is touches it, so it needs no lock. */
#ifndef LS_TESTS_SIM_WORLD_H
#define LS_TESTS_SIM_WORLD_H

#include <math.h>
#include <pthread.h>
#include <semaphore.h>

#include "base/text.h"
#include "sim.h"

typedef struct ls_sim_worker ls_sim_worker;

/* Bytes that were written together and arrive together. */
typedef struct ls_sim_packet {
    size_t bytes;
    double time; /* time of arrival, without a split */
} ls_sim_packet;

/* One direction of a line. */
typedef struct ls_sim_way {
    unsigned char *ring; /* sim->window bytes; NULL: written bytes will not be read */
    size_t first, held;  /* bytes in it: in flight, and not read yet */
    ls_sim_packet *packets;
    size_t packet_first, packet_count, packet_room;
    double last;  /* when the last byte arrives */
    double ends;  /* when the end arrives, if no split is in the way; INFINITY: it has none */
    bool broken;  /* it was cut; otherwise hung up */
    bool aborted; /* by this side's system: a split does not keep the end away */
} ls_sim_way;

struct ls_connection {
    const ls_transport_table *table;
    ls_transport *transport;
    struct ls_sim_wire *wire;
    ls_sim_worker *worker; /* at this end */
    int side;              /* which end of the wire it is: bytes of side s go ways[s] */
    bool in_use;           /* some worker holds it: it called, or was answered */
    bool closed;           /* hung up, or its worker is dead */
    double gives_up;       /* when it turns out to lead nowhere; INFINITY: it does not */
};

typedef struct ls_sim_wire {
    int number;
    ls_connection ends[2]; /* the caller; the answering worker */
    ls_sim_way ways[2];
    ls_transport *listener; /* the listener it calls; NULL: it was answered, or the listener is closed */
    double call_arrives;    /* the time */
} ls_sim_wire;

struct ls_transport {
    const ls_transport_table *table;
    ls_sim_worker *worker;
    int rank, number;
    bool open;
};

typedef enum ls_sim_state { LS_SIM_BEFORE, LS_SIM_READY, LS_SIM_WAITING, LS_SIM_DONE } ls_sim_state;

struct ls_sim_worker {
    ls_sim *sim;
    int number;
    ls_sim_work work;
    void *user;
    pthread_t thread;
    sem_t turn;

    ls_sim_state state;
    double at;     /* BEFORE, READY: when it goes on; WAITING: when it has waited long enough */
    double frozen; /* it stands still until then */
    ls_transport *waits_at;
    ls_want *wants;
    int want_count;

    bool dead;
    double vanished; /* when; INFINITY: it did not */
    int64_t calls, late_calls;
    bool in_wait; /* its call is a wait */
    int clusters; /* transports that it has opened */
};

/* While it holds, nothing comes from one side to the other. */
typedef struct ls_sim_split {
    uint32_t side;
    bool one_way;
    double begins, ends;
} ls_sim_split;

struct ls_sim {
    ls_sim_settings settings;
    uint64_t random, hash;
    double now;
    ls_sim_worker *workers[LS_MAX_SIM_WORKERS];
    int worker_count;
    ls_sim_worker *running; /* the worker whose turn it is */
    sem_t finished;
    ls_sim_event *events; /* still to come */
    size_t event_count, event_room;
    ls_sim_split *splits;
    size_t split_count, split_room;
    ls_sim_wire **wires;
    size_t wire_count, wire_room;
    ls_transport **listeners;
    size_t listener_count, listener_room;
    bool ran;
    ls_error over; /* status LS_OK: it goes on */
    ls_text story;
};

/* ---- sim.c ---- */

extern _Thread_local ls_sim_worker *ls_sim_own_worker;

uint64_t ls_sim_random(ls_sim *sim, uint64_t below);
double ls_sim_delay(ls_sim *sim);

/* At the beginning of each call: the worker's events happen now, and maybe others continue first.
 * Fails when it is dead. */
ls_status ls_sim_enter(ls_sim_worker *worker);
/* The others go on until this worker's state lets it. Fails when it is dead. */
ls_status ls_sim_pass_on(ls_sim_worker *worker, ls_sim_state state, double at);
/* Into the hash and the story. line may be NULL. */
void ls_sim_note(ls_sim_worker *worker, const char *what, const ls_connection *line, size_t amount);
/* A worker did what it must not: the world ends. */
ls_status ls_sim_blame(ls_sim_worker *worker, const char *format, ...) LS_PRINTF(2, 3);
ls_status ls_sim_is_over(ls_sim_worker *worker);

/* ---- sim_lines.c ---- */

/* When what would arrive at `time` arrives, as far as is known now; INFINITY: never. */
double ls_sim_arrival(const ls_sim *sim, const ls_sim_worker *from, const ls_sim_worker *to, double time);
/* When the worker finds something of what it waits for; INFINITY: never, unless another worker
 * acts. */
double ls_sim_ready_at(const ls_sim_worker *worker);
void ls_sim_cut(ls_sim *sim, int worker, int other); /* other -1: all */
/* Resets the connections between the workers of `side` and the others; both ends see it at once,
 * split or not. */
void ls_sim_cut_across(ls_sim *sim, uint32_t side);
void ls_sim_end_lines(ls_sim_worker *worker, bool silently);
ls_status ls_sim_check_end(ls_sim_worker *worker); /* its work has returned */
void ls_sim_describe_waits(const ls_sim_worker *worker, ls_text *out);
void ls_sim_free_lines(ls_sim *sim);

#endif
