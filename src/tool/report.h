/* lockstep report: a log becomes a page. report_log.c reads logs, report_chart.c draws, report_figures.c says what,
 * report_page.c puts the page together, report.c is the command.
 *
 * A log may be huge, torn or hostile: whatever it holds, memory and page are bounded. Curves keep a fixed number of
 * points, neighbours being averaged when there are more; of too many epochs every second one is kept, and so on. */
#ifndef LS_TOOL_REPORT_H
#define LS_TOOL_REPORT_H

#include "tool/tool.h"

enum {
    REPORT_POINTS = 1024,  /* of a curve */
    REPORT_EPOCHS = 512,   /* that are kept */
    REPORT_VALUES = 64,    /* losses and metrics by name, "val_" ones among them */
    REPORT_DEVICES = 64,   /* that are drawn */
    REPORT_LOGS = 8,       /* in one page */
    REPORT_NAME = 80,      /* bytes of a name that are kept */
    REPORT_TEXT = 400,     /* bytes of a text that are kept: a list of devices, a message */
    REPORT_LINE = 1 << 20, /* bytes of a line that are read */
};

/* ---- What is known of a run (report_log.c) ---- */

/* A curve: x rises. A value that is no number is a gap. */
typedef struct report_curve {
    double x[REPORT_POINTS], y[REPORT_POINTS];
    size_t count;
    int64_t stride;     /* values that a point is the mean of */
    double sum, last_x; /* of the point that is being made */
    int64_t pending;    /* values of it so far */
} report_curve;

/* Seconds, and what they went into. */
typedef struct report_times {
    double seconds, data, compute, join, other, validation;
} report_times;

typedef struct report_epoch {
    int64_t epoch, steps, samples;
    double at; /* x of a chart: the step it ended with, or the epoch itself where there are no steps */
    bool complete;
    double rate;
    report_times times;
    double values[REPORT_VALUES]; /* NAN: it has none of that name */
} report_epoch;

typedef struct report_device {
    char name[REPORT_NAME];
    double busy, data, joins, idle, other; /* seconds */
} report_device;

typedef struct report_run {
    const char *path;
    /* from start; "" and -1: not known */
    char version[REPORT_NAME], time[REPORT_NAME], model[REPORT_NAME], optimizer[REPORT_NAME], losses[REPORT_TEXT];
    char seed[REPORT_NAME], bit_class[REPORT_TEXT], first_weights[REPORT_NAME], used_devices[REPORT_TEXT];
    int64_t parameters, batch_size, epochs_wanted, lanes, starts;
    char listed[REPORT_VALUES][REPORT_NAME]; /* losses and metrics; none: they are found out */
    size_t listed_count;
    /* from end; reason "": there is none */
    char reason[REPORT_NAME], error[REPORT_TEXT], end_time[REPORT_NAME], last_weights[REPORT_NAME];
    /* in between */
    report_curve loss, rate;
    int64_t step; /* the last one */
    report_epoch *epochs;
    size_t epoch_count;
    int64_t epoch_stride, epochs_seen;
    int64_t first_epoch, epochs_made; /* made: each once, also where a run that went on has told it twice */
    bool last_is_kept;                /* false: it stands behind the last one that is */
    char value_names[REPORT_VALUES][REPORT_NAME];
    size_t value_count;
    report_times times; /* of all epochs */
    int64_t checkpoints, lost_checkpoints;
    double waited, waited_before; /* seconds, for checkpoints: since the last start, before it */
    int64_t samples;
    report_device devices[REPORT_DEVICES];
    size_t device_count;
    bool devices_from_end;
    /* what is wrong with it */
    int64_t lines, bad_lines;
    char first_bad[REPORT_TEXT];
    bool torn, left_out; /* the last line is cut; there were more names or devices than are kept */
} report_run;

/* Reads a log as far as it can be read; to be freed by report_free. A file without any event is refused. */
ls_status report_read(const char *path, report_run **out);
void report_free(report_run *run);

/* ---- Drawing (report_chart.c) ---- */

typedef enum report_look {
    REPORT_THIN,  /* of single steps */
    REPORT_SOLID, /* of training */
    REPORT_DASHED /* of validation */
} report_look;

typedef struct report_line {
    const double *x, *y;
    size_t count;
    report_look look;
    int color;                     /* 0 to REPORT_LOGS - 1 */
    char label[REPORT_NAME + 160]; /* as text, not HTML */
} report_line;

typedef struct report_chart {
    char title[REPORT_NAME + 32];
    const char *x_name;
    const report_line *lines;
    size_t line_count;
    bool may_be_log; /* a logarithmic scale, where values are far apart */
    bool from_zero;  /* values are amounts: the scale begins at 0 */
} report_chart;

/* A figure with axes, lines and a legend; nothing where there is no value. */
void report_put_chart(ls_text *page, const report_chart *chart);

/* One row of stacked parts: a name, and a part for each of `values`, of `whole`. */
typedef struct report_part {
    const char *name;
    double value;
    int color; /* 0 to 4 */
} report_part;
void report_put_bar(ls_text *page, const char *name, const report_part *parts, size_t count, double whole);
void report_put_bar_legend(ls_text *page, const report_part *parts, size_t count, double whole);

/* ---- Figures (report_figures.c) ---- */

/* The place of a value in a run, by prefix and name ("val_", "loss"), or REPORT_VALUES. */
size_t report_find_value(const report_run *run, const char *prefix, const char *name);

/* Names without "val_", of all runs, each once, the loss first. */
typedef struct report_names {
    const char *name[REPORT_LOGS * REPORT_VALUES];
    size_t count;
} report_names;
report_names report_list_names(report_run *const *runs, size_t count);

/* Each with its heading; nothing where nothing is known. */
void report_put_charts(ls_text *page, report_run *const *runs, size_t count);
void report_put_times(ls_text *page, report_run *const *runs, size_t count);
void report_put_devices(ls_text *page, const report_run *run, bool alone);

/* ---- The page (report_page.c) ---- */

/* Text in HTML: what has a meaning there is escaped, what cannot be shown is replaced. */
void report_put(ls_text *page, const char *text);
/* "3.2 s", "1:05", "2:03:04" */
void report_put_seconds(ls_text *page, double seconds);
void report_put_number(ls_text *page, double value); /* 4 to 5 digits; a dash for NAN */

void report_put_page(ls_text *page, report_run *const *runs, size_t count);

#endif
