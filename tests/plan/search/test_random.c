/* Compares the searched placement of small models with random ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "extent.h"
#include "plan/search/requests.h"

/* Returns the seconds of the fastest random placement that fits. */
static double best_of_random(const struct model *m, const int64_t limit[TIERS], uint64_t seed, int *fitting)
{
    const int placements = extent(25, 50, 100);
    double best = 1e300;
    *fitting = 0;
    for (int i = 0; i < placements; i++) {
        struct plan_request s;
        struct cell c = {0};
        for (int f = 0; f < FACTORS; f++)
            c.level[f] = (int)rng_below(seed, 7, (uint64_t)(i * FACTORS + f), (uint64_t)LEVELS[f]);
        open_settings(&s);
        cell_apply(&c, &s);
        s.device = DEVICE_CPU_DISCRETE;
        struct plan *plan = planned(m, &s, limit);
        if (plan->fits) {
            best = plan->seconds < best ? plan->seconds : best;
            ++*fitting;
        }
        plan_destroy(plan);
    }
    return best;
}

/* The searched placement is faster than random ones for budgets that are shares of what everything on the device takes. */
static void beats_random(void **state)
{
    (void)state;
    static const double shares[] = {0.8, 0.6};
    for (int f = 0; f < 2; f++) {
        struct model *m;
        struct plan_request s;
        const int64_t ample[TIERS] = {AMPLE, AMPLE, AMPLE};
        assert_int_equal(cell_model(f ? FAMILY_GPT2 : FAMILY_LLAMA, 3, &m), OK);
        cell_settings(&s, 128, F32);
        struct plan *resident = planned(m, &s, ample);
        for (int k = 0; k < 2; k++) {
            int64_t limit[TIERS] = {(int64_t)(shares[k] * (double)resident->arena[TIER_DEVICE]), AMPLE, AMPLE};
            int fitting;
            double best = best_of_random(m, limit, (uint64_t)(2 * f + k), &fitting);
            open_settings(&s);
            struct plan *plan = planned(m, &s, limit);
            print_message("%s, %lld bytes: searched %.4g s, best of %d random ones that fit %.4g s\n", f ? "gpt2" : "llama",
                          (long long)limit[TIER_DEVICE], plan->seconds, fitting, best);
            assert_true(fitting > 0 && plan->fits);
            assert_true(plan->seconds <= 1.03 * best);
            plan_destroy(plan);
        }
        plan_destroy(resident);
        model_destroy(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(beats_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
