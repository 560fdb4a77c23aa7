/* Tests that layers use spare memory to keep values, that drives are written at the right time, and that less traffic costs
 * little time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "machine/rank_cost.h"
#include "plan/lower/fixed.h"
#include "plan/schedule/prefetch.h"
#include "plan/search/options.h"
#include "plan/search/requests.h"

/* The number of kept chunks need not be a multiple of a quarter of all: spare memory is used. */
static void keeps_what_fits(void **state)
{
    (void)state;
    struct model *m = wide(2);
    struct plan_request s;
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
                    plan->seconds <= 1.0011 * all->seconds); /* changes with an expected gain of a thousandth are not tried */
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

/* To save traffic the planner accepts a step that is at most a percent longer, with links about as busy as compute. */
static void gives_little_for_less_traffic(void **state)
{
    (void)state;
    struct model *m = wide(2);
    struct plan_request s;
    int less = 0;
    const int64_t limit[TIERS] = {(int64_t)HUGE << 4, (int64_t)HUGE << 4, HUGE};
    for (double gbps = 0.125; gbps <= 0.25; gbps *= 2) {
        few_choices(&s, OFFLOAD_CPU, gbps);
        s.alpha = AUTO;
        struct plan *plan = planned(m, &s, limit), *fastest = fastest_given(m, &s, limit, 1);
        print_message("%g GB/s: %d of %d chunks kept, %.4g s; the fastest keeps %d, %.4g s\n", gbps,
                      plan->strategy.placement.kept_chunks, CHUNKS, plan->seconds, fastest->strategy.placement.kept_chunks,
                      fastest->seconds);
        assert_true(plan->seconds <= 1.0111 * fastest->seconds);
        less += moved(plan) < moved(fastest);
        plan_destroy(plan);
        plan_destroy(fastest);
    }
    assert_true(less > 0);
    model_destroy(m);
}

/* If the host has room for the inputs of all layers, all are kept; otherwise some. */
static void keeps_inputs_that_fit(void **state)
{
    (void)state;
    enum { LAYERS = 6 };
    struct model *m = wide(LAYERS);
    int64_t limit[TIERS] = {(int64_t)HUGE << 4, (int64_t)HUGE << 4, 0};
    for (int open = 0; open < 2; open++) { /* first with a single placement, then with a choice */
        struct plan_request s;
        few_choices(&s, OFFLOAD_CPU, 0);
        s.alpha = open ? AUTO : 0;
        limit[TIER_HOST] = (int64_t)HUGE << 4;
        struct plan *all = planned(m, &s, limit);
        assert_int_equal(all->strategy.placement.keep_inputs, 1);
        s.keep_inputs = LAYERS;
        s.alpha = 0;
        struct plan *fewest = planned(m, &s, limit);
        s.keep_inputs = 1;
        struct plan *lean = planned(m, &s, limit);
        s.keep_inputs = AUTO;
        s.alpha = open ? AUTO : 0;
        limit[TIER_HOST] = (lean->arena[TIER_HOST] + fewest->arena[TIER_HOST]) / 2;
        struct plan *some = planned(m, &s, limit);
        assert_true(some->fits && some->strategy.placement.keep_inputs > 1);
        plan_destroy(some);
        plan_destroy(lean);
        plan_destroy(fewest);
        plan_destroy(all);
    }
    model_destroy(m);
}

/* Creates a wide model whose first `windowed` layers have a window. */
static struct model *wide_windowed(int layers, int windowed)
{
    struct model *alike = wide(layers), *m;
    struct model_config c = alike->config;
    c.window = 1024;
    c.windowed[0] = (uint8_t)((1 << windowed) - 1);
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    model_destroy(alike);
    return m;
}

enum { KINDS_LAYERS = 3, KINDS_WINDOWED = 2 };

/* Counts the instructions of each layer's backward pass on the compute lane, recomputation included. */
static void backward_of_layers(const struct model *m, const struct plan_request *s, int count[KINDS_LAYERS])
{
    const int64_t limit[TIERS] = {(int64_t)HUGE << 4, (int64_t)HUGE << 4, 0};
    struct plan *plan = planned(m, s, limit);
    const struct program *p = plan->programs[PLAN_UPDATE_STEP];
    memset(count, 0, KINDS_LAYERS * sizeof *count);
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *in = &p->instrs[i];
        if (in->lane == LANE_COMPUTE && in->phase == PHASE_BACKWARD && in->unit >= 0 && model_unit_in_layer(m, in->unit))
            count[m->units[in->unit].layer]++;
    }
    plan_destroy(plan);
}

