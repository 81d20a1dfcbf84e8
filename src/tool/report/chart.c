/* Charts as SVG: axes with round numbers, lines with gaps where a value is not finite, stacked
 * bars. Colors are CSS classes of the page. */
#include "tool/report/report.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { WIDTH = 420, HEIGHT = 236, LEFT = 62, RIGHT = 12, TOP = 10, BOTTOM = 38, MOST_TICKS = 12 };

/* ---- Scales ---- */

typedef struct scale {
    double low, high; /* logarithms, if is_log */
    bool is_log;
    double from, to; /* coordinates of low and high */
} scale;

static double place(const scale *s, double value)
{
    double v = s->is_log ? log10(value) : value;
    /* Halved, because the difference of two large numbers may overflow. */
    double part = (v / 2 - s->low / 2) / (s->high / 2 - s->low / 2);
    return s->from + part * (s->to - s->from);
}

static bool is_drawn(const scale *y, double value)
{
    return isfinite(value) && (!y->is_log || value > 0);
}

static void spread(double value, double *low, double *high)
{
    if (!isfinite(value))
        return;
    *low = value < *low ? value : *low;
    *high = value > *high ? value : *high;
}

/* Makes room around a value that never changes. */
static void widen(double *low, double *high)
{
    if (*low < *high)
        return;
    double by = *low != 0 ? fabs(*low) / 10 : 1;
    *low -= by;
    *high += by;
}

/* Returns false if no line has a value. */
static bool find_scales(const report_chart *c, scale *x, scale *y)
{
    double x_low = DBL_MAX, x_high = -DBL_MAX, y_low = DBL_MAX, y_high = -DBL_MAX;
    for (size_t i = 0; i < c->line_count; i++)
        for (size_t k = 0; k < c->lines[i].count; k++)
            if (isfinite(c->lines[i].y[k])) {
                spread(c->lines[i].x[k], &x_low, &x_high);
                spread(c->lines[i].y[k], &y_low, &y_high);
            }
    if (x_low > x_high || y_low > y_high)
        return false;
    /* All charts of a run start at 0, unless it resumed at a late step. */
    if (x_low > 0 && x_low < x_high / 2)
        x_low = 0;
    if (c->from_zero && y_low > 0)
        y_low = 0;
    bool is_log = c->may_be_log && y_low > 0 && y_high / y_low > 50;
    if (is_log) {
        y_low = log10(y_low);
        y_high = log10(y_high);
    }
    widen(&x_low, &x_high);
    widen(&y_low, &y_high);
    *x = (scale){ .low = x_low, .high = x_high, .from = LEFT, .to = WIDTH - RIGHT };
    *y = (scale){ .low = y_low, .high = y_high, .is_log = is_log, .from = HEIGHT - BOTTOM, .to = TOP };
    return true;
}

/* ---- Ticks ---- */

/* Returns 1, 2 or 5 times a power of ten, so that about `wanted` ticks fit. */
static double tick_step(double range, int wanted)
{
    double rough = range / wanted, power = pow(10, floor(log10(rough))), part = rough / power;
    return power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
}

static int find_ticks(const scale *s, int wanted, double out[MOST_TICKS])
{
    double step = tick_step(s->high - s->low, wanted);
    int count = 0;
    if (!isfinite(step) || !(step > 0))
        return 0;
    if (s->is_log && step < 1)
        step = s->high - s->low < 2 ? log10(2) : 1; /* 1, 2, 4, 8, ... */
    double first = ceil(s->low / step - 1e-9);
    for (int i = 0; i < MOST_TICKS; i++) {
        double at = (first + i) * step;
        if (!(at <= s->high + 1e-9 * fabs(s->high)))
            break;
        out[count++] = s->is_log ? pow(10, at) : fabs(at) < step * 1e-9 ? 0 : at;
    }
    return count;
}

/* Writes a short number: 12,000 as 12k. */
static void put_tick(ls_text *page, double value)
{
    double size = fabs(value);
    if (size >= 1e15 || (size < 1e-3 && size > 0))
        ls_text_add(page, "%.2g", value);
    else if (size >= 1e6)
        ls_text_add(page, "%.4gM", value / 1e6);
    else if (size >= 1e4)
        ls_text_add(page, "%.4gk", value / 1e3);
    else
        ls_text_add(page, "%.4g", value);
}

static void put_axes(ls_text *page, const report_chart *c, const scale *x, const scale *y)
{
    double ticks[MOST_TICKS];
    int count = find_ticks(y, 4, ticks);
    for (int i = 0; i < count; i++) {
        double at = place(y, ticks[i]);
        ls_text_add(page, "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text class=\"y\" x=\"%d\" y=\"%.1f\">", LEFT, at,
                    WIDTH - RIGHT, LEFT - 6, at + 4);
        put_tick(page, ticks[i]);
        ls_text_put(page, "</text>");
    }
    count = find_ticks(x, 5, ticks);
    for (int i = 0; i < count; i++) {
        if (ticks[i] != floor(ticks[i])) /* steps are whole numbers */
            continue;
        ls_text_add(page, "<text class=\"x\" x=\"%.1f\" y=\"%d\">", place(x, ticks[i]), HEIGHT - BOTTOM + 16);
        put_tick(page, ticks[i]);
        ls_text_put(page, "</text>");
    }
    ls_text_add(page, "<path class=\"axis\" d=\"M%d %dH%d\"/><text class=\"x\" x=\"%d\" y=\"%d\">", LEFT,
                HEIGHT - BOTTOM, WIDTH - RIGHT, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6);
    report_put(page, c->x_name);
    ls_text_put(page, "</text>\n");
}

