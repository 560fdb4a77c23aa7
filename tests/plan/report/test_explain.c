/* Tests that alternatives, when they are planned, take as long as explanations say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "machine/hardware.h"
#include "plan/cells.h"
#include "plan/report/describe.h"
#include "plan/report/explain.h"
#include "plan/report/figures.h"
#include "plan/report/text.h"
#include "plan/roles.h"
#include "plan/schedule/prefetch.h"
#include "program/drives.h"

#include <math.h>
#include <stdlib.h>

enum { AMPLE = 1 << 28 };

static struct plan *planned(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS])
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

/* Fixes all settings to the plan's placement. */
static void fix_all(const struct plan *p, struct plan_request *s)
{
    static const enum offload offload[] = {OFFLOAD_NONE, OFFLOAD_CPU, OFFLOAD_NVME};
    s->params = offload[p->strategy.placement.params];
    s->grads = offload[p->strategy.placement.grads];
    s->optim = offload[p->strategy.placement.optim];
    s->update = p->strategy.placement.update_on_host ? UPDATE_HOST : UPDATE_DEVICE;
    s->alpha = (double)p->strategy.placement.kept_chunks / (double)ceil_div(p->strategy.rows, p->strategy.key.row_chunk);
}

static void check(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], const struct alternative *a)
{
    struct plan *plan = planned(m, s, limit);
    const struct program *p = plan->programs[PLAN_UPDATE_STEP], *step = plan->programs[PLAN_STEP];
    if (fabs(p->seconds - a->seconds) > 1e-9 * p->seconds) /* the same program, simulated twice */
        fail_msg("%s: said to take %.9g s, takes %.9g s", a->say, a->seconds, p->seconds);
    int fits = 1;
    for (int t = 0; t < TIERS; t++) {
        /* if the program barely fits, the need of the step without an update counts, too */
        int64_t both = step ? max_i64(p->arena[t], step->arena[t]) : p->arena[t];
        assert_true(a->bytes[t] == p->arena[t] || a->bytes[t] == both);
        fits &= a->bytes[t] <= limit[t];
    }
    assert_int_equal(fits, a->fits);
    plan_destroy(plan);
}

static void alternatives_are_plans(void **state)
{
    (void)state;
    static const char *const tier[] = {"device", "host", "nvme"};
    struct model *m;
    struct plan_request s;
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
    static const char *const order[] = {"parameters", "gradients", "optimizer state", "AdamW",
                                        "activations"}; /* the order of the table */
    for (int i = 0; i < 5; i++)
        assert_string_equal(e.decision[i].what, order[i]);
    const struct decision *d = find(&e, "optimizer state");
    assert_int_equal(d->n, 2);
    assert_false(d->given);
    assert_true(find(&e, "activations")->given);
    for (int i = 0; i < d->n; i++)
        for (int t = 0; t < TIERS; t++) {
            struct plan_request other = s;
            other.optim = (enum offload)(OFFLOAD_NONE + t);
            if (strcmp(d->by_cost[i].say, tier[t]) != 0)
                continue;
            check(m, &other, limit, &d->by_cost[i]);
            compared++;
        }
    d = find(&e, "activations");
    for (int i = 0; i < d->n; i++)
        refused += !d->by_cost[i].fits;
    d = find(&e, "row chunks kept that might be computed again"); /* alternatives that fit come first, of these the fastest */
    for (int i = 1; i < d->n; i++)
        assert_true(d->by_cost[i - 1].fits >= d->by_cost[i].fits &&
                    (!d->by_cost[i].fits || d->by_cost[i - 1].seconds <= d->by_cost[i].seconds));
    d = find(&e, "hidden states between layers");
    assert_true(d->given && d->n == 1 && strcmp(d->chosen, "host") == 0);
    struct plan_request promoted = s;
    promoted.passing = OFFLOAD_NONE;
    check(m, &promoted, limit, &d->by_cost[0]);
    d = find(&e, "AdamW");
    s.update = s.update == UPDATE_HOST ? UPDATE_DEVICE : UPDATE_HOST;
    check(m, &s, limit, &d->by_cost[0]);
    assert_int_equal(compared, 2);
    print_message("%d activations' places that do not fit\n", refused);
    plan_destroy(plan);
    model_destroy(m);
}

