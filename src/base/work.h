/* Progress of long operations: reading and writing files, evaluating, predicting, saving and
 * restoring checkpoints.
 *
 *     for (...) {
 *         write a few megabytes;
 *         ls_work_report("writing", path, written, bytes);
 *     }
 *     ls_work_end();              also after a failure
 *
 * A watcher belongs to a thread: background threads do not report to it, and functions in between
 * need not pass it on. Without a watcher the calls cost almost nothing. ls_show_work
 * (lockstep/base.h) is the usual watcher; fit has its own, which draws on its progress bar. */
#ifndef LS_BASE_WORK_H
#define LS_BASE_WORK_H

#include "base/terminal.h"

typedef struct ls_work {
    /* "reading", "photos.npz"; object may be NULL. Both are valid during the call */
    const char *verb, *object;
    int64_t done, total; /* progress in any unit; total 0: unknown */
    double seconds;      /* time since the first report */
} ls_work;

typedef struct ls_work_watcher {
    /* Called at most 10 times per second, after the first second. */
    void (*show)(void *user, const ls_work *work);
    void (*end)(void *user); /* called when the operation has ended */
    void *user;
} ls_work_watcher;

/* Sets this thread's watcher (all zeros: none). Returns the previous one, which the caller
 * restores. */
ls_work_watcher ls_work_watch(ls_work_watcher watcher);

/* Bytes of a file to read or write between two reports. */
#define LS_WORK_CHUNK ((size_t)16 << 20)

void ls_work_report(const char *verb, const char *object, int64_t done, int64_t total);
void ls_work_end(void);

/* ---- For watchers ---- */

/* Appends "reading photos.npz": verb and object, only the last component of a path. */
void ls_work_name(ls_text *text, const ls_work *work);
/* Draws a line that can be overdrawn and erased: "reading photos.npz ━━━━━━━━━━━━━━━━━━━━ 45%
 * 3s". */
void ls_work_draw(const ls_terminal *terminal, const ls_work *work);

#endif
