/* Tests that sums and tables of a report agree with the plan's programs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "machine/hardware.h"
#include "machine/rank_cost.h"
#include "plan/ample.h"
#include "plan/lower/fixed.h"
#include "plan/report/describe.h"
#include "plan/report/figures.h"
#include "plan/report/text.h"
#include "plan/scheduled.h"

#include <math.h>
#include <stdlib.h>

static void check_sums(const struct plan *p, const struct report *r)
{
    int64_t count[PLAN_PROGRAMS], bytes[LANES] = {0}, moved = 0;
    double busy[LANES] = {0}, by_lane = 0, by_class = 0, kinds = 0, seconds = 0;
    report_counts(p, count);
    for (int k = 0; k < PLAN_PROGRAMS; k++) {
        for (int i = 0; count[k] && i < p->programs[k]->n_instrs; i++) {
            const struct instr *in = &p->programs[k]->instrs[i];
            bytes[in->lane] += count[k] * program_call(p->programs[k], in)->bytes;
            busy[in->lane] += (double)count[k] * (in->end - in->start);
        }
        seconds += count[k] ? (double)count[k] * p->programs[k]->seconds : 0;
    }
    near(seconds, p->seconds);
    for (int l = 0; l < LANES; l++) {
        near(r->lane[l].busy, busy[l]);
        by_lane += r->lane[l].exposed;
        if (l != LANE_COMPUTE)
            assert_int_equal(r->lane[l].bytes, bytes[l]);
        if (l != LANE_COMPUTE && l != LANE_HOST)
            moved += bytes[l];
        double waited = 0;
        for (int c = 0; c < CLASSES; c++)
            waited += r->waited[l][c];
        near(waited, r->lane[l].exposed);
    }
    for (int c = 0; c < CLASSES; c++) {
        by_class += r->exposed[c];
        moved -= r->moved[c];
    }
    for (int k = 0; k < OPS_COMPUTED; k++)
        kinds += r->compute[k];
    assert_int_equal(moved, 0);
    near(by_lane, by_class);
    near(kinds, busy[LANE_COMPUTE]);
    near(by_lane + busy[LANE_COMPUTE], p->seconds);
}

/* Compute's busy time and its pauses add up to the step, and every moved byte is counted under a class. */
static void sums(void **state)
{
    (void)state;
    static struct cell cells[64];
    int n = cells_covering(cells, 64, 2, 5);
    for (int i = 0; i < n; i++) {
        struct plan_request s;
        struct report r;
        struct model *m = model_for(i % 2 ? FAMILY_GPT2 : FAMILY_LLAMA, 3);
        cell_settings(&s, 100, i % 3 ? F32 : BF16);
        cell_apply(&cells[i], &s);
        s.grad_accum = 1 + i % 3;
        if (i % 4 == 0) {
            s.mesh.degree[MESH_DP] = 2;
            s.mesh.degree[MESH_ULYSSES] = 2;
        }
        if (i % 2)
            s.link_gbps = 1e-4;
        struct plan *plan = plan_for(m, &s);
        assert_int_equal(report_make(plan, m, &r), OK);
        check_sums(plan, &r);
        plan_destroy(plan);
        model_destroy(m);
    }
}

/* Fetching ahead takes memory; without it the bound is that of the program in lowered order. */
static void bounds(void **state)
{
    (void)state;
    struct plan_request s;
    struct strategy fixed;
    struct cost_model cost;
    struct io_buffers io;
    struct program *p;
    struct model *m = model_for(FAMILY_LLAMA, 3);
    cell_settings(&s, 100, F32);
    assert_int_equal(plan_fixed(m, &s, &fixed), OK);
    fixed.placement.params = fixed.placement.acts = fixed.placement.passing = RES_HOST;
    plan_cost_model(&s, &cost);
    assert_int_equal(lower_program(m, &fixed, DUTY_FORWARD | DUTY_BACKWARD | DUTY_FIRST | DUTY_LAST, &io, &p), OK);
    assert_int_equal(schedule_program(p, &cost, SCHEDULE_SERIAL, 0), OK);
    for (int t = 0; t < TIERS; t++)
        assert_int_equal(p->lower_bound[t], p->serial_bound[t]);
    int64_t serial = p->serial_bound[TIER_DEVICE];
    program_destroy(p);
    assert_int_equal(lower_program(m, &fixed, DUTY_FORWARD | DUTY_BACKWARD | DUTY_FIRST | DUTY_LAST, &io, &p), OK);
    assert_int_equal(schedule_program(p, &cost, SCHEDULE_OVERLAPPED, 1), OK);
    assert_int_equal(p->serial_bound[TIER_DEVICE], serial);
    assert_true(p->lower_bound[TIER_DEVICE] > serial);
    program_destroy(p);
    model_destroy(m);
}