static double seconds_with_depth(const struct model *m, const struct plan *plan, int write_depth)
{
    struct strategy strategy = plan->strategy;
    struct program *p;
    struct io_buffers io;
    int level = 0;
    strategy.placement.write_depth = write_depth;
    assert_int_equal(fit_program(m, &strategy, &plan->cost, DUTY_UPDATE | DUTY_FORWARD | DUTY_BACKWARD | DUTY_FIRST | DUTY_LAST,
                                 plan->limit, 0, FIT_SERIAL, &level, &io, &p),
                     OK);
    double seconds = p->seconds;
    program_destroy(p);
    return seconds;
}

/* If the forward pass waits for drives, the plan limits drive writes during reads, and tells what it would cost not to. */
static void depth_of_writes_has_a_price(void **state)
{
    (void)state;
    const int64_t limit[TIERS] = {AMPLE, AMPLE, AMPLE};
    struct model *m;
    struct plan_request s;
    struct hardware h;
    struct explanation e;
    char text[256];
    hardware_assumed(&h);
    h.read = h.write = 150e6;
    h.both = 1.3 * h.read;
    assert_int_equal(cell_model(FAMILY_LLAMA, 3, &m), OK);
    cell_settings(&s, 128, F32);
    s.params = s.grads = s.acts = s.passing = OFFLOAD_AUTO;
    s.optim = OFFLOAD_NVME;
    s.alpha = AUTO;
    s.update = UPDATE_AUTO;
    s.device = DEVICE_CPU_DISCRETE;
    s.hardware = &h;
    struct plan *plan = planned(m, &s, limit);
    assert_true(plan->strategy.placement.write_depth > 0);
    strategy_describe(&plan->strategy, text, sizeof text);
    assert_non_null(strstr(text, "writes "));
    assert_int_equal(explain_make(plan, m, &s, &e), OK);
    const struct decision *d = find(&e, "blocks of drive writes in flight beside reads");
    assert_int_equal(d->n, 2);
    double own = seconds_with_depth(m, plan, plan->strategy.placement.write_depth);
    for (int i = 0; i < d->n; i++) {
        int blocks = atoi(d->by_cost[i].say);
        double expected = seconds_with_depth(m, plan, blocks == DRIVE_DEPTH ? 0 : blocks) / own;
        assert_int_not_equal(blocks, plan->strategy.placement.write_depth);
        assert_true(fabs(d->by_cost[i].seconds / e.seconds - expected) < 1e-9);
    }
    plan_destroy(plan);
    model_destroy(m);
}

