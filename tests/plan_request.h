/* Requests of the planner without a command line. */
#ifndef LTRAIN_TESTS_PLAN_REQUEST_H
#define LTRAIN_TESTS_PLAN_REQUEST_H

#include "settings/settings.h"

/* Sets the defaults of the request's keys, except strings, with a sequence alone in its micro-batch. Fails only for lack of memory. */
static inline enum status plan_request_defaults(struct plan_request *r, int64_t seq_len)
{
    struct settings s;
    TRY(settings_defaults(&s, seq_len));
    *r = s.plan;
    r->micro_batch = 1;
    return OK;
}

#endif
