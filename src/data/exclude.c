/* Comparing paths with the patterns of files that are left out. */
#include "data/exclude.h"

#include <fnmatch.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const char *skip_slashes(const char *s)
{
    return s + strspn(s, "/");
}

/* Returns the part of a path behind its first name and slash. */
static const char *next(const char *s)
{
    return skip_slashes(s + strcspn(s, "/"));
}

static int is_stars(const char *pattern)
{
    return strcspn(pattern, "/") == 2 && strncmp(pattern, "**", 2) == 0;
}

/* Compares the first name of a pattern with the first one of a path. */
static int names_match(const char *pattern, const char *path)
{
    char a[PATH_MAX], b[PATH_MAX];
    snprintf(a, sizeof a, "%.*s", (int)strcspn(pattern, "/"), pattern);
    snprintf(b, sizeof b, "%.*s", (int)strcspn(path, "/"), path);
    return fnmatch(a, b, 0) == 0;
}

static int any_name_matches(const char *pattern, const char *path)
{
    for (; *path; path = next(path))
        if (names_match(pattern, path))
            return 1;
    return 0;
}

/* Compares pattern and path name by name. `**` stands for as few directories as possible; after a mismatch the last `**` takes
 * one more. */
static int path_matches(const char *pattern, const char *path)
{
    const char *behind_stars = NULL, *retry = NULL;
    while (*pattern) {
        if (is_stars(pattern) && *path) {
            pattern = next(pattern);
            if (!*pattern)
                return 1;
            behind_stars = pattern;
            retry = path;
        } else if (*path && names_match(pattern, path)) {
            pattern = next(pattern);
            path = next(path);
        } else if (retry && *retry) {
            path = retry = next(retry);
            pattern = behind_stars;
        } else {
            return 0;
        }
    }
    return 1; /* the pattern names the path itself, or a directory above it */
}

int exclusion_takes(struct exclusion *x, const char *path)
{
    int taken = 0;
    for (int i = 0; x && i < x->n; i++) {
        const char *pattern = skip_slashes(strncmp(x->patterns[i], "./", 2) == 0 ? x->patterns[i] + 2 : x->patterns[i]);
        const int matches = *pattern && (*next(pattern) ? path_matches(pattern, path) : any_name_matches(pattern, path));
        x->used[i] |= (unsigned char)matches;
        taken |= matches;
    }
    return taken;
}

const char *exclusion_below(const char *pattern, const char *path)
{
    pattern = skip_slashes(pattern);
    path = skip_slashes(path);
    while (strchr(pattern, '/') && strcspn(pattern, "*?[") > strcspn(pattern, "/")) {
        pattern = next(pattern);
        path = next(path);
    }
    return path;
}

enum status exclusion_check(const struct exclusion *x)
{
    for (int i = 0; x && !x->may_miss && i < x->n; i++)
        if (!x->used[i])
            return status_fail(
                ERR_INVALID,
                "--data-exclude: '%.200s' matches no file that a directory or pattern of --data or --eval-data has: it is "
                "compared with names ('*.log') and with paths below the directory ('drafts/**/*.txt')",
                x->patterns[i]);
    return OK;
}
