/* Finds the nearest name by edit distance. */
#include "base/names.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define LONGEST 63 /* letters compared */
#define LETTER  2  /* cost of one edit of a letter */

static int change_cost(char a, char b)
{
    if (a == b)
        return 0;
    return tolower((unsigned char)a) == tolower((unsigned char)b) ? LETTER / 2 : LETTER;
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* Damerau-Levenshtein distance in which no letter is edited twice. */
static int distance(const char *a, const char *b)
{
    size_t n = strnlen(a, LONGEST), m = strnlen(b, LONGEST);
    int rows[3][LONGEST + 1];
    int *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= m; j++)
        last[j] = (int)j * LETTER;
    for (size_t i = 1; i <= n; i++) {
        row[0] = (int)i * LETTER;
        for (size_t j = 1; j <= m; j++) {
            row[j] = smaller(last[j - 1] + change_cost(a[i - 1], b[j - 1]), smaller(last[j], row[j - 1]) + LETTER);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = smaller(row[j], before[j - 2] + LETTER);
        }
        int *oldest = before;
        before = last;
        last = row;
        row = oldest;
    }
    return last[m];
}

static size_t length_of_own(const char *name)
{
    size_t begin = strspn(name, "-");
    if (strncmp(name + begin, "LOCKSTEP_", 9) == 0)
        begin += 9;
    return strnlen(name + begin, LONGEST);
}

static bool is_near(const char *wanted, const char *name, int d)
{
    size_t a = length_of_own(wanted), b = length_of_own(name);
    return strcasecmp(wanted, name) == 0 || (size_t)d * 3 <= (a > b ? a : b) * LETTER;
}

static const char *find_nearest(const char *wanted, const char *const *names, size_t n)
{
    const char *nearest = NULL;
    int least = 0;
    size_t length = strlen(wanted);
    bool whole = length_of_own(wanted) >= 3; /* enough letters for an abbreviation */
    for (size_t i = 0; i < n; i++) {
        int d = distance(wanted, names[i]);
        bool begins = whole && strncmp(names[i], wanted, length) == 0;
        if (begins)
            d = smaller(d, LETTER);
        if ((nearest == NULL || d < least) && (begins || is_near(wanted, names[i], d))) {
            nearest = names[i];
            least = d;
        }
    }
    return nearest;
}

ls_name_advice ls_suggest_name(const char *wanted, const char *const *names, size_t n)
{
    ls_name_advice advice = { "" };
    const char *nearest = find_nearest(wanted, names, n);
    if (nearest)
        snprintf(advice.text, sizeof advice.text, "; did you mean %.300s?", nearest);
    return advice;
}

ls_name_advice ls_advise_name(const char *wanted, const char *const *names, size_t n)
{
    ls_name_advice advice = ls_suggest_name(wanted, names, n);
    size_t used = 0;
    for (size_t i = 0; i < n && (i > 0 || advice.text[0] == '\0'); i++) {
        bool fits = used + strlen(names[i]) + 24 < sizeof advice.text;
        used += (size_t)snprintf(advice.text + used, sizeof advice.text - used, "%s%s", i ? ", " : "; there are ",
                                 fits ? names[i] : "...");
        if (!fits)
            break;
    }
    return advice;
}