/* Links that take nearly all of the time are named as the cause of waits. */
static void names_the_slow_lane(void **state)
{
    (void)state;
    struct plan_request s;
    struct report r;
    struct model *m = model_for(FAMILY_LLAMA, 3);
    cell_settings(&s, 100, F32);
    s.device = DEVICE_CPU_DISCRETE;
    s.acts = s.params = OFFLOAD_CPU;
    s.link_gbps = 1e-6;
    struct plan *plan = plan_for(m, &s);
    assert_int_equal(report_make(plan, m, &r), OK);
    enum lane slowest = report_slowest_lane(&r);
    assert_true(slowest == LANE_H2D || slowest == LANE_D2H);
    if (r.lane[LANE_H2D].exposed + r.lane[LANE_D2H].exposed < 0.9 * plan->seconds)
        fail_msg("%g s of %g s are exposed", r.lane[LANE_H2D].exposed + r.lane[LANE_D2H].exposed, plan->seconds);
    /* the rest are waits for tokens, masks and the step record */
    double moved = r.waited[slowest][CLASS_ACT] + r.waited[slowest][CLASS_PARAM];
    if (moved < 0.7 * r.lane[slowest].exposed)
        fail_msg("parameters and activations are %g of %g s on %s", moved, r.lane[slowest].exposed, lane_name(slowest));
    assert_true(r.hidden >= 0 && r.hidden < 0.6); /* two lanes, at most one of which can hide behind the other */
    plan_destroy(plan);
    model_destroy(m);
}

/* The seconds of recomputation are those that alpha 0 adds to compute. */
static void recomputed(void **state)
{
    (void)state;
    struct model *m = model_for(FAMILY_LLAMA, 3);
    double busy[2];
    struct report r;
    for (int alpha = 1; alpha >= 0; alpha--) {
        struct plan_request s;
        cell_settings(&s, 128, F32);
        s.alpha = alpha;
        s.head_tile = 4;
        struct plan *plan = plan_for(m, &s);
        assert_int_equal(report_make(plan, m, &r), OK);
        busy[alpha] = r.compute[OPS_MATRIX];
        /* norms are recomputed at any alpha, as they are never kept */
        if (alpha == 1)
            assert_true(r.recomputed < 0.2 * r.lane[LANE_COMPUTE].busy);
        else
            assert_true(r.recomputed > busy[0] - busy[1] && busy[0] > 1.1 * busy[1]);
        near(r.model_flops, model_flops(m, 128, (double[MODEL_MASKS]){128.0 * 128 / 2}));
        near(r.mfu * plan->seconds * plan->cost.peak_flops, r.model_flops);
        plan_destroy(plan);
    }
    model_destroy(m);
}

/* Prints the plan as text, which the caller frees. */
static void print_plan(const struct plan *p, const struct model *m, const struct plan_request *s, char **text)
{
    static size_t n;
    FILE *f = open_memstream(text, &n);
    assert_non_null(f);
    assert_int_equal(plan_print(p, m, s, f), OK);
    fclose(f);
}

/* Joins the lines of one paragraph. */
static void unwrap(char *text)
{
    for (char *at = text; (at = strstr(at, "\n  "));)
        memmove(at, at + 2, strlen(at + 2) + 1);
}

