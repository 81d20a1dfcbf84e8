/* One self-contained HTML file. Its policy forbids scripts and requests, so that content of a log
 * is never executed. */
#include "tool/report/report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- Text and numbers ---- */

void report_put(ls_text *page, const char *text)
{
    ls_text clean = { 0 };
    ls_text_put(&clean, text);
    if (clean.data)
        ls_make_printable(clean.data, clean.length);
    for (const char *at = ls_text_get(&clean); *at; at++) {
        const char *escaped = *at == '<'    ? "&lt;"
                              : *at == '>'  ? "&gt;"
                              : *at == '&'  ? "&amp;"
                              : *at == '"'  ? "&quot;"
                              : *at == '\'' ? "&#39;"
                                            : NULL;
        if (escaped)
            ls_text_put(page, escaped);
        else
            ls_text_put_bytes(page, at, 1);
    }
    page->failed = page->failed || clean.failed;
    ls_text_free(&clean);
}

void report_put_seconds(ls_text *page, double seconds)
{
    int64_t s = seconds < 1e15 ? (int64_t)(seconds + 0.5) : 0;
    if (!(seconds < 1e15))
        ls_text_put(page, "\xe2\x80\x93");
    else if (seconds < 60)
        ls_text_add(page, seconds < 0.1 ? "%.3f s" : seconds < 10 ? "%.2f s" : "%.1f s", seconds);
    else if (s < 3600)
        ls_text_add(page, "%" PRId64 ":%02" PRId64 " min", s / 60, s % 60);
    else
        ls_text_add(page, "%" PRId64 ":%02" PRId64 ":%02" PRId64 " h", s / 3600, s / 60 % 60, s % 60);
}

void report_put_number(ls_text *page, double value)
{
    if (isfinite(value))
        ls_text_add(page, "%.5g", value);
    else
        ls_text_put(page, "\xe2\x80\x93");
}

static void put_count(ls_text *page, int64_t count)
{
    char number[32];
    ls_text_put(page, count < 0 ? "\xe2\x80\x93" : tool_number(count, number));
}

/* ---- Style ---- */

static const char style[] =
    ":root{color-scheme:light dark;--page:#fff;--card:#f6f8fa;--text:#1f2328;--faint:#59636e;--rule:#d1d9e0;"
    "--c0:#0969da;--c1:#bc4c00;--c2:#1a7f37;--c3:#8250df;--c4:#bf3989;--c5:#9a6700;--c6:#1b7c83;--c7:#6e7781;"
    "--good:#1a7f37;--bad:#cf222e;--wait:#9a6700}\n"
    "@media(prefers-color-scheme:dark){:root{--page:#0d1117;--card:#161b22;--text:#e6edf3;--faint:#9198a1;"
    "--rule:#30363d;--c0:#4493f8;--c1:#f0883e;--c2:#3fb950;--c3:#ab7df8;--c4:#f778ba;--c5:#d29922;--c6:#39c5cf;"
    "--c7:#9198a1;--good:#3fb950;--bad:#f85149;--wait:#d29922}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0 auto;max-width:1100px;padding:16px;background:var(--page);color:var(--text);"
    "font:16px/1.45 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;overflow-wrap:anywhere}\n"
    "h1{margin:8px 0;font-size:1.6em}h2{margin:28px 0 10px;font-size:1.15em}\n"
    "p{margin:6px 0}.faint,small{color:var(--faint)}\n"
    ".state{display:inline-block;padding:1px 10px;border-radius:12px;border:1px solid currentColor;font-size:.9em}\n"
    ".good{color:var(--good)}.bad{color:var(--bad)}.wait{color:var(--wait)}\n"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,150px),1fr));gap:10px;margin:14px 0}\n"
    ".tiles>div,figure,.card{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:10px 12px}\n"
    ".tiles b{display:block;font-size:1.3em;font-weight:600}.tiles span{color:var(--faint);font-size:.85em}\n"
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:12px}\n"
    "figure{margin:0;min-width:0}figcaption{font-weight:600}\n"
    "svg.chart{display:block;width:100%;max-width:600px;margin:0 auto;height:auto}\n"
    "svg text{font-size:12px;fill:var(--faint)}svg .y{text-anchor:end}svg .x{text-anchor:middle}\n"
    "@media(max-width:520px){svg text{font-size:15px}}\n"
    "svg .on{fill:var(--page)}.frame{fill:none;stroke:var(--rule)}\n"
    ".grid{stroke:var(--rule);stroke-width:.7}.axis{stroke:var(--faint)}\n"
    ".thin,.solid,.dashed{fill:none;stroke-linejoin:round}.thin{stroke-width:1;opacity:.45}.solid,.dashed{stroke-width:"
    "2}"
    ".dashed{stroke-dasharray:5 4}\n"
    ".legend{list-style:none;display:flex;flex-wrap:wrap;gap:2px 14px;margin:6px 0 0;padding:0;font-size:.85em}\n"
    ".legend svg{width:24px;height:8px;margin-right:6px;vertical-align:middle}.legend svg.square{width:10px;"
    "height:10px}\n"
    ".bar{display:grid;grid-template-columns:minmax(60px,20%) 1fr;gap:10px;align-items:center;margin:6px 0}\n"
    ".bar svg{width:100%;height:20px;border-radius:4px;background:var(--rule)}\n"
    ".p0{fill:var(--c0)}.p1{fill:var(--c3)}.p2{fill:var(--c1)}.p3{fill:var(--c2)}.p4{fill:var(--c7)}\n"
    ".scroll{overflow-x:auto;max-width:100%}table{border-collapse:collapse;font-size:.9em}\n"
    "th,td{padding:4px 10px 4px 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--rule)}\n"
    "th{color:var(--faint);font-weight:500}.numbers th,.numbers td{text-align:right;white-space:nowrap;padding:4px 8px;"
    "font-variant-numeric:tabular-nums}\n"
    ".facts td{min-width:120px}.facts th{min-width:7em;overflow-wrap:break-word}code{font-size:.9em}footer{margin:30px "
    "0 10px;font-size:.85em}\n";

