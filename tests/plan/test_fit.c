/* Memory: arenas against the lower bound of live bytes, budgets from ample to none, refusals, tile grids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "machine/hardware.h"
#include "machine/rank_cost.h"
#include "plan/cells.h"
#include "plan/lower/fixed.h"
#include "plan/lower/grid.h"
#include "plan/report/advise_text.h"
#include "plan/report/text.h"
#include "plan/schedule/hazards.h"
#include "plan/schedule/prefetch.h"
#include "verify/verify.h"

#include <stdlib.h>
#include <string.h>

static const enum model_family FAMILIES[] = {FAMILY_LLAMA, FAMILY_GPT2};
static const char *const FAMILY_NAMES[] = {"llama", "gpt2"};
enum { AMPLE = 1 << 30 };

/* Wide enough that buffers are larger than their alignment. */
static struct model *wide_model(enum model_family family, int layers)
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

static void wide_settings(struct settings *s)
{
    cell_settings(s, 512, F32);
    s->row_chunk = 128;
    s->loss_tile = 64;
    s->group = 1 << 16;
}

/* --- Packing --- */

static void check_packing(int family, int layers, const struct cell *c, double ratio[TIERS])
{
    struct settings s;
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
    static const struct cell cells[] = {{{0, 0, 0, 0, 0, 0, 0, 0}}, {{1, 1, 1, 1, 1, 2, 1, 0}}, {{2, 2, 2, 2, 2, 2, 1, 1}}};
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

/* The step on a machine, by the program's waits or by its data alone, as if memory had no end. */
static double step_on(struct program *p, const struct cost_model *cost, int endless)
{
    struct deps d;
    assert_int_equal(endless ? hazards_find(p, &d) : hazards_from_waits(p, &d), OK);
    double seconds = program_simulate(p, cost, d.first, d.dep, NULL);
    hazards_free(&d);
    return seconds;
}

/* Activations go to the host nearly as fast as they are made. Where memory is ample, links slower than planned for take what
 * their bytes take; of the next pace, whose memory suffices for the planned speed, more: compute waits for memory, too. */
static void slow_links_find_room(void **state)
{
    (void)state;
    const int64_t limit[TIERS] = {(int64_t)1 << 40, (int64_t)1 << 40, (int64_t)1 << 40};
    struct model *m = wide_model(FAMILY_LLAMA, 8);
    struct settings s;
    struct strategy strategy;
    struct cost_model cost, slow;
    double waits[2];
    wide_settings(&s);
    s.device = DEVICE_CPU_DISCRETE;
    assert_int_equal(plan_fixed(m, &s, &strategy), OK);
    strategy.acts = RES_HOST;
    strategy.kept_chunks = (int)ceil_div(strategy.rows, strategy.row_chunk);
    plan_cost_model(&s, &cost);
    cost.lane_bytes[LANE_D2H] = 0.75e9;
    cost_with_links(&cost, FIT_SLOW, &slow);
    for (int pace = 0; pace < 2; pace++) {
        struct program *p;
        struct io_buffers io;
        int at = pace;
        assert_int_equal(fit_program(m, &strategy, &cost, ROLE_FORWARD | ROLE_BACKWARD | ROLE_FIRST | ROLE_LAST, limit, 0,
                                     FIT_SERIAL, &at, &io, &p),
                         OK);
        assert_int_equal(at, pace);
        waits[pace] = step_on(p, &slow, 0) / step_on(p, &slow, 1) - 1;
        print_message("pace %d: step %.4f s, on slow links %.4f s, with endless memory %.4f s\n", pace, p->seconds,
                      step_on(p, &slow, 0), step_on(p, &slow, 1));
        program_destroy(p);
    }
    assert_true(waits[0] < 1e-9 && waits[1] > 0.005);
    model_destroy(m);
}

/* --- Budgets --- */

static void verify_all(const struct plan *plan)
{
    for (int k = 0; k < PLAN_PROGRAMS; k++)
        if (plan->programs[k] && program_verify(plan->programs[k]) != OK)
            fail_msg("%s", status_message());
}

static void check_limits(const struct plan *plan, const int64_t limit[TIERS])
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

/* The refusal names the tier, what is needed and the flag that gives more. */
static void check_refusal(const struct plan *plan, const struct model *m, const struct settings *s)
{
    static const char *const flag[] = {"--device-mem", "--host-mem", "--nvme-max"};
    char need[64], sentence[1024];
    assert_int_equal(plan_refuse(plan, m, s), ERR_NOFIT);
    snprintf(sentence, sizeof sentence, "%s", status_message());
    snprintf(need, sizeof need, " on the %s ", tier_name(plan->misfit));
    if (!strstr(sentence, need) || !strstr(sentence, flag[plan->misfit]) || !strstr(sentence, "needs "))
        fail_msg("unhelpful: %s", sentence);
}

static struct plan *fit(const struct model *m, const struct settings *s, const int64_t limit[TIERS])
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

static void device_ladder(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++)
        for (int discrete = f; discrete < 2; discrete++) {
            struct settings s;
            struct model *m = wide_model(FAMILIES[f], 2);
            int64_t limit[TIERS] = {AMPLE, AMPLE, AMPLE}, first;
            wide_settings(&s);
            s.device = discrete ? DEVICE_CPU_DISCRETE : DEVICE_CPU;
            struct plan *plan = fit(m, &s, limit);
            assert_true(plan->fits);
            first = limit[TIER_DEVICE] = plan->arena[TIER_DEVICE];
            plan_destroy(plan);
            s.params = s.grads = s.optim = s.acts = s.passing = OFFLOAD_AUTO;
            s.alpha = AUTO;
            s.update = UPDATE_AUTO;
            int fitted = 1, rungs = 0;
            while (limit[TIER_DEVICE] > 4096) {
                plan = fit(m, &s, limit);
                /* less memory never fits what more did not */
                assert_true(fitted || !plan->fits);
                fitted = plan->fits;
                rungs += fitted;
                plan_destroy(plan);
                limit[TIER_DEVICE] = fitted ? limit[TIER_DEVICE] * 3 / 4 : limit[TIER_DEVICE] / 4;
            }
            print_message("%s%s: fits down %d rungs of 3/4 from %lld bytes\n", FAMILY_NAMES[f], discrete ? ", discrete" : "",
                          rungs, (long long)first);
            assert_true(rungs >= 4);
            model_destroy(m);
        }
}

