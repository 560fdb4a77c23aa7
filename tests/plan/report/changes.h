/* Shared by the tests of proposed changes: makes plans of a small model, whether they fit or not, and applies flags as typed.
 * Must be included after cmocka.h. */
#ifndef LTRAIN_TESTS_PLAN_REPORT_CHANGES_H
#define LTRAIN_TESTS_PLAN_REPORT_CHANGES_H

#include "base/units.h"
#include "plan/cells.h"

#include <stdlib.h>

enum { AMPLE = 1 << 30 };

static inline struct model *model_for(void)
{
    struct model *m;
    assert_int_equal(cell_model(FAMILY_LLAMA, 2, &m), OK);
    return m;
}

static inline struct plan *plan_for(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS])
{
    struct plan *plan;
    if (plan_create(m, s, limit, &plan) != OK)
        fail_msg("%s", status_message());
    return plan;
}

/* Applies flags as if they were typed. */
static inline void apply(const char *flags, struct plan_request *s)
{
    char text[128], *next = NULL;
    snprintf(text, sizeof text, "%s", flags);
    for (char *flag = strtok_r(text, " ", &next); flag; flag = strtok_r(NULL, " ", &next)) {
        const char *value = strtok_r(NULL, " ", &next);
        assert_non_null(value);
        if (strcmp(flag, "--offload") == 0 && strcmp(value, "auto") == 0)
            s->params = s->grads = s->optim = s->acts = s->passing = OFFLOAD_AUTO;
        else if (strcmp(flag, "--alpha") == 0 && strcmp(value, "auto") == 0)
            s->alpha = AUTO;
        else if (strcmp(flag, "--prefetch") == 0 && strcmp(value, "auto") == 0)
            s->prefetch = AUTO;
        else if (strcmp(flag, "--update") == 0 && strcmp(value, "auto") == 0)
            s->update = UPDATE_AUTO;
        else if (strcmp(flag, "--keep-inputs") == 0)
            s->keep_inputs = strcmp(value, "auto") == 0 ? AUTO : atoi(value);
        else if (strcmp(flag, "--dtype") == 0 && strcmp(value, "bf16") == 0)
            s->dtype = BF16;
        else if (strcmp(flag, "--tiles") == 0 && strcmp(value, "auto") == 0)
            s->row_chunk = s->head_tile = s->loss_tile = s->group = AUTO;
        else if (strcmp(flag, "--seq-len") == 0)
            assert_int_equal(units_parse_count(flag, value, &s->seq_len), OK);
        else
            fail_msg("nobody knows '%s %s'", flag, value);
    }
}

#endif
