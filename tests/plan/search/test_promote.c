/* Tests promoted layers: some layers have a class in a nearer tier. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "machine/hardware.h"
#include "machine/rank_cost.h"
#include "plan/cells.h"
#include "plan/lower/fixed.h"
#include "plan/report/describe.h"
#include "plan/report/explain.h"
#include "plan/schedule/pack.h"
#include "plan/schedule/prefetch.h"
#include "plan/search/estimate.h"
#include "plan/search/local.h"
#include "plan/search/price.h"
#include "verify/value_numbers.h"
#include "verify/verify.h"

#include <string.h>

enum {
    LAYERS = 6,
    TOKENS = 4096,
    HUGE = 1 << 30,
    WHOLE_STEP = DUTY_UPDATE | DUTY_FORWARD | DUTY_BACKWARD | DUTY_FIRST | DUTY_LAST
};

struct subject {
    struct model *m;
    struct plan_request s;
    struct hardware h;
    struct strategy fixed;
    struct cost_model cost;
};

static void create(struct subject *x)
{
    memset(x, 0, sizeof *x);
    assert_int_equal(cell_wide_model(LAYERS, TOKENS, &x->m), OK);
    cell_settings(&x->s, TOKENS, BF16);
    x->s.row_chunk = x->s.loss_tile = TOKENS / 4;
    x->s.head_tile = 4;
    x->s.group = 1 << 20;
    x->s.device = DEVICE_CPU_DISCRETE;
    hardware_assumed(&x->h);
    x->s.hardware = &x->h;
    assert_int_equal(plan_fixed(x->m, &x->s, &x->fixed), OK);
    plan_cost_model(&x->s, &x->cost);
}

static const int64_t ample[TIERS] = {(int64_t)HUGE << 4, (int64_t)HUGE << 4, (int64_t)HUGE << 4};

static struct program *scheduled(const struct subject *x, const struct strategy *s, int duties)
{
    int level = 0;
    struct io_buffers io;
    struct program *p;
    if (fit_program(x->m, s, &x->cost, duties, ample, 0, FIT_SERIAL, &level, &io, &p) != OK || program_verify(p) != OK)
        fail_msg("%s", status_message());
    return p;
}

/* Lowers a whole step. Returns its digest, and for every tier the most bytes of the class: persistent, or live at one time. */
static uint64_t lowered(const struct subject *x, const struct strategy *s, enum tensor_class class, int64_t bytes[TIERS])
{
    struct program *p = scheduled(x, s, WHOLE_STEP);
    uint64_t digest;
    assert_int_equal(program_value_digest(p, &digest), OK);
    memset(bytes, 0, sizeof(int64_t) * TIERS);
    for (int b = 0; b < (class == CLASS_ACT ? p->n_buffers : p->n_persistent); b++)
        bytes[p->buffers[b].tier] += p->buffers[b].class == class ? p->buffers[b].bytes : 0;
    program_destroy(p);
    return digest;
}

/* Promoting any number of layers, for any class and tier, leaves the computed values unchanged and puts the layers' state into
 * the right tier. */
static void values_stay_the_same(void **state)
{
    (void)state;
    struct subject x;
    create(&x);
    struct strategy s = x.fixed;
    int64_t none[TIERS], all[TIERS], some[TIERS];
    static const struct {
        enum residency near, far;
        int update_on_host;
    } placings[] = {{RES_DEVICE, RES_HOST, 0}, {RES_DEVICE, RES_HOST, 1}, {RES_HOST, RES_NVME, 0},
                    {RES_HOST, RES_NVME, 1},   {RES_DEVICE, RES_NVME, 0}, {RES_DEVICE, RES_NVME, 1}};
    enum { PLACINGS = sizeof placings / sizeof *placings };
    s.placement.kept_chunks = 2;
    const uint64_t resident = lowered(&x, &s, CLASS_PARAM, none);
    for (int class = CLASS_PARAM; class <= CLASS_ACT; class ++)
        for (int i = 0; i < PLACINGS; i++) {
            const int far = placings[i].far;
            if (class == CLASS_ACT && placings[i].near == RES_DEVICE)
                continue;
            s = x.fixed;
            s.placement.kept_chunks = 2;
            s.placement.passing = RES_HOST;
            s.placement.update_on_host = placings[i].update_on_host;
            s.placement.promoted_class = (enum tensor_class) class;
            s.placement.promote_tier = placings[i].near;
            *strategy_class(&s, s.placement.promoted_class) = (enum residency)far;
            assert_true(lowered(&x, &s, s.placement.promoted_class, none) == resident);
            s.placement.promoted_layers = LAYERS;
            assert_true(lowered(&x, &s, s.placement.promoted_class, all) == resident);
            for (s.placement.promoted_layers = 1; s.placement.promoted_layers < LAYERS; s.placement.promoted_layers += 2) {
                assert_true(lowered(&x, &s, s.placement.promoted_class, some) == resident);
                if (class != CLASS_ACT) /* activations' buffers are used again */
                    assert_int_equal((some[far] - none[far]) * LAYERS, (all[far] - none[far]) * s.placement.promoted_layers);
                assert_true(some[far] < none[far] && some[far] > all[far]);
            }
        }
    model_destroy(x.m);
}

