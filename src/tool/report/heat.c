/* Draws the confusion matrix of the last evaluation in a log. */
#include "tool/report/report.h"

#include <math.h>
#include <string.h>

enum {
    SIDE = 480,        /* width and height of the matrix */
    LEFT = 110,        /* room for the names of classes */
    ABOVE = 24,        /* room for a title of the columns */
    BELOW = 100,       /* room for the names of predictions */
    SHADES = 10,       /* steps of opacity */
    MOST_NUMBERS = 20, /* classes up to which cells have numbers */
    MOST_NAMES = 32,   /* classes up to which rows have names */
    NAME_LETTERS = 14  /* longest name that is drawn */
};

/* Part of the row's samples; 0 for a class without any. */
static double share(const report_run *run, size_t row, size_t column)
{
    double sum = 0, value = run->confusion[row * run->classes + column];
    for (size_t k = 0; k < run->classes; k++)
        sum += run->confusion[row * run->classes + k];
    return sum > 0 ? value / sum : 0;
}

/* One path for all cells of a shade keeps the page small. */
static void put_cells(ls_text *page, const report_run *run, double side)
{
    for (int shade = 1; shade <= SHADES; shade++) {
        bool begun = false;
        for (size_t i = 0; i < run->classes * run->classes; i++) {
            double part = share(run, i / run->classes, i % run->classes);
            if (!(part > 0) || (int)ceil(part * SHADES) != shade)
                continue;
            if (!begun)
                ls_text_add(page, "<path class=\"p0\" opacity=\"%.2f\" d=\"", (double)shade / SHADES);
            begun = true;
            ls_text_add(page, "M%.1f %.1fh%.1fv%.1fh-%.1fz", LEFT + side * (double)(i % run->classes),
                        ABOVE + side * (double)(i / run->classes), side, side, side);
        }
        ls_text_put(page, begun ? "\"/>\n" : "");
    }
}

static void put_name(ls_text *page, const report_run *run, size_t class)
{
    char name[REPORT_NAME];
    if (class < run->class_name_count)
        snprintf(name, sizeof name, "%s", run->class_names[class]);
    else
        snprintf(name, sizeof name, "%zu", class);
    size_t end = strlen(name), letters = 0;
    for (size_t i = 0; i < end; i++) {
        letters += ((unsigned char)name[i] & 0xc0) != 0x80;
        if (letters > NAME_LETTERS)
            name[i] = '\0', end = i;
    }
    report_put(page, name);
}

static void put_names(ls_text *page, const report_run *run, double side)
{
    size_t every = (run->classes + MOST_NAMES - 1) / MOST_NAMES;
    for (size_t i = 0; i < run->classes; i += every) {
        double at = side * ((double)i + 0.5);
        ls_text_add(page, "<text class=\"y\" x=\"%d\" y=\"%.1f\">", LEFT - 6, ABOVE + at + 4);
        put_name(page, run, i);
        ls_text_add(page, "</text>\n<text class=\"y\" transform=\"translate(%.1f %d) rotate(-60)\">", LEFT + at + 4,
                    ABOVE + SIDE + 14);
        put_name(page, run, i);
        ls_text_put(page, "</text>\n");
    }
}

static void put_counts(ls_text *page, const report_run *run, double side)
{
    for (size_t i = 0; i < run->classes * run->classes && run->classes <= MOST_NUMBERS; i++) {
        double part = share(run, i / run->classes, i % run->classes);
        if (run->confusion[i] > 0)
            ls_text_add(page, "<text class=\"x%s\" x=\"%.1f\" y=\"%.1f\">%.6g</text>\n", part > 0.5 ? " on" : "",
                        LEFT + side * ((double)(i % run->classes) + 0.5),
                        ABOVE + side * ((double)(i / run->classes) + 0.5) + 4, run->confusion[i]);
    }
}

void report_put_confusion(ls_text *page, const report_run *run, bool alone)
{
    if (!run->confusion)
        return;
    double side = (double)SIDE / (double)run->classes, hits = 0, all = 0;
    for (size_t i = 0; i < run->classes * run->classes; i++) {
        all += run->confusion[i];
        hits += i % (run->classes + 1) == 0 ? run->confusion[i] : 0;
    }
    ls_text_put(page, "<h2>Confusion matrix");
    if (!alone) {
        ls_text_put(page, ": ");
        report_put(page, run->path);
    }
    ls_text_put(page, "</h2>\n<figure><figcaption>");
    report_put(page, run->confusion_set);
    ls_text_add(page, "%s%.6g samples, %.2f %% on the diagonal", run->confusion_set[0] ? " set: " : "", all,
                all > 0 ? 100 * hits / all : 0);
    ls_text_add(page,
                "</figcaption>\n<svg class=\"chart\" viewBox=\"0 0 %d %d\" role=\"img\" "
                "aria-label=\"Confusion matrix\">\n<text x=\"%d\" y=\"16\">rows: class, columns: prediction; "
                "darker: more of the row</text>\n",
                LEFT + SIDE + 10, ABOVE + SIDE + (run->class_names ? BELOW : BELOW / 3), LEFT);
    put_cells(page, run, side);
    ls_text_add(page, "<rect class=\"frame\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", LEFT, ABOVE, SIDE,
                SIDE);
    put_names(page, run, side);
    put_counts(page, run, side);
    ls_text_put(page, "</svg></figure>\n");
}
