/* What a parameter server needs to come back: its state of some moment, and every push that it applied since, in a
 * folder of its own. A push is in the journal before it is applied and acknowledged, so a server that comes back has
 * applied everything that anybody believes it has, and knows which batches those were.
 *
 *     FOLDER/server-0.state     id of the run, batches applied, the learning rate that was set, the whole part
 *     FOLDER/server-0.pushes-7  pushes since, one behind the other; 7 is in the head of the state
 *
 * The state is written whole or not at all, and synced; pushes are written at once, but not synced: they outlive the
 * process, not the machine. What was torn at the end had not been acknowledged, and is left out. */
#ifndef LS_TRAIN_SERVER_JOURNAL_H
#define LS_TRAIN_SERVER_JOURNAL_H

#include "base/append.h"
#include "base/status.h"

#define LS_RUN_ID 33 /* 32 hex digits and a zero */

/* Which batches a server has applied: all below `below`, and those in the list. */
typedef struct ls_applied {
    int64_t below;
    int64_t *list; /* ascending */
    size_t count, room;
} ls_applied;

bool ls_applied_has(const ls_applied *applied, int64_t ordinal);
ls_status ls_applied_add(ls_applied *applied, int64_t ordinal);
void ls_applied_free(ls_applied *applied);

/* A push as it came. */
typedef struct ls_journal_push {
    int64_t ordinal, epoch, batch, run, samples, worker;
    double rate;       /* that was set for all pushes to come; NAN: none */
    const void *bytes; /* versions read by server, then gradients: as many as the journal was made for */
} ls_journal_push;

typedef struct ls_journal {
    char folder[3072];
    char id[LS_RUN_ID];
    int server;
    int64_t number;                 /* of the file of pushes */
    size_t state_bytes, push_bytes; /* of every state and push */
    ls_append file;
} ls_journal;

/* Nothing is read or made yet. */
ls_status ls_journal_make(const char *folder, const char *id, int server, size_t state_bytes, size_t push_bytes,
                          ls_journal *out);

/* A state, and an empty file of pushes. What was there is replaced. */
typedef struct ls_journal_state {
    ls_applied applied;
    double rate;
    void *bytes; /* state_bytes of them */
} ls_journal_state;
ls_status ls_journal_begin(ls_journal *journal, const ls_journal_state *state);
ls_status ls_journal_add(ls_journal *journal, const ls_journal_push *push);

/* Comes back: the state, then each push in order to `apply`. *found: false where there is no journal of this run. The
 * journal goes on behind the last whole push. state->bytes has room for them; state->applied is to be freed. */
typedef struct ls_journal_reader {
    ls_status (*begin)(void *user, const ls_journal_state *state);
    ls_status (*apply)(void *user, const ls_journal_push *push);
    void *user;
} ls_journal_reader;
ls_status ls_journal_come_back(ls_journal *journal, const ls_journal_reader *reader, bool *found);

/* The end of a job: nothing of it is left on the disk. */
void ls_journal_remove(ls_journal *journal);
void ls_journal_close(ls_journal *journal);

#endif
