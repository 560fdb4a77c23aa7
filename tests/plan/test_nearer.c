/* Classes that some layers have one tier nearer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "plan/cells.h"
#include "plan/explain.h"
#include "plan/fit.h"
#include "plan/hardware.h"
#include "plan/search.h"
#include "program/verify.h"

#include <string.h>

enum { LAYERS = 6, TOKENS = 4096, HUGE = 1 << 30 };

struct subject {
    struct model *m;
    struct settings s;
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

/* A whole step's program; its digest, and on every tier the bytes of the class that live there for good, or at one time. */
static uint64_t lowered(const struct subject *x, const struct strategy *s, enum tensor_class class, int64_t bytes[TIERS])
{
    const int64_t ample[TIERS] = {(int64_t)HUGE << 4, (int64_t)HUGE << 4, (int64_t)HUGE << 4};
    int role = ROLE_UPDATE | ROLE_FORWARD | ROLE_BACKWARD | ROLE_FIRST | ROLE_LAST, pace = 0;
    struct io_buffers io;
    struct program *p;
    uint64_t digest;
    if (fit_program(x->m, s, &x->cost, role, ample, 0, &pace, &io, &p) != OK || program_verify(p) != OK ||
        program_value_digest(p, &digest) != OK)
        fail_msg("%s", status_message());
    memset(bytes, 0, sizeof(int64_t) * TIERS);
    for (int b = 0; b < (class == CLASS_ACT ? p->n_buffers : p->n_persistent); b++)
        bytes[p->buffers[b].tier] += p->buffers[b].class == class ? p->buffers[b].bytes : 0;
    program_destroy(p);
    return digest;
}

/* Any number of layers, of any class and tier: the same values, and state where it should be. */
static void values_stay_the_same(void **state)
{
    (void)state;
    struct subject x;
    create(&x);
    struct strategy s = x.fixed;
    int64_t none[TIERS], all[TIERS], some[TIERS];
    s.kept_chunks = 2;
    const uint64_t resident = lowered(&x, &s, CLASS_PARAM, none);
    for (int class = CLASS_PARAM; class <= CLASS_ACT; class ++)
        for (int far = class == CLASS_ACT ? RES_NVME : RES_HOST; far <= RES_NVME; far++) {
            s = x.fixed;
            s.kept_chunks = 2;
            s.passing = RES_HOST;
            s.update_on_host = far == RES_NVME;
            s.nearer_class = (enum tensor_class) class;
            *strategy_class(&s, s.nearer_class) = (enum residency)far;
            assert_true(lowered(&x, &s, s.nearer_class, none) == resident);
            s.nearer = LAYERS;
            assert_true(lowered(&x, &s, s.nearer_class, all) == resident);
            for (s.nearer = 1; s.nearer < LAYERS; s.nearer += 2) {
                assert_true(lowered(&x, &s, s.nearer_class, some) == resident);
                if (class != CLASS_ACT) /* of which buffers are used again */
                    assert_int_equal((some[far] - none[far]) * LAYERS, (all[far] - none[far]) * s.nearer);
                assert_true(some[far] < none[far] && some[far] > all[far]);
            }
        }
    model_destroy(x.m);
}

static void spread_evenly(void **state)
{
    (void)state;
    const struct strategy s = {.optim = RES_NVME, .nearer_class = CLASS_OPTIM, .nearer = 2};
    static const enum residency expected[LAYERS] = {RES_NVME, RES_NVME, RES_HOST, RES_NVME, RES_NVME, RES_HOST};
    for (int l = 0; l < LAYERS; l++)
        assert_int_equal(strategy_residency(&s, CLASS_OPTIM, l, LAYERS), expected[l]);
    assert_int_equal(strategy_residency(&s, CLASS_OPTIM, -1, LAYERS), RES_NVME);
    assert_int_equal(strategy_residency(&s, CLASS_PARAM, 2, LAYERS), RES_DEVICE);
}

