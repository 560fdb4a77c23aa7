/* Tests activations with some row chunks on the device and the others elsewhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "machine/hardware.h"
#include "plan/cells.h"
#include "plan/lower/fixed.h"
#include "plan/report/describe.h"
#include "plan/report/explain.h"
#include "plan/search/price.h"
#include "verify/value_numbers.h"
#include "verify/verify.h"

#include <math.h>
#include <string.h>

enum { CHUNKS = 16, TOKENS = 16384, LAYERS = 6, HUGE = 1 << 30 };

/* Drives that take twice the forward pass to write all activations, a host without room for most of them, and a device with room
 * for half. */
struct subject {
    struct model *m;
    struct plan_request s;
    struct hardware h;
    int64_t limit[TIERS];
    uint64_t resident; /* digest of a step's values with everything on the device */
};

static struct plan *planned(const struct subject *x)
{
    struct plan *plan;
    if (plan_create(x->m, &x->s, x->limit, &plan) != OK)
        fail_msg("%s", status_message());
    return plan;
}

static uint64_t digest_of(const struct plan *plan)
{
    const struct program *p = plan->programs[PLAN_UPDATE_STEP];
    uint64_t digest;
    if (program_verify(p) != OK || program_value_digest(p, &digest) != OK)
        fail_msg("%s", status_message());
    return digest;
}

static void create(struct subject *x)
{
    *x = (struct subject){.limit = {(int64_t)HUGE << 4, (int64_t)HUGE << 4, (int64_t)HUGE << 4}};
    assert_int_equal(cell_wide_model(LAYERS, TOKENS, &x->m), OK);
    cell_settings(&x->s, TOKENS, F32);
    x->s.row_chunk = x->s.loss_tile = TOKENS / CHUNKS;
    x->s.head_tile = 4;
    x->s.group = 1 << 20;
    x->s.device = DEVICE_CPU_DISCRETE;
    x->s.alpha = 0;
    struct plan *resident = planned(x);
    x->s.acts = OFFLOAD_NVME;
    struct plan *away = planned(x);
    x->resident = digest_of(resident);
    hardware_assumed(&x->h);
    x->h.read = x->h.write = (double)away->arena[TIER_NVME] / (2 * resident->seconds / 3);
    x->h.both = 2 * x->h.read;
    x->limit[TIER_DEVICE] = (resident->arena[TIER_DEVICE] + away->arena[TIER_DEVICE]) / 2;
    x->limit[TIER_HOST] = away->arena[TIER_HOST] + away->arena[TIER_NVME] / 4;
    x->s.acts = x->s.passing = OFFLOAD_AUTO;
    x->s.hardware = &x->h;
    plan_destroy(resident);
    plan_destroy(away);
}

static void drives_write_less(void **state)
{
    (void)state;
    struct subject x;
    struct problem problem;
    struct candidate apart;
    struct explanation e;
    char text[PLAN_TEXT];
    create(&x);
    struct plan *plan = planned(&x);
    struct strategy s = plan->strategy;
    int chunks = s.placement.device_chunks, explained = 0;
    s.placement.device_chunks = 0;
    problem_set(&problem, x.m, &x.s, x.limit);
    assert_int_equal(search_price(&problem, &s, &apart), OK);
    print_message("%d of %d chunks on the device: %.4g s; none: %.4g s\n", chunks, CHUNKS, plan->seconds, apart.seconds);
    assert_true(plan->fits && chunks > 0 && plan->seconds < 0.8 * apart.seconds);
    assert_true(digest_of(plan) == x.resident);
    strategy_describe(&plan->strategy, text, sizeof text);
    assert_non_null(strstr(text, " of 16 chunks on the device)"));
    assert_int_equal(explain_make(plan, x.m, &x.s, &e), OK);
    for (int i = 0; i < e.n; i++)
        for (int k = 0; strstr(e.decision[i].what, "row chunks of the other layers") && k < e.decision[i].n; k++)
            explained += strcmp(e.decision[i].by_cost[k].say, "0") == 0 && e.decision[i].by_cost[k].seconds == apart.seconds;
    assert_int_equal(explained, 1);
    plan_destroy(plan);
    model_destroy(x.m);
}

/* Activations that have not been written when the forward pass ends stay on the host: the less room it has, the longer this pass. */
static void backlog_needs_room(void **state)
{
    (void)state;
    struct subject x;
    struct candidate c;
    struct problem problem;
    struct strategy s;
    double before = 0;
    create(&x);
    assert_int_equal(plan_fixed(x.m, &x.s, &s), OK);
    s.placement.acts = RES_NVME;
    s.placement.passing = RES_HOST;
    int64_t least = x.limit[TIER_HOST], more = least;
    for (int i = 0; i < 2; i++, more += least / 8) {
        x.limit[TIER_HOST] = more;
        problem_set(&problem, x.m, &x.s, x.limit);
        assert_int_equal(search_price_as_is(&problem, &s, &c), OK);
        print_message("%lld bytes of host: estimate %.4g s, trial %.4g s\n", (long long)more, c.estimate, c.seconds);
        assert_true(c.excess <= 1 && c.all_layers);
        if (i > 0)
            assert_true(fabs(before - c.estimate - (double)(least / 8) / problem.cost.lane_bytes[LANE_WRITE]) < 1e-3 * before);
        before = c.estimate;
    }
    model_destroy(x.m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(drives_write_less), cmocka_unit_test(backlog_needs_room)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
