/* The longest sequence: it fits, the next one does not, and memory never shortens it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "plan/cells.h"
#include "plan/longest.h"

static void open_settings(struct settings *s)
{
    cell_settings(s, 0, F32);
    s->params = s->grads = s->optim = s->acts = OFFLOAD_AUTO;
    s->alpha = AUTO;
    s->update = UPDATE_AUTO;
    s->row_chunk = s->head_tile = s->loss_tile = AUTO;
    s->max_seq = 1;
    s->dp = s->ulysses = s->ring = s->batch = AUTO;
    s->device = DEVICE_CPU_DISCRETE;
}

static struct plan *longest(const struct model *m, struct settings *s, int ranks, const int64_t limit[TIERS])
{
    struct plan *plan;
    open_settings(s);
    if (plan_longest(m, s, ranks, ranks, limit, &plan) != OK)
        fail_msg("%s", status_message());
    assert_int_equal(plan->tokens, s->seq_len * s->batch);
    return plan;
}

static int fits(const struct model *m, const struct settings *s, int64_t tokens, const int64_t limit[TIERS])
{
    struct settings t = *s;
    struct plan *plan;
    t.seq_len = tokens;
    assert_int_equal(plan_create(m, &t, limit, &plan), OK);
    int fits = plan->fits;
    plan_destroy(plan);
    return fits;
}

/* The device runs out, without drives, with them, and on two ranks. */
static void the_next_one_does_not_fit(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        enum tier scarce;
        int64_t limit[TIERS];
    } cases[] = {{1, TIER_DEVICE, {6 << 20, 1 << 30, 0}},
                 {1, TIER_DEVICE, {9 << 20, 1 << 30, 1 << 30}},
                 {2, TIER_DEVICE, {9 << 20, 1 << 30, 0}}};
    struct model *m;
    int64_t one = 0;
    assert_int_equal(cell_model(FAMILY_LLAMA, 4, &m), OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct settings s;
        struct plan *plan = longest(m, &s, cases[i].ranks, cases[i].limit);
        const struct longest *l = &plan->longest;
        print_message("case %zu: %lld tokens in steps of %lld; %lld need %lld bytes on the %s\n", i, (long long)s.seq_len,
                      (long long)l->step, (long long)l->longer, (long long)l->bytes, tier_name(l->tier));
        assert_true(plan->fits && s.seq_len > 0 && s.seq_len % l->step == 0);
        assert_int_equal(l->longer, s.seq_len + l->step);
        assert_int_equal(l->tier, cases[i].scarce);
        assert_true(l->bytes > cases[i].limit[l->tier]);
        assert_true(fits(m, &s, s.seq_len, cases[i].limit));
        assert_false(fits(m, &s, l->longer, cases[i].limit));
        assert_int_equal(s.ulysses * s.ring * s.dp, cases[i].ranks);
        if (i == 0)
            one = s.seq_len;
        if (i == 1)
            assert_true(s.seq_len > one);
        plan_destroy(plan);
    }
    model_destroy(m);
}

/* A plan that does not fit, of the shortest; and a model that knows fewer positions is an error. */
static void nothing_fits(void **state)
{
    (void)state;
    struct model *m;
    struct settings s;
    const int64_t limit[TIERS] = {4096, 1 << 30, 1 << 30};
    struct plan *plan;
    assert_int_equal(cell_model(FAMILY_LLAMA, 2, &m), OK);
    plan = longest(m, &s, 1, limit);
    assert_false(plan->fits);
    assert_int_equal(s.seq_len, 1024);
    plan_destroy(plan);
    model_destroy(m);
    assert_int_equal(cell_model(FAMILY_GPT2, 2, &m), OK);
    open_settings(&s);
    assert_int_equal(plan_longest(m, &s, 1, 1, limit, &plan), ERR_INVALID);
    model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_next_one_does_not_fit), cmocka_unit_test(nothing_fits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
