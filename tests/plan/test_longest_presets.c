/* Tests the longest sequence of presets on a GPU with little free memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "machine/hardware.h"
#include "plan/cells.h"
#include "plan/max_seq.h"
#include "plan/plan.h"
#include "plan_request.h"

/* A preset on a GPU with little memory: its longest length, and a length that fits or does not fit. */
struct little {
    struct model *m;
    struct hardware h;
    struct plan_request s;
    const int64_t *limit;
};

static void open_little(const char *model, const int64_t limit[TIERS], struct little *l)
{
    struct model_config config;
    assert_int_equal(model_preset(model, &config), OK);
    assert_int_equal(model_create(&config, NULL, 0, &l->m), OK);
    assert_int_equal(hardware_preset("rtx3090", &l->h), OK);
    plan_request_defaults(&l->s, 0);
    l->s.target = cell_target();
    l->s.device = DEVICE_CUDA;
    l->s.hardware = &l->h;
    l->limit = limit;
}

static struct plan *longest_of_little(struct little *l)
{
    struct plan *plan;
    assert_int_equal(plan_longest(l->m, &l->s, 1, 1, l->limit, &plan), OK);
    print_message("%lld tokens, rows=%lld,heads=%d\n", (long long)l->s.seq_len, (long long)plan->strategy.key.row_chunk,
                  plan->strategy.key.head_tile);
    assert_true(plan->fits && plan->longest.longer > l->s.seq_len);
    return plan;
}

static int little_fits(const struct little *l, int64_t tokens)
{
    struct plan_request s = l->s;
    struct plan *plan;
    s.seq_len = tokens;
    assert_int_equal(plan_create(l->m, &s, l->limit, &plan), OK);
    int fits = plan->fits;
    plan_destroy(plan);
    return fits;
}

/* Beyond 19,456 tokens the default grid lacks host memory; a finer one leaves more of the activations on the device. */
static void finer_tiles_where_the_host_is_too_small(void **state)
{
    (void)state;
    const int64_t limit[TIERS] = {1 << 30, 2ll << 30, 0};
    struct little l;
    open_little("125m", limit, &l);
    struct plan *plan = longest_of_little(&l);
    assert_true(plan->finer && l.s.seq_len > 19456);
    plan_destroy(plan);
    model_destroy(l.m);
}

/* Short lengths can be extended, too: an eighth of 5,120 tokens is less than a step. */
static void short_lengths_grow(void **state)
{
    (void)state;
    const int64_t limit[TIERS] = {256 << 20, 400 << 20, 0};
    struct little l;
    open_little("25m", limit, &l);
    struct plan *plan = longest_of_little(&l);
    assert_true(l.s.seq_len > 5120 && l.s.seq_len < 8192);
    plan_destroy(plan);
    model_destroy(l.m);
}

/* No length above the longest fits if it is given by the user. With the smallest placements 14,336 tokens would be the longest; a
 * complete search finds room for more, for the longest length as well as for given ones. */
static void lengths_given_fit_no_farther(void **state)
{
    (void)state;
    const int64_t limit[TIERS] = {400 << 20, 500 << 20, 0};
    struct little l;
    open_little("25m", limit, &l);
    struct plan *plan = longest_of_little(&l);
    assert_int_equal(plan->longest.longer, l.s.seq_len + plan->longest.step);
    assert_true(little_fits(&l, l.s.seq_len));
    assert_false(little_fits(&l, plan->longest.longer));
    plan_destroy(plan);
    model_destroy(l.m);
}

/* Runs the tests whose names match the argument, or with --skip the others. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(finer_tiles_where_the_host_is_too_small),
                                       cmocka_unit_test(short_lengths_grow), cmocka_unit_test(lengths_given_fit_no_farther)};
    if (argc == 2)
        cmocka_set_test_filter(argv[1]);
    if (argc == 3)
        cmocka_set_skip_filter(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