static void put_style(ls_text *page)
{
    ls_text_put(page, style);
    for (int i = 0; i < REPORT_LOGS; i++)
        ls_text_add(page, ".c%d{stroke:var(--c%d)}.f%d{fill:var(--c%d)}", i, i, i, i);
}

/* ---- How a run ended ---- */

static void put_state(ls_text *page, const report_run *run)
{
    const char *class = "wait", *words = run->reason;
    if (run->confusion && run->starts == 0 && run->step == 0)
        words = "an evaluation alone";
    else if (run->reason[0] == '\0')
        words = "no end event: still running, or killed";
    else if (strcmp(run->reason, "done") == 0)
        class = "good";
    else if (strcmp(run->reason, "failed") == 0)
        class = "bad";
    ls_text_add(page, "<span class=\"state %s\">", class);
    report_put(page, words);
    ls_text_put(page, "</span>");
}

static void put_names(ls_text *page, report_run *const *runs, size_t count)
{
    for (size_t r = 0; r < count; r++) {
        bool again = false;
        for (size_t k = 0; k < r; k++)
            again = again || strcmp(runs[k]->model, runs[r]->model) == 0;
        if (again)
            continue;
        ls_text_put(page, r > 0 ? ", " : "");
        report_put(page, runs[r]->model[0] ? runs[r]->model : "training run");
    }
}

/* ---- Tiles ---- */

static void begin_tile(ls_text *page, const char *title)
{
    ls_text_put(page, "<div><span>");
    report_put(page, title);
    ls_text_put(page, "</span><b>");
}

static void put_value_tile(ls_text *page, const report_run *run, const char *name)
{
    const report_epoch *last = &run->epochs[run->epoch_count - 1];
    size_t train = report_find_value(run, "", name), validation = report_find_value(run, "val_", name);
    char title[REPORT_NAME + 32];
    snprintf(title, sizeof title, "%s, epoch %" PRId64, name, last->epoch);
    begin_tile(page, title);
    report_put_number(page, train < REPORT_VALUES ? last->values[train] : NAN);
    ls_text_put(page, "</b>");
    if (validation < REPORT_VALUES) {
        ls_text_put(page, "<span>validation: ");
        report_put_number(page, last->values[validation]);
        ls_text_put(page, "</span>");
    }
    ls_text_put(page, "</div>\n");
}

#define MOST_VALUE_TILES 6

static void put_tiles(ls_text *page, const report_run *run)
{
    report_run *const one[] = { (report_run *)run };
    report_names all = report_list_names(one, 1);
    ls_text_put(page, "<div class=\"tiles\">\n");
    for (size_t i = 0; i < all.count && i < MOST_VALUE_TILES && run->epoch_count > 0; i++)
        put_value_tile(page, run, all.name[i]);
    begin_tile(page, "steps");
    put_count(page, run->step);
    ls_text_put(page, "</b><span>in ");
    put_count(page, run->epochs_made);
    ls_text_put(page, run->epochs_made == 1 ? " epoch</span></div>\n" : " epochs</span></div>\n");
    double all_seconds = run->times.seconds + run->times.validation;
    begin_tile(page, "time");
    report_put_seconds(page, all_seconds);
    ls_text_put(page, "</b><span>");
    if (run->times.seconds > 0 && run->samples > 0)
        ls_text_add(page, "%.0f samples per second", (double)run->samples / run->times.seconds);
    ls_text_put(page, "</span></div>\n</div>\n");
}

