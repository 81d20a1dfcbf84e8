/* Who has read which version of a server's part and has not pushed its gradient yet: by this list a server keeps the
 * staleness bound. A gradient may go into a version at most `bound` versions behind the one that follows its read.
 *
 * With E pushes a version, a read at version r must be pushed while at most (r + bound + 1) E - 1 pushes were applied:
 * its deadline. Reads can all be in time exactly when, in the order of their deadlines, the k-th one has room for the
 * k before it. So a pull waits where its own read could not be in time any more, and a push waits where it would take
 * the room of a read that is still computed. */
#ifndef LS_TRAIN_SERVER_STALENESS_H
#define LS_TRAIN_SERVER_STALENESS_H

#include "base/status.h"

typedef struct ls_read_entry {
    int rank;
    int64_t ordinal; /* of the batch: at most one read has it */
    int64_t version;
    bool arrived; /* its gradient is here, and waits to be applied */
} ls_read_entry;

typedef struct ls_staleness {
    int64_t bound, every; /* every: pushes that make a version */
    ls_read_entry *list;  /* by version, the oldest first */
    size_t count, room;
} ls_staleness;

void ls_staleness_free(ls_staleness *reads);

/* Whether a read of the newest version, in the place of what is known of this batch, can be in time; pushes: applied
 * so far. */
bool ls_staleness_may_pull(const ls_staleness *reads, int64_t ordinal, int64_t pushes);
/* Whether all the others can still be in time when this one's gradient is applied next. */
bool ls_staleness_may_apply(const ls_staleness *reads, int64_t ordinal, int64_t pushes);
/* Whether a read of that version, in the place of what is known of this batch, can be in time beside the others. */
bool ls_staleness_may_add(const ls_staleness *reads, int64_t ordinal, int64_t version, int64_t pushes);

/* A read of a batch that has one replaces it. */
ls_status ls_staleness_add(ls_staleness *reads, ls_read_entry read);
ls_read_entry *ls_staleness_find(const ls_staleness *reads, int64_t ordinal);
void ls_staleness_remove(ls_staleness *reads, int64_t ordinal);
/* Those of a process that is lost, but for what has arrived. */
void ls_staleness_lose(ls_staleness *reads, int rank);

#endif
