/* Tests memory: arenas compared with the lower bound of live bytes, budgets that are too small, refusals, finer tiles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "machine/hardware.h"
#include "machine/rank_cost.h"
#include "machine/virtual_clock.h"
#include "plan/fit.h"
#include "plan/lower/fixed.h"
#include "plan/report/describe.h"
#include "plan/report/refuse.h"
#include "plan/schedule/hazards.h"
#include "plan/schedule/prefetch.h"
#include "plan/schedule/waits.h"
#include "plan_request.h"
#include "program/digest.h"

#include <math.h>
#include <string.h>

/* --- Packing --- */

static void check_packing(int family, int layers, const struct cell *c, double ratio[TIERS])
{
    struct plan_request s;
    struct model *m = wide_model(FAMILIES[family], layers);
    struct plan *plan;
    int64_t limit[TIERS] = {(int64_t)1 << 40, (int64_t)1 << 40, (int64_t)1 << 40};
    wide_settings(&s);
    cell_apply(c, &s);
    if (plan_create(m, &s, limit, &plan) != OK)
        fail_msg("%s", status_message());
    const struct program *p = plan->programs[PLAN_UPDATE_STEP];
    if (layers <= 8 && program_verify(p) != OK)
        fail_msg("%s", status_message());
    for (int t = 0; t < TIERS; t++) {
        ratio[t] = p->lower_bound[t] > 0 ? (double)p->arena[t] / (double)p->lower_bound[t] : 1;
        if (ratio[t] < 1 || ratio[t] > 1.3)
            fail_msg("%s, %d layers, %s: arena %lld bytes on the %s, lower bound %lld", FAMILY_NAMES[family], layers,
                     cell_name(c), (long long)p->arena[t], tier_name((enum tier)t), (long long)p->lower_bound[t]);
    }
    plan_destroy(plan);
    model_destroy(m);
}

static void packing(void **state)
{
    (void)state;
    static const int layers[] = {2, 8, 32};
    static const struct cell cells[] = {
        {EVERYTHING(ON_DEVICE)},
        {EVERYTHING(ON_HOST), .alpha = KEEP_HALF, .prefetch = AHEAD_1, .host_update = 1},
        {EVERYTHING(ON_DRIVES), .alpha = KEEP_NONE, .prefetch = AHEAD_1, .host_update = 1, .discrete = 1},
    };
    for (int f = 0; f < 2; f++)
        for (int c = 0; c < 3; c++) {
            double ratio[3][TIERS];
            for (int l = 0; l < 3; l++)
                check_packing(f, layers[l], &cells[c], ratio[l]);
            print_message("%-5s arena / lower bound at 2, 8, 32 layers: device %.3f %.3f %.3f, host %.3f %.3f %.3f, nvme %.3f "
                          "%.3f %.3f (%s)\n",
                          FAMILY_NAMES[f], ratio[0][0], ratio[1][0], ratio[2][0], ratio[0][1], ratio[1][1], ratio[2][1],
                          ratio[0][2], ratio[1][2], ratio[2][2], cell_name(&cells[c]));
        }
}

/* --- Slow links --- */

/* Returns the step's seconds on a machine: with the program's waits or, if `endless`, as if memory were infinite, with data
 * dependencies only. */
static double step_on(struct program *p, const struct cost_model *cost, int endless)
{
    struct deps d;
    assert_int_equal(endless ? hazards_find(p, &d) : waits_as_deps(p, &d), OK);
    double seconds = program_simulate(p, cost, d.first, d.dep, NULL);
    hazards_free(&d);
    return seconds;
}

/* Activations go to the host about as fast as they are computed. With ample memory, slower links delay the step only by the time
 * of their bytes. With the next prefetch level, which suits links of the planned speed, compute waits for memory, too. */
