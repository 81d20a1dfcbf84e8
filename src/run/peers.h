/* The other workers of a cluster as src/run sees them; src/fabric implements the interface. A joint
 * action (a run or a call) is a series of exchanges and a commit; until then nothing changes. If a
 * worker is lost, the others repeat the action (`again`) and get the same bits. */
#ifndef LS_RUN_PEERS_H
#define LS_RUN_PEERS_H

#include <stdatomic.h>

#include "base/status.h"

#define LS_ALL_WORKERS (-1)
#define LS_MOST_PEERS  256 /* Equals LS_MAX_CLUSTER. */

/* Data that worker `from` sends to worker `to`, or to all others. */
typedef struct ls_piece {
    int from, to;
    void *data;
    size_t bytes;
} ls_piece;

/* Requests of a worker, as bits. A commit combines them into a decision for all workers. */
enum {
    LS_REQUEST_STOP = 1,
    LS_REQUEST_WELCOME = 2, /* A worker waits to join. */
    LS_REQUEST_TOO_FEW = 4, /* There are too few workers and none joined in time. */
};

/* Answer to a worker that wants to join. */
typedef enum ls_answer {
    LS_ANSWER_WAIT,
    LS_ANSWER_JOINED,
    LS_ANSWER_LATER, /* The others are already in a later fit; this worker has missed its own. */
} ls_answer;

typedef struct ls_peers ls_peers;
struct ls_peers {
    int rank, size; /* This worker's rank, and the largest possible number of workers. */
    /* Ranks of the members, the earliest to join first. Changes only when an action is repeated. */
    const int *members;
    int count;
    /* Ranks of the parameter servers, members or not; servers is 0 without any. */
    int first_server, servers;
    /* Preferred bytes of a long vector for one exchange; the same on all workers. */
    size_t slice;
    int least;      /* Fewer workers than this do not continue. */
    bool joins;     /* This worker is joining and is not a member yet. */
    int new_member; /* Rank of a new member that needs the state; -1: none. */
    /* Index of the current fit of this context; a joining worker enters the same one. */
    uint64_t fit;
    /* Random number drawn when the workers met: the same on all members, new for each meeting. */
    uint64_t job;
    unsigned generation; /* Generation of the membership. */
    uint64_t requests;   /* Requests of this worker that are not decided yet. */
    /* Decisions of commits, the same on all workers, until a worker clears them. */
    uint64_t granted;
    /* The last failure was the loss of a worker, and the others continue. */
    bool again;
    /* The others continue without this worker, or may: it must not write files any more. */
    atomic_bool deposed;
    /* By rank: seconds of a worker's own work, without waiting, reported with each commit. Only the
     * lowest member has them, counted from when it became the lowest. NULL: not measured. */
    const double *seconds;
    /* By place among the members: relative share of lanes, the same on all workers. Valid only in
     * the membership generation `weighed`; `split` changes with every new set. NULL: even
     * shares. */
    uint32_t *weights;
    unsigned weighed, split;
    /* Rank that this worker is waiting for now; -1: none. Any thread may read it. NULL: not
     * known. */
    const atomic_int *waits_for;

    /* Delivers pieces. All workers make the same calls in the same order, with the same list except
     * for addresses and pieces between two others. Fails, naming both workers, if their tags
     * differ. */
    ls_status (*exchange)(ls_peers *peers, uint64_t tag, const char *what, const ls_piece *pieces, size_t count);
    /* Starts an exchange without waiting. List and data stay in use until `settle` returns; other
     * exchanges may run meanwhile. At most one is posted. */
    ls_status (*post)(ls_peers *peers, uint64_t tag, const char *what, const ls_piece *pieces, size_t count);
    ls_status (*settle)(ls_peers *peers);
    /* Makes progress on the posted exchange without blocking. Any thread may call it. */
    void (*move_on)(ls_peers *peers);
    /* Returns when every worker has called it. Fails and names a worker whose `hash` of the results
     * differs. */
    ls_status (*commit)(ls_peers *peers, const uint64_t hash[2], const char *what);
    /* Leaves because this worker cannot continue, and reports why; the others continue. */
    void (*give_up)(ls_peers *peers);
    /* Ends the job: the others fail with this worker's error. NULL: they detect it themselves. */
    void (*end_all)(ls_peers *peers);

    /* Commits and lets a waiting worker join: then sets `again` and `new_member`. With too few
     * workers it waits for one, up to the timeout for meeting, then decides LS_REQUEST_TOO_FEW. */
    ls_status (*welcome)(ls_peers *peers);
    /* For a worker with `joins` set: waits briefly to be accepted. */
    ls_status (*join)(ls_peers *peers, ls_answer *answer);
};

/* Whether the others continue without this worker, or may. Any thread may call it. */
static inline bool ls_peers_is_deposed(const ls_peers *peers)
{
    return peers && atomic_load(&peers->deposed);
}

/* Another worker has taken over: this one must not write files any more. */
static inline void ls_peers_depose(ls_peers *peers)
{
    if (peers)
        atomic_store(&peers->deposed, true);
}

/* Returns whether to repeat the failed action, and clears the flag. NULL (no cluster): false. */
bool ls_peers_again(ls_peers *peers);

/* ls_peers_place: this worker's place among the members; while it joins, the place after the
 * last. */
bool ls_peers_has(const ls_peers *peers, int rank);
int ls_peers_place(const ls_peers *peers);

/* ls_peers_workers: the number of members that are not parameter servers. */
bool ls_peers_is_server(const ls_peers *peers, int rank);
int ls_peers_workers(const ls_peers *peers);

/* Sends the first worker's weights (by place) to all. If it passes NULL, nothing changes. */
ls_status ls_peers_weigh(ls_peers *peers, const uint32_t *weights);
/* The weights in force, including that of a joining worker, which comes last. A parameter server
 * has weight 0: it joins for all workers; if no worker is left, servers compute as workers do.
 * NULL: all weights are equal. `room` is a buffer for the result. */
const uint32_t *ls_peers_weights(const ls_peers *peers, uint32_t room[LS_MOST_PEERS]);

/* Makes one exchange and its commit; repeats both if a worker is lost. */
ls_status ls_peers_share(ls_peers *peers, uint64_t tag, const char *what, const ls_piece *pieces, size_t count);

/* Agreement on whether to stop, so that all workers stop at the same step. ls_peers_any asks all
 * workers now; ls_peers_stops returns the decision of the commits so far and sends this worker's
 * request with the next one. NULL (no cluster): the flag stays as it is. */
ls_status ls_peers_any(ls_peers *peers, const char *what, bool *flag);
void ls_peers_stops(ls_peers *peers, bool *flag);

#endif