static void count_updates(const struct program *p, int *on_device, int *on_host)
{
    *on_device = *on_host = 0;
    for (int i = 0; i < p->n_instrs; i++) {
        *on_device += p->instrs[i].op == OP_ADAMW && p->instrs[i].lane == LANE_COMPUTE;
        *on_host += p->instrs[i].op == OP_ADAMW && p->instrs[i].lane == LANE_HOST;
    }
}

/* Host and device both update: some layers' state is on the device. On one rank and on two with any stage, with the update in a
 * step or alone, the values are the same, and as many updates run. */
static void both_update(void **state)
{
    (void)state;
    static const int duties[] = {WHOLE_STEP, DUTY_UPDATE};
    for (int zero = 0; zero <= 3; zero++)
        for (int r = 0; r < 2; r++) {
            struct subject x;
            uint64_t digest[2];
            int on_device[2], on_host[2];
            create(&x);
            x.s.mesh.degree[MESH_DP] = zero ? 2 : 1;
            x.s.zero = zero;
            assert_int_equal(plan_fixed(x.m, &x.s, &x.fixed), OK);
            for (int some = 0; some < 2; some++) {
                struct strategy s = x.fixed;
                s.placement.kept_chunks = 2;
                s.placement.optim = RES_HOST;
                s.placement.update_on_host = 1;
                s.placement.promoted_class = CLASS_OPTIM;
                s.placement.promote_tier = RES_DEVICE;
                s.placement.promoted_layers = some ? LAYERS / 2 : 0;
                struct program *p = scheduled(&x, &s, duties[r]);
                assert_int_equal(program_value_digest(p, &digest[some]), OK);
                count_updates(p, &on_device[some], &on_host[some]);
                program_destroy(p);
            }
            print_message("stage %d: %d and %d updates on the device and the host, %d and %d without\n", zero, on_device[1],
                          on_host[1], on_device[0], on_host[0]);
            assert_true(digest[0] == digest[1]);
            assert_true(on_device[0] == 0 && on_device[1] > 0 && on_host[1] > 0);
            assert_int_equal(on_device[1] + on_host[1], on_host[0]);
            model_destroy(x.m);
        }
}

/* No layer's state is on the device if the settings say that the host updates. */
static void settings_bar_it(void **state)
{
    (void)state;
    static const int updates[] = {UPDATE_AUTO, UPDATE_HOST};
    struct subject x;
    struct options o;
    create(&x);
    x.s.optim = OFFLOAD_AUTO;
    for (int i = 0; i < 2; i++) {
        struct strategy s = x.fixed;
        s.placement.optim = RES_NVME;
        s.placement.update_on_host = 1;
        x.s.update = updates[i];
        options_of(x.m, &x.s, &x.fixed, &o);
        assert_int_equal(options_may_promote(&o, &s, CLASS_OPTIM, RES_DEVICE), updates[i] == UPDATE_AUTO);
        assert_int_equal(options_may_promote(&o, &s, CLASS_OPTIM, RES_HOST), 1);
        assert_int_equal(options_may_promote(&o, &s, CLASS_OPTIM, RES_NVME), 0);
    }
    x.s.optim = OFFLOAD_NVME;
    options_of(x.m, &x.s, &x.fixed, &o);
    struct strategy s = x.fixed;
    s.placement.optim = RES_NVME;
    assert_int_equal(options_may_promote(&o, &s, CLASS_OPTIM, RES_HOST), 0);
    model_destroy(x.m);
}

static void spread_evenly(void **state)
{
    (void)state;
    const struct strategy s = {.placement.optim = RES_NVME,
                               .placement.promoted_class = CLASS_OPTIM,
                               .placement.promote_tier = RES_HOST,
                               .placement.promoted_layers = 2};
    static const enum residency expected[LAYERS] = {RES_NVME, RES_NVME, RES_HOST, RES_NVME, RES_NVME, RES_HOST};
    for (int l = 0; l < LAYERS; l++)
        assert_int_equal(strategy_residency(&s, CLASS_OPTIM, l, LAYERS), expected[l]);
    assert_int_equal(strategy_residency(&s, CLASS_OPTIM, -1, LAYERS), RES_NVME);
    assert_int_equal(strategy_residency(&s, CLASS_PARAM, 2, LAYERS), RES_DEVICE);
}

