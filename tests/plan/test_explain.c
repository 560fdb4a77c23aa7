/* What alternatives are said to take is what they take when they are planned. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "plan/cells.h"
#include "plan/explain.h"

#include <math.h>

enum { AMPLE = 1 << 28 };

static struct plan *planned(const struct model *m, const struct settings *s, const int64_t limit[TIERS])
{
    struct plan *plan;
    if (plan_create(m, s, limit, &plan) != OK)
        fail_msg("%s", status_message());
    return plan;
}

static const struct decision *find(const struct explanation *e, const char *what)
{
    for (int i = 0; i < e->n; i++)
        if (strcmp(e->decision[i].what, what) == 0)
            return &e->decision[i];
    fail_msg("no decision about %s", what);
    return NULL;
}

/* The settings that leave nothing open but give the plan's placement. */
static void fix_all(const struct plan *p, struct settings *s)
{
    static const enum offload offload[] = {OFFLOAD_NONE, OFFLOAD_CPU, OFFLOAD_NVME};
    s->params = offload[p->strategy.params];
    s->grads = offload[p->strategy.grads];
    s->optim = offload[p->strategy.optim];
    s->update = p->strategy.update_on_host ? UPDATE_HOST : UPDATE_DEVICE;
    s->alpha = (double)p->strategy.kept_chunks / (double)ceil_div(p->strategy.rows, p->strategy.row_chunk);
}

static void check(const struct model *m, const struct settings *s, const int64_t limit[TIERS], const struct alternative *a)
{
    struct plan *plan = planned(m, s, limit);
    const struct program *p = plan->programs[PLAN_UPDATE_STEP];
    if (fabs(p->seconds - a->seconds) > 1e-9 * p->seconds) /* the same program, simulated twice */
        fail_msg("%s: said to take %.9g s, takes %.9g s", a->say, a->seconds, p->seconds);
    int fits = 1;
    for (int t = 0; t < TIERS; t++) {
        assert_int_equal(p->arena[t], a->bytes[t]);
        fits &= p->arena[t] <= limit[t];
    }
    assert_int_equal(fits, a->fits);
    plan_destroy(plan);
}

static void alternatives_are_plans(void **state)
{
    (void)state;
    static const char *const tier[] = {"device", "host", "nvme"};
    struct model *m;
    struct settings s;
    struct explanation e;
    int64_t limit[TIERS] = {AMPLE, AMPLE, AMPLE};
    int compared = 0, refused = 0;
    assert_int_equal(cell_model(FAMILY_LLAMA, 3, &m), OK);
    cell_settings(&s, 128, F32);
    struct plan *plan = planned(m, &s, limit);
    limit[TIER_DEVICE] = plan->arena[TIER_DEVICE] * 6 / 10;
    plan_destroy(plan);
    s.params = s.grads = s.optim = OFFLOAD_AUTO;
    s.acts = OFFLOAD_CPU;
    s.alpha = AUTO;
    s.update = UPDATE_AUTO;
    s.device = DEVICE_CPU_DISCRETE;
    plan = planned(m, &s, limit);
    assert_true(plan->fits);
    assert_int_equal(explain_make(plan, m, &s, &e), OK);
    fix_all(plan, &s);
    assert_true(fabs(e.seconds - plan->seconds) <= 1e-9 * plan->seconds);
    const struct decision *d = find(&e, "optimizer state");
    assert_int_equal(d->n, 2);
    assert_false(d->given);
    assert_true(find(&e, "activations")->given);
    for (int i = 0; i < d->n; i++)
        for (int t = 0; t < TIERS; t++) {
            struct settings other = s;
            other.optim = (enum offload)(OFFLOAD_NONE + t);
            if (strcmp(d->by_cost[i].say, tier[t]) != 0)
                continue;
            check(m, &other, limit, &d->by_cost[i]);
            compared++;
        }
    d = find(&e, "activations");
    for (int i = 0; i < d->n; i++)
        refused += !d->by_cost[i].fits;
    d = find(&e, "AdamW");
    s.update = s.update == UPDATE_HOST ? UPDATE_DEVICE : UPDATE_HOST;
    check(m, &s, limit, &d->by_cost[0]);
    assert_int_equal(compared, 2);
    print_message("%d activations' places that do not fit\n", refused);
    plan_destroy(plan);
    model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(alternatives_are_plans)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
