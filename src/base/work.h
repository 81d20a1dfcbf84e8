/* Progress of long operations:
 *
 *     for (...) {
 *         write a few megabytes;
 *         ls_work_report("writing", path, written, bytes);
 *     }
 *     ls_work_end();              also after a failure
 *
 * A watcher belongs to a thread: background threads do not report to it, and functions in between
 * need not pass it on. ls_show_work (lockstep/base.h) is the usual one; fit draws on its own
 * progress bar. */
#ifndef LS_BASE_WORK_H
#define LS_BASE_WORK_H

#include "base/terminal.h"

typedef struct ls_work {
    /* valid during the call; object may be NULL */
    const char *verb, *object;
    int64_t done, total; /* progress in any unit; total 0: unknown */
    double seconds;      /* time since the first report */
} ls_work;

typedef struct ls_work_watcher {
    /* Called at most 10 times per second, after the first second. */
    void (*show)(void *user, const ls_work *work);
    void (*end)(void *user);
    void *user;
} ls_work_watcher;

/* Sets this thread's watcher (zeros: none). Returns the previous one, which the caller restores. */
ls_work_watcher ls_work_watch(ls_work_watcher watcher);

/* Bytes between two reports. */
#define LS_WORK_CHUNK ((size_t)16 << 20)

void ls_work_report(const char *verb, const char *object, int64_t done, int64_t total);
void ls_work_end(void);

/* ---- For watchers ---- */

/* Appends "reading photos.npz", without the folder of a path. */
void ls_work_name(ls_text *text, const ls_work *work);
/* Draws a line that can be erased: "reading photos.npz ━━━━━━━━━━━━━━━━━━━━ 45% 3s". */
void ls_work_draw(const ls_terminal *terminal, const ls_work *work);

#endif
