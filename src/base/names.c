/* The nearest of some names, by edit distance. */
#include "base/names.h"

#include <ctype.h>
#include <string.h>

#define LONGEST 63 /* letters compared; enough to tell names apart */
#define LETTER  2  /* cost of a letter changed, added, dropped or swapped */

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

/* The distance of Damerau and Levenshtein where no letter is edited twice. Three rows of its matrix are enough. */
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

const char *ls_nearest_name(const char *wanted, const char *const *names, size_t n)
{
    const char *nearest = NULL;
    int least = 0;
    size_t length = strlen(wanted);
    for (size_t i = 0; i < n; i++) {
        int d = distance(wanted, names[i]);
        if (length >= 3 && strncmp(names[i], wanted, length) == 0)
            d = smaller(d, LETTER);
        if (nearest == NULL || d < least) {
            nearest = names[i];
            least = d;
        }
    }
    return nearest;
}
