/* Progress as Keras 3 shows it: a bar that is redrawn on a terminal, one line per epoch elsewhere.
 * No line is wider than the terminal: bars are cut, the last line is wrapped. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "train/job/job.h"
#include "train/report/progress.h"

#define BAR       20
#define LEAST_BAR 4
#define REDRAW    0.05 /* seconds */

void ls_progress_open(ls_progress *p, FILE *out, ls_verbose verbose)
{
    *p = (ls_progress){ .terminal = ls_terminal_of(out ? out : stdout) };
    bool terminal = p->terminal.is_terminal;
    p->bar = verbose == LS_VERBOSE_BAR || (verbose == LS_VERBOSE_AUTO && terminal);
    p->lines = verbose == LS_VERBOSE_LINES || (verbose == LS_VERBOSE_AUTO && !terminal);
}

void ls_progress_begin(ls_progress *p, int64_t steps, int64_t done)
{
    p->steps = steps;
    p->done = p->before = done;
    p->start = ls_clock_now();
    p->drawn = p->first_step = 0;
    p->results = NULL;
}

/* ---- Parts of a line ---- */

/* "13s", "1:05", "2:03:04" */
static void put_seconds(ls_text *text, double seconds)
{
    long s = (long)(seconds + 0.5);
    if (s >= 3600)
        ls_text_add(text, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else if (s > 60)
        ls_text_add(text, "%ld:%02ld", s / 60, s % 60);
    else
        ls_text_add(text, "%lds", s);
}

static void put_step_time(ls_text *text, double seconds)
{
    if (seconds >= 1)
        ls_text_add(text, "%.0fs/step", seconds);
    else if (seconds >= 1e-3)
        ls_text_add(text, "%.0fms/step", seconds * 1e3);
    else
        ls_text_add(text, "%.0fus/step", seconds * 1e6);
}

/* Returns the seconds of a step, without the first one, which includes planning. */
static double step_seconds(const ls_progress *p, double elapsed)
{
    int64_t made = p->done - p->before;
    return made > 1 ? (elapsed - p->first_step) / (double)(made - 1) : elapsed;
}

static void put_count(ls_text *text, const ls_progress *p)
{
    char total[32];
    int width = snprintf(total, sizeof(total), "%" PRId64, p->steps);
    if (p->steps >= 0)
        ls_text_add(text, "%*" PRId64 "/%s", width, p->done, total);
    else
        ls_text_add(text, "%" PRId64 "/Unknown", p->done);
}

/* Parts of a line: "469/469", "3s", "6ms/step", then values such as "loss: 0.5". */
#define MOST_VALUES (2 * LS_MAX_RESULTS + 1)
typedef struct pieces {
    const ls_terminal *terminal;
    ls_text count, time, step_time;
    ls_text values[MOST_VALUES];
    size_t value_count;
    double part; /* fraction of the steps that are done, from 0 to 1 */
} pieces;

static void add_value(pieces *all, const char *prefix, const char *name, double value)
{
    ls_text *text = &all->values[all->value_count++];
    ls_text_add(text, "%s%.80s: ", prefix, name); /* a user's metric may have a long name */
    ls_text_add(text, fabs(value) > 1e-3 || value == 0 ? "%.4f" : "%.4e", value);
    ls_terminal_clean(all->terminal, text);
}

/* Adds the results sorted by name, as Keras does. */
static void add_results(pieces *all, const char *prefix, const ls_results *results)
{
    bool taken[LS_MAX_RESULTS] = { false };
    for (size_t k = 0; results && k < results->count; k++) {
        size_t least = results->count;
        for (size_t i = 0; i < results->count; i++)
            if (!taken[i] && (least == results->count || strcmp(results->names[i], results->names[least]) < 0))
                least = i;
        taken[least] = true;
        add_value(all, prefix, results->names[least], results->values[least]);
    }
}

static pieces make_pieces(const ls_progress *p, const ls_results *results, const ls_results *validation, bool end)
{
    pieces all = { .terminal = &p->terminal, .part = p->steps > 0 ? (double)p->done / (double)p->steps : end };
    double elapsed = ls_clock_now() - p->start, each = step_seconds(p, elapsed);
    put_count(&all.count, p);
    put_seconds(&all.time, end || p->steps < 0 ? elapsed : each * (double)(p->steps - p->done));
    put_step_time(&all.step_time, each);
    add_results(&all, "", results);
    add_results(&all, "val_", validation);
    return all;
}

static void free_pieces(pieces *all)
{
    ls_text_free(&all->count);
    ls_text_free(&all->time);
    ls_text_free(&all->step_time);
    for (size_t i = 0; i < all->value_count; i++)
        ls_text_free(&all->values[i]);
}

/* ---- Lines ---- */

/* "469/469 ━━━━━━━━━━━━━━━━━━━━ 3s 6ms/step" */
static void put_head(ls_line *line, const pieces *all, int cells)
{
    ls_line_put(line, LS_STYLE_BOLD, "%s", ls_text_get(&all->count));
    if (cells > 0) {
        ls_line_put(line, LS_STYLE_PLAIN, " ");
        ls_line_put_bar(line, cells, all->part);
    }
    ls_line_put(line, LS_STYLE_PLAIN, " ");
    ls_line_put(line, LS_STYLE_BOLD, "%s", ls_text_get(&all->time));
    ls_line_put(line, LS_STYLE_PLAIN, " %s", ls_text_get(&all->step_time));
}

static void put_values(ls_line *line, const pieces *all)
{
    for (size_t i = 0; i < all->value_count; i++)
        ls_line_put(line, LS_STYLE_PLAIN, " - %s", ls_text_get(&all->values[i]));
}

/* Returns the length of a bar that leaves room for the rest of the line. */
static int fitting_cells(const ls_progress *p, const pieces *all, size_t room, bool with_values)
{
    ls_line rest = ls_line_of(&p->terminal, SIZE_MAX);
    put_head(&rest, all, 0);
    if (with_values)
        put_values(&rest, all);
    size_t used = rest.columns + 1;
    ls_text_free(&rest.text);
    return used >= room ? 0 : room - used < BAR ? (int)(room - used) : BAR;
}

/* On a narrow terminal the bar shrinks first, then the end of the line is cut. */
static void draw(ls_progress *p, const pieces *all)
{
    size_t room = ls_terminal_room(&p->terminal);
    ls_line line = ls_line_of(&p->terminal, room);
    put_head(&line, all, fitting_cells(p, all, room, true));
    put_values(&line, all);
    /* `about` is ASCII, so its bytes are columns. */
    if (p->about[0] && !line.full && line.columns + 3 + strlen(p->about) <= room)
        ls_line_put(&line, LS_STYLE_PLAIN, " - %s", p->about);
    ls_line_draw(&line);
    ls_text_free(&line.text);
    p->open_line = true;
}

static void finish_line(ls_progress *p, ls_line *line)
{
    fprintf(p->terminal.out, "%s\n", ls_text_get(&line->text));
    ls_text_free(&line->text);
}

/* Prints '?' for a character wider than the terminal. */
static void write_wrapped(ls_progress *p, const char *text, size_t room)
{
    do {
        size_t bytes = ls_bytes_within(text, room);
        bool fits = bytes > 0 || !*text;
        bytes = fits ? bytes : ls_bytes_within(text, 2);
        fprintf(p->terminal.out, "%.*s\n", fits ? (int)bytes : 1, fits ? text : "?");
        text += bytes;
    } while (*text);
}

/* Wraps between values. */
static void finish_values(ls_progress *p, ls_line *line, const pieces *all)
{
    size_t room = line->most;
    for (size_t i = 0; i < all->value_count; i++) {
        size_t wide = ls_columns(ls_text_get(&all->values[i]));
        if (line->columns > 0 && line->columns + 3 + wide > room) {
            finish_line(p, line);
            *line = ls_line_of(&p->terminal, room);
        }
        if (wide > room) {
            write_wrapped(p, ls_text_get(&all->values[i]), room);
            continue;
        }
        ls_line_put(line, LS_STYLE_PLAIN, "%s%s", line->columns > 0 ? " - " : "", ls_text_get(&all->values[i]));
    }
    if (line->columns > 0)
        finish_line(p, line);
}

static void finish_bar(ls_progress *p, const pieces *all)
{
    size_t room = ls_terminal_room(&p->terminal);
    int cells = fitting_cells(p, all, room, true);
    ls_line line = ls_line_of(&p->terminal, room);
    /* If the bar would be too short, values go to lines of their own. */
    if (cells < LEAST_BAR)
        cells = fitting_cells(p, all, room, false);
    if (p->terminal.is_terminal)
        ls_line_erase(&p->terminal);
    else
        fputs("\r", p->terminal.out);
    put_head(&line, all, cells);
    finish_values(p, &line, all);
}

/* "469/469 - 3s - 6ms/step - accuracy: 0.8": Keras's verbose=2. */
static void finish_plain(ls_progress *p, const pieces *all)
{
    ls_line line = ls_line_of(&p->terminal, ls_terminal_room(&p->terminal));
    ls_line_put(&line, LS_STYLE_PLAIN, "%s - %s - %s", ls_text_get(&all->count), ls_text_get(&all->time),
                ls_text_get(&all->step_time));
    finish_values(p, &line, all);
}

/* ---- An epoch ---- */

static void write_title(ls_progress *p, const char *title)
{
    if (!p->bar && !p->lines)
        return;
    write_wrapped(p, title, ls_terminal_room(&p->terminal));
    fflush(p->terminal.out);
}

void ls_progress_rate(ls_progress *p, const char *optimizer, double rate)
{
    char title[80];
    snprintf(title, sizeof(title), "Optimizer %.40s, learning rate %g", optimizer, rate);
    write_title(p, title);
}

void ls_progress_epoch(ls_progress *p, int64_t epoch, int64_t epochs, int64_t steps, int64_t done)
{
    char title[64];
    ls_progress_begin(p, steps, done);
    snprintf(title, sizeof(title), "Epoch %" PRId64 "/%" PRId64, epoch + 1, epochs);
    write_title(p, title);
}

static void redraw(ls_progress *p, const ls_results *results)
{
    pieces all = make_pieces(p, results, NULL, false);
    draw(p, &all);
    free_pieces(&all);
}

void ls_progress_step(ls_progress *p, int64_t done, const ls_results *results)
{
    double now = ls_clock_now();
    p->done = done;
    p->results = results;
    if (done - p->before == 1)
        p->first_step = now - p->start;
    if (!p->bar || now - p->drawn < REDRAW)
        return;
    p->drawn = now;
    redraw(p, results);
}

void ls_progress_end(ls_progress *p, const ls_results *results, const ls_results *validation)
{
    if (!p->bar && !p->lines)
        return;
    pieces all = make_pieces(p, results, validation, true);
    if (p->bar)
        finish_bar(p, &all);
    else
        finish_plain(p, &all);
    fflush(p->terminal.out);
    free_pieces(&all);
    p->open_line = false;
    p->results = NULL;
}

/* ---- Work between steps: validation, checkpoints ---- */

/* Shows the work before the values of the bar or, without a bar, on a line of its own. */
static void show_work(void *user, const ls_work *work)
{
    ls_progress *p = user;
    if (!p->results) {
        ls_work_draw(&p->terminal, work);
        return;
    }
    pieces all = make_pieces(p, p->results, NULL, false);
    ls_text *text = &all.values[all.value_count++];
    ls_work_name(text, work);
    if (work->total > 0)
        ls_text_add(text, " %.0f%%", 100 * (double)work->done / (double)work->total);
    ls_terminal_clean(&p->terminal, text);
    if (all.value_count > 1) { /* move it first: a narrow terminal cuts the last values */
        ls_text last = all.values[all.value_count - 1];
        memmove(&all.values[1], &all.values[0], (all.value_count - 1) * sizeof(last));
        all.values[0] = last;
    }
    draw(p, &all);
    free_pieces(&all);
}

static void end_work(void *user)
{
    ls_progress *p = user;
    if (p->results)
        redraw(p, p->results);
    else
        ls_line_erase(&p->terminal);
}

void ls_progress_watch(ls_progress *p)
{
    p->watching = p->bar && p->terminal.is_terminal;
    if (p->watching)
        p->outer = ls_work_watch((ls_work_watcher){ .show = show_work, .end = end_work, .user = p });
}

void ls_progress_close(ls_progress *p)
{
    if (p->watching)
        ls_work_watch(p->outer);
    p->watching = false;
    if (p->open_line) {
        fputs("\n", p->terminal.out);
        fflush(p->terminal.out);
    }
    p->open_line = false;
}
