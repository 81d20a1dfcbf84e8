/* Progress of a fit on a terminal or in lines. */
#ifndef LS_TRAIN_REPORT_PROGRESS_H
#define LS_TRAIN_REPORT_PROGRESS_H

#include "train/report/worker_times.h"

typedef struct ls_progress {
    ls_terminal terminal;
    bool bar, lines;      /* neither: silent */
    int64_t steps;        /* of the epoch; negative: not known */
    int64_t done, before; /* steps done; of these, before this process came to the epoch */
    double start, drawn;
    double first_step;           /* seconds that the first step took: not counted in the time a step */
    bool open_line;              /* a bar is drawn, without a newline after it */
    const ls_results *results;   /* what the last step gave; NULL: there was none yet */
    char about[LS_WORKERS_TEXT]; /* shown last, on a terminal that has room for it; "" */
    bool watching;               /* work between steps is shown, too, */
    ls_work_watcher outer;       /* in place of this watcher */
} ls_progress;

void ls_progress_open(ls_progress *progress, FILE *out, ls_verbose verbose);
/* Prints the first line of a fit: its optimizer and the learning rate of its first step. */
void ls_progress_rate(ls_progress *progress, const char *optimizer, double rate);
void ls_progress_epoch(ls_progress *progress, int64_t epoch, int64_t epochs, int64_t steps, int64_t done);
void ls_progress_begin(ls_progress *progress, int64_t steps, int64_t done); /* the same without a title */
void ls_progress_step(ls_progress *progress, int64_t done, const ls_results *results);
void ls_progress_end(ls_progress *progress, const ls_results *results, const ls_results *validation);
/* From now on work of this thread (base/work.h) is shown with the bar, until it is closed. */
void ls_progress_watch(ls_progress *progress);
/* Ends a bar that is not at its end, for another line to follow; closing does so, too. */
void ls_progress_break(ls_progress *progress);
void ls_progress_close(ls_progress *progress);

#endif