/* The other tiers run out too, each with its own flag. */
static void other_tiers(void **state)
{
    (void)state;
    struct model *m = wide_model(FAMILY_LLAMA, 2);
    for (int t = TIER_HOST; t < TIERS; t++) {
        struct settings s;
        int64_t limit[TIERS] = {AMPLE, AMPLE, AMPLE};
        wide_settings(&s);
        cell_apply(&(struct cell){{t, t, t, t, 2, 0, 1, 1}}, &s);
        limit[t] = 100000;
        struct plan *plan = fit(m, &s, limit);
        assert_int_equal(plan->fits, 0);
        assert_int_equal(plan->misfit, t);
        plan_destroy(plan);
    }
    model_destroy(m);
}

/* A refused resident plan is told which offload would do; that one fits. */
static void refusal_names_a_change(void **state)
{
    (void)state;
    struct settings s;
    struct model *m = wide_model(FAMILY_LLAMA, 2);
    int64_t limit[TIERS] = {AMPLE, AMPLE, AMPLE};
    wide_settings(&s);
    struct plan *plan = fit(m, &s, limit);
    limit[TIER_DEVICE] = plan->arena[TIER_DEVICE] / 2;
    plan_destroy(plan);
    plan = fit(m, &s, limit);
    assert_int_equal(plan->fits, 0);
    assert_int_equal(plan_refuse(plan, m, &s), ERR_NOFIT);
    print_message("%s\n", status_message());
    assert_non_null(strstr(status_message(), "--offload"));
    plan_destroy(plan);
    limit[TIER_DEVICE] = 10000;
    plan = fit(m, &s, limit);
    assert_int_equal(plan_refuse(plan, m, &s), ERR_NOFIT);
    assert_non_null(strstr(status_message(), "No offload setting fits"));
    plan_destroy(plan);
    model_destroy(m);
}

