/* Tests that less effort finds a plan whenever more effort does, and that steps with effort normal are about as fast as with
 * effort best. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "plan/lower/mesh.h"
#include "plan/search/requests.h"

#include <math.h>

/* Returns the seconds of the step with that effort; INFINITY: it does not fit. */
static double seconds_with(const struct model *m, const struct plan_request *s, enum effort effort, const int64_t limit[TIERS])
{
    struct plan_request r = *s;
    r.effort = effort;
    struct plan *plan = planned(m, &r, limit);
    double seconds = plan->fits ? plan->seconds : INFINITY;
    assert_true(plan->effort == effort || (effort == EFFORT_QUICK && plan->effort == EFFORT_NORMAL));
    plan_destroy(plan);
    return seconds;
}

/* Checks budgets from too small to ample: steps with effort normal take at most 2% longer than with effort best. */
static void on_budgets(const char *model, int layers, int64_t tokens, int64_t first, int64_t last)
{
    struct hardware h;
    struct plan_request s;
    struct model *m = preset_of(model, layers, tokens, "rtx4090", &h, &s);
    int fitted = 0;
    for (int i = 0; i < 4; i++) {
        const int64_t limit[TIERS] = {first + (last - first) * i / 3, 2 * last, 2 * last};
        double best = seconds_with(m, &s, EFFORT_BEST, limit), normal = seconds_with(m, &s, EFFORT_NORMAL, limit),
               quick = seconds_with(m, &s, EFFORT_QUICK, limit);
        print_message("%lld MiB: best %.4g s, normal %.4g s, quick %.4g s\n", (long long)(limit[TIER_DEVICE] >> 20), best, normal,
                      quick);
        assert_true(isfinite(normal) == isfinite(best) && isfinite(quick) == isfinite(best));
        assert_true(!isfinite(best) || normal <= 1.02 * best);
        fitted += isfinite(best);
    }
    assert_true(fitted >= 2);
    model_destroy(m);
}

static void a_small_model(void **state)
{
    (void)state;
    on_budgets("25m", 4, 16384, 70 << 20, 200 << 20);
}

static void few_layers_of_a_large_one(void **state)
{
    (void)state;
    on_budgets("125m", 3, 16384, 160 << 20, 900 << 20);
}

/* A million tokens of 80 layers on 8 H200s with 1.9 TB of host memory: with effort quick a step takes at most 0.5% longer than at
 * e68de1d7, whose plan takes 1491.57 s, or 25% longer than with effort normal (1197 s). */
static void eighty_layers_quickly(void **state)
{
    (void)state;
    const int ranks = 8;
    struct hardware h;
    struct plan_request s;
    struct model *eight_b = preset_of("8b", 80, 1 << 20, "8xh200", &h, &s), *m;
    struct model_config c = eight_b->config;
    int64_t limit[TIERS];
    c.dim = 8192;
    c.ffn = 28672;
    c.heads = 64;
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    s.zero = AUTO;
    s.mesh = (struct mesh){{AUTO, AUTO, AUTO}};
    assert_int_equal(plan_mesh(m, &s, ranks, h.devices), OK);
    hardware_limits(&h, ranks, limit);
    limit[TIER_HOST] = (int64_t)(1.9 * 1024) * GIB / ranks;
    const double seconds = seconds_with(m, &s, EFFORT_QUICK, limit);
    print_message("%.6g s\n", seconds);
    assert_true(seconds <= 1.005 * 1491.57);
    model_destroy(m);
    model_destroy(eight_b);
}

/* Runs the tests whose names match the argument, or with --skip the others. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_model),
        cmocka_unit_test(few_layers_of_a_large_one),
        cmocka_unit_test(eighty_layers_quickly),
    };
    if (argc == 2)
        cmocka_set_test_filter(argv[1]);
    if (argc == 3)
        cmocka_set_skip_filter(argv[2]);
    return cmocka_run_group_tests(tests, share_trials, drop_trials);
}