/* ---- Facts ---- */

static void text_fact(ls_text *page, report_run *const *runs, size_t count, const char *name, size_t offset, bool code)
{
    bool any = false;
    for (size_t r = 0; r < count; r++)
        any = any || ((const char *)runs[r] + offset)[0] != '\0';
    if (!any)
        return;
    ls_text_add(page, "<tr><th>%s</th>", name);
    for (size_t r = 0; r < count; r++) {
        ls_text_put(page, code ? "<td><code>" : "<td>");
        report_put(page, (const char *)runs[r] + offset);
        ls_text_put(page, code ? "</code></td>" : "</td>");
    }
    ls_text_put(page, "</tr>\n");
}

static void count_fact(ls_text *page, report_run *const *runs, size_t count, const char *name, size_t offset)
{
    ls_text_add(page, "<tr><th>%s</th>", name);
    for (size_t r = 0; r < count; r++) {
        int64_t value;
        memcpy(&value, (const char *)runs[r] + offset, sizeof value);
        ls_text_put(page, "<td>");
        put_count(page, value);
        ls_text_put(page, "</td>");
    }
    ls_text_put(page, "</tr>\n");
}

#define TEXT_FACT(name, field, code) text_fact(page, runs, count, name, offsetof(report_run, field), code)
#define COUNT_FACT(name, field)      count_fact(page, runs, count, name, offsetof(report_run, field))

static void put_paths(ls_text *page, report_run *const *runs, size_t count)
{
    ls_text_put(page, "<tr><th>log</th>");
    for (size_t r = 0; r < count; r++) {
        ls_text_put(page, "<td>");
        report_put(page, runs[r]->path);
        ls_text_put(page, "</td>");
    }
    ls_text_put(page, "</tr>\n<tr><th>state</th>");
    for (size_t r = 0; r < count; r++) {
        ls_text_put(page, "<td>");
        put_state(page, runs[r]);
        ls_text_put(page, "</td>");
    }
    ls_text_put(page, "</tr>\n");
}

static void put_sameness(ls_text *page, report_run *const *runs, size_t count)
{
    size_t same = 0;
    for (size_t r = 0; r < count; r++)
        same += runs[r]->last_weights[0] && strcmp(runs[r]->last_weights, runs[0]->last_weights) == 0;
    if (count > 1 && same == count)
        ls_text_put(page, "<p class=\"good\">All of these runs ended with the same weights, bit for bit.</p>\n");
}

static void put_facts(ls_text *page, report_run *const *runs, size_t count)
{
    ls_text_put(page, count == 1 ? "<h2>The run</h2>\n" : "<h2>The runs</h2>\n");
    put_sameness(page, runs, count);
    ls_text_put(page, "<div class=\"scroll\"><table class=\"facts\">\n");
    put_paths(page, runs, count);
    TEXT_FACT("error", error, false);
    TEXT_FACT("model", model, false);
    COUNT_FACT("parameters", parameters);
    TEXT_FACT("loss", losses, false);
    TEXT_FACT("optimizer", optimizer, false);
    COUNT_FACT("batch size", batch_size);
    COUNT_FACT("epochs requested", epochs_wanted);
    COUNT_FACT("lanes", lanes);
    TEXT_FACT("devices", used_devices, false);
    TEXT_FACT("seed", seed, false);
    TEXT_FACT("bit class", bit_class, true);
    TEXT_FACT("Lockstep", version, false);
    TEXT_FACT("started", time, false);
    TEXT_FACT("ended", end_time, false);
    TEXT_FACT("weights at the start, SHA-256", first_weights, true);
    TEXT_FACT("weights at the end, SHA-256", last_weights, true);
    ls_text_put(page, "</table></div>\n");
}

/* ---- Epochs ---- */

static void put_epoch(ls_text *page, const report_run *run, const report_epoch *e)
{
    ls_text_put(page, "<tr><td>");
    put_count(page, e->epoch);
    ls_text_put(page, e->complete ? "</td><td>" : " <small>(incomplete)</small></td><td>");
    put_count(page, e->steps);
    for (size_t i = 0; i < run->value_count; i++) {
        ls_text_put(page, "</td><td>");
        report_put_number(page, e->values[i]);
    }
    ls_text_put(page, "</td><td>");
    report_put_number(page, e->rate);
    ls_text_put(page, "</td><td>");
    report_put_seconds(page, e->times.seconds);
    ls_text_put(page, "</td><td>");
    report_put_number(page, e->times.seconds > 0 && e->samples >= 0 ? (double)e->samples / e->times.seconds : NAN);
    ls_text_put(page, "</td></tr>\n");
}

