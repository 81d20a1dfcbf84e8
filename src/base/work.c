/* Progress of long operations, and a progress bar on a terminal. */
#include "base/work.h"

#include <string.h>

#include "base/clock.h"
#include "base/terminal.h"

#define PATIENCE 1.0 /* seconds; shorter operations are not shown */
#define REDRAW   0.1 /* seconds between two calls of the watcher */

/* The operation of this thread. */
static _Thread_local struct {
    ls_work_watcher watcher;
    bool active, shown;
    char verb[32], object[256];
    double start, drawn;
} now;

ls_work_watcher ls_work_watch(ls_work_watcher watcher)
{
    ls_work_watcher before = now.watcher;
    ls_work_end();
    now.watcher = watcher;
    return before;
}

static bool is_another(const char *verb, const char *object)
{
    return !now.active || strncmp(now.verb, verb, sizeof(now.verb) - 1) != 0 ||
           strncmp(now.object, object, sizeof(now.object) - 1) != 0;
}

void ls_work_report(const char *verb, const char *object, int64_t done, int64_t total)
{
    if (!now.watcher.show)
        return;
    double time = ls_clock_now();
    if (is_another(verb, object ? object : "")) {
        ls_work_end();
        now.active = true;
        now.start = time;
        now.drawn = 0;
        snprintf(now.verb, sizeof(now.verb), "%s", verb);
        snprintf(now.object, sizeof(now.object), "%s", object ? object : "");
    }
    if (time - now.start < PATIENCE || time - now.drawn < REDRAW)
        return;
    now.drawn = time;
    now.shown = true;
    const ls_work work = { verb, object, done, total, time - now.start };
    now.watcher.show(now.watcher.user, &work);
}

void ls_work_end(void)
{
    if (now.shown && now.watcher.end)
        now.watcher.end(now.watcher.user);
    now.active = now.shown = false;
}

/* ---- The usual watcher ---- */

static _Thread_local ls_terminal shown_on;

#define BAR 20

void ls_work_name(ls_text *text, const ls_work *work)
{
    const char *object = work->object ? work->object : "", *slash = strrchr(object, '/');
    ls_text_add(text, "%s%s%s", work->verb, object[0] ? " " : "", slash ? slash + 1 : object);
}

/* Writes the elapsed time if the total is unknown. */
static void put_rest(char *out, size_t room, const ls_work *work, double part)
{
    if (part > 0)
        snprintf(out, room, " %.0f%% %.0fs", 100 * part, work->seconds / part - work->seconds);
    else
        snprintf(out, room, " %.0fs", work->seconds);
}

/* In a narrow terminal the bar shrinks first, then the name. */
void ls_work_draw(const ls_terminal *terminal, const ls_work *work)
{
    double part = work->total > 0 ? (double)work->done / (double)work->total : 0;
    size_t room = ls_terminal_room(terminal);
    char rest[64];
    ls_text name = { 0 };
    ls_work_name(&name, work);
    put_rest(rest, sizeof(rest), work, part < 1 ? part : 1);
    size_t tail = ls_columns(rest);
    ls_line line = ls_line_of(terminal, room > 2 * tail ? room - tail : room);
    ls_line_put(&line, LS_STYLE_PLAIN, "%s", ls_text_get(&name));
    ls_text_free(&name);
    line.most = room;
    line.full = false; /* only the end of the name was dropped */
    if (part > 0 && line.columns + 1 + tail < room) {
        size_t cells = room - line.columns - 1 - tail;
        ls_line_put(&line, LS_STYLE_PLAIN, " ");
        ls_line_put_bar(&line, cells < BAR ? (int)cells : BAR, part);
    }
    ls_line_put(&line, LS_STYLE_BOLD, "%s", rest);
    ls_line_draw(&line);
    ls_text_free(&line.text);
}

static void show(void *user, const ls_work *work)
{
    (void)user;
    ls_work_draw(&shown_on, work);
}

static void erase(void *user)
{
    (void)user;
    ls_line_erase(&shown_on);
}

void ls_show_work(FILE *out)
{
    ls_terminal terminal = { .out = NULL };
    if (out)
        terminal = ls_terminal_of(out);
    ls_work_watch((ls_work_watcher){ .show = NULL });
    shown_on = terminal;
    if (terminal.is_terminal)
        ls_work_watch((ls_work_watcher){ .show = show, .end = erase });
}
