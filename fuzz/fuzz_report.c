/* Logs of training and the report of each: no text of a log may become a tag, an attribute or an
 * invalid number. */
#include "fuzz.h"
#include "tool/report/report.h"

/* Between the quotes of every `name="..."` only these characters. */
static void check_attribute(const char *page, const char *name, const char *allowed)
{
    for (const char *at = page; (at = strstr(at, name)) != NULL;) {
        at += strlen(name);
        size_t good = strspn(at, allowed);
        FUZZ_CHECK(at[good] == '"', "%s%.40s", name, at);
    }
}

static void check_page(const ls_text *page)
{
    const char *text = ls_text_get(page);
    static const char *const foreign[] = { "<script", "<img", "<iframe", "<a ", "<b>x", "onload=\"", "href=" };
    FUZZ_CHECK(!page->failed && strlen(text) == page->length, "a zero in the page");
    FUZZ_CHECK(ls_is_utf8(text), "the page is not UTF-8");
    FUZZ_CHECK(page->length < (2u << 20), "a page of %zu bytes", page->length);
    for (size_t i = 0; i < page->length; i++)
        FUZZ_CHECK((unsigned char)text[i] >= 32 || text[i] == '\n', "a control character in the page");
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        FUZZ_CHECK(!strstr(text, foreign[i]), "there is %s in the page", foreign[i]);
    check_attribute(text, " d=\"", "MLH0123456789.- ");
    check_attribute(text, " cx=\"", "0123456789.-");
    check_attribute(text, " cy=\"", "0123456789.-");
    check_attribute(text, " width=\"", "0123456789.");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    report_run *run = NULL;
    ls_text page = { 0 };
    if (!fuzz_status(report_read(fuzz_file(data, size), &run)))
        return 0;
    report_run *const twice[] = { run, run };
    report_put_page(&page, twice, 1);
    check_page(&page);
    ls_text_free(&page);
    report_put_page(&page, twice, 2);
    check_page(&page);
    ls_text_free(&page);
    report_free(run);
    return 0;
}
