/* Tests that a refusal suggests changes that fit, and that the planner itself finds none that is faster. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "plan/report/advise.h"
#include "plan/report/changes.h"
#include "plan/report/refuse.h"
#include "plan_request.h"

#include <stdlib.h>

/* Checks that each change has the figures that were printed, the first one exactly, and that the fastest comes first. */
static void check_all(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], const struct advice *c)
{
    for (int i = 0; i < c->n; i++) {
        const struct change *x = &c->by_cost[i];
        struct plan_request changed = *s;
        apply(x->say, &changed);
        struct plan *plan = plan_for(m, &changed, limit);
        if (!plan->fits)
            fail_msg("'%s' does not fit", x->say);
        assert_int_equal(x->exact, i == 0);
        if (i == 0) {
            assert_true(plan->seconds == x->seconds);
            assert_memory_equal(plan->arena, x->arena, sizeof x->arena);
            /* figures of a trial are of one program; the whole set may have to fetch later */
        } else if (x->seconds < 0.65 * plan->seconds || x->seconds > 1.2 * plan->seconds)
            fail_msg("'%s' is said to take %g s and takes %g s", x->say, x->seconds, plan->seconds);
        if (i > 1 && c->by_cost[i - 1].shortens == x->shortens && !x->shortens)
            assert_true(c->by_cost[i - 1].seconds <= x->seconds);
        plan_destroy(plan);
    }
}

/* Tries all ways to leave fixed settings to the planner; returns the seconds of the fastest that fits. */
static double best_by_hand(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS])
{
    static const char *const flags[] = {"--offload auto", "--alpha auto", "--offload auto --alpha auto"};
    double best = 1e300;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        struct plan_request changed = *s;
        apply(flags[i], &changed);
        struct plan *plan = plan_for(m, &changed, limit);
        if (plan->fits && plan->seconds < best)
            best = plan->seconds;
        plan_destroy(plan);
    }
    return best;
}

/* With everything resident, in ever less memory, refusals suggest another offload, then smaller tiles or storage, then a shorter
 * sequence. */
static void refusals(void **state)
{
    (void)state;
    struct model *m = model_for();
    int placements = 0, numerics = 0, lengths = 0;
    /* device: share of the need with everything resident. The attention kernels' workspace has a part in it: with AMX, or without
     * AVX-512, bf16 helps further */
    static const struct {
        int64_t tokens, rows;
        double device;
    } cases[] = {{256, 128, 0.75},  {256, 128, 0.54},  {256, 128, 0.5},   {256, 128, 0.46}, {1024, 512, 0.26},
                 {1024, 512, 0.24}, {1024, 512, 0.21}, {1024, 512, 0.18}, {256, 128, 0.02}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t limit[TIERS] = {AMPLE, AMPLE, AMPLE};
        struct plan_request s;
        struct advice c;
        cell_settings(&s, cases[i].tokens, F32);
        s.row_chunk = cases[i].rows;
        s.loss_tile = cases[i].rows / 2;
        struct plan *plan = plan_for(m, &s, limit);
        limit[TIER_DEVICE] = (int64_t)(cases[i].device * (double)plan->arena[TIER_DEVICE]);
        plan_destroy(plan);
        plan = plan_for(m, &s, limit);
        assert_int_equal(plan->fits, 0);
        assert_int_equal(advise_find(plan, m, &s, &c), OK);
        check_all(m, &s, limit, &c);
        double by_hand = best_by_hand(m, &s, limit);
        if (by_hand < 1e300)
            assert_true(c.n > 0 && c.by_cost[0].seconds <= 1.01 * by_hand); /* a change with fewer flags may be 1% slower */
        assert_int_equal(refuse_advised(plan, &s, &c), ERR_NOFIT);
        const char *sentence = status_message();
        print_message("%s\n", sentence);
        assert_true(!strstr(sentence, "slower") &&
                    !strstr(sentence, "fast")); /* a plan that does not fit has no time to compare with */
        for (int t = 0; t < TIERS; t++) {       /* every tier that is too small */
            char on[32];
            snprintf(on, sizeof on, " on the %s and ", tier_name((enum tier)t));
            assert_int_equal(strstr(sentence, on) != NULL, plan->arena[t] > limit[t]);
        }
        if (c.n > 0 && !strstr(sentence, c.by_cost[0].say))
            fail_msg("'%s' is not in: %s", c.by_cost[0].say, sentence);
        placements += c.n > 0 && by_hand < 1e300;
        numerics += c.n > 0 && by_hand == 1e300 && !c.by_cost[0].shortens;
        lengths += c.n > 0 && c.by_cost[0].shortens;
        if (c.n == 0) {
            assert_non_null(strstr(sentence, "nor a shorter --seq-len (even 64 tokens need "));
            assert_non_null(strstr(sentence, ": give more there (--"));
        }
        plan_destroy(plan);
    }
    print_message("refusals helped by placement %d, by rounding %d, by length %d\n", placements, numerics, lengths);
    assert_true(placements > 2 && numerics > 0 && lengths > 0);
    model_destroy(m);
}