/* ---- Lines ---- */

static const char *look_class(report_look look)
{
    return look == REPORT_THIN ? "thin" : look == REPORT_SOLID ? "solid" : "dashed";
}

static void put_path(ls_text *page, const report_line *line, const scale *x, const scale *y)
{
    bool drawing = false;
    ls_text_add(page, "<path class=\"%s c%d\" d=\"", look_class(line->look), line->color);
    for (size_t i = 0; i < line->count; i++) {
        bool drawn = is_drawn(y, line->y[i]) && isfinite(line->x[i]);
        if (drawn)
            ls_text_add(page, "%c%.1f %.1f", drawing ? 'L' : 'M', place(x, line->x[i]), place(y, line->y[i]));
        drawing = drawn;
    }
    ls_text_put(page, "\"/>\n");
}

#define MOST_DOTS 64

static void put_dots(ls_text *page, const report_chart *c, const report_line *line, const scale *x, const scale *y)
{
    for (size_t i = 0; i < line->count && line->count <= MOST_DOTS; i++) {
        if (!is_drawn(y, line->y[i]) || !isfinite(line->x[i]))
            continue;
        ls_text_add(page, "<circle class=\"f%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"><title>", line->color,
                    place(x, line->x[i]), place(y, line->y[i]));
        report_put(page, line->label);
        ls_text_put(page, ": ");
        report_put_number(page, line->y[i]);
        ls_text_put(page, ", ");
        report_put(page, c->x_name);
        ls_text_add(page, " %.0f</title></circle>\n", line->x[i]);
    }
}

static void put_legend(ls_text *page, const report_chart *c)
{
    ls_text_put(page, "<ul class=\"legend\">");
    for (size_t i = 0; i < c->line_count; i++) {
        ls_text_add(page,
                    "<li><svg viewBox=\"0 0 24 8\" aria-hidden=\"true\"><path class=\"%s c%d\" d=\"M0 4H24\"/></svg>",
                    look_class(c->lines[i].look), c->lines[i].color);
        report_put(page, c->lines[i].label);
        ls_text_put(page, "</li>");
    }
    ls_text_put(page, "</ul>");
}

void report_put_chart(ls_text *page, const report_chart *c)
{
    scale x, y;
    if (!find_scales(c, &x, &y))
        return;
    ls_text_put(page, "<figure><figcaption>");
    report_put(page, c->title);
    ls_text_put(page, y.is_log ? " <small>(logarithmic)</small>" : "");
    ls_text_add(page, "</figcaption>\n<svg class=\"chart\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDTH,
                HEIGHT);
    report_put(page, c->title);
    ls_text_put(page, "\">\n");
    put_axes(page, c, &x, &y);
    for (size_t i = 0; i < c->line_count; i++)
        put_path(page, &c->lines[i], &x, &y);
    for (size_t i = 0; i < c->line_count; i++)
        if (c->lines[i].look != REPORT_THIN)
            put_dots(page, c, &c->lines[i], &x, &y);
    ls_text_put(page, "</svg>\n");
    put_legend(page, c);
    ls_text_put(page, "</figure>\n");
}

/* ---- Stacked bars ---- */

static double percent(double value, double whole)
{
    double part = whole > 0 ? 100 * value / whole : 0;
    return part > 100 ? 100 : part > 0 ? part : 0;
}

void report_put_bar(ls_text *page, const char *name, const report_part *parts, size_t count, double whole)
{
    ls_text_put(page, "<div class=\"bar\"><span>");
    report_put(page, name);
    ls_text_put(page, "</span><svg viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"");
    report_put(page, name);
    ls_text_put(page, "\">");
    double at = 0;
    for (size_t i = 0; i < count; i++) {
        double wide = percent(parts[i].value, whole);
        if (wide > 0) {
            ls_text_add(page, "<rect class=\"p%d\" x=\"%.3f\" y=\"0\" width=\"%.3f\" height=\"10\"><title>",
                        parts[i].color, at, wide);
            report_put(page, parts[i].name);
            ls_text_put(page, ": ");
            report_put_seconds(page, parts[i].value);
            ls_text_add(page, " (%.1f %%)</title></rect>", wide);
        }
        at += wide;
    }
    ls_text_put(page, "</svg></div>\n");
}

void report_put_bar_legend(ls_text *page, const report_part *parts, size_t count, double whole)
{
    ls_text_put(page, "<ul class=\"legend\">");
    for (size_t i = 0; i < count; i++) {
        ls_text_add(page,
                    "<li><svg viewBox=\"0 0 10 10\" class=\"square\" aria-hidden=\"true\"><rect class=\"p%d\" "
                    "width=\"10\" height=\"10\"/></svg>",
                    parts[i].color);
        report_put(page, parts[i].name);
        if (whole > 0) {
            ls_text_put(page, " ");
            report_put_seconds(page, parts[i].value);
            ls_text_add(page, " (%.1f %%)", percent(parts[i].value, whole));
        }
        ls_text_put(page, "</li>");
    }
    ls_text_put(page, "</ul>\n");
}