static void put_epochs(ls_text *page, const report_run *run, bool alone)
{
    if (run->epoch_count == 0)
        return;
    ls_text_put(page, "<h2>Epochs");
    if (!alone) {
        ls_text_put(page, ": ");
        report_put(page, run->path);
    }
    ls_text_put(page, "</h2>\n<div class=\"scroll\"><table class=\"numbers\">\n<tr><th>epoch</th><th>steps</th>");
    for (size_t i = 0; i < run->value_count; i++) {
        ls_text_put(page, "<th>");
        report_put(page, run->value_names[i]);
        ls_text_put(page, "</th>");
    }
    ls_text_put(page, "<th>learning rate</th><th>time</th><th>samples/s</th></tr>\n");
    for (size_t i = 0; i < run->epoch_count; i++)
        put_epoch(page, run, &run->epochs[i]);
    ls_text_put(page, "</table></div>\n");
}

/* ---- Problems ---- */

static void put_notes(ls_text *page, const report_run *run, bool alone)
{
    ls_text notes = { 0 };
    if (run->torn)
        ls_text_put(&notes,
                    "<li>The last line is incomplete: it was being written when the log was read, or the run was "
                    "killed.</li>");
    if (run->bad_lines > 0) {
        ls_text_add(&notes, "<li>%" PRId64 " of %" PRId64 " lines could not be read; the first: ", run->bad_lines,
                    run->lines);
        report_put(&notes, run->first_bad);
        ls_text_put(&notes, "</li>");
    }
    if (run->checkpoints + run->lost_checkpoints > 0) {
        ls_text_add(&notes, "<li>%" PRId64 " checkpoints were saved; training waited for them for ", run->checkpoints);
        report_put_seconds(&notes, run->waited_before + run->waited);
        if (run->lost_checkpoints > 0)
            ls_text_add(&notes, "; %" PRId64 " could not be written", run->lost_checkpoints);
        ls_text_put(&notes, ".</li>");
    }
    if (run->starts > 1)
        ls_text_add(&notes, "<li>The run was started %" PRId64 " times, and resumed from checkpoints.</li>",
                    run->starts);
    if (run->epoch_stride > 1)
        ls_text_add(&notes, "<li>Of %" PRId64 " epochs, every %" PRId64 "th and the last are shown.</li>",
                    run->epochs_made, run->epoch_stride);
    if (run->left_out)
        ls_text_put(&notes, "<li>Some names or devices are not shown: there are too many.</li>");
    if (notes.length > 0) {
        ls_text_put(page, "<h2>Notes");
        if (!alone) {
            ls_text_put(page, ": ");
            report_put(page, run->path);
        }
        ls_text_put(page, "</h2>\n<ul>");
        ls_text_put(page, ls_text_get(&notes));
        ls_text_put(page, "</ul>\n");
    }
    page->failed = page->failed || notes.failed;
    ls_text_free(&notes);
}

/* ---- The page ---- */

static void put_head(ls_text *page, report_run *const *runs, size_t count)
{
    ls_text_put(page, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                      "style-src 'unsafe-inline'\">\n"
                      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>");
    put_names(page, runs, count);
    ls_text_put(page, " - Lockstep</title>\n<style>\n");
    put_style(page);
    ls_text_put(page, "\n</style>\n</head>\n<body>\n<header>\n<h1>");
    put_names(page, runs, count);
    if (count > 1)
        ls_text_add(page, " <small>%zu runs</small>", count);
    ls_text_put(page, "</h1>\n");
    if (count == 1) {
        ls_text_put(page, "<p>");
        put_state(page, runs[0]);
        ls_text_put(page, " <span class=\"faint\">");
        report_put(page, runs[0]->time);
        ls_text_put(page, "</span></p>\n");
        if (runs[0]->error[0]) {
            ls_text_put(page, "<p class=\"bad\">");
            report_put(page, runs[0]->error);
            ls_text_put(page, "</p>\n");
        }
        put_tiles(page, runs[0]);
    }
    ls_text_put(page, "</header>\n<main>\n");
}

void report_put_page(ls_text *page, report_run *const *runs, size_t count)
{
    bool alone = count == 1;
    put_head(page, runs, count);
    report_put_charts(page, runs, count);
    report_put_times(page, runs, count);
    for (size_t r = 0; r < count; r++)
        report_put_devices(page, runs[r], alone);
    for (size_t r = 0; r < count; r++)
        report_put_confusion(page, runs[r], alone);
    put_facts(page, runs, count);
    for (size_t r = 0; r < count; r++)
        put_epochs(page, runs[r], alone);
    for (size_t r = 0; r < count; r++)
        put_notes(page, runs[r], alone);
    ls_text_add(page, "</main>\n<footer class=\"faint\">Made by Lockstep %s.</footer>\n</body>\n</html>\n", LS_VERSION);
}
