/* Progress of a fit: a bar on a terminal, or lines. */
#ifndef LS_TRAIN_REPORT_PROGRESS_H
#define LS_TRAIN_REPORT_PROGRESS_H

#include "train/report/worker_times.h"

typedef struct ls_progress {
    ls_terminal terminal;
    bool bar, lines;      /* neither: print nothing */
    int64_t steps;        /* per epoch; negative: unknown */
    int64_t done, before; /* steps done in this epoch; `before`: by an earlier process */
    double start, drawn;
    double first_step;           /* seconds; excluded from the time per step */
    bool open_line;              /* the cursor is after a bar */
    const ls_results *results;   /* NULL: no step yet */
    char about[LS_WORKERS_TEXT]; /* shown last if it fits */
    bool watching;               /* also show work between steps */
    ls_work_watcher outer;       /* watcher to restore at the end */
} ls_progress;

void ls_progress_open(ls_progress *progress, FILE *out, ls_verbose verbose);
/* Prints the optimizer and the rate of the first step. */
void ls_progress_rate(ls_progress *progress, const char *optimizer, double rate);
void ls_progress_epoch(ls_progress *progress, int64_t epoch, int64_t epochs, int64_t steps, int64_t done);
/* Without a title. */
void ls_progress_begin(ls_progress *progress, int64_t steps, int64_t done);
void ls_progress_step(ls_progress *progress, int64_t done, const ls_results *results);
void ls_progress_end(ls_progress *progress, const ls_results *results, const ls_results *validation);
/* Shows work (base/work.h) on the bar until ls_progress_close. */
void ls_progress_watch(ls_progress *progress);
/* Also ends an unfinished bar with a newline. */
void ls_progress_close(ls_progress *progress);

#endif