/* The longest there is: nothing of it is cut off. */
static void text_is_whole(void **state)
{
    (void)state;
    const struct plan p = {.usual = {1 << 20, 1 << 20, 128, 12.34},
                           .strategy = {.rows = (int64_t)1 << 40,
                                        .row_chunk = 1 << 20,
                                        .loss_tile = 1 << 20,
                                        .head_tile = 128,
                                        .params = RES_DEVICE,
                                        .grads = RES_NVME,
                                        .optim = RES_NVME,
                                        .acts = RES_NVME,
                                        .passing = RES_HOST,
                                        .nearer_class = CLASS_ACT,
                                        .nearer = 1000,
                                        .device_chunks = 1 << 20,
                                        .kept_chunks = 1 << 20,
                                        .input_every = 8,
                                        .write_depth = 8}};
    char text[PLAN_TEXT];
    plan_describe(&p, text, sizeof text);
    print_message("%zu: %s\n", strlen(text), text);
    assert_string_equal(text + strlen(text) - strlen("% longer)"), "% longer)");
}

/* The host has room for two thirds of the optimizer state, and the rest of it is slow to fetch. */
static void search_fills_the_host(void **state)
{
    (void)state;
    struct subject x;
    struct candidate apart;
    struct explanation e;
    struct plan *plan;
    char text[PLAN_TEXT];
    int explained = 0;
    create(&x);
    struct strategy s = x.fixed;
    int64_t bytes[TIERS], limit[TIERS] = {(int64_t)HUGE << 4, (int64_t)HUGE << 4, (int64_t)HUGE << 4};
    s.optim = RES_HOST;
    lowered(&x, &s, CLASS_OPTIM, bytes);
    x.s.params = x.s.grads = x.s.acts = OFFLOAD_NONE;
    x.s.optim = OFFLOAD_NVME;
    x.s.alpha = 1;
    assert_int_equal(plan_create(x.m, &x.s, limit, &plan), OK);
    limit[TIER_DEVICE] = plan->arena[TIER_DEVICE] + bytes[TIER_HOST] / 8;
    limit[TIER_HOST] = bytes[TIER_HOST] * 2 / 3;
    plan_destroy(plan);
    x.s.optim = OFFLOAD_AUTO;
    x.h.read = x.h.write = 1e7;
    x.h.both = 2e7;
    assert_int_equal(plan_create(x.m, &x.s, limit, &plan), OK);
    s = plan->strategy;
    strategy_describe(&s, text, sizeof text);
    print_message("%s: %.4g s\n", text, plan->seconds);
    assert_true(plan->fits && s.optim == RES_NVME && s.nearer_class == CLASS_OPTIM && s.nearer >= LAYERS / 2);
    assert_non_null(strstr(text, "optimizer of "));
    s.nearer = 0;
    assert_int_equal(search_price(x.m, &x.s, &s, &plan->cost, limit, &apart), OK);
    print_message("%d of %d layers' optimizer state on the host: %.4g s; none: %.4g s\n", plan->strategy.nearer, LAYERS,
                  plan->seconds, apart.seconds);
    assert_true(plan->seconds < 0.7 * apart.seconds);
    assert_int_equal(explain_make(plan, x.m, &x.s, &e), OK);
    for (int i = 0; i < e.n; i++)
        for (int k = 0; strcmp(e.decision[i].what, "optimizer state") == 0 && k < e.decision[i].n; k++)
            explained += strcmp(e.decision[i].by_cost[k].say, "nvme") == 0 && e.decision[i].by_cost[k].seconds == apart.seconds;
    assert_int_equal(explained, 1);
    plan_destroy(plan);
    model_destroy(x.m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(values_stay_the_same), cmocka_unit_test(spread_evenly),
                                       cmocka_unit_test(text_is_whole), cmocka_unit_test(search_fills_the_host)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
