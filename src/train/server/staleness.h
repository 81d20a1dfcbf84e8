/* Keeps a server's staleness bound with a list of reads whose gradients are not applied yet. A
 * gradient of version r must go into version r + 1 + bound at the latest.
 *
 * With E pushes per version, a read of version r meets its deadline if at most (r+bound+1)*E-1
 * pushes are applied before its own. All reads can meet their deadlines if and only if, sorted by
 * deadline, each has room for the reads before it. So a pull waits while its read could not meet
 * its deadline, and a push waits while it would take the room of a read whose gradient is still
 * being computed. */
#ifndef LS_TRAIN_SERVER_STALENESS_H
#define LS_TRAIN_SERVER_STALENESS_H

#include "base/status.h"

typedef struct ls_read_entry {
    int rank;
    int64_t ordinal; /* batch; at most one read for each */
    int64_t version;
    bool arrived; /* its gradient waits to be applied */
} ls_read_entry;

typedef struct ls_staleness {
    int64_t bound, every; /* every: pushes per version */
    ls_read_entry *list;  /* by version, oldest first */
    size_t count, room;
} ls_staleness;

void ls_staleness_free(ls_staleness *reads);

/* Returns whether this batch may read the newest version, so that all deadlines can be met. pushes:
 * applied so far. A read replaces an earlier one of its batch. */
bool ls_staleness_may_pull(const ls_staleness *reads, int64_t ordinal, int64_t pushes);
/* Returns whether the gradient of this batch may be applied next. */
bool ls_staleness_may_apply(const ls_staleness *reads, int64_t ordinal, int64_t pushes);
/* Returns whether this batch may have read `version`. */
bool ls_staleness_may_add(const ls_staleness *reads, int64_t ordinal, int64_t version, int64_t pushes);

ls_status ls_staleness_add(ls_staleness *reads, ls_read_entry read);
ls_read_entry *ls_staleness_find(const ls_staleness *reads, int64_t ordinal);
void ls_staleness_remove(ls_staleness *reads, int64_t ordinal);
/* Removes the reads of a lost process whose gradients have not arrived. */
void ls_staleness_lose(ls_staleness *reads, int rank);

#endif