/* Two full layers and one with a window have the right numbers of attended pairs; their seconds and bytes add up to the plan's. */
static void kinds_of_layers(void **state)
{
    (void)state;
    struct model *m;
    struct plan_request s;
    static struct explanation e;
    struct report r;
    const int64_t limit[TIERS] = {AMPLE, AMPLE, AMPLE};
    double compute = 0, attention = 0, waits = 0, exposed = 0, moved = 0, all = 0;
    char *text = NULL;
    size_t n;
    assert_int_equal(cell_model(FAMILY_GPT_OSS, 3, &m), OK);
    cell_settings(&s, 128, F32);
    s.params = s.grads = s.optim = s.acts = OFFLOAD_CPU;
    s.device = DEVICE_CPU_DISCRETE;
    struct plan *plan = planned(m, &s, limit);
    assert_int_equal(explain_make(plan, m, &s, &e), OK);
    assert_int_equal(report_make(plan, m, &r), OK);
    const struct layer_kind *full = &e.kind[0], *near = &e.kind[1];
    assert_int_equal(e.n_kinds, 2);
    assert_true(full->window == 0 && full->layers == 2 && near->window == 40 && near->layers == 1);
    assert_true(full->pairs == 128.0 * 128 / 2 && near->pairs == 128.0 * 40 - 40 * 40 / 2.0);
    assert_true(near->attention < full->attention && near->compute < full->compute);
    for (int k = 0; k < 2; k++) {
        compute += e.kind[k].layers * e.kind[k].compute;
        attention += e.kind[k].layers * e.kind[k].attention;
        waits += e.kind[k].layers * e.kind[k].waits;
        moved += e.kind[k].layers * (double)e.kind[k].moved;
        assert_true(e.kind[k].busy[LANE_H2D] > 0 && e.kind[k].busy[LANE_D2H] > 0);
    }
    for (int l = 0; l < LANES; l++)
        exposed += r.lane[l].exposed;
    for (int c = 0; c < CLASSES; c++)
        all += (double)r.moved[c];
    assert_true(fabs(attention - r.compute[OPS_ATTENTION]) < 1e-9 * attention); /* no other unit has attention */
    assert_true(compute < r.lane[LANE_COMPUTE].busy && compute > 0.5 * r.lane[LANE_COMPUTE].busy);
    assert_true(waits >= 0 && waits < exposed * (1 + 1e-9) && moved < all && moved > 0.5 * all);
    FILE *f = open_memstream(&text, &n);
    assert_non_null(f);
    layer_kinds_print(e.kind, 1, f); /* nothing is printed if there is a single kind */
    layer_kinds_print(e.kind, 2, f);
    fclose(f);
    assert_int_equal(strncmp(text, "\nkind of layer", 14), 0);
    assert_non_null(strstr(text, "\nfull               2    100%     4/4"));
    assert_non_null(strstr(text, "\nwindow 40          1   52.7%     4/4"));
    free(text);
    plan_destroy(plan);
    model_destroy(m);
}

/* If kinds of layers keep different numbers of chunks, the mean for all layers is an alternative; it takes as long as its own
 * plan. */
static void mean_of_kinds(void **state)
{
    (void)state;
    static struct explanation e;
    struct model *m;
    struct plan_request s;
    const int64_t limit[TIERS] = {AMPLE, AMPLE, AMPLE};
    int offered = 0;
    assert_int_equal(cell_model(FAMILY_GPT_OSS, 3, &m), OK);
    cell_settings(&s, 128, F32);
    s.params = s.grads = s.optim = s.acts = OFFLOAD_CPU;
    s.device = DEVICE_CPU_DISCRETE;
    s.alpha_by_kind = 1;
    s.alpha = 0;
    s.window_alpha = 0.75;
    struct plan *plan = planned(m, &s, limit);
    assert_int_equal(plan->strategy.placement.kept_chunks, 1); /* 1 chunk of 4, the mean; the layer with a window keeps 3 */
    assert_int_equal(explain_make(plan, m, &s, &e), OK);
    s.alpha_by_kind = 0;
    s.alpha = 0.25;
    struct plan *mean = planned(m, &s, limit);
    const double times = mean->programs[PLAN_UPDATE_STEP]->seconds / plan->programs[PLAN_UPDATE_STEP]->seconds;
    assert_true(fabs(times - 1) > 1e-6);
    for (int i = 0; i < e.n; i++)
        for (int k = 0; k < e.decision[i].n; k++)
            if (strcmp(e.decision[i].by_cost[k].say, "1 in all layers") == 0) {
                print_message("the mean takes %g times the plan's step\n", times);
                assert_true(fabs(e.decision[i].by_cost[k].seconds / e.seconds / times - 1) < 1e-6);
                offered++;
            }
    assert_int_equal(offered, 1);
    plan_destroy(mean);
    plan_destroy(plan);
    model_destroy(m);
}

