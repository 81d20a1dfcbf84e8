/* The other workers of a cluster, as runs see them. src/fabric is what is behind it.
 *
 * What workers do together, a run or a call, is a number of exchanges and then a commit, behind which every worker has
 * all that it needs. Until then nothing is changed: when a worker is lost, those that are left begin what they were at
 * anew
 * (`again`), with the bits it would have had. */
#ifndef LS_RUN_PEERS_H
#define LS_RUN_PEERS_H

#include <stdatomic.h>

#include "base/status.h"

#define LS_ALL_WORKERS (-1)
#define LS_MOST_PEERS  256 /* LS_MAX_CLUSTER */

/* What worker `from` has, and worker `to`, or all others, get. */
typedef struct ls_piece {
    int from, to;
    void *data;
    size_t bytes;
} ls_piece;

/* What a worker may wish for, as bits; each is decided for all. */
enum {
    LS_WISH_STOP = 1,
    LS_WISH_WELCOME = 2, /* somebody waits to be let in */
    LS_WISH_TOO_FEW = 4, /* and nobody came */
};

/* What a worker that wants to be let in is told. */
typedef enum ls_answer {
    LS_ANSWER_WAIT,
    LS_ANSWER_JOINED,
    LS_ANSWER_LATER, /* the others are in a later fit: this one is over */
} ls_answer;

typedef struct ls_peers ls_peers;
struct ls_peers {
    int rank, size;     /* this worker, and how many there can be */
    const int *members; /* the ranks that are there, who came first first; they change when something is begun again */
    int count;
    int first_server, servers; /* ranks of parameter servers, whether they are there or not; servers 0: none */
    size_t slice;              /* bytes of a long vector that are best exchanged at once; the same on all */
    int least;                 /* fewer workers do not go on */
    bool joins;                /* this worker is none of them yet */
    int newcomer;              /* a member that has to be given the state; -1: there is none */
    uint64_t fit;              /* the how manieth of this context is made: a newcomer enters the same */
    uint64_t job;              /* drawn when the workers met: the same for all members, and new for each meeting */
    unsigned epoch;            /* changes with the members */
    uint64_t wishes;           /* of this worker, until they are decided */
    uint64_t decided;          /* by commits, the same on all workers, until they take it off */
    bool again;                /* the last failure was the loss of a worker, and the others go on */
    atomic_bool deposed;       /* others go on without this worker, or may: it must not write files any more */
    /* By rank: seconds of a worker's own work, not waiting for others, as it said with each commit. Only the lowest
     * member has them, and counts from the moment on when it became that. NULL: nobody says it. */
    const double *seconds;
    /* By place among the members: how many lanes each gets beside the others, the same on all workers. They hold in the
     * epoch `weighed`, and are nobody's after it; `split` changes with them. NULL: lanes are shared out evenly. */
    uint32_t *weights;
    unsigned weighed, split;
    const atomic_int *waits_for; /* the rank that this worker waits for at this moment, -1: none; for any thread; NULL:
                                    nobody says it */

    /* Pieces go where they belong. Every worker calls this with the same list, but for the addresses, and pieces
     * between two others may be left out; in the same order of calls. `tag` is compared, and a difference is an error
     * that names both. */
    ls_status (*exchange)(ls_peers *peers, uint64_t tag, const char *what, const ls_piece *pieces, size_t count);
    /* The same without waiting: list and pieces are in use until `settle` returns, and exchanges may be made meanwhile.
     * One at a time. */
    ls_status (*post)(ls_peers *peers, uint64_t tag, const char *what, const ls_piece *pieces, size_t count);
    ls_status (*settle)(ls_peers *peers);
    /* Moves what can be moved at once of what was posted; for any thread, between other things. */
    void (*move_on)(ls_peers *peers);
    /* Returns when every worker has called it. hash: of what they have then; a worker with another one is named. */
    ls_status (*commit)(ls_peers *peers, const uint64_t hash[2], const char *what);
    /* This worker cannot go on, and tells why; the others do. */
    void (*give_up)(ls_peers *peers);
    /* What failed here ends the job: the others are told why, and fail, too. NULL: they see it themselves. */
    void (*end_all)(ls_peers *peers);

    /* A commit of all, at which one that waits is let in: then `again`, with newcomer set. When they are too few, it
     * waits for one, up to the limit for meeting, and decides LS_WISH_TOO_FEW. */
    ls_status (*welcome)(ls_peers *peers);
    /* Of a worker that `joins`: waits a moment to be let in. */
    ls_status (*join)(ls_peers *peers, ls_answer *answer);
};

/* Whether others go on without this worker, or may. For any thread; NULL: never. */
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

/* Whether what failed is begun again; asked once. Of a process that is alone (NULL) it never is. */
bool ls_peers_again(ls_peers *peers);

/* Whether a worker is one of the members; the place of this one among them, or behind all of them while it joins. */
bool ls_peers_has(const ls_peers *peers, int rank);
int ls_peers_place(const ls_peers *peers);

/* Whether a worker is a parameter server; how many of the members are none. */
bool ls_peers_is_server(const ls_peers *peers, int rank);
int ls_peers_workers(const ls_peers *peers);

/* Gives all workers the first one's weights, by place; it may give none (NULL), and nothing changes. Called by all. */
ls_status ls_peers_weigh(ls_peers *peers, const uint32_t *weights);
/* Those that hold, also of one that joins, behind the others; 0: of a parameter server, which joins for all. Where no
 * worker is left servers compute as workers do. NULL: all have the same. `room` is where they may be put. */
const uint32_t *ls_peers_weights(const ls_peers *peers, uint32_t room[LS_MOST_PEERS]);

/* One exchange and its commit, begun again where that is needed. */
ls_status ls_peers_share(ls_peers *peers, uint64_t tag, const char *what, const ls_piece *pieces, size_t count);

/* Whether to stop, for what a clock or a signal decides: all workers act at the same step. ls_peers_any asks all at
 * once; ls_peers_stops says what the commits up to now decided, and what this worker wishes goes along with the next.
 * Of a process that is alone (NULL) the flag stays as it is. */
ls_status ls_peers_any(ls_peers *peers, const char *what, bool *flag);
void ls_peers_stops(ls_peers *peers, bool *flag);

#endif