/* The longest text fits and is not cut off. */
static void text_is_whole(void **state)
{
    (void)state;
    const struct plan p = {.default_grid = {1 << 20, 1 << 20, 128, 12.34},
                           .strategy = {.rows = (int64_t)1 << 40,
                                        .key.row_chunk = 1 << 20,
                                        .key.loss_tile = 1 << 20,
                                        .key.head_tile = 128,
                                        .placement.params = RES_DEVICE,
                                        .placement.grads = RES_NVME,
                                        .placement.optim = RES_NVME,
                                        .placement.acts = RES_NVME,
                                        .placement.passing = RES_HOST,
                                        .placement.promoted_class = CLASS_ACT,
                                        .placement.promote_tier = RES_DEVICE,
                                        .placement.promoted_layers = 1000,
                                        .placement.device_chunks = 1 << 20,
                                        .placement.kept_chunks = 1 << 20,
                                        .placement.keep_inputs = 8,
                                        .placement.write_depth = 8}};
    char text[PLAN_TEXT];
    plan_describe(&p, text, sizeof text);
    print_message("%zu: %s\n", strlen(text), text);
    assert_string_equal(text + strlen(text) - strlen("% longer)"), "% longer)");
}

/* Plans with room in `tier` for two thirds of the optimizer state; without that room all of it would lie on the host or on slow
 * drives. The caller destroys the plan; limit: the limits that it was made for. */
static struct plan *filled(struct subject *x, enum tier tier, int64_t limit[TIERS])
{
    struct plan *plan;
    struct strategy s = x->fixed;
    int64_t bytes[TIERS];
    for (int t = 0; t < TIERS; t++)
        limit[t] = (int64_t)HUGE << 4;
    s.placement.optim = RES_HOST;
    lowered(x, &s, CLASS_OPTIM, bytes);
    x->s.params = x->s.grads = x->s.acts = OFFLOAD_NONE;
    x->s.optim = OFFLOAD_NVME;
    x->s.alpha = 1;
    assert_int_equal(plan_create(x->m, &x->s, limit, &plan), OK);
    limit[TIER_DEVICE] = plan->arena[TIER_DEVICE] + bytes[TIER_HOST] / 8;
    limit[TIER_HOST] = plan->arena[TIER_HOST];
    limit[tier] = plan->arena[tier] + bytes[TIER_HOST] * 2 / 3;
    plan_destroy(plan);
    x->s.optim = OFFLOAD_AUTO;
    x->h.read = x->h.write = 1e7;
    x->h.both = 2e7;
    assert_int_equal(plan_create(x->m, &x->s, limit, &plan), OK);
    return plan;
}

static void check_filled(enum tier tier)
{
    struct subject x;
    struct problem problem;
    struct candidate apart;
    struct explanation e;
    char text[PLAN_TEXT];
    int64_t limit[TIERS];
    int explained = 0;
    create(&x);
    struct plan *plan = filled(&x, tier, limit);
    struct strategy s = plan->strategy;
    strategy_describe(&s, text, sizeof text);
    print_message("%s: %.4g s\n", text, plan->seconds);
    assert_true(plan->fits && s.placement.optim == RES_NVME && s.placement.promoted_class == CLASS_OPTIM &&
                s.placement.promoted_layers >= LAYERS / 2);
    assert_int_equal(s.placement.promote_tier, tier);
    assert_non_null(strstr(text, "optimizer of "));
    s.placement.promoted_layers = 0;
    problem_set(&problem, x.m, &x.s, limit);
    assert_int_equal(search_price(&problem, &s, &apart), OK);
    print_message("%d of %d layers' optimizer state there: %.4g s; none: %.4g s\n", plan->strategy.placement.promoted_layers,
                  LAYERS, plan->seconds, apart.seconds);
    assert_true(plan->seconds < 0.7 * apart.seconds);
    assert_int_equal(explain_make(plan, x.m, &x.s, &e), OK);
    for (int i = 0; i < e.n; i++)
        for (int k = 0; strcmp(e.decision[i].what, "optimizer state") == 0 && k < e.decision[i].n; k++)
            explained += strcmp(e.decision[i].by_cost[k].say, "nvme") == 0 && e.decision[i].by_cost[k].seconds == apart.seconds;
    assert_int_equal(explained, 1);
    plan_destroy(plan);
    model_destroy(x.m);
}

static void search_fills_the_host(void **state)
{
    (void)state;
    check_filled(TIER_HOST);
}