/* A layer recomputes exactly those values that its kind of layer does not keep. */
static void each_kind_keeps_its_own(void **state)
{
    (void)state;
    struct model *m = wide_windowed(KINDS_LAYERS, KINDS_WINDOWED);
    struct plan_request s;
    int all[KINDS_LAYERS], none[KINDS_LAYERS], have[KINDS_LAYERS];
    few_choices(&s, OFFLOAD_CPU, 0);
    s.alpha = 1;
    backward_of_layers(m, &s, all);
    s.alpha = 0;
    backward_of_layers(m, &s, none);
    for (int window = 0; window < 2; window++) {
        s.alpha_by_kind = 1;
        s.window_alpha = window;
        s.alpha = !window;
        backward_of_layers(m, &s, have);
        for (int l = 0; l < KINDS_LAYERS; l++) {
            const int keeps = (l < KINDS_WINDOWED) == window;
            assert_true(none[l] > all[l]);
            assert_int_equal(have[l], keeps ? all[l] : none[l]);
        }
    }
    model_destroy(m);
}

/* Shares given by kind of layer are estimated correctly if there are few chunks. The search knows one number for all layers: it
 * counts at least as many chunks as the plan keeps, and less than one too many for each layer. */
static void judges_given_kinds(void **state)
{
    (void)state;
    enum { LAYERS = 6 };
    for (int chunks = 1; chunks <= 4; chunks++)
        for (int windowed = 1; windowed < LAYERS; windowed++)
            for (int window = 0; window <= 2; window++) {
                struct model *m = wide_windowed(LAYERS, windowed);
                struct plan_request s;
                struct strategy fixed, given;
                struct options o;
                few_choices(&s, OFFLOAD_CPU, 0);
                s.row_chunk = ceil_div(CHUNKS, chunks) * (TOKENS / CHUNKS);
                s.alpha_by_kind = 1;
                s.window_alpha = window / 2.0;
                s.alpha = 1 - s.window_alpha;
                assert_int_equal(plan_fixed(m, &s, &fixed), OK);
                options_of(m, &s, &fixed, &o);
                given = fixed;
                plan_keep_as_given(m, &s, &given);
                const int kept = windowed * strategy_kept(&given, 1) + (LAYERS - windowed) * strategy_kept(&given, 0);
                assert_int_equal(o.n[DECISION_KEPT_CHUNKS], 1);
                assert_int_equal(options_most_kept(&o), (kept + LAYERS - 1) / LAYERS);
                model_destroy(m);
            }
}

/* A model has one full layer and two with a window, on a host with room for a few more chunks than if all layers kept equally
 * many. Either the full layer keeps more or the others keep fewer, which is faster than any equal number. The numbers that were
 * found can also be given by the user. */
static void keeps_by_kind(void **state)
{
    (void)state;
    struct model *alike = wide(KINDS_LAYERS), *m = wide_windowed(KINDS_LAYERS, KINDS_WINDOWED);
    struct plan_request s;
    int64_t limit[TIERS] = {(int64_t)HUGE << 4, (int64_t)HUGE << 4, 0};
    few_choices(&s, OFFLOAD_CPU, 0);
    s.alpha = 1;
    struct plan *whole = planned(m, &s, limit);
    s.alpha = 0;
    struct plan *lean = planned(m, &s, limit);
    limit[TIER_HOST] = lean->arena[TIER_HOST] + (whole->arena[TIER_HOST] - lean->arena[TIER_HOST]) * 15 / 32;
    s.alpha = AUTO;
    struct plan *plan = planned(m, &s, limit), *uniform = fastest_given(m, &s, limit, 1);
    const int full = strategy_kept(&plan->strategy, 0), window = strategy_kept(&plan->strategy, 1);
    print_message("window %d, full %d of %d: %.5g s; all %d: %.5g s\n", window, full, CHUNKS, plan->seconds,
                  uniform->strategy.placement.kept_chunks, uniform->seconds);
    assert_true(plan->fits && full != window && plan->seconds < uniform->seconds);
    assert_int_equal(plan_verify(plan), OK);
    s.alpha_by_kind = 1;
    s.alpha = (double)full / CHUNKS;
    s.window_alpha = (double)window / CHUNKS;
    struct plan *given = planned(m, &s, limit), *refused;
    assert_true(given->fits && strategy_kept(&given->strategy, 0) == full && strategy_kept(&given->strategy, 1) == window);
    assert_int_equal(plan_create(alike, &s, limit, &refused), ERR_INVALID);
    assert_non_null(strstr(status_message(), "all layers of this one attend alike"));
    plan_destroy(given);
    plan_destroy(uniform);
    plan_destroy(plan);
    plan_destroy(lean);
    plan_destroy(whole);
    model_destroy(m);
    model_destroy(alike);
}