/* --- Tiles --- */

static void tiles(void **state)
{
    (void)state;
    struct strategy st = {.rows = 256, .dp = 1, .ulysses = 1, .ring = 1, .ranks = 1};
    struct settings s;
    struct model *m = wide_model(FAMILY_LLAMA, 2); /* 4 heads on 2 */
    static const int64_t legal[] = {1, 2, 4}, illegal[] = {3, 5, 8};
    wide_settings(&s);
    for (int i = 0; i < 3; i++) {
        s.head_tile = legal[i];
        assert_int_equal(plan_tiles(m, &s, &st), OK);
        assert_int_equal(st.head_tile, legal[i]);
        s.head_tile = illegal[i];
        assert_int_equal(plan_tiles(m, &s, &st), ERR_INVALID);
        assert_non_null(strstr(status_message(), "take 1, 2 or 4"));
    }
    s.head_tile = 1;
    s.loss_tile = 48;
    assert_int_equal(plan_tiles(m, &s, &st), ERR_INVALID);
    assert_non_null(strstr(status_message(), "loss=48"));
    assert_non_null(strstr(status_message(), "128"));
    s.loss_tile = s.row_chunk = s.head_tile = AUTO;
    for (int64_t seq = 1; seq < (1 << 22); seq = seq * 3 + 1) {
        s.seq_len = st.rows = seq;
        assert_int_equal(plan_tiles(m, &s, &st), OK);
        assert_true(st.row_chunk >= 1 && st.row_chunk <= seq && st.row_chunk % st.loss_tile == 0);
        assert_true(st.head_tile >= 1 && m->config.heads % st.head_tile == 0);
    }
    /* chunks longer than the sequence are the sequence */
    s.seq_len = st.rows = 100;
    s.row_chunk = 128;
    s.loss_tile = 50;
    assert_int_equal(plan_tiles(m, &s, &st), OK);
    assert_int_equal(st.row_chunk, 100);
    /* so many pieces take minutes to plan; what is said to be enough is: 2 layers, 4 heads */
    s.seq_len = st.rows = 1 << 20;
    s.head_tile = 1;
    s.row_chunk = 63;
    s.loss_tile = AUTO;
    assert_int_equal(plan_tiles(m, &s, &st), ERR_INVALID);
    const char *enough = strstr(status_message(), "take rows=");
    assert_non_null(enough);
    s.row_chunk = atoi(enough + strlen("take rows="));
    assert_int_equal(s.row_chunk, 64);
    assert_int_equal(plan_tiles(m, &s, &st), OK);
    /* a ring does not take parts of a KV group, which would send the same keys around again; a rank has its share of the heads */
    s.row_chunk = s.loss_tile = AUTO;
    s.head_tile = 1;
    st.ring = 2;
    assert_int_equal(plan_tiles(m, &s, &st), ERR_INVALID);
    s.head_tile = 4;
    assert_int_equal(plan_tiles(m, &s, &st), OK);
    st.ulysses = 2;
    assert_int_equal(plan_tiles(m, &s, &st), ERR_INVALID);
    s.head_tile = AUTO;
    assert_int_equal(plan_tiles(m, &s, &st), OK);
    assert_int_equal(st.head_tile, 2);
    model_destroy(m);
}