/* The search uses the device for what does not fit on the host. */
static void search_fills_the_device(void **state)
{
    (void)state;
    check_filled(TIER_DEVICE);
}

/* Local search alone, started from a placement with all of that class on drives, finds a placement that is as fast or faster. */
static void local_search_fills_the_device(void **state)
{
    (void)state;
    struct subject x;
    struct problem problem;
    struct pool *pool;
    int64_t limit[TIERS];
    create(&x);
    struct plan *plan = filled(&x, TIER_DEVICE, limit);
    struct strategy s = plan->strategy;
    s.placement.promoted_layers = 0;
    struct candidate apart, best;
    problem_set(&problem, x.m, &x.s, limit);
    assert_int_equal(search_price(&problem, &s, &apart), OK);
    assert_true(apart.excess <= 1 && apart.all_layers);
    const struct search known = {.candidates = &apart, .n = 1, .n_tried = 1, .all_layers = 1};
    assert_int_equal(pool_create(&problem, &x.fixed, POOL_GIVEN_GRIDS, &pool), OK);
    assert_int_equal(pool_add_search(pool, &x.fixed, &known), OK);
    best = apart;
    assert_int_equal(local_search(pool, &best), OK);
    print_message("%d of %d layers: %.4g s; none: %.4g s; planned: %d, %.4g s\n", best.strategy.placement.promoted_layers, LAYERS,
                  best.seconds, apart.seconds, plan->strategy.placement.promoted_layers, plan->seconds);
    assert_true(best.excess <= 1 && best.strategy.placement.promoted_layers > 0 &&
                best.strategy.placement.promote_tier == RES_DEVICE);
    assert_true(best.seconds < 0.7 * apart.seconds);
    pool_destroy(pool);
    plan_destroy(plan);
    model_destroy(x.m);
}

/* Estimates are right if the host updates the rest of the optimizer state: they count the needs of layers with state on the
 * device, and their updates there. */
static void estimates_hold(void **state)
{
    (void)state;
    struct subject x;
    struct problem problem;
    struct options o;
    struct estimator *e;
    create(&x);
    x.s.optim = OFFLOAD_AUTO;
    x.s.update = UPDATE_AUTO;
    options_of(x.m, &x.s, &x.fixed, &o);
    problem_set(&problem, x.m, &x.s, ample);
    assert_int_equal(estimator_create(&problem, &o, &x.fixed, &e), OK);
    int64_t missing[TIERS];
    for (int n = 0; n <= LAYERS; n += LAYERS / 2) {
        struct candidate c = {.strategy = x.fixed};
        struct program *p;
        struct io_buffers io;
        int64_t bytes[TIERS];
        int on_device, on_host;
        c.strategy.placement.kept_chunks = options_most_kept(&o);
        c.strategy.placement.optim = RES_HOST;
        c.strategy.placement.promoted_class = CLASS_OPTIM;
        c.strategy.placement.promote_tier = RES_DEVICE;
        c.strategy.placement.promoted_layers = n;
        c.strategy.placement.update_on_host = 1;
        estimator_judge(e, &c);
        assert_int_equal(lower_program(x.m, &c.strategy, WHOLE_STEP, &io, &p), OK);
        assert_int_equal(pack_live_in_order(p, bytes), OK);
        for (int b = 0; b < p->n_persistent; b++)
            bytes[p->buffers[b].tier] += round_up(p->buffers[b].bytes, BUFFER_ALIGN);
        count_updates(p, &on_device, &on_host);
        print_message("of %d layers on the device: %.4f and %.4f of the bytes needed; %d updates on the device, %d on the host\n",
                      n, (double)c.bytes[TIER_DEVICE] / (double)bytes[TIER_DEVICE],
                      (double)c.bytes[TIER_HOST] / (double)bytes[TIER_HOST], on_device, on_host);
        for (int t = 0; t < TIERS; t++) {
            /* copies on their way are not counted if few layers have them: as many bytes for any n */
            missing[t] = n == 0 ? bytes[t] / 100 : missing[t];
            assert_true(c.bytes[t] >= bytes[t] - missing[t] && c.bytes[t] <= bytes[t] + bytes[t] / 100);
        }
        assert_true((on_device == 0) == (n == 0) && on_host > 0);
        program_destroy(p);
    }
    estimator_destroy(e);
    model_destroy(x.m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(values_stay_the_same),    cmocka_unit_test(both_update),
                                       cmocka_unit_test(settings_bar_it),         cmocka_unit_test(spread_evenly),
                                       cmocka_unit_test(text_is_whole),           cmocka_unit_test(search_fills_the_host),
                                       cmocka_unit_test(search_fills_the_device), cmocka_unit_test(local_search_fills_the_device),
                                       cmocka_unit_test(estimates_hold)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