/* Alternatives of stages are brief plans of all of them. */
static void stages(void **state)
{
    (void)state;
    static struct explanation e;
    struct model *m;
    struct plan_request s;
    struct plan *plan, *other;
    const int64_t limit[TIERS] = {AMPLE, AMPLE, AMPLE};
    assert_int_equal(cell_model(FAMILY_LLAMA, 4, &m), OK);
    cell_settings(&s, 128, F32);
    s.mesh = mesh_uniform(1);
    s.mesh.degree[MESH_PP] = s.mesh.degree[MESH_SLICES] = 2;
    s.grad_accum = 2;
    s.zero = AUTO;
    s.zero_is_unsaid = 1;
    s.stage_ahead = AUTO;
    s.effort = EFFORT_QUICK;
    s.params = s.grads = s.optim = OFFLOAD_AUTO;
    s.acts = OFFLOAD_NONE;
    s.device = DEVICE_CPU_DISCRETE;
    assert_int_equal(plan_stages_create(m, &s, 0, limit, &plan), OK);
    assert_int_equal(explain_make(plan, m, &s, &e), OK);
    assert_true(fabs(e.seconds - plan_step_seconds(plan)) < 1e-9 * e.seconds);
    const struct decision *d = find(&e, "messages between stages");
    s.zero = plan->strategy.key.zero;
    s.stage_ahead = !plan->strategy.ahead;
    assert_int_equal(plan_stages_create(m, &s, 0, limit, &other), OK);
    assert_true(d->n == 1 && !d->given && fabs(d->by_cost[0].seconds - plan_step_seconds(other)) < 1e-9 * e.seconds);
    assert_true(fabs(d->by_cost[0].seconds - e.seconds) > 1e-6 * e.seconds);
    assert_true(find(&e, "activations")->given && find(&e, "ZeRO stage")->n == 2);
    d = find(&e, "slices of each sequence");
    assert_string_equal(d->chosen, "2");
    assert_int_equal(d->n, 2);
    plan_destroy(other);
    plan_destroy(plan);
    model_destroy(m);
}

/* Needs and limits that would be rounded to the same text are printed with more digits; no line is longer than a terminal. */
static void in_words(void **state)
{
    (void)state;
    static struct explanation e = {.n = 2, .seconds = 1};
    const struct plan p = {.limit = {23ll << 30, AMPLE, AMPLE}};
    char *text = NULL;
    size_t n;
    e.decision[0] = (struct decision){
        .what = "row chunks kept", .flag = "--alpha", .chosen = "14 of 32", .note = "2% is computed again", .n = 2};
    e.decision[0].by_cost[0] = (struct alternative){.say = "6", .fits = 1, .seconds = 1.25};
    e.decision[0].by_cost[1] = (struct alternative){.say = "22", .bytes = {(23ll << 30) + (200 << 20), 0, 0}};
    e.decision[1] = (struct decision){.what = "AdamW", .flag = "", .chosen = "on the host", .given = 1};
    FILE *f = open_memstream(&text, &n);
    assert_non_null(f);
    explain_print(&p, &e, f);
    fclose(f);
    assert_string_equal(text, "\nWhat was decided, [the option that sets it], and what each other choice would\n"
                              "change alone (--offload says none for the device, cpu for the host):\n"
                              "  Row chunks kept [--alpha]: 14 of 32; 2% is computed again. Otherwise 6: 25.0%\n"
                              "    slower; 22: needs 23.20 GiB of 23.00 GiB on the device.\n"
                              "  AdamW: on the host (given).\n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(alternatives_are_plans),
                                       cmocka_unit_test(depth_of_writes_has_a_price),
                                       cmocka_unit_test(kinds_of_layers),
                                       cmocka_unit_test(mean_of_kinds),
                                       cmocka_unit_test(stages),
                                       cmocka_unit_test(in_words)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
