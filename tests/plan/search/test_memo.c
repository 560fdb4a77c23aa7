/* The memo: results are found by whole keys while it is held, and models that differ have hashes that differ. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "plan/search/memo.h"
#include "plan/search/needs.h"
#include "plan/search/requests.h"

#include "plan/lower/fixed.h"
#include "plan/lower/program.h"

struct key {
    int64_t number;
    double share;
};

static int known(int64_t number, double share, int *out)
{
    const struct key key = {number, share};
    return memo_find(&key, sizeof key, out, sizeof *out);
}

static void keep(int64_t number, double share, int result)
{
    const struct key key = {number, share};
    memo_keep(&key, sizeof key, &result, sizeof result);
}

static void results_are_known_while_held(void **state)
{
    (void)state;
    int result = 0;
    keep(1, 0.5, 10); /* nobody holds the memo */
    memo_hold();
    assert_false(known(1, 0.5, &result));
    keep(1, 0.5, 11);
    memo_hold();
    for (int i = 2; i < 10000; i++)
        keep(i, 0.5, i);
    memo_release();
    assert_true(known(1, 0.5, &result));
    assert_int_equal(result, 11);
    assert_true(known(9999, 0.5, &result));
    assert_int_equal(result, 9999);
    assert_false(known(1, 0.25, &result));
    memo_release();
    assert_false(known(1, 0.5, &result));
}

static uint64_t hash(int64_t layers, const char *frozen)
{
    struct model_config c;
    struct model *m;
    assert_int_equal(model_preset("25m", &c), OK);
    c.layers = layers;
    assert_int_equal(model_create(&c, &frozen, frozen ? 1 : 0, &m), OK);
    const uint64_t h = memo_model(m);
    model_destroy(m);
    return h;
}

static void models_that_differ_have_hashes_that_differ(void **state)
{
    (void)state;
    assert_true(hash(3, NULL) == hash(3, NULL));
    assert_true(hash(3, NULL) != hash(4, NULL));
    assert_true(hash(3, NULL) != hash(3, "*norm*"));
}

/* Needs of an update are found on another grid of another length, with that grid's inputs and outputs. */
static void updates_are_the_same_on_other_grids(void **state)
{
    (void)state;
    static const int64_t lengths[] = {4096, 16384};
    const int64_t limit[TIERS] = {GIB, GIB, GIB};
    memo_hold();
    for (int i = 0; i < 2; i++) {
        struct hardware h;
        struct plan_request s;
        struct problem p;
        struct strategy fixed;
        struct need found, measured;
        struct model *m = preset_of("25m", 2, 16384, "h200", &h, &s);
        s.seq_len = lengths[i];
        s.head_tile = 1 + i;
        s.loss_tile = lengths[i] / 16;
        problem_set(&p, m, &s, limit);
        assert_int_equal(plan_fixed(m, &p.request, &fixed), OK);
        fixed.placement.params = fixed.placement.grads = fixed.placement.optim = RES_HOST;
        const struct subject of = {&p, m, memo_model(m)};
        assert_int_equal(needs_find(&of, &fixed, DUTY_UPDATE, &found), OK);
        assert_int_equal(measure_need(&of, &fixed, DUTY_UPDATE, &measured), OK);
        assert_memory_equal(&found, &measured, sizeof found);
        model_destroy(m);
    }
    memo_release();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(results_are_known_while_held),
                                       cmocka_unit_test(models_that_differ_have_hashes_that_differ),
                                       cmocka_unit_test(updates_are_the_same_on_other_grids)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
