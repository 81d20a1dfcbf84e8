/* Progress as Keras 3 shows it: a bar that is redrawn on a terminal, one line an epoch elsewhere. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "train/job.h"

#define BAR    20
#define REDRAW 0.05 /* seconds */

void ls_progress_open(ls_progress *p, FILE *out, ls_verbose verbose)
{
    *p = (ls_progress){ .out = out ? out : stdout };
    bool terminal = isatty(fileno(p->out)) == 1;
    p->bar = verbose == LS_VERBOSE_BAR || (verbose == LS_VERBOSE_AUTO && terminal);
    p->lines = verbose == LS_VERBOSE_LINES || (verbose == LS_VERBOSE_AUTO && !terminal);
}

void ls_progress_epoch(ls_progress *p, int64_t epoch, int64_t epochs, int64_t steps)
{
    p->steps = steps;
    p->start = ls_clock_now();
    p->drawn = 0;
    p->done = 0;
    if (p->bar || p->lines)
        fprintf(p->out, "Epoch %" PRId64 "/%" PRId64 "\n", epoch + 1, epochs);
}

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

static void put_value(ls_text *text, const char *prefix, const char *name, double value)
{
    char shown[80]; /* a metric's name may be the user's */
    snprintf(shown, sizeof(shown), "%s%s", prefix, name);
    ls_make_printable(shown, strlen(shown));
    ls_text_add(text, " - %s: ", shown);
    ls_text_add(text, fabs(value) > 1e-3 || value == 0 ? "%.4f" : "%.4e", value);
}

/* In the order of their names, as Keras has them. */
static void put_results(ls_text *text, const char *prefix, const ls_results *results)
{
    bool shown[LS_MAX_RESULTS] = { false };
    for (size_t k = 0; k < results->count; k++) {
        size_t least = results->count;
        for (size_t i = 0; i < results->count; i++)
            if (!shown[i] && (least == results->count || strcmp(results->names[i], results->names[least]) < 0))
                least = i;
        shown[least] = true;
        put_value(text, prefix, results->names[least], results->values[least]);
    }
}

/* Time a step without the first, which compiles. */
static double step_seconds(const ls_progress *p, double elapsed)
{
    return p->done > 1 ? (elapsed - p->first_step) / (double)(p->done - 1)
                       : elapsed / (double)(p->done > 0 ? p->done : 1);
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

/* Columns of the terminal; 0: not known. */
static size_t terminal_columns(FILE *out)
{
    struct winsize size;
    return ioctl(fileno(out), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/* Characters of UTF-8 text, each a column wide, as those are that we print. */
static size_t columns_of(const char *text)
{
    size_t count = 0;
    for (; *text; text++)
        count += ((unsigned char)*text & 0xc0) != 0x80;
    return count;
}

/* The bytes of its first `columns` characters. */
static size_t bytes_of(const char *text, size_t columns)
{
    const char *at = text;
    for (; *at; at++)
        if (((unsigned char)*at & 0xc0) != 0x80 && columns-- == 0)
            break;
    return (size_t)(at - text);
}

static void put_bar(ls_text *text, const ls_progress *p, int cells, bool end)
{
    int filled = p->steps > 0 ? (int)(p->done * cells / p->steps) : end ? cells : 0;
    for (int i = 0; i < cells; i++)
        ls_text_put(text, i < filled ? "\u2501" : "\u2500");
    ls_text_put(text, cells > 0 ? " " : "");
}

static void put_line(ls_text *text, const ls_progress *p, int cells, const ls_results *results,
                     const ls_results *validation, bool end)
{
    double elapsed = ls_clock_now() - p->start, each = step_seconds(p, elapsed);
    put_count(text, p);
    ls_text_put(text, " ");
    put_bar(text, p, cells, end);
    put_seconds(text, end || p->steps < 0 ? elapsed : each * (double)(p->steps - p->done));
    ls_text_put(text, " ");
    put_step_time(text, each);
    put_results(text, "", results);
    if (validation)
        put_results(text, "val_", validation);
}

/* A line that is to be drawn again must not be wider than the terminal: the part that wrapped would stay. The bar makes
 * room first, then the end is left out; the last line of an epoch is whole. */
static void draw(ls_progress *p, const ls_results *results, const ls_results *validation, bool end)
{
    ls_text text = { 0 };
    size_t columns = end ? 0 : terminal_columns(p->out), wide;
    put_line(&text, p, BAR, results, validation, end);
    if (columns > 1 && (wide = columns_of(ls_text_get(&text))) >= columns) {
        size_t over = wide - columns + 1;
        ls_text_free(&text);
        put_line(&text, p, over < BAR ? BAR - (int)over : 0, results, validation, end);
    }
    const char *line = ls_text_get(&text);
    size_t bytes = columns > 1 ? bytes_of(line, columns - 1) : strlen(line);
    fprintf(p->out, "\r%.*s\033[K%s", (int)bytes, line, end ? "\n" : "");
    fflush(p->out);
    p->open_line = !end;
    ls_text_free(&text);
}

void ls_progress_break(ls_progress *p)
{
    if (p->open_line) {
        fputs("\n", p->out);
        fflush(p->out);
    }
    p->open_line = false;
}

void ls_progress_step(ls_progress *p, int64_t done, const ls_results *results)
{
    double now = ls_clock_now();
    p->done = done;
    if (done == 1)
        p->first_step = now - p->start;
    if (!p->bar || now - p->drawn < REDRAW)
        return;
    p->drawn = now;
    draw(p, results, NULL, false);
}

void ls_progress_end(ls_progress *p, const ls_results *results, const ls_results *validation)
{
    if (p->bar) {
        draw(p, results, validation, true);
    } else if (p->lines) {
        ls_text text = { 0 };
        double elapsed = ls_clock_now() - p->start;
        put_count(&text, p);
        ls_text_put(&text, " - ");
        put_seconds(&text, elapsed);
        ls_text_put(&text, " - ");
        put_step_time(&text, step_seconds(p, elapsed));
        put_results(&text, "", results);
        if (validation)
            put_results(&text, "val_", validation);
        fprintf(p->out, "%s\n", ls_text_get(&text));
        fflush(p->out);
        ls_text_free(&text);
    }
}