/* Sums the seconds of a table's last column, from the line after the one that begins with `first` to the one before `last`. */
static double seconds_of(const char *text, const char *first, const char *last)
{
    double sum = 0;
    const char *line = strchr(strstr(text, first) + 1, '\n') + 1, *end = strstr(line, last);
    assert_non_null(end);
    for (; line < end; line = strchr(line, '\n') + 1) {
        const char *column = strchr(line, '\n') - 11;
        if (strncmp(line, "compute", 7) == 0)
            continue;
        sum += strtod(column, NULL) * (strstr(column, " ms\n") == strchr(line, '\n') - 3   ? 1e-3
                                       : strstr(column, " us\n") == strchr(line, '\n') - 3 ? 1e-6
                                       : strstr(column, " ns\n") == strchr(line, '\n') - 3 ? 1e-9
                                                                                           : 1);
    }
    return sum;
}

/* Even small exposed seconds are printed, so that both columns add up to compute's pauses; tables fit 80 columns. */
static void columns(void **state)
{
    (void)state;
    struct plan_request s;
    struct model *m = model_for(FAMILY_LLAMA, 3);
    char buf[32], line[320], *text = NULL;
    strcpy(m->config.name, "cell");
    cell_settings(&s, 100, F32);
    s.device = DEVICE_CPU_DISCRETE;
    s.params = s.grads = s.optim = s.acts = OFFLOAD_NVME;
    s.link_gbps = 1e-3;
    struct plan *plan = plan_for(m, &s);
    print_plan(plan, m, &s, &text);
    double by_class = seconds_of(text, "\n   ", "peak"), by_lane = seconds_of(text, "\nlane ", "\n\nCompute");
    if (!(by_class > 0) || fabs(by_class - by_lane) > 0.01 * by_class)
        fail_msg("%g s by class and %g s by lane are exposed in:\n%s", by_class, by_lane, text);
    for (const char *at = text, *end; (end = strchr(at, '\n')); at = end + 1)
        if (end - at > 80)
            fail_msg("%d columns: %.*s", (int)(end - at), (int)(end - at), at);
    assert_int_equal(strncmp(text, "cell, 100 tokens: fits, ", 24), 0);
    free(text);
    /* the need of the next length is printed if it exceeds the limit; a need below the limit, known from a trial only, is not */
    for (int over = 0; over < 2; over++) {
        plan->longest = (struct longest){.step = 4, .longer = 104, .bytes = plan->limit[TIER_DEVICE] + over};
        print_plan(plan, m, &s, &text);
        unwrap(text);
        assert_true(over == !strstr(text, "100 tokens, in steps of 4; 104 would not fit the device."));
        assert_true(over == (strstr(text, "100 tokens, in steps of 4; 104 would need ") != NULL));
        free(text);
    }
    /* a plan that does not fit has no times */
    plan->fits = 0;
    plan->limit[TIER_DEVICE] = plan->arena[TIER_DEVICE] - 1;
    print_plan(plan, m, &s, &text);
    unwrap(text);
    assert_non_null(strstr(text, "No sequence fits, not even one of 100 tokens, the shortest that --max-seq tries."));
    free(text);
    plan->longest.step = 0;
    print_plan(plan, m, &s, &text);
    assert_true(strstr(text, ": does not fit\n") && strstr(text, "\nlimit "));
    assert_true(!strstr(text, "MFU") && !strstr(text, "\nlane ") && !strstr(text, "Drives") && !strstr(text, "exposed"));
    free(text);
    plan->default_grid = (struct default_grid){.row_chunk = 64, .head_tile = 2, .loss_tile = 32, .slower = 0.004};
    plan_describe(plan, line, sizeof line);
    assert_non_null(strstr(line, " (for speed; the default tiles rows=64,heads=2,loss=32 take 0.4% longer)"));
    assert_string_equal(report_duration(0, buf), "0 s");
    assert_string_equal(report_duration(0.0096, buf), "9.6 ms");
    assert_string_equal(report_duration(96e-6, buf), "0.096 ms");
    plan_destroy(plan);
    model_destroy(m);
}

