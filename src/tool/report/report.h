/* lockstep report. log.c reads logs, chart.c draws charts, figures.c selects what they show, page.c
 * assembles the page. A log may be huge, incomplete or malicious, so memory and page size are
 * bounded: neighboring points of a curve are averaged, and every second epoch is dropped, as often
 * as needed. */
#ifndef LS_TOOL_REPORT_REPORT_H
#define LS_TOOL_REPORT_REPORT_H

#include "tool/tool.h"

enum {
    REPORT_POINTS = 1024,  /* points of a curve */
    REPORT_EPOCHS = 512,   /* epochs kept */
    REPORT_VALUES = 64,    /* losses and metrics by name, including "val_" ones */
    REPORT_DEVICES = 64,   /* devices shown */
    REPORT_CLASSES = 256,  /* classes of a confusion matrix */
    REPORT_LOGS = 8,       /* logs in one page */
    REPORT_NAME = 80,      /* bytes kept of a name */
    REPORT_TEXT = 400,     /* bytes kept of a text: a list of devices, a message */
    REPORT_LINE = 1 << 20, /* longest line read, in bytes */
};

/* ---- Runs (log.c) ---- */

/* A curve with ascending x. A y that is not finite is a gap. */
typedef struct report_curve {
    double x[REPORT_POINTS], y[REPORT_POINTS];
    size_t count;
    int64_t stride;     /* values averaged in each point */
    double sum, last_x; /* sum and last x of the point being built */
    int64_t pending;    /* its number of values so far */
} report_curve;

/* Seconds in total, and by activity. */
typedef struct report_times {
    double seconds, data, compute, join, other, validation;
} report_times;

typedef struct report_epoch {
    int64_t epoch, steps, samples;
    double at; /* x in a chart: the last step of the epoch; without steps, the epoch */
    bool complete;
    double rate;
    report_times times;
    double values[REPORT_VALUES]; /* NAN: no value of that name */
} report_epoch;

typedef struct report_device {
    char name[REPORT_NAME];
    double busy, data, joins, idle, other; /* seconds */
} report_device;

typedef struct report_run {
    const char *path;
    /* From the start event. "" and -1: unknown */
    char version[REPORT_NAME], time[REPORT_NAME], model[REPORT_NAME], optimizer[REPORT_NAME], losses[REPORT_TEXT];
    char seed[REPORT_NAME], bit_class[REPORT_TEXT], first_weights[REPORT_NAME], used_devices[REPORT_TEXT];
    int64_t parameters, batch_size, epochs_wanted, lanes, starts;
    /* Names of losses and metrics; none: derived from the fields. */
    char listed[REPORT_VALUES][REPORT_NAME];
    size_t listed_count;
    /* From the end event. reason "": there is none */
    char reason[REPORT_NAME], error[REPORT_TEXT], end_time[REPORT_NAME], last_weights[REPORT_NAME];
    /* From the events in between */
    report_curve loss, rate;
    int64_t step; /* last step */
    report_epoch *epochs;
    size_t epoch_count;
    int64_t epoch_stride, epochs_seen;
    /* made: counts each epoch once, even if a resumed run logged it twice */
    int64_t first_epoch, epochs_made;
    bool last_is_kept; /* false: it is stored after the last kept one */
    char value_names[REPORT_VALUES][REPORT_NAME];
    size_t value_count;
    report_times times; /* times of all epochs */
    int64_t checkpoints, lost_checkpoints;
    /* Seconds waited for checkpoints: since the last start, and before. */
    double waited, waited_before;
    int64_t samples;
    double *confusion; /* [classes][classes], of the last evaluation; NULL: none */
    size_t classes;
    char confusion_set[REPORT_NAME];
    char (*class_names)[REPORT_NAME]; /* NULL: none */
    size_t class_name_count;
    report_device devices[REPORT_DEVICES];
    size_t device_count;
    bool devices_from_end;
    /* Problems */
    int64_t lines, bad_lines;
    char first_bad[REPORT_TEXT];
    bool torn, left_out; /* the last line is incomplete; names or devices were dropped */
} report_run;

/* Reads a log as far as possible. Fails if the file has no event. */
ls_status report_read(const char *path, report_run **out);
void report_free(report_run *run);

/* ---- Drawing (chart.c) ---- */

typedef enum report_look {
    REPORT_THIN,  /* single steps */
    REPORT_SOLID, /* training */
    REPORT_DASHED /* validation */
} report_look;

typedef struct report_line {
    const double *x, *y;
    size_t count;
    report_look look;
    int color;                     /* 0 to REPORT_LOGS - 1 */
    char label[REPORT_NAME + 160]; /* plain text, not HTML */
} report_line;

typedef struct report_chart {
    char title[REPORT_NAME + 32];
    const char *x_name;
    const report_line *lines;
    size_t line_count;
    bool may_be_log; /* use a logarithmic scale if values differ widely */
    bool from_zero;  /* values are amounts: start the scale at 0 */
} report_chart;

/* Draws nothing if there are no values. */
void report_put_chart(ls_text *page, const report_chart *chart);

/* One segment of a stacked bar. `whole` is the value of the full width. */
typedef struct report_part {
    const char *name;
    double value;
    int color; /* 0 to 4 */
} report_part;
void report_put_bar(ls_text *page, const char *name, const report_part *parts, size_t count, double whole);
void report_put_bar_legend(ls_text *page, const report_part *parts, size_t count, double whole);

/* ---- Figures (figures.c) ---- */

/* Finds a value by prefix and name ("val_", "loss"); returns REPORT_VALUES if there is none. */
size_t report_find_value(const report_run *run, const char *prefix, const char *name);

/* Names of all runs without "val_" and duplicates, the loss first. */
typedef struct report_names {
    const char *name[REPORT_LOGS * REPORT_VALUES];
    size_t count;
} report_names;
report_names report_list_names(report_run *const *runs, size_t count);

/* Write a section with its heading; nothing if there are no data. */
void report_put_charts(ls_text *page, report_run *const *runs, size_t count);
void report_put_times(ls_text *page, report_run *const *runs, size_t count);
void report_put_devices(ls_text *page, const report_run *run, bool alone);

/* ---- Confusion matrix (heat.c) ---- */

/* Writes a section with its heading; nothing if the log has no matrix. */
void report_put_confusion(ls_text *page, const report_run *run, bool alone);

/* ---- The page (page.c) ---- */

/* Escapes special characters of HTML and replaces unprintable ones. */
void report_put(ls_text *page, const char *text);
/* "3.2 s", "1:05", "2:03:04" */
void report_put_seconds(ls_text *page, double seconds);
void report_put_number(ls_text *page, double value); /* 4 to 5 digits; a dash for NAN */

void report_put_page(ls_text *page, report_run *const *runs, size_t count);

#endif
