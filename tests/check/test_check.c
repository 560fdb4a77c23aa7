/* Tests distances of tensors, and whether the run with one rank, with which a check compares, fits into memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "check/alone.h"
#include "check/choices.h"
#include "check/difference.h"
#include "engine/rig.h"
#include "plan/cells.h"

#include <math.h>
#include <string.h>

static const struct excuse none;

static void equal_tensors(void **state)
{
    float x[5] = {1, -2, 0, 4e-20f, 3e20f};
    struct difference d = {0};
    (void)state;
    difference_add(&d, 0, 2, x, x, none);
    difference_add(&d, 2, 3, x + 2, x + 2, none);
    assert_int_equal(d.n, 5);
    assert_int_equal(d.unequal, 0);
    assert_true(difference_relative(&d, 0) == 0);
}

static void one_element(void **state)
{
    float x[4] = {3, 0, 4, 0}, y[4] = {3, 0, 4, 0};
    struct difference d = {0};
    (void)state;
    x[3] = 0.005f;
    x[1] = 0.001f;
    difference_add(&d, 10, 4, x, y, none);
    assert_int_equal(d.unequal, 2);
    assert_int_equal(d.at, 13);
    assert_true(d.given == 0.005f && d.alone == 0);
    assert_true(fabs(difference_relative(&d, 0) - sqrt(26) * 1e-3 / 5) < 1e-8); /* x is rounded to fp32 */
    assert_true(fabs(difference_relative(&d, 50) - sqrt(26) * 1e-3 / 50) < 1e-9);
}

/* Different bits may have the same value (zeros); nothing is close to NaN or, relatively, to zero. */
static void odd_values(void **state)
{
    float zero[2] = {0, 0}, minus[2] = {-0.0f, 0}, one[2] = {0, 1}, nan[2] = {NAN, 1};
    struct difference a = {0}, b = {0}, c = {0};
    (void)state;
    difference_add(&a, 0, 2, minus, zero, none);
    assert_int_equal(a.unequal, 1);
    assert_true(difference_relative(&a, 0) == 0);
    difference_add(&b, 0, 2, one, zero, none);
    assert_true(isinf(difference_relative(&b, 0)));
    difference_add(&c, 0, 2, one, nan, none);
    assert_true(isnan(difference_relative(&c, 0)));
    assert_int_equal(c.at, 0);
    difference_add(&c, 2, 2, one, zero, none); /* later elements do not hide it */
    assert_true(isnan(difference_relative(&c, 1)) && c.at == 0);
}

/* Elements with a usual gradient move alike; an element whose gradient is only noise may move in either direction, so two runs
 * may be twice the learning rate apart. */
static void slack_of_updates(void **state)
{
    float v[3] = {1e-4f, 1e-4f, 1e-22f};
    struct reach r = {.lr = 1e-3, .relative = 1e-6, .bias2 = 1, .eps = 1e-12};
    (void)state;
    float slack[3] = {0}, ones[3] = {1, 1, 1}, moved[3] = {1, 1, 1.001f};
    reach_add(&r, v, 3, 1e-4, slack);
    assert_true(slack[0] < 2e-8 && slack[1] == slack[0]);
    assert_true(fabs(slack[2] / 2e-3 - 1) < 1e-6);
    v[2] = 1e-4f; /* its next gradient is of usual size, but the element has already been moved apart */
    reach_add(&r, v, 3, 1e-4, slack);
    assert_true(slack[0] < 4e-8 && slack[2] > 2e-3f);
    struct difference d = {0}, other = {0};
    difference_add(&d, 0, 3, moved, ones, (struct excuse){slack, 0});
    assert_true(difference_relative(&d, 0) > 5e-4 && difference_relative(&d, 0) < difference_allowed(&d, 1e-6));
    moved[0] = 1.001f; /* slack explains nothing in other elements */
    moved[2] = 1;
    difference_add(&other, 0, 3, moved, ones, (struct excuse){slack, 0});
    assert_true(difference_relative(&other, 0) > 100 * difference_allowed(&other, 1e-6));
}

/* A few elements, anywhere, may be further apart, up to a limit, but not all. */
static void a_few_elements(void **state)
{
    enum { N = 1000 };
    float ones[N], moved[N];
    struct difference few = {0}, far = {0}, all = {0};
    (void)state;
    for (int i = 0; i < N; i++)
        ones[i] = moved[i] = 1;
    for (int i = 0; i < DIFFERENCE_FEW; i++)
        moved[N - 1 - 100 * i] = 1.001f;
    difference_add(&few, 0, N, moved, ones, (struct excuse){NULL, 2e-3});
    assert_true(difference_relative(&few, 0) > 5e-5 && difference_relative(&few, 0) < difference_allowed(&few, 1e-9));
    difference_add(&far, 0, N, moved, ones, (struct excuse){NULL, 5e-4});
    assert_true(difference_relative(&far, 0) > 1.9 * difference_allowed(&far, 1e-9));
    for (int i = 0; i < N; i++)
        moved[i] = 1.001f;
    difference_add(&all, 0, N, moved, ones, (struct excuse){NULL, 2e-3});
    assert_true(difference_relative(&all, 0) > 10 * difference_allowed(&all, 1e-9));
}

