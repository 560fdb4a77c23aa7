/* Models with recurrent layers beside PyTorch and transformers in fp64, documents packed here and one at a time there
 * (tests/golden/make_hybrid.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "engine/golden_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CASE(function, name)                     \
    static void function(void **state)           \
    {                                            \
        (void)state;                             \
        golden_check_everywhere("hybrid/" name); \
    }
CASE(qwen3_5, "qwen3_5")
CASE(qwen3_5_moe, "qwen3_5_moe")
CASE(granite, "granite")
CASE(granite_moe, "granite-moe")
CASE(bamba, "bamba")
CASE(nemotron_h, "nemotron-h")
CASE(nemotron_moe, "nemotron-moe")
CASE(lfm2, "lfm2")
CASE(lfm2_moe, "lfm2-moe")
CASE(olmo_hybrid, "olmo-hybrid")
CASE(falcon_h1, "falcon-h1")
CASE(falcon_h1_after, "falcon-h1-after")
CASE(falcon_h1_plain, "falcon-h1-plain")

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

static void check_placed(const struct variant *p, double values[2 * GOLDEN_STEPS])
{
    everything = p->tier;
    alpha = p->alpha;
    keep_inputs = p->keep_inputs;
    golden_check("hybrid/qwen3_5", placed, values);
}

/* State and tail pass from chunk to chunk with the same bits wherever they are kept and whatever is computed again. */
static void placement_never_changes_a_bit(void **state)
{
    double resident[2 * GOLDEN_STEPS], other[2 * GOLDEN_STEPS];
    (void)state;
    check_placed(&(struct variant){OFFLOAD_NONE, 1, 1}, resident);
    for (size_t k = 0; k < sizeof variants / sizeof *variants; k++) {
        check_placed(&variants[k], other);
        assert_memory_equal(resident, other, sizeof resident);
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
        cmocka_unit_test(lfm2),
        cmocka_unit_test(lfm2_moe),
        cmocka_unit_test(olmo_hybrid),
        cmocka_unit_test(falcon_h1),
        cmocka_unit_test(falcon_h1_after),
        cmocka_unit_test(falcon_h1_plain),
        cmocka_unit_test(placement_never_changes_a_bit),
    };
    /* clang-format on */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
