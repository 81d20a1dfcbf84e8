/* lockstep report: the page is written atomically. */
#include "tool/report/report.h"

#include <string.h>

/* Accepts names without a dot (/dev/stdout). */
static ls_status check_output(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (strchr(name, '.') && !ls_ends_with(name, ".html") && !ls_ends_with(name, ".htm"))
        return ls_fail(LS_ERR_INVALID, "--output %s: expected a name that ends in .html", path);
    return LS_OK;
}

static ls_status check(const ls_options *options, tool_settings *settings)
{
    (void)options;
    if (settings->file_count == 0)
        return ls_fail(LS_ERR_INVALID, "a LOG is needed: a file that `lockstep train --log LOG` wrote");
    if (settings->file_count > REPORT_LOGS)
        return ls_fail(LS_ERR_INVALID, "%zu logs: a page shows at most %d", settings->file_count, REPORT_LOGS);
    if (settings->output == NULL)
        return ls_fail(LS_ERR_INVALID, "--output is needed: -o report.html");
    LS_TRY(check_output(settings->output));
    return tool_check_outputs(settings);
}

static ls_status write_page(const char *path, report_run *const *runs, size_t count)
{
    ls_text page = { 0 };
    report_put_page(&page, runs, count);
    ls_status status = page.failed ? ls_fail(LS_ERR_MEMORY, "no memory for the page")
                                   : ls_file_write(path, ls_text_get(&page), page.length);
    ls_text_free(&page);
    return status;
}

static void print_outcome(const tool_settings *settings, report_run *const *runs)
{
    char steps[32], epochs[32];
    for (size_t i = 0; i < settings->file_count; i++)
        printf("%s: %s step%s, %s epoch%s%s\n", settings->files[i], tool_number(runs[i]->step, steps),
               runs[i]->step == 1 ? "" : "s", tool_number(runs[i]->epochs_made, epochs),
               runs[i]->epochs_made == 1 ? "" : "s",
               runs[i]->torn || runs[i]->bad_lines > 0 ? "; some lines could not be read" : "");
    printf("written: %s\n", settings->output);
}

static ls_status run(const tool_settings *settings, int *stopped_by)
{
    (void)stopped_by;
    report_run *runs[REPORT_LOGS] = { NULL };
    ls_status status = LS_OK;
    for (size_t i = 0; i < settings->file_count && status == LS_OK; i++)
        status = report_read(settings->files[i], &runs[i]);
    if (status == LS_OK)
        status = write_page(settings->output, runs, settings->file_count);
    if (status == LS_OK && strcmp(settings->output, "/dev/stdout") != 0)
        print_outcome(settings, runs);
    for (size_t i = 0; i < REPORT_LOGS; i++)
        report_free(runs[i]);
    return status;
}

const tool_command tool_report = {
    .name = "report",
    .arguments = "LOG... -o FILE.html",
    .summary = "make an HTML page with curves, times and settings of training runs",
    .details = "Draws logs of `lockstep train --log LOG` as one self-contained HTML page; several logs share the "
               "charts. For a run\n"
               "that is still running or was killed, the page shows what its log has so far.",
    .takes_files = TOOL_ANY_FILES,
    .tables = { &tool_report_flags },
    .check = check,
    .run = run,
};
