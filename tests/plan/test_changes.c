/* What a refusal suggests does fit, and nothing that was left out would be less slow. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/units.h"
#include "plan/cells.h"
#include "plan/changes.h"

#include <stdlib.h>

enum { AMPLE = 1 << 30 };

static struct model *model_for(void)
{
    struct model *m;
    assert_int_equal(cell_model(FAMILY_LLAMA, 2, &m), OK);
    return m;
}

static struct plan *plan_for(const struct model *m, const struct settings *s, const int64_t limit[TIERS])
{
    struct plan *plan;
    if (plan_create(m, s, limit, &plan) != OK)
        fail_msg("%s", status_message());
    return plan;
}

/* Types the flags in. */
static void apply(const char *flags, struct settings *s)
{
    char text[128], *next = NULL;
    snprintf(text, sizeof text, "%s", flags);
    for (char *flag = strtok_r(text, " ", &next); flag; flag = strtok_r(NULL, " ", &next)) {
        const char *value = strtok_r(NULL, " ", &next);
        assert_non_null(value);
        if (strcmp(flag, "--offload") == 0 && strcmp(value, "auto") == 0)
            s->params = s->grads = s->optim = s->acts = OFFLOAD_AUTO;
        else if (strcmp(flag, "--alpha") == 0 && strcmp(value, "auto") == 0)
            s->alpha = AUTO;
        else if (strcmp(flag, "--prefetch") == 0 && strcmp(value, "auto") == 0)
            s->prefetch = AUTO;
        else if (strcmp(flag, "--update") == 0 && strcmp(value, "auto") == 0)
            s->update = UPDATE_AUTO;
        else if (strcmp(flag, "--dtype") == 0 && strcmp(value, "bf16") == 0)
            s->dtype = BF16;
        else if (strcmp(flag, "--tiles") == 0 && strncmp(value, "rows=", 5) == 0)
            s->row_chunk = atoll(value + 5), s->loss_tile = AUTO;
        else if (strcmp(flag, "--seq-len") == 0)
            assert_int_equal(units_parse_count(flag, value, &s->seq_len), OK);
        else
            fail_msg("nobody knows '%s %s'", flag, value);
    }
}

/* Each with the figures that were said; the fastest first. */
static void check_all(const struct model *m, const struct settings *s, const int64_t limit[TIERS], const struct changes *c)
{
    for (int i = 0; i < c->n; i++) {
        const struct change *x = &c->by_cost[i];
        struct settings changed = *s;
        apply(x->say, &changed);
        struct plan *plan = plan_for(m, &changed, limit);
        if (!plan->fits)
            fail_msg("'%s' does not fit", x->say);
        assert_true(plan->seconds == x->seconds);
        assert_memory_equal(plan->arena, x->arena, sizeof x->arena);
        if (i > 0 && c->by_cost[i - 1].shortens == x->shortens && !x->shortens)
            assert_true(c->by_cost[i - 1].seconds <= x->seconds);
        plan_destroy(plan);
    }
}

/* All ways to leave what is fixed to the planner; the fastest of them that fits. */
static double best_by_hand(const struct model *m, const struct settings *s, const int64_t limit[TIERS])
{
    static const char *const flags[] = {"--offload auto", "--alpha auto", "--offload auto --alpha auto"};
    double best = 1e300;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        struct settings changed = *s;
        apply(flags[i], &changed);
        struct plan *plan = plan_for(m, &changed, limit);
        if (plan->fits && plan->seconds < best)
            best = plan->seconds;
        plan_destroy(plan);
    }
    return best;
}