static void slow_links_find_room(void **state)
{
    (void)state;
    const int64_t limit[TIERS] = {(int64_t)1 << 40, (int64_t)1 << 40, (int64_t)1 << 40};
    struct model *m = wide_model(FAMILY_LLAMA, 8);
    struct plan_request s;
    struct strategy strategy;
    struct cost_model cost, slow;
    double waits[2];
    wide_settings(&s);
    s.device = DEVICE_CPU_DISCRETE;
    assert_int_equal(plan_fixed(m, &s, &strategy), OK);
    strategy.placement.acts = RES_HOST;
    strategy.placement.kept_chunks = (int)ceil_div(strategy.rows, strategy.key.row_chunk);
    plan_cost_model(&s, &cost);
    cost.lane_bytes[LANE_D2H] = 0.75e9;
    cost_with_links(&cost, FIT_SLOW, &slow);
    for (int level = 0; level < 2; level++) {
        struct program *p;
        struct io_buffers io;
        int at = level;
        assert_int_equal(fit_program(m, &strategy, &cost, DUTY_FORWARD | DUTY_BACKWARD | DUTY_FIRST | DUTY_LAST, limit, 0,
                                     FIT_SERIAL, &at, &io, &p),
                         OK);
        assert_int_equal(at, level);
        waits[level] = step_on(p, &slow, 0) / step_on(p, &slow, 1) - 1;
        print_message("level %d: step %.4f s, on slow links %.4f s, with endless memory %.4f s\n", level, p->seconds,
                      step_on(p, &slow, 0), step_on(p, &slow, 1));
        program_destroy(p);
    }
    assert_true(waits[0] < 1e-9 && waits[1] > 0.005);
    model_destroy(m);
}

/* --- Drafts --- */

/* A draft that is scheduled again, at other levels, depths and limits, is the program that is lowered anew. */
static void drafts_are_as_new(void **state)
{
    (void)state;
    enum { STEP = DUTY_UPDATE | DUTY_FORWARD | DUTY_BACKWARD | DUTY_FIRST | DUTY_LAST };
    const int64_t ample[TIERS] = {AMPLE, AMPLE, AMPLE}, none[TIERS] = {1, AMPLE, AMPLE};
    struct model *m = wide_model(FAMILY_LLAMA, 3);
    struct plan_request s;
    struct strategy strategy;
    struct cost_model cost;
    struct io_buffers io;
    struct draft *draft;
    wide_settings(&s);
    cell_apply(&(struct cell){EVERYTHING(ON_DRIVES), .alpha = KEEP_HALF, .host_update = 1, .discrete = 1}, &s);
    assert_int_equal(plan_fixed(m, &s, &strategy), OK);
    plan_cost_model(&s, &cost);
    assert_int_equal(draft_create(m, &strategy, &cost, STEP, &io, &draft), OK);
    const struct {
        int level, last, write_depth;
        const int64_t *limit;
        double slack;
    } ways[] = {{0, FIT_SERIAL, 0, ample, 0.02}, {FIT_LATE, FIT_SERIAL, 8, ample, 0}, {0, FIT_SERIAL, 0, none, 0},
                {0, FIT_LATE, 4, none, 0},       {2, FIT_SERIAL, 8, ample, 0},        {0, FIT_SERIAL, 0, ample, 0.02}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct program *p;
        int at = ways[i].level, again = at;
        strategy.placement.write_depth = ways[i].write_depth;
        assert_int_equal(fit_program(m, &strategy, &cost, STEP, ways[i].limit, ways[i].slack, ways[i].last, &at, &io, &p), OK);
        assert_int_equal(draft_fit(draft, &strategy, &cost, ways[i].limit, ways[i].slack, ways[i].last, &again), OK);
        const struct program *q = draft_program(draft);
        assert_int_equal(again, at);
        assert_true(q->seconds == p->seconds && memcmp(q->arena, p->arena, sizeof p->arena) == 0);
        if (isfinite(p->seconds))
            assert_true(program_digest(q) == program_digest(p));
        program_destroy(p);
    }
    draft_destroy(draft);
    model_destroy(m);
}

/* --- Budgets --- */

/* Host memory and drives can be too small, too; each refusal names the flag of that tier. */
static void other_tiers(void **state)
{
    (void)state;
    struct model *m = wide_model(FAMILY_LLAMA, 2);
    for (int t = TIER_HOST; t < TIERS; t++) {
        struct plan_request s;
        int64_t limit[TIERS] = {AMPLE, AMPLE, AMPLE};
        wide_settings(&s);
        cell_apply(&(struct cell){EVERYTHING(t), .alpha = KEEP_NONE, .host_update = 1, .discrete = 1}, &s);
        limit[t] = 100000;
        struct plan *plan = fit(m, &s, limit);
        assert_int_equal(plan->fits, 0);
        assert_int_equal(plan->misfit, t);
        plan_destroy(plan);
    }
    model_destroy(m);
}

