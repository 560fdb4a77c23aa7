/* The searched placement: against random ones, with more and more memory, and the same values whatever it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "plan/cells.h"
#include "program/verify.h"

static void open_settings(struct settings *s)
{
    cell_settings(s, 128, F32);
    s->params = s->grads = s->optim = s->acts = OFFLOAD_AUTO;
    s->alpha = AUTO;
    s->update = UPDATE_AUTO;
    s->device = DEVICE_CPU_DISCRETE;
}

static struct plan *planned(const struct model *m, const struct settings *s, const int64_t limit[TIERS])
{
    struct plan *plan;
    if (plan_create(m, s, limit, &plan) != OK)
        fail_msg("%s", status_message());
    return plan;
}

enum { AMPLE = 1 << 28, RANDOM = 200 };

/* The fastest of random placements that fit. */
static double best_of_random(const struct model *m, const int64_t limit[TIERS], uint64_t seed, int *fitting)
{
    double best = 1e300;
    *fitting = 0;
    for (int i = 0; i < RANDOM; i++) {
        struct settings s;
        struct cell c;
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

/* Budgets as shares of what everything on the device takes. */
static void beats_random(void **state)
{
    (void)state;
    static const double shares[] = {0.8, 0.6};
    for (int f = 0; f < 2; f++) {
        struct model *m;
        struct settings s;
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

/* What a smaller budget allows, a larger one does too; each may be slower than the fastest by the percent that less traffic is
 * worth. */
static void more_memory_is_never_slower(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++) {
        struct model *m;
        struct settings s;
        int64_t limit[TIERS] = {AMPLE, AMPLE, AMPLE};
        double slowest = 0;
        assert_int_equal(cell_model(f ? FAMILY_GPT2 : FAMILY_LLAMA, 3, &m), OK);
        open_settings(&s);
        struct plan *plan = planned(m, &s, limit);
        limit[TIER_DEVICE] = plan->arena[TIER_DEVICE] * 2;
        plan_destroy(plan);
        for (int fits = 1; fits; limit[TIER_DEVICE] = limit[TIER_DEVICE] * 4 / 5) {
            plan = planned(m, &s, limit);
            fits = plan->fits;
            if (fits && plan->seconds < 0.99 * slowest)
                fail_msg("%s: %lld bytes take %.6g s, less memory took %.6g s", f ? "gpt2" : "llama",
                         (long long)limit[TIER_DEVICE], plan->seconds, slowest);
            slowest = fits && plan->seconds > slowest ? plan->seconds : slowest;
            plan_destroy(plan);
        }
        model_destroy(m);
    }
}

enum { CHUNKS = 16, TOKENS = 16384, HUGE = 1 << 30 };

/* Products large enough that links matter; nothing of it is computed. */
static struct model *wide(void)
{
    struct model *m;
    struct model_config c = {.family = FAMILY_LLAMA,
                             .vocab = 256,
                             .dim = 1024,
                             .ffn = 2816,
                             .layers = 2,
                             .heads = 16,
                             .kv_heads = 8,
                             .head_dim = 64,
                             .max_positions = TOKENS,
                             .norm_eps = 1e-5f,
                             .init_std = 0.02f,
                             .rope_theta = 10000};
    strcpy(c.name, "wide");
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    return m;
}

/* Activations on the host or on the device, with links of so many GB/s (0: as assumed). */
static void few_choices(struct settings *s, enum offload acts, double gbps)
{
    cell_settings(s, TOKENS, F32);
    s->row_chunk = s->loss_tile = TOKENS / CHUNKS;
    s->head_tile = 4;
    s->group = 1 << 20;
    s->acts = acts;
    s->link_gbps = gbps;
    s->device = DEVICE_CPU_DISCRETE;
}

/* The fastest of all numbers of kept chunks, or of all quarters. */
static struct plan *fastest_given(const struct model *m, const struct settings *s, const int64_t limit[TIERS], int step)
{
    struct plan *best = NULL;
    for (int kept = 0; kept <= CHUNKS; kept += step) {
        struct settings given = *s;
        given.alpha = (double)kept / CHUNKS;
        struct plan *plan = planned(m, &given, limit);
        int better = plan->fits && (!best || plan->seconds < best->seconds);
        plan_destroy(better ? best : plan);
        best = better ? plan : best;
    }
    return best;
}

/* The number of kept chunks is found between quarters, too: memory that is given is used. */
static void keeps_what_fits(void **state)
{
    (void)state;
    struct model *m = wide();
    struct settings s;
    int between = 0;
    int64_t limit[TIERS] = {(int64_t)HUGE << 4, HUGE, HUGE};
    few_choices(&s, OFFLOAD_NONE, 0);
    s.alpha = 1;
    struct plan *whole = planned(m, &s, limit);
    s.alpha = 0;
    struct plan *lean = planned(m, &s, limit);
    for (int eighth = 3; eighth <= 5; eighth += 2) {
        limit[TIER_DEVICE] = lean->arena[TIER_DEVICE] + (whole->arena[TIER_DEVICE] - lean->arena[TIER_DEVICE]) * eighth / 8;
        s.alpha = AUTO;
        struct plan *plan = planned(m, &s, limit), *all = fastest_given(m, &s, limit, 1),
                    *quarters = fastest_given(m, &s, limit, CHUNKS / 4);
        assert_true(plan->fits &&
                    plan->seconds <= 1.0011 * all->seconds); /* what is expected to gain a thousandth is not tried */
        between += plan->seconds < 0.9999 * quarters->seconds;
        plan_destroy(plan);
        plan_destroy(all);
        plan_destroy(quarters);
    }
    assert_true(between == 2);
    plan_destroy(whole);
    plan_destroy(lean);
    model_destroy(m);
}

static int64_t moved(const struct plan *plan)
{
    const struct program *p = plan->programs[PLAN_UPDATE_STEP];
    int64_t bytes = 0;
    for (int i = 0; i < p->n_instrs; i++)
        bytes += p->instrs[i].lane == LANE_H2D || p->instrs[i].lane == LANE_D2H ? program_call(p, &p->instrs[i])->bytes : 0;
    return bytes;
}

/* At most a percent of the step, where links are about as busy as compute. */
static void gives_little_for_less_traffic(void **state)
{
    (void)state;
    struct model *m = wide();
    struct settings s;
    int less = 0;
    const int64_t limit[TIERS] = {(int64_t)HUGE << 4, (int64_t)HUGE << 4, HUGE};
    for (double gbps = 0.125; gbps <= 0.25; gbps *= 2) {
        few_choices(&s, OFFLOAD_CPU, gbps);
        s.alpha = AUTO;
        struct plan *plan = planned(m, &s, limit), *fastest = fastest_given(m, &s, limit, 1);
        print_message("%g GB/s: %d of %d chunks kept, %.4g s; the fastest keeps %d, %.4g s\n", gbps, plan->strategy.kept_chunks,
                      CHUNKS, plan->seconds, fastest->strategy.kept_chunks, fastest->seconds);
        assert_true(plan->seconds <= 1.0111 * fastest->seconds);
        less += moved(plan) < moved(fastest);
        plan_destroy(plan);
        plan_destroy(fastest);
    }
    assert_true(less > 0);
    model_destroy(m);
}

/* Also with the last layers' activations on the device and the others' elsewhere. */
static void values_do_not_depend_on_it(void **state)
{
    (void)state;
    struct model *m;
    struct settings s;
    int64_t limit[TIERS] = {AMPLE, AMPLE, AMPLE};
    uint64_t resident = 0, digest;
    int mixed = 0;
    assert_int_equal(cell_model(FAMILY_LLAMA, 3, &m), OK);
    for (int step = 0; step < 8; step++) {
        open_settings(&s);
        if (step % 2) /* so that the search has to choose among these */
            s.acts = OFFLOAD_AUTO, s.params = s.grads = s.optim = OFFLOAD_CPU;
        struct plan *plan = planned(m, &s, limit);
        const struct program *p = plan->programs[PLAN_UPDATE_STEP];
        if (!plan->fits) {
            plan_destroy(plan);
            break;
        }
        if (program_verify(p) != OK || program_value_digest(p, &digest) != OK)
            fail_msg("%s", status_message());
        mixed += plan->strategy.device_layers > 0;
        resident = step == 0 ? digest : resident;
        assert_true(digest == resident);
        limit[TIER_DEVICE] = plan->arena[TIER_DEVICE] * 7 / 8;
        plan_destroy(plan);
    }
    print_message("%d plans with layers on both\n", mixed);
    model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(beats_random), cmocka_unit_test(more_memory_is_never_slower),
                                       cmocka_unit_test(keeps_what_fits), cmocka_unit_test(gives_little_for_less_traffic),
                                       cmocka_unit_test(values_do_not_depend_on_it)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
