/* Which curves each chart shows, and how time was spent. */
#include "tool/report/report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- Values by name ---- */

static bool is_validation(const char *name)
{
    return strncmp(name, "val_", 4) == 0;
}

size_t report_find_value(const report_run *run, const char *prefix, const char *name)
{
    char whole[REPORT_NAME + 8];
    snprintf(whole, sizeof whole, "%s%s", prefix, name);
    for (size_t i = 0; i < run->value_count; i++)
        if (strcmp(run->value_names[i], whole) == 0)
            return i;
    return REPORT_VALUES;
}

static void add_name(report_names *all, const char *name)
{
    for (size_t i = 0; i < all->count; i++)
        if (strcmp(all->name[i], name) == 0)
            return;
    all->name[all->count++] = name;
}

report_names report_list_names(report_run *const *runs, size_t count)
{
    report_names all = { .count = 0 };
    for (size_t r = 0; r < count; r++)
        if (runs[r]->loss.count > 0 || report_find_value(runs[r], "", "loss") < REPORT_VALUES)
            add_name(&all, "loss");
    for (size_t r = 0; r < count; r++)
        for (size_t i = 0; i < runs[r]->value_count; i++)
            add_name(&all, runs[r]->value_names[i] + (is_validation(runs[r]->value_names[i]) ? 4 : 0));
    return all;
}

/* ---- Charts ---- */

#define MOST_LINES (3 * REPORT_LOGS)

/* Buffers for the lines of one chart. */
typedef struct board {
    report_run *const *runs;
    size_t count;
    report_line lines[MOST_LINES];
    size_t line_count;
    double x[MOST_LINES][REPORT_EPOCHS], y[MOST_LINES][REPORT_EPOCHS];
} board;

static report_line *add_line(board *b, size_t run, report_look look, const char *label)
{
    report_line *line = &b->lines[b->line_count++];
    bool alone = b->count == 1;
    const char *path = b->runs[run]->path, *slash = strrchr(path, '/');
    *line = (report_line){ .look = look, .color = alone ? look == REPORT_DASHED : (int)run };
    snprintf(line->label, sizeof line->label, "%.*s%s%s", alone ? 0 : 100, slash ? slash + 1 : path, alone ? "" : ": ",
             label);
    return line;
}

static void add_curve(board *b, size_t run, const report_curve *curve, report_look look, const char *label)
{
    char shown[REPORT_NAME];
    if (curve->count == 0)
        return;
    if (curve->stride > 1)
        snprintf(shown, sizeof shown, "%s (mean of %" PRId64 " steps)", label, curve->stride);
    else
        snprintf(shown, sizeof shown, "%s", label);
    report_line *line = add_line(b, run, look, shown);
    line->x = curve->x;
    line->y = curve->y;
    line->count = curve->count;
}

static double epoch_number(const report_epoch *e, size_t value)
{
    return e->values[value];
}
static double epoch_rate(const report_epoch *e, size_t value)
{
    (void)value;
    return e->rate;
}
static double epoch_seconds(const report_epoch *e, size_t value)
{
    return value == 0 ? e->times.seconds : e->times.validation > 0 ? e->times.validation : NAN;
}

static void add_epochs(board *b, size_t run, report_look look, const char *label,
                       double (*get)(const report_epoch *e, size_t value), size_t value)
{
    const report_run *r = b->runs[run];
    size_t at = b->line_count, found = 0;
    for (size_t i = 0; i < r->epoch_count; i++) {
        b->x[at][i] = r->epochs[i].at;
        b->y[at][i] = get(&r->epochs[i], value);
        found += isfinite(b->y[at][i]) != 0;
    }
    if (found == 0)
        return;
    report_line *line = add_line(b, run, look, label);
    line->x = b->x[at];
    line->y = b->y[at];
    line->count = r->epoch_count;
}

typedef enum y_scale { Y_PLAIN, Y_MAY_BE_LOG, Y_FROM_ZERO } y_scale;

static void draw(ls_text *page, board *b, const char *title, y_scale y)
{
    report_chart chart = { .x_name = "epoch", .lines = b->lines, .line_count = b->line_count };
    snprintf(chart.title, sizeof chart.title, "%s", title);
    chart.may_be_log = y == Y_MAY_BE_LOG;
    chart.from_zero = y == Y_FROM_ZERO;
    for (size_t r = 0; r < b->count; r++)
        if (b->runs[r]->step > 0)
            chart.x_name = "step";
    report_put_chart(page, &chart);
    b->line_count = 0;
}

