/* Runs of tests of which each is a family of models. Include after cmocka.h. */
#ifndef LTRAIN_TESTS_ENGINE_FAMILIES_H
#define LTRAIN_TESTS_ENGINE_FAMILIES_H

#include "extent.h"

enum { MOST_FAMILIES = 128 };

/* Runs n tests; sanitizers get one in `sanitized`, since families share code. */
static inline int families_run(const char *name, const struct CMUnitTest *tests, int n, int sanitized)
{
    struct CMUnitTest chosen[MOST_FAMILIES];
    int k = 0;
    assert_true(n <= MOST_FAMILIES);
    for (int i = 0; i < n; i += extent(sanitized, 1, 1))
        chosen[k++] = tests[i];
    return _cmocka_run_group_tests(name, chosen, (size_t)k, NULL, NULL);
}

#endif