/* Returns the seconds if layers with a window keep the share `window`, and the others `full`. */
static double seconds_with(const struct model *m, struct plan_request *s, double window, double full)
{
    const int64_t limit[TIERS] = {6 * GIB, 4 * GIB, 1000 * GIB};
    s->alpha_by_kind = 1;
    s->window_alpha = window;
    s->alpha = full;
    struct plan *plan = planned(m, s, limit);
    const double seconds = plan->seconds;
    assert_true(plan->fits);
    plan_destroy(plan);
    return seconds;
}

/* If two of eight layers keep the given share, that costs at most a quarter of the time that it costs if all do. Formerly, trials
 * used the mean of both kinds, rounded up, and chose much too small a placement (20 s instead of 11 s). Tiles and the update are
 * given, since they take two thirds of the search and change neither side of the comparison. */
static void given_kinds_are_tried(void **state)
{
    (void)state;
    enum { LAYERS = 8, FULL = 2 };
    struct hardware h;
    struct plan_request s;
    struct model *alike = preset_of("1b", LAYERS, 65536, "h100", &h, &s), *m;
    struct model_config c = alike->config;
    c.window = 1024;
    c.windowed[0] = 0x77;
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    s.effort = EFFORT_NORMAL;
    s.row_chunk = 32768;
    s.head_tile = 32;
    s.loss_tile = 1024;
    s.optim = OFFLOAD_NVME;
    s.update = UPDATE_HOST;
    const double none = seconds_with(m, &s, 0, 0), all = seconds_with(m, &s, 0.5, 0.5), some = seconds_with(m, &s, 0, 0.5);
    print_message("kept by no layer %.4g s, by %d %.4g s, by all %.4g s\n", none, FULL, some, all);
    assert_true(some <= none + (all - none) * FULL / LAYERS);
    model_destroy(m);
    model_destroy(alike);
}

/* Returns the seconds of the plan's step with that depth of drive writes, at that prefetch level or the first later one that fits. */
static double seconds_at(const struct model *m, const struct plan_request *s, const struct plan *plan, int write_depth, int level)
{
    const int64_t limit[TIERS] = {AMPLE, AMPLE, AMPLE};
    struct strategy strategy = plan->strategy;
    struct cost_model cost;
    struct program *p;
    struct io_buffers io;
    strategy.placement.write_depth = write_depth;
    plan_cost_model(s, &cost);
    assert_int_equal(fit_program(m, &strategy, &cost, DUTY_UPDATE | DUTY_FORWARD | DUTY_BACKWARD | DUTY_FIRST | DUTY_LAST, limit,
                                 0, FIT_SERIAL, &level, &io, &p),
                     OK);
    double seconds = p->seconds;
    program_destroy(p);
    return seconds;
}

/* If drives hold optimizer state, the forward pass waits for them, and they are idle in the backward pass: updated state is
 * written then. If drives hide behind compute, writes do not yield to reads. */
static void writes_give_way(void **state)
{
    (void)state;
    const int64_t limit[TIERS] = {AMPLE, AMPLE, AMPLE};
    struct model *m;
    struct plan_request s;
    struct hardware h;
    assert_int_equal(cell_model(FAMILY_LLAMA, 3, &m), OK);
    for (int slow = 0; slow < 2; slow++) {
        hardware_assumed(&h);
        if (slow) {
            h.read = h.write = 150e6;
            h.both = 1.3 * h.read;
        }
        open_settings(&s);
        s.optim = OFFLOAD_NVME;
        s.hardware = &h;
        struct plan *plan = planned(m, &s, limit);
        assert_int_equal(plan->strategy.placement.write_depth > 0, slow);
        assert_true(seconds_at(m, &s, plan, plan->strategy.placement.write_depth, plan->level) == plan->seconds);
        assert_true(!slow || plan->seconds < 0.99 * seconds_at(m, &s, plan, 0, 0)); /* by 1.5% */
        plan_destroy(plan);
    }
    model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(keeps_what_fits),         cmocka_unit_test(gives_little_for_less_traffic),
                                       cmocka_unit_test(keeps_inputs_that_fit),   cmocka_unit_test(keeps_by_kind),
                                       cmocka_unit_test(each_kind_keeps_its_own), cmocka_unit_test(judges_given_kinds),
                                       cmocka_unit_test(given_kinds_are_tried),   cmocka_unit_test(writes_give_way)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
