/* Tests memory: device memory is reduced until nothing fits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "extent.h"
#include "plan/fit.h"

/* Device budgets from ample to none, for both families and both devices; with LTRAIN_LONG Llama on the discrete one, too. */
static void device_ladder(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++)
        for (int discrete = f; discrete < (f || extent_is_long() ? 2 : 1); discrete++) {
            struct plan_request s;
            struct model *m = wide_model(FAMILIES[f], 2);
            int64_t limit[TIERS] = {AMPLE, AMPLE, AMPLE}, first;
            wide_settings(&s);
            s.device = discrete ? DEVICE_CPU_DISCRETE : DEVICE_CPU;
            struct plan *plan = fit(m, &s, limit);
            assert_true(plan->fits);
            first = limit[TIER_DEVICE] = plan->arena[TIER_DEVICE];
            plan_destroy(plan);
            s.params = s.grads = s.optim = s.acts = s.passing = OFFLOAD_AUTO;
            s.alpha = AUTO;
            s.update = UPDATE_AUTO;
            int fitted = 1, rungs = 0;
            while (limit[TIER_DEVICE] > 4096) {
                plan = fit(m, &s, limit);
                /* less memory never fits if more did not */
                assert_true(fitted || !plan->fits);
                fitted = plan->fits;
                rungs += fitted;
                plan_destroy(plan);
                limit[TIER_DEVICE] = fitted ? limit[TIER_DEVICE] * 3 / 4 : limit[TIER_DEVICE] / 4;
            }
            print_message("%s%s: fits down %d rungs of 3/4 from %lld bytes\n", FAMILY_NAMES[f], discrete ? ", discrete" : "",
                          rungs, (long long)first);
            assert_true(rungs >= 4);
            model_destroy(m);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(device_ladder)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
