/* Tests that lengths that fit are found by trials of fewer layers, and that far larger requests are refused without a plan. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "plan/report/advise.h"
#include "plan/report/changes.h"
#include "plan/report/refuse.h"
#include "plan/search/probe.h"
#include "plan_request.h"

#include <math.h>

/* A length that fits in a trial also fits when planned, and that plan is as fast or a little faster. */
static void glances(void **state)
{
    (void)state;
    struct model *m = model_for();
    for (int i = 0; i < 4; i++) {
        struct plan_request s;
        struct candidate c;
        int64_t limit[TIERS] = {2500000 - 500000 * i, AMPLE, i % 2 ? AMPLE : 0};
        cell_settings(&s, 512, i % 4 < 2 ? F32 : BF16);
        s.params = s.grads = s.optim = s.acts = s.passing = OFFLOAD_AUTO;
        s.alpha = AUTO;
        s.device = DEVICE_CPU_DISCRETE;
        s.link_gbps = i % 3 ? 0 : 0.05;
        struct plan *plan = plan_for(m, &s, limit);
        assert_int_equal(probe_seconds(m, &s, limit, 0.1, NULL, &c), OK);
        assert_int_equal(c.excess <= 1, plan->fits);
        if (plan->fits && (c.seconds < 0.97 * plan->seconds || c.seconds > 1.1 * plan->seconds))
            fail_msg("case %d: a look says %g s, the plan takes %g s", i, c.seconds, plan->seconds);
        assert_int_equal(probe_fits(m, &s, limit, &c), OK);
        assert_int_equal(c.excess <= 1, plan->fits);
        print_message("%d: %s\n", i, plan->fits ? "fits" : "does not fit");
        plan_destroy(plan);
    }
    model_destroy(m);
}

/* A placement that is known to fit is looked at where estimates find none, and takes the seconds of its plan. */
static void looks_at_what_fits(void **state)
{
    (void)state;
    struct model *m = model_for();
    struct plan_request s;
    struct candidate c;
    int64_t limit[TIERS] = {2500000, AMPLE, 0};
    cell_settings(&s, 512, F32);
    s.params = s.grads = s.optim = s.acts = s.passing = OFFLOAD_AUTO;
    s.alpha = AUTO;
    s.device = DEVICE_CPU_DISCRETE;
    s.link_gbps = 0.05;
    struct plan *plan = plan_for(m, &s, limit);
    assert_true(plan->fits);
    for (int t = 0; t < TIERS; t++) /* a trial packs a little worse than a plan */
        limit[t] = plan->arena[t] + plan->arena[t] / 50;
    assert_int_equal(probe_seconds(m, &s, limit, 0.1, NULL, &c), OK);
    assert_true(c.excess > 1);
    assert_int_equal(probe_seconds(m, &s, limit, 0.1, &plan->strategy, &c), OK);
    print_message("excess %g, %g s, its plan %g s\n", c.excess, c.seconds, plan->seconds);
    assert_true(c.excess <= 1 && fabs(c.seconds - plan->seconds) < 0.01 * plan->seconds);
    plan_destroy(plan);
    model_destroy(m);
}

/* A request far above all budgets is refused without a plan, with a length that fits; a request slightly above them is planned. */
static void beyond_everything(void **state)
{
    (void)state;
    struct model *m = model_for();
    struct plan_request s;
    int64_t limit[TIERS] = {4 << 20, 64 << 20, 64 << 20}, tokens;
    struct candidate c;
    cell_settings(&s, 1 << 20, BF16);
    s.params = s.grads = s.optim = s.acts = s.passing = OFFLOAD_AUTO;
    s.alpha = s.keep_inputs = AUTO;
    s.update = UPDATE_AUTO;
    s.row_chunk = s.head_tile = s.loss_tile = AUTO;
    assert_int_equal(refuse_early(m, &s, limit), ERR_NOFIT);
    print_message("%s\n", status_message());
    const char *shorter = strstr(status_message(), "--seq-len ");
    assert_non_null(shorter);
    char length[32];
    assert_int_equal(sscanf(shorter, "--seq-len %31[0-9k]", length), 1);
    assert_int_equal(units_parse_count("seq-len", length, &tokens), OK);
    s.seq_len = tokens;
    assert_int_equal(refuse_early(m, &s, limit), OK);
    assert_int_equal(probe_fits(m, &s, limit, &c), OK);
    assert_true(c.excess <= 1);
    s.seq_len = 2 * tokens;
    assert_int_equal(refuse_early(m, &s, limit), OK);
    model_destroy(m);
}

