/* Models with recurrent layers beside PyTorch and transformers in fp64, documents packed here and one at a time there
 * (tests/golden/make_hybrid.py); and models with latent attention (make_latent.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "engine/families.h"
#include "engine/golden_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CASE(function, name) CASE_OF(function, "hybrid/" name)
#define CASE_OF(function, name)        \
    static void function(void **state) \
    {                                  \
        (void)state;                   \
        golden_check_everywhere(name); \
    }
CASE(qwen3_5, "qwen3_5")
CASE(qwen3_5_moe, "qwen3_5_moe")
CASE(granite, "granite")
CASE(granite_moe, "granite-moe")
CASE(bamba, "bamba")
CASE(nemotron_h, "nemotron-h")
CASE(nemotron_moe, "nemotron-moe")
CASE(nemotron_latent, "nemotron-latent")
CASE(lfm2, "lfm2")
CASE(lfm2_moe, "lfm2-moe")
CASE(olmo_hybrid, "olmo-hybrid")
CASE(falcon_h1, "falcon-h1")
CASE(falcon_h1_after, "falcon-h1-after")
CASE(falcon_h1_plain, "falcon-h1-plain")
CASE(kimi_linear, "kimi-linear")
CASE(minimax, "minimax")
CASE_OF(youtu, "latent/youtu")
CASE_OF(minicpm3, "latent/minicpm3")
CASE_OF(deepseek_v2, "latent/deepseek-v2")
CASE_OF(deepseek_v2_groups, "latent/deepseek-v2-groups")
CASE_OF(deepseek_v3, "latent/deepseek-v3")
CASE_OF(glm4_moe_lite, "latent/glm4-moe-lite")

static void qwen3_next(void **state)
{
    (void)state;
    golden_check_everywhere("hybrid/qwen3_next");
}

static enum offload everything;
static double alpha;
static int keep_inputs;

/* Places everything in one tier; all tiles are alike in all runs. */
static void placed(struct settings *s)
{
    s->plan.params = s->plan.grads = s->plan.optim = s->plan.acts = everything;
    s->plan.alpha = alpha;
    s->plan.keep_inputs = keep_inputs;
    s->plan.row_chunk = 24;
    s->plan.loss_tile = 24;
}

/* A variant: all in one tier, the share of chunks that is kept, and every how many layers keep their input. */
static const struct variant {
    enum offload tier;
    double alpha;
    int keep_inputs;
} variants[] = {{OFFLOAD_NVME, 0, 3}, {OFFLOAD_CPU, 0.5, 1}, {OFFLOAD_NONE, 0, 1}};

static void check_placed(const char *name, const struct variant *p, double values[2 * GOLDEN_STEPS])
{
    everything = p->tier;
    alpha = p->alpha;
    keep_inputs = p->keep_inputs;
    golden_check(name, placed, values);
}

/* State and tail pass from chunk to chunk, and latents are expanded, with the same bits wherever they are kept and whatever is
 * computed again. */
static void placement_never_changes_a_bit(void **state)
{
    static const char *const names[] = {"hybrid/qwen3_5", "latent/youtu", "hybrid/kimi-linear", "hybrid/minimax"};
    double resident[2 * GOLDEN_STEPS], other[2 * GOLDEN_STEPS];
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        check_placed(names[i], &(struct variant){OFFLOAD_NONE, 1, 1}, resident);
        for (size_t k = 0; k < sizeof variants / sizeof *variants; k++) {
            check_placed(names[i], &variants[k], other);
            assert_memory_equal(resident, other, sizeof resident);
        }
    }
}

/* Runs a step of a case without targets in its first document, whose tokens are changed by `turn`. */
static void step_behind(const char *name, int32_t turn, double values[2])
{
    struct golden g;
    struct rig r;
    struct model *model;
    assert_int_equal(golden_open(name, &g), OK);
    rig_defaults(&r, g.seq_len);
    golden_everything_host(&r.settings);
    if (golden_model(&g, &model) != OK || rig_start(&r, model) != OK || session_load(r.session, g.path) != OK)
        fail_msg("%s", status_message());
    for (int64_t i = 0; i == 0 || g.sequence.positions[i] > 0; i++) {
        g.sequence.targets[i] = -1;
        g.sequence.tokens[i] = (int32_t)((g.sequence.tokens[i] + turn) % model->config.vocab);
    }
    if (rig_step(&r, &g.sequence, 1, &values[0], &values[1]) != OK)
        fail_msg("%s", status_message());
    rig_stop(&r);
    golden_close(&g);
}

/* Other tokens in a document change no bit of what the documents packed behind it give: neither a state nor a convolution goes on. */
static void documents_do_not_see_each_other(void **state)
{
    static const char *const names[] = {"hybrid/qwen3_5",   "hybrid/granite",     "hybrid/nemotron-h",
                                        "hybrid/bamba",     "hybrid/lfm2",        "hybrid/olmo-hybrid",
                                        "hybrid/falcon-h1", "hybrid/kimi-linear", "hybrid/minimax"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        double one[2], other[2];
        step_behind(names[i], 0, one);
        step_behind(names[i], 5, other);
        assert_true(one[0] > 0 && one[1] > 0);
        if (memcmp(one, other, sizeof one) != 0)
            fail_msg("%s: loss %.17g and %.17g, norm %.17g and %.17g", names[i], one[0], other[0], one[1], other[1]);
    }
}

int main(void)
{
    /* clang-format off */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(qwen3_5),
        cmocka_unit_test(qwen3_5_moe), cmocka_unit_test(qwen3_next),
        cmocka_unit_test(granite),
        cmocka_unit_test(granite_moe),
        cmocka_unit_test(bamba),
        cmocka_unit_test(nemotron_h),
        cmocka_unit_test(nemotron_moe),
        cmocka_unit_test(nemotron_latent),
        cmocka_unit_test(lfm2),
        cmocka_unit_test(lfm2_moe),
        cmocka_unit_test(olmo_hybrid),
        cmocka_unit_test(falcon_h1),
        cmocka_unit_test(falcon_h1_after),
        cmocka_unit_test(falcon_h1_plain),
        cmocka_unit_test(kimi_linear),
        cmocka_unit_test(minimax),
        cmocka_unit_test(youtu), cmocka_unit_test(minicpm3),
        cmocka_unit_test(deepseek_v2), cmocka_unit_test(deepseek_v2_groups),
        cmocka_unit_test(deepseek_v3), cmocka_unit_test(glm4_moe_lite),
        cmocka_unit_test(placement_never_changes_a_bit),
        cmocka_unit_test(documents_do_not_see_each_other),
    };
    /* clang-format on */
    return families_run("golden_hybrid", tests, (int)(sizeof tests / sizeof *tests), 3);
}
