/* Makes plans of small models with ample memory, and compares their figures. Must be included after cmocka.h. */
#ifndef LTRAIN_TESTS_PLAN_AMPLE_H
#define LTRAIN_TESTS_PLAN_AMPLE_H

#include "plan/cells.h"

#include <math.h>

enum { AMPLE = 1 << 30 };
static const int64_t limits[TIERS] = {AMPLE, AMPLE, AMPLE};

static inline struct plan *plan_for(const struct model *m, const struct plan_request *s)
{
    struct plan *plan;
    if (plan_create(m, s, limits, &plan) != OK)
        fail_msg("%s", status_message());
    assert_true(plan->fits);
    return plan;
}

static inline struct model *model_for(enum model_family family, int layers)
{
    struct model *m;
    assert_int_equal(cell_model(family, layers, &m), OK);
    return m;
}

/* Checks that two sums of the same doubles, in different orders, agree up to the rounding of a few thousand additions. */
static inline void near(double a, double b)
{
    if (fabs(a - b) > 1e-9 * (fabs(a) + fabs(b)))
        fail_msg("%.17g is not %.17g", a, b);
}

#endif