/* Finer tiles are legal, end, and change nothing that is given. */
static void finer_tiles(void **state)
{
    (void)state;
    struct model *m = wide_model(FAMILY_LLAMA, 2); /* 4 heads on 2 */
    for (int given = 0; given < 8; given++) {
        struct strategy st = {.rows = 8192, .dp = 1, .ulysses = 1, .ring = 1, .ranks = 1}, before;
        struct settings s;
        int steps = 0;
        wide_settings(&s);
        s.seq_len = 8192;
        s.row_chunk = given & 1 ? 4096 : AUTO;
        s.head_tile = given & 2 ? 4 : AUTO;
        s.loss_tile = given & 4 ? 512 : AUTO;
        assert_int_equal(plan_tiles(m, &s, &st), OK);
        for (before = st; plan_finer_tiles(m, &s, &st); before = st, steps++) {
            struct settings legal = s;
            struct strategy same = st;
            legal.row_chunk = st.row_chunk;
            legal.head_tile = st.head_tile;
            legal.loss_tile = st.loss_tile;
            assert_int_equal(plan_tiles(m, &legal, &same), OK);
            assert_true(st.row_chunk < before.row_chunk || st.head_tile < before.head_tile);
        }
        assert_true(!(given & 1) || st.row_chunk == 4096);
        assert_true(!(given & 2) || st.head_tile == 4);
        assert_true(!(given & 4) || st.loss_tile == 512);
        assert_int_equal(steps > 0, (given & 3) != 3);
    }
    model_destroy(m);
}

/* A budget that the grid of model and length exceeds is met by a finer one, and said so. */
static void tight_budgets_refine(void **state)
{
    (void)state;
    struct model *m = wide_model(FAMILY_LLAMA, 2);
    struct settings s, open;
    int64_t limit[TIERS] = {AMPLE, AMPLE, AMPLE};
    char text[256];
    wide_settings(&s);
    s.seq_len = 2048;
    s.row_chunk = s.loss_tile = s.head_tile = AUTO;
    s.params = s.grads = s.optim = s.acts = OFFLOAD_CPU;
    s.alpha = 0;
    struct plan *plan = fit(m, &s, limit);
    open = s;
    s.row_chunk = plan->strategy.row_chunk;
    s.head_tile = plan->strategy.head_tile;
    s.loss_tile = plan->strategy.loss_tile;
    assert_false(plan->finer);
    for (int given = 1; plan->fits; limit[TIER_DEVICE] = limit[TIER_DEVICE] * 7 / 8) { /* until the default grid does not fit */
        limit[TIER_DEVICE] = given ? plan->arena[TIER_DEVICE] : limit[TIER_DEVICE];
        given = 0;
        plan_destroy(plan);
        plan = fit(m, &s, limit);
    }
    limit[TIER_DEVICE] = limit[TIER_DEVICE] * 8 / 7;
    plan_destroy(plan);
    plan = fit(m, &open, limit);
    assert_true(plan->fits && plan->finer);
    assert_true(plan->strategy.row_chunk < s.row_chunk || plan->strategy.head_tile < s.head_tile);
    plan_describe(plan, text, sizeof text);
    assert_non_null(strstr(text, "to fit: nothing does with the default tiles"));
    plan_destroy(plan);
    model_destroy(m);
}

/* Host memory is what the usual grid lacks; on a finer one the device holds what is too much there. */
static void finer_where_the_host_is_short(void **state)
{
    (void)state;
    const int64_t limit[TIERS] = {512ll << 20, 1000ll << 20, 0};
    struct model_config config;
    struct model *m;
    struct hardware h;
    struct settings s;
    struct plan *plan;
    assert_int_equal(model_preset("25m", &config), OK);
    assert_int_equal(model_create(&config, NULL, 0, &m), OK);
    assert_int_equal(hardware_preset("rtx3090", &h), OK);
    settings_defaults(&s, 30720);
    s.target = cell_target();
    s.device = DEVICE_CUDA;
    s.hardware = &h;
    for (int open = 0; open < 2; open++) { /* the usual grid, as if it were given; as is */
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packing),     cmocka_unit_test(slow_links_find_room),   cmocka_unit_test(device_ladder),
        cmocka_unit_test(other_tiers), cmocka_unit_test(refusal_names_a_change), cmocka_unit_test(tiles),
        cmocka_unit_test(finer_tiles), cmocka_unit_test(tight_budgets_refine),   cmocka_unit_test(finer_where_the_host_is_short)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
