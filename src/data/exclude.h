/* Patterns of files that --data leaves out of its finds. Private to this folder, but for the struct. */
#ifndef LTRAIN_DATA_EXCLUDE_H
#define LTRAIN_DATA_EXCLUDE_H

#include "base/status.h"

struct exclusion {
    const char *const *patterns;
    int n;
    unsigned char *used; /* [n]; 1: the pattern has left out a file */
    int may_miss;        /* 1: a pattern that matches nothing is no error */
};

/* Tells whether a pattern matches a path, relative to where a search began, and notes which patterns do. A pattern without a
 * slash is compared with each name of the path; one with slashes with the path and the directories above it, where `**` is any
 * number of directories. x: NULL: no patterns. */
int exclusion_takes(struct exclusion *x, const char *path);
/* Returns the part of `path`, found by a pattern of glob, behind the directories that the pattern names. */
const char *exclusion_below(const char *pattern, const char *path);
/* Refuses a pattern that has left out nothing. x may be NULL. ERR_INVALID. */
enum status exclusion_check(const struct exclusion *x);

#endif
