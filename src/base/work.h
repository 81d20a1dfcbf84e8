/* Work that may take long tells how far it is, and whoever waits for it may watch: reading and writing files,
 * evaluating, predicting, saving and restoring checkpoints.
 *
 *     for (...) {
 *         write a few megabytes;
 *         ls_work_tell("writing", path, written, bytes);
 *     }
 *     ls_work_end();              also when it failed
 *
 * Watchers belong to a thread: what a thread in the background does disturbs nobody, and nothing is passed through the
 * calls in between. Without a watcher all this costs next to nothing. ls_show_work (lockstep/base.h) is the usual
 * watcher; fit has one of its own, which draws on its bar. */
#ifndef LS_BASE_WORK_H
#define LS_BASE_WORK_H

#include "base/terminal.h"

typedef struct ls_work {
    const char *verb, *object; /* "reading", "photos.npz"; object may be NULL. Both last for the call */
    int64_t done, total;       /* in any unit; total 0: not known */
    double seconds;            /* since it was first told of */
} ls_work;

typedef struct ls_work_watcher {
    void (*show)(void *user, const ls_work *work); /* a few times a second, from the second second on */
    void (*end)(void *user);                       /* what was shown is over */
    void *user;
} ls_work_watcher;

/* Another watcher of this thread; all zeros: none. Returns the one before, which the caller puts back. */
ls_work_watcher ls_work_watch(ls_work_watcher watcher);

/* Bytes of a file to read or write before telling again. */
#define LS_WORK_CHUNK ((size_t)16 << 20)

void ls_work_tell(const char *verb, const char *object, int64_t done, int64_t total);
void ls_work_end(void);

/* ---- For watchers ---- */

/* "reading photos.npz": what it does, with the last part of a path. */
void ls_work_name(ls_text *text, const ls_work *work);
/* A line of its own, to be drawn over and erased: "reading photos.npz ━━━━━━━━━━━━━━━━━━━━ 45% 3s". */
void ls_work_draw(const ls_terminal *terminal, const ls_work *work);

#endif
