/* Patterns of files that are left out where --data finds files. Private to this folder, but for the struct. */
#ifndef LTRAIN_DATA_EXCLUDE_H
#define LTRAIN_DATA_EXCLUDE_H

#include "base/status.h"

struct exclusion {
    const char *const *patterns;
    int n;
    unsigned char *used; /* [n]; 1: the pattern has left out a file */
    int may_miss;        /* 1: a pattern that matches nothing is no error */
};

/* Tells whether a pattern matches a path, given relative to the directory in which the search began, and notes in `used` which
 * patterns match. x NULL: no patterns.
 *
 * A pattern without a slash is compared with each name of the path. One with slashes is compared with the path and the
 * directories above it, where `**` is any number of directories. */
int exclusion_takes(struct exclusion *x, const char *path);
/* Returns the part of `path`, which a glob has found, behind the directories that are written out in the glob. */
const char *exclusion_below(const char *pattern, const char *path);
/* Refuses a pattern that has left out nothing. x may be NULL. ERR_INVALID. */
enum status exclusion_check(const struct exclusion *x);

#endif
