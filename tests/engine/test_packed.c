/* Micro-batches of several sequences (--micro-batch) train as one sequence after the other does, whatever the layers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "engine/golden.h"
#include "engine/rig.h"

#include <math.h>
#include <string.h>

enum { STEPS = 3, SEQUENCES = 3 };

struct outcome {
    double loss[STEPS], norm[STEPS];
    uint64_t digest;
};

/* Copies a sequence, or draws one of several documents. */
static void fill(struct sequence *q, const struct golden *g, const struct model *m, int i)
{
    sequence_random(q, g->seq_len, m->config.vocab, 5 + (uint64_t)i, (const int64_t[]){19, 1, 17, 0});
    for (int64_t k = 0; k < g->seq_len && m->mask_window[0] > 0; k++)
        q->lo[k] = (int32_t)max_i64(q->lo[k], k - m->mask_window[0] + 1);
}

/* Trains on the golden sequence and others. alike: 1: the others are copies, whose tokens choose experts by a safe margin. */
static void train(const struct golden *g, int alike, int packed, int nvme, struct outcome *out)
{
    struct rig r;
    struct model *m;
    struct sequence batch[SEQUENCES];
    rig_defaults(&r, g->seq_len);
    struct plan_request *s = &r.settings.plan;
    s->threads = 1;
    s->micro_batch = packed;
    s->batch = SEQUENCES;
    s->grad_accum = ceil_div(SEQUENCES, packed);
    if (nvme) {
        s->params = s->grads = s->optim = s->acts = s->passing = OFFLOAD_NVME;
        s->device = DEVICE_CPU_DISCRETE;
        s->alpha = 0;
    }
    assert_int_equal(golden_model(g, &m), OK);
    for (int i = 0; i < SEQUENCES; i++)
        if (i == 0 || alike)
            batch[i] = g->sequence;
        else
            fill(&batch[i], g, m, i);
    if (rig_start(&r, m) != OK || golden_load(g, r.session) != OK)
        fail_msg("%s: %s", g->path, status_message());
    for (int i = 0; i < STEPS; i++)
        assert_int_equal(rig_step(&r, batch, SEQUENCES, &out->loss[i], &out->norm[i]), OK);
    assert_int_equal(rig_flush(&r), OK);
    assert_int_equal(rig_digest(&r, &out->digest), OK);
    rig_stop(&r);
    for (int i = 1; i < SEQUENCES && !alike; i++)
        sequence_free(&batch[i]);
}

/* Sums over tokens are made in another order: losses and norms differ by rounding, as between ltrain and PyTorch (golden.h). */
static void compare(const struct golden *g, const struct outcome *a, const struct outcome *b, int packed)
{
    for (int i = 0; i < STEPS; i++)
        if (!(fabs(a->loss[i] / b->loss[i] - 1) <= GOLDEN_LOSS) || !(fabs(a->norm[i] / b->norm[i] - 1) <= GOLDEN_NORM))
            fail_msg("%s, %d together, step %d: loss %.9g and norm %.9g, one after the other %.9g and %.9g", g->path, packed,
                     i + 1, a->loss[i], a->norm[i], b->loss[i], b->norm[i]);
}

/* All sequences together, and two of three, so that the last micro-batch is not full, give what one after the other gives. Where data
 * lie changes no bit. */
static void check_case(const char *name, int alike)
{
    struct golden g;
    struct outcome one, two, all, away;
    assert_int_equal(golden_open(name, &g), OK);
    train(&g, alike, 1, 0, &one);
    train(&g, alike, 2, 0, &two);
    train(&g, alike, SEQUENCES, 0, &all);
    train(&g, alike, SEQUENCES, 1, &away);
    compare(&g, &two, &one, 2);
    compare(&g, &all, &one, SEQUENCES);
    assert_memory_equal(&all, &away, sizeof all);
    golden_close(&g);
}

/* Windows, learned positions, sinks. */
static void attention(void **state)
{
    (void)state;
    check_case("gemma3", 0);
    check_case("gpt2-positions", 0);
    check_case("gpt-oss", 0);
}

/* States and short convolutions begin anew at each sequence. */
static void recurrences(void **state)
{
    (void)state;
    check_case("hybrid/qwen3_5", 0);
    check_case("hybrid/nemotron-h", 0);
    check_case("hybrid/lfm2", 0);
}

/* The balancing loss of copies is that of one. */
static void experts(void **state)
{
    (void)state;
    check_case("moe/qwen3-moe", 1);
    check_case("moe/mixtral-aux", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(attention), cmocka_unit_test(recurrences), cmocka_unit_test(experts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