/* Everything resident, in ever less memory: another offload, then smaller tiles or storage, then a shorter sequence. */
static void refusals(void **state)
{
    (void)state;
    struct model *m = model_for();
    int placements = 0, numerics = 0, lengths = 0;
    /* device: of what everything resident needs, which the attention kernels' workspace has a part in */
    static const struct {
        int64_t tokens, rows;
        double device;
    } cases[] = {{256, 128, 0.9},  {256, 128, 0.75}, {256, 128, 0.62}, {256, 128, 0.54}, {256, 128, 0.5},   {256, 128, 0.48},
                 {256, 128, 0.46}, {256, 128, 0.44}, {1024, 512, 0.7}, {1024, 512, 0.3}, {1024, 512, 0.26}, {256, 128, 0.02}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t limit[TIERS] = {AMPLE, AMPLE, AMPLE};
        struct settings s;
        struct changes c;
        cell_settings(&s, cases[i].tokens, F32);
        s.row_chunk = cases[i].rows;
        s.loss_tile = cases[i].rows / 2;
        struct plan *plan = plan_for(m, &s, limit);
        limit[TIER_DEVICE] = (int64_t)(cases[i].device * (double)plan->arena[TIER_DEVICE]);
        plan_destroy(plan);
        plan = plan_for(m, &s, limit);
        assert_int_equal(plan->fits, 0);
        assert_int_equal(changes_find(plan, m, &s, 100, &c), OK);
        assert_int_equal(c.all_tried, 1);
        check_all(m, &s, limit, &c);
        double by_hand = best_by_hand(m, &s, limit);
        if (by_hand < 1e300)
            assert_true(c.n > 0 && c.by_cost[0].seconds <= by_hand);
        assert_int_equal(changes_refuse(plan, &s, &c), ERR_NOFIT);
        const char *sentence = status_message();
        print_message("%s\n", sentence);
        if (c.n > 0 && !strstr(sentence, c.by_cost[0].say))
            fail_msg("'%s' is not in: %s", c.by_cost[0].say, sentence);
        placements += c.n > 0 && by_hand < 1e300;
        numerics += c.n > 0 && by_hand == 1e300 && !c.by_cost[0].shortens;
        lengths += c.n > 0 && c.by_cost[0].shortens;
        if (c.n == 0)
            assert_non_null(strstr(sentence, "shorten --seq-len"));
        plan_destroy(plan);
    }
    print_message("refusals helped by placement %d, by rounding %d, by length %d\n", placements, numerics, lengths);
    assert_true(placements > 2 && numerics > 0 && lengths > 0);
    model_destroy(m);
}

/* Settings that the planner can better are told so; those of its own choice are not. */
static void faster(void **state)
{
    (void)state;
    struct model *m = model_for();
    struct settings s;
    struct changes c;
    const int64_t limit[TIERS] = {AMPLE, AMPLE, AMPLE};
    int wanted;
    cell_settings(&s, 512, F32);
    s.device = DEVICE_CPU_DISCRETE;
    s.acts = OFFLOAD_CPU;
    s.link_gbps = 1e-3;
    struct plan *plan = plan_for(m, &s, limit);
    assert_true(plan->fits);
    assert_int_equal(changes_wanted(plan, m, &wanted), OK);
    assert_int_equal(wanted, 1);
    assert_int_equal(changes_find(plan, m, &s, 100, &c), OK);
    assert_true(c.n > 0 && c.by_cost[0].seconds < plan->seconds / 1.02);
    check_all(m, &s, limit, &c);
    plan_destroy(plan);
    model_destroy(m);
}

/* No time, no plans: the sentence says that not all was tried. */
static void time_box(void **state)
{
    (void)state;
    struct model *m = model_for();
    struct settings s;
    struct changes c;
    const int64_t limit[TIERS] = {100000, AMPLE, AMPLE};
    cell_settings(&s, 512, F32);
    struct plan *plan = plan_for(m, &s, limit);
    assert_int_equal(plan->fits, 0);
    assert_int_equal(changes_find(plan, m, &s, -1, &c), OK);
    assert_true(c.n == 0 && c.tried == 0 && !c.all_tried);
    assert_int_equal(changes_refuse(plan, &s, &c), ERR_NOFIT);
    assert_non_null(strstr(status_message(), "tried in time"));
    plan_destroy(plan);
    model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(refusals), cmocka_unit_test(faster), cmocka_unit_test(time_box)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
