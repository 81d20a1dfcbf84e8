/* A parameter server's journal, from which it restarts: a snapshot of its state, and every push
 * since. The server writes a push to it before it applies and acknowledges the push.
 *
 *     FOLDER/server-0.state     run id, batches applied, learning rate set, the whole shard
 *     FOLDER/server-0.pushes-7  pushes since then; the head of the state names the 7
 *
 * The state is replaced atomically and synced. Pushes are written at once but not synced: they
 * survive the end of the process, not of the machine. An incomplete push at the end was never
 * acknowledged and is ignored. */
#ifndef LS_TRAIN_SERVER_JOURNAL_H
#define LS_TRAIN_SERVER_JOURNAL_H

#include "base/append.h"
#include "base/status.h"

#define LS_RUN_ID 33 /* 32 hex digits and the terminating 0 */

/* Batches that a server has applied: all ordinals below `below`, and those in `list`. */
typedef struct ls_applied {
    int64_t below;
    int64_t *list; /* ascending */
    size_t count, room;
} ls_applied;

bool ls_applied_has(const ls_applied *applied, int64_t ordinal);
ls_status ls_applied_add(ls_applied *applied, int64_t ordinal);
void ls_applied_free(ls_applied *applied);

typedef struct ls_journal_push {
    int64_t ordinal, epoch, batch, run, samples, worker;
    double rate;       /* that a callback set; NAN: none */
    const void *bytes; /* [push_bytes] versions read, one for each server, then gradients */
} ls_journal_push;

typedef struct ls_journal {
    char folder[3072];
    char id[LS_RUN_ID];
    int server;
    int64_t number; /* number of the current file of pushes */
    size_t state_bytes, push_bytes;
    ls_append file;
} ls_journal;

/* Creates the folder, but no files yet. */
ls_status ls_journal_make(const char *folder, const char *id, int server, size_t state_bytes, size_t push_bytes,
                          ls_journal *out);

typedef struct ls_journal_state {
    ls_applied applied;
    double rate;
    void *bytes; /* [state_bytes] */
} ls_journal_state;
/* Replaces the state and starts an empty file of pushes. */
ls_status ls_journal_begin(ls_journal *journal, const ls_journal_state *state);
ls_status ls_journal_add(ls_journal *journal, const ls_journal_push *push);

/* `begin` gets the state, then `apply` each push. Arguments are valid only during the call. */
typedef struct ls_journal_reader {
    ls_status (*begin)(void *user, const ls_journal_state *state);
    ls_status (*apply)(void *user, const ls_journal_push *push);
    void *user;
} ls_journal_reader;
/* Restores a server; later pushes follow the last complete one. *found: there is a journal of this
 * run. */
ls_status ls_journal_restore(ls_journal *journal, const ls_journal_reader *reader, bool *found);

/* Deletes the files, at the end of a job. */
void ls_journal_remove(ls_journal *journal);
void ls_journal_close(ls_journal *journal);

#endif