/* Advice for a fitting plan appears if the planner would choose better than the settings, and not if all choices were its own. */
static void faster(void **state)
{
    (void)state;
    struct model *m = model_for();
    struct plan_request s;
    struct advice c;
    const int64_t limit[TIERS] = {AMPLE, AMPLE, AMPLE};
    cell_settings(&s, 512, F32);
    s.effort = EFFORT_BEST; /* only with this effort the first change is planned completely */
    s.device = DEVICE_CPU_DISCRETE;
    s.acts = OFFLOAD_CPU;
    s.link_gbps = 1e-3;
    struct plan *plan = plan_for(m, &s, limit);
    assert_true(plan->fits);
    assert_int_equal(advise_find(plan, m, &s, &c), OK);
    assert_true(c.n > 0 && c.by_cost[0].seconds < plan->seconds / 1.02);
    check_all(m, &s, limit, &c);
    plan_destroy(plan);
    model_destroy(m);
}

/* With all layer inputs asked for, on a host without room for two of them, the advice is to keep fewer inputs. */
static void fewer_inputs(void **state)
{
    (void)state;
    struct model *m;
    struct plan_request s;
    struct advice c;
    int64_t limit[TIERS] = {AMPLE, AMPLE, 0};
    int found = 0;
    assert_int_equal(cell_model(FAMILY_LLAMA, 6, &m), OK);
    cell_settings(&s, 512, F32);
    s.acts = OFFLOAD_CPU;
    s.alpha = 0;
    s.keep_inputs = 1;
    struct plan *plan = plan_for(m, &s, limit);
    assert_true(plan->fits);
    limit[TIER_DEVICE] = plan->arena[TIER_DEVICE];
    limit[TIER_HOST] = plan->arena[TIER_HOST] - 2 * 512 * 64 * 4; /* two layers' inputs */
    plan_destroy(plan);
    plan = plan_for(m, &s, limit);
    assert_false(plan->fits);
    assert_int_equal(advise_find(plan, m, &s, &c), OK);
    check_all(m, &s, limit, &c);
    for (int i = 0; i < c.n; i++) {
        print_message("%s: %g s\n", c.by_cost[i].say, c.by_cost[i].seconds);
        found += strncmp(c.by_cost[i].say, "--keep-inputs ", 14) == 0;
    }
    assert_true(found > 0);
    plan_destroy(plan);
    model_destroy(m);
}

/* A refusal names all tiers that are too small, with so many digits that need and limit differ, and a change's need of each. */
static void several_tiers(void **state)
{
    (void)state;
    struct plan_request s;
    struct advice c = {.n = 1};
    struct plan p = {.arena = {57ll << 30, (64ll << 30) + (30 << 20), 1}, .limit = {38ll << 30, 64ll << 30, 1 << 30}};
    plan_request_defaults(&s, 64);
    s.host_mem = 64ll << 30;
    p.seconds = p.tokens = 1;
    c.by_cost[0] = (struct change){.say = "--dtype bf16", .exact = 1, .seconds = 1980, .arena = {30ll << 30, 20ll << 30, 0}};
    assert_int_equal(refuse_advised(&p, &s, &c), ERR_NOFIT);
    assert_string_equal(status_message(),
                        "the plan needs 57 GiB on the device and 38 GiB are free (--device-mem), 64.03 GiB on the host and 64.00 "
                        "GiB are given (--host-mem). --dtype bf16 would need 30 GiB on the device and 20 GiB on the host; a step "
                        "would take 33 min.");
}

/* Changes in words: another length is compared by its tokens a second; a plan that does not fit is compared with nothing. */
static void words(void **state)
{
    (void)state;
    char *text = NULL;
    size_t n;
    struct advice c = {.n = 2, .tried = 2};
    struct plan p = {.fits = 1, .seconds = 10, .tokens = 1000};
    c.by_cost[0] = (struct change){.say = "--offload auto", .exact = 1, .seconds = 8, .per_second = 125};
    c.by_cost[1] = (struct change){.say = "--seq-len 4k", .exact = 1, .seconds = 5, .per_second = 160, .shortens = 1};
    for (p.fits = 1; p.fits >= 0; p.fits--) {
        FILE *f = open_memstream(&text, &n);
        advise_print(&p, &c, f);
        fclose(f);
        assert_int_equal(strstr(text, "8 s a step, 25% faster; device") != NULL, p.fits);
        assert_int_equal(strstr(text, "5 s a step, 1.6 times the tokens/s; device") != NULL, p.fits);
        free(text);
    }
    p.fits = 1;
    c.n = 0;
    for (c.tried = 1; c.tried < 3; c.tried++) {
        FILE *f = open_memstream(&text, &n);
        advise_print(&p, &c, f);
        fclose(f);
        assert_string_equal(text, c.tried == 1 ? "\nThe one change tried does not help.\n"
                                               : "\nNone of the 2 changes tried is 2% faster.\n");
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(refusals), cmocka_unit_test(faster), cmocka_unit_test(fewer_inputs),
                                       cmocka_unit_test(several_tiers), cmocka_unit_test(words)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
