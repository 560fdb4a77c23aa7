/* Models so wide that their memory matters. Their plans are verified; each keeps within its limits or is refused with a helpful
 * message. Must be included after cmocka.h. */
#ifndef LTRAIN_TESTS_PLAN_FIT_H
#define LTRAIN_TESTS_PLAN_FIT_H

#include "plan/cells.h"
#include "plan/report/refuse.h"
#include "verify/verify.h"

#include <string.h>

static const enum model_family FAMILIES[] = {FAMILY_LLAMA, FAMILY_GPT2};
static const char *const FAMILY_NAMES[] = {"llama", "gpt2"};
enum { AMPLE = 1 << 30 };

/* Creates a model so wide that buffers are larger than their alignment. */
static inline struct model *wide_model(enum model_family family, int layers)
{
    struct model_config c = {.family = family,
                             .vocab = 512,
                             .dim = 128,
                             .ffn = 384,
                             .layers = layers,
                             .heads = 4,
                             .kv_heads = family == FAMILY_LLAMA ? 2 : 4,
                             .head_dim = 32,
                             .max_positions = 4096,
                             .tied = family == FAMILY_GPT2,
                             .norm_eps = 1e-5f,
                             .init_std = 0.02f,
                             .rope_theta = 10000};
    struct model *m;
    strcpy(c.name, "wide");
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    return m;
}

static inline void wide_settings(struct plan_request *s)
{
    cell_settings(s, 512, F32);
    s->row_chunk = 128;
    s->loss_tile = 64;
    s->group = 1 << 16;
}

static inline void verify_all(const struct plan *plan)
{
    for (int k = 0; k < PLAN_PROGRAMS; k++)
        if (plan->programs[k] && program_verify(plan->programs[k]) != OK)
            fail_msg("%s", status_message());
}

static inline void check_limits(const struct plan *plan, const int64_t limit[TIERS])
{
    for (int k = 0; k < PLAN_PROGRAMS; k++)
        for (int t = 0; t < TIERS; t++)
            if (plan->programs[k])
                assert_true(plan->programs[k]->arena[t] <= plan->arena[t]);
    for (int t = 0; t < TIERS; t++)
        if (plan->fits)
            assert_true(plan->arena[t] <= limit[t]);
    if (!plan->fits)
        assert_true(plan->arena[plan->misfit] > limit[plan->misfit]);
}

/* Checks that the refusal names the tier, the need and the flag that gives more. */
static inline void check_refusal(const struct plan *plan, const struct model *m, const struct plan_request *s)
{
    static const char *const flag[] = {"--device-mem", "--host-mem", "--nvme-max"};
    char need[64], sentence[1024];
    assert_int_equal(refuse_plan(plan, m, s), ERR_NOFIT);
    snprintf(sentence, sizeof sentence, "%s", status_message());
    snprintf(need, sizeof need, " on the %s ", tier_name(plan->misfit));
    if (!strstr(sentence, need) || !strstr(sentence, flag[plan->misfit]) || !strstr(sentence, "needs "))
        fail_msg("unhelpful: %s", sentence);
}

static inline struct plan *fit(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS])
{
    struct plan *plan;
    if (plan_create(m, s, limit, &plan) != OK)
        fail_msg("%s", status_message());
    verify_all(plan);
    check_limits(plan, limit);
    if (!plan->fits)
        check_refusal(plan, m, s);
    return plan;
}

#endif
