/* The amount that a test tries: everything with LTRAIN_LONG=1; usually a selection; under sanitizers even less, since sanitizers
 * look for wrong accesses and undefined behaviour, while the values are tested by the release build. */
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

/* Returns one of three amounts, by the kind of test run. */
static inline int extent(int sanitized, int usual, int all)
{
    return extent_is_long() ? all : EXTENT_SANITIZED ? sanitized : usual;
}

#endif
