/* The other workers of a cluster, as runs see them. src/fabric is what is behind it. */
#ifndef LS_RUN_PEERS_H
#define LS_RUN_PEERS_H

#include "base/status.h"

/* What worker `from` has, and all others get. */
typedef struct ls_piece {
    int from;
    void *data;
    size_t bytes;
} ls_piece;

typedef struct ls_peers ls_peers;
struct ls_peers {
    int rank, size;
    /* Pieces go from their worker to all others. Every worker calls this with the same list (but for the addresses), in
     * the same order of calls; `tag` is compared, and a difference is an error that names both. */
    ls_status (*exchange)(ls_peers *peers, uint64_t tag, const char *what, const ls_piece *pieces, size_t count);
};

/* Sets the flag where any worker has it; of a process that is alone (NULL) it stays as it is. For what a clock or a
 * signal decides: all workers act at the same step. */
ls_status ls_peers_any(ls_peers *peers, const char *what, bool *flag);

#endif