/* The refusal of a resident plan names an offload that fits. */
static void refusal_names_a_change(void **state)
{
    (void)state;
    struct plan_request s;
    struct model *m = wide_model(FAMILY_LLAMA, 2);
    int64_t limit[TIERS] = {AMPLE, AMPLE, AMPLE};
    wide_settings(&s);
    struct plan *plan = fit(m, &s, limit);
    limit[TIER_DEVICE] = plan->arena[TIER_DEVICE] / 2;
    plan_destroy(plan);
    plan = fit(m, &s, limit);
    assert_int_equal(plan->fits, 0);
    assert_int_equal(refuse_plan(plan, m, &s), ERR_NOFIT);
    print_message("%s\n", status_message());
    assert_non_null(strstr(status_message(), "--offload"));
    plan_destroy(plan);
    limit[TIER_DEVICE] = 10000;
    plan = fit(m, &s, limit);
    assert_int_equal(refuse_plan(plan, m, &s), ERR_NOFIT);
    assert_non_null(strstr(status_message(), "No offload setting fits"));
    plan_destroy(plan);
    model_destroy(m);
}

/* If the default grid exceeds a budget, a finer grid is used, and the text says so. */
static void tight_budgets_refine(void **state)
{
    (void)state;
    struct model *m = wide_model(FAMILY_LLAMA, 2);
    struct plan_request s, open;
    int64_t limit[TIERS] = {AMPLE, AMPLE, AMPLE};
    char text[256];
    wide_settings(&s);
    s.seq_len = 2048;
    s.row_chunk = s.loss_tile = s.head_tile = AUTO;
    s.params = s.grads = s.optim = s.acts = OFFLOAD_CPU;
    s.alpha = 0;
    struct plan *plan = fit(m, &s, limit);
    open = s;
    s.row_chunk = plan->strategy.key.row_chunk;
    s.head_tile = plan->strategy.key.head_tile;
    s.loss_tile = plan->strategy.key.loss_tile;
    assert_false(plan->finer);
    /* shrinks the budget until the default grid does not fit */
    for (int given = 1; plan->fits; limit[TIER_DEVICE] = limit[TIER_DEVICE] * 7 / 8) {
        limit[TIER_DEVICE] = given ? plan->arena[TIER_DEVICE] : limit[TIER_DEVICE];
        given = 0;
        plan_destroy(plan);
        plan = fit(m, &s, limit);
    }
    limit[TIER_DEVICE] = limit[TIER_DEVICE] * 8 / 7;
    plan_destroy(plan);
    plan = fit(m, &open, limit);
    assert_true(plan->fits && plan->finer);
    assert_true(plan->strategy.key.row_chunk < s.row_chunk || plan->strategy.key.head_tile < s.head_tile);
    plan_describe(plan, text, sizeof text);
    assert_non_null(strstr(text, "to fit: nothing does with the default tiles"));
    plan_destroy(plan);
    model_destroy(m);
}

/* On the default grid host memory is too small; on a finer grid the device takes what does not fit there. */
static void finer_where_the_host_is_short(void **state)
{
    (void)state;
    const int64_t limit[TIERS] = {512ll << 20, 1000ll << 20, 0};
    struct model_config config;
    struct model *m;
    struct hardware h;
    struct plan_request s;
    struct plan *plan;
    assert_int_equal(model_preset("25m", &config), OK);
    assert_int_equal(model_create(&config, NULL, 0, &m), OK);
    assert_int_equal(hardware_preset("rtx3090", &h), OK);
    plan_request_defaults(&s, 30720);
    s.target = cell_target();
    s.device = DEVICE_CUDA;
    s.hardware = &h;
    for (int open = 0; open < 2; open++) { /* first with the default grid given, then with the grid left open */
        s.row_chunk = open ? AUTO : 2048;
        s.head_tile = open ? AUTO : 8;
        assert_int_equal(plan_create(m, &s, limit, &plan), OK);
        assert_int_equal(plan->fits, open);
        assert_int_equal(plan->finer, open);
        if (!open)
            assert_int_equal(plan->misfit, TIER_HOST);
        plan_destroy(plan);
    }
    model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(packing),
                                       cmocka_unit_test(slow_links_find_room),
                                       cmocka_unit_test(drafts_are_as_new),
                                       cmocka_unit_test(other_tiers),
                                       cmocka_unit_test(refusal_names_a_change),
                                       cmocka_unit_test(tight_budgets_refine),
                                       cmocka_unit_test(finer_where_the_host_is_short)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
