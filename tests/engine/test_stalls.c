/* Tests that the time during which compute stands still is measured and charged to the lane and class that it waited for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "engine/rig.h"
#include "plan/cells.h"

enum { S = 112 };

static struct lane_stats stats[LANES];

/* Runs a step with its update on a device whose link is slow compared with its kernels. */
static void run(enum offload params, enum offload acts)
{
    struct rig r;
    struct model *model;
    struct sequence q;
    double loss, norm;
    rig_defaults(&r, S);
    r.settings.plan.device = DEVICE_CPU_DISCRETE;
    r.settings.plan.params = params;
    r.settings.plan.acts = acts;
    r.settings.plan.prefetch = 0;
    r.settings.plan.link_gbps = 2e-3;
    assert_int_equal(cell_model(FAMILY_LLAMA, 2, &model), OK);
    sequence_random(&q, S, model->config.vocab, 3, NULL);
    assert_int_equal(rig_start(&r, model), OK);
    assert_int_equal(session_initialise(r.session, 5), OK);
    assert_int_equal(rig_step(&r, &q, 1, &loss, &norm), OK);
    executor_take_stats(r.session->executor, stats);
    assert_int_equal(rig_step(&r, &q, 1, &loss, &norm), OK);
    executor_take_stats(r.session->executor, stats);
    sequence_free(&q);
    rig_stop(&r);
}

static double stalled(int lane, int class)
{
    double sum = 0;
    for (int l = 0; l < LANES; l++)
        for (int c = 0; c < CLASSES; c++)
            sum += (lane < 0 || l == lane) && (class < 0 || c == class) ? stats[l].stalled[c] : 0;
    return sum;
}

static void parameters_are_waited_for(void **state)
{
    (void)state;
    run(OFFLOAD_CPU, OFFLOAD_NONE);
    double waited = (double)stats[LANE_COMPUTE].waited_ns * 1e-9, all = stalled(-1, -1);
    assert_true(stalled(LANE_H2D, CLASS_PARAM) > 0.1); /* the link alone takes longer than that */
    assert_true(stalled(LANE_H2D, CLASS_PARAM) > 0.8 * all);
    assert_true(stalled(LANE_COMPUTE, -1) == 0);
    /* all waits of compute are charged to a lane, even the end of the program after compute's last instruction */
    assert_true(all > 0.9 * waited);
}

/* Parameters stay on the device; activations are moved away and back over the same link. */
static void activations_are_waited_for(void **state)
{
    (void)state;
    run(OFFLOAD_NONE, OFFLOAD_CPU);
    double link = stalled(LANE_H2D, CLASS_ACT) + stalled(LANE_D2H, CLASS_ACT);
    assert_true(stalled(LANE_H2D, CLASS_ACT) > 0.01);
    assert_true(stalled(-1, CLASS_PARAM) < 0.1 * link);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parameters_are_waited_for), cmocka_unit_test(activations_are_waited_for)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