static void draw_value(ls_text *page, board *b, const char *name)
{
    bool is_loss = strcmp(name, "loss") == 0;
    for (size_t r = 0; r < b->count; r++) {
        size_t train = report_find_value(b->runs[r], "", name),
               validation = report_find_value(b->runs[r], "val_", name);
        if (is_loss)
            add_curve(b, r, &b->runs[r]->loss, REPORT_THIN, "each step");
        if (train < REPORT_VALUES)
            add_epochs(b, r, REPORT_SOLID, "training", epoch_number, train);
        if (validation < REPORT_VALUES)
            add_epochs(b, r, REPORT_DASHED, "validation", epoch_number, validation);
    }
    draw(page, b, name, is_loss || ls_ends_with(name, "_loss") ? Y_MAY_BE_LOG : Y_PLAIN);
}

static void draw_all(ls_text *page, board *b)
{
    report_names all = report_list_names(b->runs, b->count);
    for (size_t i = 0; i < all.count && i < REPORT_VALUES; i++)
        draw_value(page, b, all.name[i]);
    for (size_t r = 0; r < b->count; r++) {
        if (b->runs[r]->rate.count > 0)
            add_curve(b, r, &b->runs[r]->rate, REPORT_SOLID, "each step");
        else
            add_epochs(b, r, REPORT_SOLID, "end of the epoch", epoch_rate, 0);
    }
    draw(page, b, "learning rate", Y_MAY_BE_LOG);
    for (size_t r = 0; r < b->count; r++) {
        add_epochs(b, r, REPORT_SOLID, "training", epoch_seconds, 0);
        add_epochs(b, r, REPORT_DASHED, "validation", epoch_seconds, 1);
    }
    draw(page, b, "seconds per epoch", Y_FROM_ZERO);
}

void report_put_charts(ls_text *page, report_run *const *runs, size_t count)
{
    board *b = calloc(1, sizeof *b);
    if (!b) {
        page->failed = true;
        return;
    }
    b->runs = runs;
    b->count = count;
    ls_text_put(page, "<h2>Curves</h2>\n<div class=\"charts\">\n");
    draw_all(page, b);
    ls_text_put(page, "</div>\n");
    free(b);
}

/* ---- Time ---- */

#define TIME_PARTS 5

static double split_time(const report_run *run, report_part parts[TIME_PARTS])
{
    const report_times *t = &run->times;
    double join = t->join < t->compute ? t->join : t->compute;
    parts[0] = (report_part){ "compute", t->compute - join, 0 };
    parts[1] = (report_part){ "joins and updates", join, 1 };
    parts[2] = (report_part){ "waiting for data", t->data, 2 };
    parts[3] = (report_part){ "validation", t->validation, 3 };
    parts[4] = (report_part){ "other", t->other, 4 };
    double sum = 0;
    for (int i = 0; i < TIME_PARTS; i++)
        sum += parts[i].value;
    return sum;
}

void report_put_times(ls_text *page, report_run *const *runs, size_t count)
{
    report_part parts[TIME_PARTS];
    double longest = 0;
    for (size_t r = 0; r < count; r++)
        longest = fmax(longest, split_time(runs[r], parts));
    if (!(longest > 0))
        return;
    ls_text_put(page, "<h2>Time</h2>\n<div class=\"card\">\n");
    for (size_t r = 0; r < count; r++) {
        const char *slash = strrchr(runs[r]->path, '/');
        split_time(runs[r], parts);
        report_put_bar(page, count == 1 ? "all epochs" : slash ? slash + 1 : runs[r]->path, parts, TIME_PARTS, longest);
    }
    report_put_bar_legend(page, parts, TIME_PARTS, count == 1 ? longest : 0);
    ls_text_put(page, "</div>\n");
}

#define DEVICE_PARTS 5

static double split_device(const report_device *d, report_part parts[DEVICE_PARTS])
{
    parts[0] = (report_part){ "busy", d->busy, 0 };
    parts[1] = (report_part){ "joins", d->joins, 1 };
    parts[2] = (report_part){ "waiting for data", d->data, 2 };
    parts[3] = (report_part){ "idle", d->idle, 4 };
    parts[4] = (report_part){ "other", d->other, 3 };
    return d->busy + d->joins + d->data + d->idle + d->other;
}

void report_put_devices(ls_text *page, const report_run *run, bool alone)
{
    report_part parts[DEVICE_PARTS];
    double longest = 0;
    for (size_t i = 0; i < run->device_count; i++)
        longest = fmax(longest, split_device(&run->devices[i], parts));
    if (!(longest > 0))
        return;
    ls_text_put(page, "<h2>Devices");
    if (!alone) {
        ls_text_put(page, ": ");
        report_put(page, run->path);
    }
    ls_text_put(page, "</h2>\n<div class=\"card devices\">\n");
    for (size_t i = 0; i < run->device_count; i++) {
        split_device(&run->devices[i], parts);
        report_put_bar(page, run->devices[i].name, parts, DEVICE_PARTS, longest);
    }
    report_put_bar_legend(page, parts, DEVICE_PARTS, 0);
    ls_text_put(page, "</div>\n");
}