/* Times are printed in their unit, and a step of days has a remark. */
static void times(void **state)
{
    (void)state;
    static const struct {
        double seconds;
        const char *text;
    } cases[] = {{999.4, "999 s"},           {999.6, "16.7 min"},
                 {5969, "99.5 min"},         {5971, "1.66 h"},
                 {47.9 * 3600, "47.9 h"},    {48 * 3600, "2 days"},
                 {280000, "3.24 days"},      {999 * 86400., "999 days"},
                 {1095 * 86400., "3 years"}, {365 * 86400. * 1234, "1234 years"}};
    char buf[32], *text = NULL;
    struct plan_request s;
    struct model *m = model_for(FAMILY_LLAMA, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(report_duration(cases[i].seconds, buf), cases[i].text);
    cell_settings(&s, 100, F32);
    struct plan *plan = plan_for(m, &s);
    print_plan(plan, m, &s, &text);
    assert_null(strstr(text, "longer than a day"));
    free(text);
    plan->seconds = 280000;
    print_plan(plan, m, &s, &text);
    unwrap(text);
    assert_non_null(strstr(text, ": fits, 3.24 days a step"));
    assert_non_null(strstr(text, "A step takes longer than a day, and a run is saved between steps only: 100 (--steps) would "
                                 "take 324 days."));
    assert_null(strstr(text, "280000"));
    assert_true(strtod(strstr(text, "MFU ") + 4, NULL) > 0); /* more than 0 although it is rounded */
    free(text);
    plan_destroy(plan);
    model_destroy(m);
}

static void drive_said(double days, char said[32])
{
    if (days > 20 * 365)
        strcpy(said, "more than 20 years");
    else if (days < 10 || days > 3 * 365)
        report_duration(86400 * days, said);
    else
        snprintf(said, 32, "%.0f days", days);
}

/* A day's writes are the programs' writes times the steps of a day; a plan without drive writes says so. */
static void wear(void **state)
{
    (void)state;
    struct plan_request s;
    struct report r;
    struct model *m = model_for(FAMILY_LLAMA, 3);
    cell_settings(&s, 100, F32);
    struct plan *resident = plan_for(m, &s);
    s.params = s.grads = s.optim = s.acts = OFFLOAD_NVME;
    s.grad_accum = 3;
    struct plan *plan = plan_for(m, &s);
    double written = 0;
    int64_t count[PLAN_PROGRAMS];
    report_counts(plan, count);
    for (int k = 0; k < PLAN_PROGRAMS; k++)
        for (int i = 0; plan->programs[k] && i < plan->programs[k]->n_instrs; i++)
            if (plan->programs[k]->instrs[i].lane == LANE_WRITE)
                written += (double)program_call(plan->programs[k], &plan->programs[k]->instrs[i])->bytes * (double)count[k];
    assert_true(written > 0);
    assert_int_equal(report_make(plan, m, &r), OK);
    near(r.written_per_day, written * 86400 / plan->seconds);
    char *text = NULL, *none = NULL;
    print_plan(plan, m, &s, &text);
    print_plan(resident, m, &s, &none);
    const char *line = strstr(text, "\nDrives: ");
    unwrap(text);
    assert_non_null(strstr(none, "\nDrives: nothing is written"));
    assert_non_null(line);
    const char *days = strstr(line, "would last ");
    assert_non_null(days);
    double want = REPORT_CONSUMER_DRIVE / (written * 86400 / plan->seconds);
    char said[32];
    drive_said(want, said);
    assert_int_equal(strncmp(days + strlen("would last "), said, strlen(said)), 0);
    assert_non_null(strstr(line, "\nA drive rated for 1.2 PB of writes"));
    assert_non_null(strstr(line, "; striped over n drives, n times as long."));
    free(text);
    struct hardware h;
    assert_int_equal(hardware_preset("h200", &h), OK);
    h.drives = 3;
    s.machine = (char *)(uintptr_t) "h200";
    s.hardware = &h;
    print_plan(plan, m, &s, &text);
    unwrap(text);
    days = strstr(text, "\nEach of 3 drives rated for 1.2 PB of writes (2 TB, consumer) would last ");
    assert_non_null(days);
    assert_null(strstr(text, "striped"));
    drive_said(3 * want, said);
    assert_int_equal(strncmp(strstr(days, "last ") + 5, said, strlen(said)), 0);
    free(text);
    free(none);
    plan_destroy(plan);
    plan_destroy(resident);
    model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums),       cmocka_unit_test(bounds), cmocka_unit_test(names_the_slow_lane),
        cmocka_unit_test(recomputed), cmocka_unit_test(wear),   cmocka_unit_test(columns),
        cmocka_unit_test(times)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
