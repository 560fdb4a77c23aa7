/* Edit distance with swaps of neighbours (optimal string alignment). */
#include "base/names.h"

#include <string.h>

#define MAX_NAME 40

static int edit_distance(const char *a, const char *b)
{
    int d[MAX_NAME + 1][MAX_NAME + 1], n = (int)strnlen(a, MAX_NAME + 1), m = (int)strnlen(b, MAX_NAME + 1);
    if (n > MAX_NAME || m > MAX_NAME)
        return MAX_NAME;
    for (int i = 0; i <= n; i++) {
        for (int j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            int best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best)
                best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best)
                best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    }
    return d[n][m];
}

const char *names_nearest(const char *text, const char *const *names, int n)
{
    const char *best = NULL;
    int best_distance = (int)(strnlen(text, MAX_NAME) + 1) / 3; /* a third of the letters may differ */
    for (int i = 0; i < n; i++) {
        int distance = edit_distance(text, names[i]);
        if (distance < best_distance || (distance == best_distance && !best)) {
            best = names[i];
            best_distance = distance;
        }
    }
    return best;
}
