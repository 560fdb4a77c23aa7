/* Checks a case of tests/golden: losses, gradients and five AdamW steps, wherever a run's state lies. Included after cmocka.h. */
#ifndef LTRAIN_TESTS_ENGINE_GOLDEN_CHECK_H
#define LTRAIN_TESTS_ENGINE_GOLDEN_CHECK_H

#include "engine/golden_compare.h"

/* Compares fp32 with fp64: losses and norms as in golden.h; gradients norm-wise 1e-5; parameters after five steps 1e-5 (epsilon
 * 1e-3 keeps Adam smooth). */
static inline void golden_check(const char *name, void (*change)(struct settings *), double values[2 * GOLDEN_STEPS])
{
    struct golden g;
    struct rig r;
    struct model *model;
    assert_int_equal(golden_open(name, &g), OK);
    rig_defaults(&r, g.seq_len);
    if (change)
        change(&r.settings);
    if (golden_model(&g, &model) != OK)
        fail_msg("%s", status_message());
    assert_int_equal(rig_start(&r, model), OK);
    if (session_load(r.session, g.path) != OK)
        fail_msg("%s", status_message());
    for (int step = 0; step < GOLDEN_STEPS; step++) {
        double loss, norm;
        if (rig_step(&r, &g.sequence, 1, &loss, &norm) != OK)
            fail_msg("%s", status_message());
        double want = g.loss[step], want_norm = g.norm[step];
        values[2 * step] = loss;
        values[2 * step + 1] = norm;
        if (!(fabs(loss - want) < GOLDEN_LOSS * want) || !(fabs(norm - want_norm) < GOLDEN_NORM * want_norm))
            fail_msg("%s step %d: loss %.9g, golden %.9g; norm %.9g, golden %.9g", name, step, loss, want, norm, want_norm);
        if (step == 0) {
            double worst = golden_compare(&r, g.file, STATE_GRAD, "grad", 1e-4);
            if (!(worst < 1e-5))
                fail_msg("%s: gradients differ by %g", name, worst);
        }
    }
    assert_int_equal(rig_flush(&r), OK);
    double worst = golden_compare(&r, g.file, STATE_PARAM, "step5", 1e-4);
    if (!(worst < 1e-5))
        fail_msg("%s: parameters after five steps differ by %g", name, worst);
    rig_stop(&r);
    golden_close(&g);
}

static inline void golden_small_tiles(struct settings *s)
{
    s->plan.row_chunk = 16;
    s->plan.head_tile = 1;
    s->plan.loss_tile = 8;
}

static inline void golden_everything_nvme(struct settings *s)
{
    s->plan.params = s->plan.grads = s->plan.optim = s->plan.acts = s->plan.passing = OFFLOAD_NVME;
    s->plan.device = DEVICE_CPU_DISCRETE;
    s->plan.alpha = 0;
    golden_small_tiles(s);
}

static inline void golden_everything_host(struct settings *s)
{
    s->plan.params = s->plan.grads = s->plan.optim = s->plan.acts = OFFLOAD_CPU;
    s->plan.alpha = 0.5;
    s->plan.row_chunk = 24;
    s->plan.loss_tile = 24;
}

/* Checks that results have the same bits with the same tiles when resident, and with everything on nvme and recomputed. */
static inline void golden_check_everywhere(const char *name)
{
    double other[2 * GOLDEN_STEPS], near[2 * GOLDEN_STEPS], far[2 * GOLDEN_STEPS];
    golden_check(name, NULL, other);
    golden_check(name, golden_everything_host, other);
    golden_check(name, golden_small_tiles, near);
    golden_check(name, golden_everything_nvme, far);
    assert_memory_equal(near, far, sizeof near);
}

#endif
