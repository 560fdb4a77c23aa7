/* Schedules a lowered program in one call. */
#ifndef LTRAIN_TESTS_PLAN_SCHEDULED_H
#define LTRAIN_TESTS_PLAN_SCHEDULED_H

#include "plan/schedule/order.h"

#include <math.h>

/* Runs all passes with one distance and any lag. */
static inline enum status schedule_program(struct program *p, const struct cost_model *m, enum schedule_mode mode,
                                           double distance)
{
    struct schedule *s;
    TRY(schedule_create(p, &s));
    enum status st = schedule_order(s, m, mode, distance, INFINITY, NULL, 0);
    if (st == OK)
        st = schedule_finish(s, m);
    schedule_destroy(s);
    return st;
}

#endif