/* In a small tensor fewer elements may be apart: a lost update is noticed in four. */
static void a_small_tensor(void **state)
{
    const float ones[4] = {1, 1, 1, 1}, stale[4] = {1.001f, 1.001f, 1.001f, 1.001f};
    struct difference d = {0};
    (void)state;
    difference_add(&d, 0, 4, stale, ones, (struct excuse){NULL, 2e-3});
    assert_true(difference_relative(&d, 0) > 1.9 * difference_allowed(&d, 1e-9));
}

/* A loss changes by gradient times the parameters' difference; elements without gradient have no effect. */
static void what_gradients_feel(void **state)
{
    const float alone[3] = {1, 2, 4}, given[3] = {1.5f, 1, 9}, gradient[3] = {2, 0.5f, 0};
    struct difference d = {0};
    (void)state;
    difference_add_felt(&d, 2, given, alone, gradient);
    difference_add_felt(&d, 1, given + 2, alone + 2, gradient + 2);
    assert_true(d.first_order == 0.5 && d.felt2 == 1.25 && d.weight2 == 5);
}

static void refuses_what_does_not_fit(void **state)
{
    struct settings given, s;
    struct model_config config;
    struct model *m;
    struct plan *plan = NULL;
    (void)state;
    rig_cell_defaults(&given, 4096, F32);
    given.plan.row_chunk = given.plan.head_tile = given.plan.loss_tile = given.plan.group = AUTO;
    given.plan.mesh.degree[MESH_DP] = 1;
    given.plan.mesh.degree[MESH_ULYSSES] = given.plan.mesh.degree[MESH_RING] = 2;
    given.plan.batch = 3;
    assert_int_equal(model_preset("tiny", &config), OK);
    assert_int_equal(model_create(&config, NULL, 0, &m), OK);
    check_alone_settings(&given, TILES_OWN, &s);
    assert_int_equal(s.plan.grad_accum, 3);
    assert_int_equal(check_alone_plan(m, &s, (int64_t)1 << 30, &plan), OK);
    assert_int_equal(plan->strategy.ranks, 1);
    assert_int_equal(plan->arena[TIER_NVME], 0);
    int64_t need = plan->arena[TIER_DEVICE] + plan->arena[TIER_HOST];
    plan_destroy(plan);
    assert_int_equal(check_alone_plan(m, &s, need - 1, &plan), ERR_NOFIT);
    assert_non_null(strstr(status_message(), "--seq-len 2048 would fit"));
    assert_int_equal(check_alone_plan(m, &s, 1 << 16, &plan), ERR_NOFIT);
    assert_non_null(strstr(status_message(), "no preset fits"));
    model_destroy(m);
}

static void names_a_preset(void **state)
{
    struct settings given, s;
    struct model_config config;
    struct model *m;
    struct plan *plan = NULL;
    (void)state;
    rig_cell_defaults(&given, 256, F32);
    given.plan.row_chunk = given.plan.head_tile = given.plan.loss_tile = given.plan.group = AUTO;
    given.plan.batch = 1;
    assert_int_equal(model_preset("25m", &config), OK);
    assert_int_equal(model_create(&config, NULL, 0, &m), OK);
    check_alone_settings(&given, TILES_OWN, &s);
    assert_int_equal(check_alone_plan(m, &s, 64 << 20, &plan), ERR_NOFIT); /* the parameters alone take 100 MB */
    assert_non_null(strstr(status_message(), "--model tiny would"));
    model_destroy(m);
}

/* A pair that differs is counted once, though it is missing in one expert and too many in another. */
static void choices_that_differ(void **state)
{
    double given[] = {3, 1, 2, 2, 1, 1, 1, 5}, alone[] = {3, 1, 2, 2, 2, 1, 0, 5};
    struct choices c = {.layers = 2, .experts = 4, .given = given, .alone = alone};
    (void)state;
    choices_compare(&c);
    assert_true(c.others == 1 && c.most == 1 && c.most_layer == 1 && c.pairs == 8);
    assert_true(fabs(choices_explain(&c) - 0.25) < 1e-12);
    given[0] = 2, given[2] = 3, given[4] = 2, given[6] = 0;
    choices_compare(&c);
    assert_true(c.others == 1 && c.most_layer == 0);
    memcpy(given, alone, sizeof given);
    choices_compare(&c);
    assert_true(c.others == 0 && c.most == 0 && choices_explain(&c) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_tensors),       cmocka_unit_test(one_element),    cmocka_unit_test(odd_values),
        cmocka_unit_test(slack_of_updates),    cmocka_unit_test(a_few_elements), cmocka_unit_test(a_small_tensor),
        cmocka_unit_test(what_gradients_feel), cmocka_unit_test(names_a_preset), cmocka_unit_test(refuses_what_does_not_fit),
        cmocka_unit_test(choices_that_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
