/* The staleness bound of a parameter server, as a list of reads (staleness.h). */
#include "train/server/staleness.h"

#include <stdlib.h>
#include <string.h>

#include "base/grow.h"

void ls_staleness_free(ls_staleness *r)
{
    free(r->list);
    *r = (ls_staleness){ .count = 0 };
}

/* Returns how many pushes may come before that of a read of `version`. */
static int64_t deadline(const ls_staleness *r, int64_t version)
{
    return (version + r->bound + 1) * r->every - 1;
}

/* Without the read of batch `without`, with a new read of version `added` (-1: none). */
static bool all_in_time(const ls_staleness *r, int64_t without, int64_t added, int64_t pushes)
{
    int64_t before = 0;
    for (size_t i = 0; i < r->count; i++) {
        if (added >= 0 && r->list[i].version > added) {
            if (pushes + before++ > deadline(r, added))
                return false;
            added = -1;
        }
        if (r->list[i].ordinal != without && pushes + before++ > deadline(r, r->list[i].version))
            return false;
    }
    return added < 0 || pushes + before <= deadline(r, added);
}

bool ls_staleness_may_pull(const ls_staleness *r, int64_t ordinal, int64_t pushes)
{
    return all_in_time(r, ordinal, pushes / r->every, pushes);
}

bool ls_staleness_may_apply(const ls_staleness *r, int64_t ordinal, int64_t pushes)
{
    return all_in_time(r, ordinal, -1, pushes + 1);
}

bool ls_staleness_may_add(const ls_staleness *r, int64_t ordinal, int64_t version, int64_t pushes)
{
    return all_in_time(r, ordinal, version, pushes);
}

ls_status ls_staleness_add(ls_staleness *r, ls_read_entry read)
{
    ls_staleness_remove(r, read.ordinal);
    LS_TRY(ls_grow(&r->list, r->count, &r->room, sizeof(*r->list)));
    size_t at = r->count++;
    for (; at > 0 && r->list[at - 1].version > read.version; at--)
        r->list[at] = r->list[at - 1];
    r->list[at] = read;
    return LS_OK;
}

ls_read_entry *ls_staleness_find(const ls_staleness *r, int64_t ordinal)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->list[i].ordinal == ordinal)
            return &r->list[i];
    return NULL;
}

static void remove_at(ls_staleness *r, size_t at)
{
    memmove(r->list + at, r->list + at + 1, (r->count - at - 1) * sizeof(*r->list));
    r->count--;
}

void ls_staleness_remove(ls_staleness *r, int64_t ordinal)
{
    const ls_read_entry *found = ls_staleness_find(r, ordinal);
    if (found)
        remove_at(r, (size_t)(found - r->list));
}

void ls_staleness_lose(ls_staleness *r, int rank)
{
    for (size_t i = r->count; i-- > 0;)
        if (r->list[i].rank == rank && !r->list[i].arrived)
            remove_at(r, i);
}
