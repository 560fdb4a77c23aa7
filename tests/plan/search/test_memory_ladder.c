/* Tests small models with less and less memory: more memory is never slower. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "extent.h"
#include "plan/search/requests.h"

/* A larger budget allows every placement of a smaller one. A step may be longer by what the search accepts for less traffic and
 * for slow links. Each budget is three fifths of the one before, with LTRAIN_LONG four fifths. */
static void more_memory_is_never_slower(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++) {
        struct model *m;
        struct plan_request s;
        int64_t limit[TIERS] = {AMPLE, AMPLE, AMPLE};
        double slowest = 0;
        assert_int_equal(cell_model(f ? FAMILY_GPT2 : FAMILY_LLAMA, 3, &m), OK);
        open_settings(&s);
        struct plan *plan = planned(m, &s, limit);
        limit[TIER_DEVICE] = plan->arena[TIER_DEVICE] * 2;
        plan_destroy(plan);
        for (int fits = 1; fits; limit[TIER_DEVICE] = limit[TIER_DEVICE] * extent(3, 3, 4) / 5) {
            plan = planned(m, &s, limit);
            fits = plan->fits;
            if (fits && plan->seconds < 0.99 * slowest)
                fail_msg("%s: %lld bytes take %.6g s, less memory took %.6g s", f ? "gpt2" : "llama",
                         (long long)limit[TIER_DEVICE], plan->seconds, slowest);
            slowest = fits && plan->seconds > slowest ? plan->seconds : slowest;
            plan_destroy(plan);
        }
        model_destroy(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(more_memory_is_never_slower)};
    return cmocka_run_group_tests(tests, share_trials, drop_trials);
}
