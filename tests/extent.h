/* The extent of a test: all that it knows with LTRAIN_LONG=1; a selection usually; less still under sanitizers, which are after
 * bytes and undefined behaviour: what a value depends on is the release build's to try. */
#ifndef LTRAIN_TESTS_EXTENT_H
#define LTRAIN_TESTS_EXTENT_H

#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define EXTENT_SANITIZED 1
#else
#define EXTENT_SANITIZED 0
#endif

static inline int extent_is_long(void)
{
    return getenv("LTRAIN_LONG") != NULL;
}

/* One of three amounts. */
static inline int extent(int sanitized, int usual, int all)
{
    return extent_is_long() ? all : EXTENT_SANITIZED ? sanitized : usual;
}

#endif