/* Lengths that are too long for any program are refused like others; their need is extrapolated from that of a shorter length. */
static void beyond_programs(void **state)
{
    (void)state;
    struct model_config config;
    struct model *m;
    struct plan_request s;
    const int64_t limit[TIERS] = {4ll << 30, 16ll << 30, 64ll << 30};
    double need[2];
    assert_int_equal(model_preset("25m", &config), OK);
    assert_int_equal(model_create(&config, NULL, 0, &m), OK);
    for (int i = 0; i < 2; i++) {
        char unit[8];
        plan_request_defaults(&s, 1ll << (26 + 4 * i));
        s.target = cell_target();
        assert_int_equal(refuse_early(m, &s, limit), ERR_NOFIT);
        print_message("%s\n", status_message());
        assert_int_equal(sscanf(status_message(), "the plan needs %lf %7s on the device", &need[i], unit), 2);
        need[i] *= strcmp(unit, "TiB") == 0 ? 1024 : 1;
    }
    assert_true(fabs(need[1] / need[0] - 16) < 1); /* two digits are printed */
    model_destroy(m);
}

/* 32 layers of tiny chunks are too many for a trial of all layers. The proposed length still fits, and a length an eighth longer
 * does not. */
static void nearly_the_longest(void **state)
{
    (void)state;
    const int64_t limit[TIERS] = {10 << 20, 50 << 20, 0};
    struct plan_request s;
    struct advice c;
    struct model *m;
    assert_int_equal(cell_model(FAMILY_LLAMA, 32, &m), OK);
    cell_settings(&s, 4096, F32);
    s.params = s.grads = s.optim = s.acts = s.passing = OFFLOAD_AUTO;
    s.alpha = s.keep_inputs = AUTO;
    s.update = UPDATE_AUTO;
    struct plan *p = plan_for(m, &s, limit);
    assert_false(p->fits);
    assert_int_equal(advise_find(p, m, &s, &c), OK);
    plan_destroy(p);
    assert_true(c.n > 0 && c.by_cost[c.n - 1].shortens);
    apply(c.by_cost[c.n - 1].say, &s);
    print_message("%lld tokens\n", (long long)s.seq_len);
    for (int fits = 1; fits >= 0; fits--) {
        p = plan_for(m, &s, limit);
        assert_int_equal(p->fits, fits);
        plan_destroy(p);
        s.seq_len += s.seq_len / 8;
    }
    model_destroy(m);
}

/* A shorter sequence needs fewer learned positions, too: the printed need is that of a model with fewer positions. */
static void shorter_has_fewer_positions(void **state)
{
    (void)state;
    const int64_t limit[TIERS] = {4 << 20, 4 << 20, 0};
    struct plan_request s;
    struct advice c;
    struct model *m, *sized;
    assert_int_equal(long_table_model(&m), OK);
    cell_settings(&s, 1 << 15, F32);
    assert_int_equal(model_create_for(m, s.seq_len, NULL, 0, &sized), OK);
    model_destroy(m);
    m = sized;
    struct plan *p = plan_for(m, &s, limit);
    assert_false(p->fits);
    assert_int_equal(advise_find(p, m, &s, &c), OK);
    plan_destroy(p);
    assert_true(c.n > 0 && c.by_cost[c.n - 1].shortens);
    s.params = s.grads = s.optim = s.acts = s.passing = OFFLOAD_AUTO; /* the settings of the proposal */
    s.alpha = s.keep_inputs = AUTO;
    s.update = UPDATE_AUTO;
    apply(c.by_cost[c.n - 1].say, &s);
    print_message("%lld tokens\n", (long long)s.seq_len);
    p = plan_for(m, &s, limit);
    assert_false(p->fits); /* it would not fit with the longer sequence's table */
    plan_destroy(p);
    assert_int_equal(model_create_for(m, s.seq_len, NULL, 0, &sized), OK);
    p = plan_for(sized, &s, limit);
    assert_true(p->fits);
    assert_true(p->arena[TIER_DEVICE] <= limit[TIER_DEVICE] && p->arena[TIER_HOST] <= limit[TIER_HOST]);
    plan_destroy(p);
    model_destroy(sized);
    model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(glances),         cmocka_unit_test(looks_at_what_fits), cmocka_unit_test(beyond_everything),
        cmocka_unit_test(beyond_programs), cmocka_unit_test(nearly_the_longest), cmocka_unit_test(shorter_has_fewer_positions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
