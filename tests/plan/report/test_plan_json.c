/* Tests that the plan as JSON has the plan's figures, and that docs/plan-json.md has every name in it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "machine/hardware.h"
#include "plan/ample.h"
#include "plan/report/advise.h"
#include "plan/report/explain.h"
#include "plan/report/figures.h"
#include "plan/report/json.h"

#include <jansson.h>
#include <stdlib.h>

static json_t *written_with(const struct plan *plan, const struct model *m, const struct plan_request *s, const struct advice *c,
                            const struct explanation *e)
{
    char *text = NULL;
    size_t size = 0;
    json_error_t error;
    FILE *f = open_memstream(&text, &size);
    assert_non_null(f);
    assert_int_equal(plan_write_json(plan, m, s, c, e, f), OK);
    assert_int_equal(fclose(f), 0);
    json_t *o = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (!o)
        fail_msg("line %d: %s", error.line, error.text);
    free(text);
    return o;
}

static json_t *written_json(const struct plan *plan, const struct model *m, const struct plan_request *s)
{
    return written_with(plan, m, s, NULL, NULL);
}

/* Returns o.a.b, or o.a.b.c. */
static const json_t *member(const json_t *o, const char *a, const char *b, const char *c)
{
    const json_t *x = json_object_get(json_object_get(o, a), b);
    return c ? json_object_get(x, c) : x;
}

static json_int_t int_at(const json_t *o, const char *a, const char *b, const char *c)
{
    const json_t *x = member(o, a, b, c);
    if (!json_is_integer(x))
        fail_msg("%s.%s.%s is not an integer", a, b, c ? c : "");
    return json_integer_value(x);
}

static double real_at(const json_t *o, const char *a, const char *b, const char *c)
{
    const json_t *x = member(o, a, b, c);
    if (!json_is_number(x))
        fail_msg("%s.%s.%s is not a number", a, b, c ? c : "");
    return json_number_value(x);
}

static void json(void **state)
{
    (void)state;
    struct plan_request s;
    struct report r;
    struct model *m = model_for(FAMILY_LLAMA, 3);
    cell_settings(&s, 100, F32);
    const struct cell cell = {.params = ON_HOST,
                              .grads = ON_DRIVES,
                              .optim = ON_DRIVES,
                              .acts = ON_DRIVES,
                              .alpha = KEEP_HALF,
                              .host_update = 1,
                              .discrete = 1};
    cell_apply(&cell, &s);
    s.grad_accum = 3;
    struct plan *plan = plan_for(m, &s);
    plan->limit[TIER_NVME] = INT64_MAX;
    assert_int_equal(report_make(plan, m, &r), OK);
    json_t *o = written_json(plan, m, &s);
    assert_true(json_is_true(json_object_get(o, "fits")) && json_is_null(json_object_get(o, "misfit")));
    assert_true(json_is_null(json_object_get(json_object_get(o, "limit"), "nvme")));
    assert_int_equal(int_at(o, "step", "tokens", NULL), 300);
    for (int t = 0; t < TIERS; t++)
        assert_int_equal(int_at(o, "peak", tier_name((enum tier)t), NULL), plan->arena[t]);
    int64_t moved = 0;
    for (int l = LANE_H2D; l <= LANE_WRITE; l++) {
        assert_int_equal(int_at(o, "lanes", lane_name((enum lane)l), "bytes"), r.lane[l].bytes);
        assert_true(r.lane[l].bytes > 0);
        moved += r.lane[l].bytes;
    }
    for (int c = 0; c < CLASSES; c++)
        moved -= int_at(o, "classes", class_name((enum tensor_class)c), "moved");
    assert_int_equal(moved, 0);
    double seconds = 0;
    size_t i;
    json_t *program;
    json_array_foreach(json_object_get(o, "programs"), i, program) seconds +=
        json_number_value(json_object_get(program, "seconds")) * (double)json_integer_value(json_object_get(program, "per_step"));
    near(seconds, plan->seconds);
    near(json_real_value(json_object_get(json_object_get(o, "step"), "mfu")), r.mfu);
    near(json_real_value(json_object_get(json_object_get(o, "step"), "nvme_written_bytes_per_day_all_ranks")), r.written_per_day);
    json_decref(o);
    plan_destroy(plan);
    model_destroy(m);
}

/* Experts apart: on drives alone, all that lies and moves there is theirs. */
static void json_experts(void **state)
{
    (void)state;
    struct model_config c;
    struct model *m;
    struct plan_request s;
    struct report r;
    char path[512];
    int64_t elements = 0;
    snprintf(path, sizeof path, "%s/tests/golden/experts/qwen3_moe", getenv("LTRAIN_SOURCE_ROOT"));
    assert_int_equal(model_config_read(path, &c), OK);
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    cell_settings(&s, 64, F32);
    const struct cell cell = {.alpha = KEEP_HALF};
    cell_apply(&cell, &s);
    s.experts = OFFLOAD_NVME;
    struct plan *plan = plan_for(m, &s);
    assert_int_equal(report_make(plan, m, &r), OK);
    for (int u = 0; u < m->n_units; u++)
        elements += model_unit_has_experts(m, u) ? m->units[u].elements : 0;
    json_t *o = written_json(plan, m, &s);
    assert_true(elements > 0);
    assert_int_equal(int_at(o, "experts", "held", "nvme"), 16 * elements); /* parameters, gradients and two moments */
    assert_int_equal(int_at(o, "experts", "held", "device"), 0);
    assert_int_equal(int_at(o, "experts", "moved", NULL), r.lane[LANE_READ].bytes + r.lane[LANE_WRITE].bytes);
    near(real_at(o, "experts", "exposed_seconds", NULL), r.lane[LANE_READ].exposed + r.lane[LANE_WRITE].exposed);
    json_decref(o);
    plan_destroy(plan);
    model_destroy(m);
}

/* Plans for two of four devices of a data sheet. */
static struct plan *elsewhere(const struct model *m, struct plan_request *s, struct hardware *h)
{
    cell_settings(s, 100, BF16);
    s->machine = (char *)(uintptr_t) "4xa100-40";
    s->host_mem = 1ll << 37;
    s->device_mem = s->nvme_max = s->nvme_drives = AUTO;
    s->acts = OFFLOAD_CPU;
    s->mesh.degree[MESH_ULYSSES] = 2;
    s->hardware = h;
    assert_int_equal(hardware_preset(s->machine, h), OK);
    hardware_override(h, s);
    return plan_for(m, s);
}

/* The JSON names the machine whose rates times come from; the model's FLOPs and the executed ones have one base. */
static void machine_in_json(void **state)
{
    (void)state;
    struct plan_request s;
    struct hardware h;
    struct model *m = model_for(FAMILY_LLAMA, 3);
    struct plan *plan = elsewhere(m, &s, &h);
    json_t *o = written_json(plan, m, &s);
    const json_t *machine = json_object_get(o, "machine");
    assert_string_equal(json_string_value(json_object_get(machine, "name")), "a100-40");
    assert_true(json_is_false(json_object_get(machine, "here")) && json_is_false(json_object_get(machine, "host_assumed")));
    assert_true(json_is_true(json_object_get(machine, "drives_assumed")));
    assert_int_equal(int_at(o, "machine", "nodes", NULL), 1);
    assert_int_equal(int_at(o, "machine", "devices_per_node", NULL), 4);
    assert_int_equal(int_at(o, "machine", "host_bytes_per_node", NULL), 1ll << 37);
    assert_int_equal(int_at(o, "machine", "drives_per_node", NULL), 1);
    near(real_at(o, "machine", "peak_flops_per_device", NULL), 312e12);
    near(real_at(o, "machine", "bytes_per_second", "read"), h.read);
    near(real_at(o, "lanes", "h2d", "bytes_per_second"), 24e9);
    double seconds = real_at(o, "step", "seconds", NULL), model = real_at(o, "step", "model_flops", NULL);
    near(real_at(o, "step", "mfu", NULL), model / (seconds * 2 * 312e12));
    double done = 0;
    for (int i = 0; i < plan->programs[PLAN_UPDATE_STEP]->n_instrs; i++)
        if (plan->programs[PLAN_UPDATE_STEP]->instrs[i].lane == LANE_COMPUTE)
            done += 2 * program_call(plan->programs[PLAN_UPDATE_STEP], &plan->programs[PLAN_UPDATE_STEP]->instrs[i])->flops;
    near(real_at(o, "step", "hardware_flops", NULL), done);
    assert_true(done > 0.9 * model);
    json_decref(o);
    s.machine = NULL; /* this machine's memory is in the limits */
    s.hardware = NULL;
    o = written_json(plan, m, &s);
    machine = json_object_get(o, "machine");
    assert_true(json_is_true(json_object_get(machine, "here")) && !json_object_get(machine, "host_bytes_per_node"));
    json_decref(o);
    plan_destroy(plan);
    model_destroy(m);
}

/* Checks that docs/plan-json.md (`page`) has every name in the JSON in backticks. */
static void check_documented(const json_t *o, const char *page)
{
    const char *name;
    const json_t *value;
    char quoted[64];
    size_t i;
    if (json_is_array(o))
        json_array_foreach((json_t *)(uintptr_t)o, i, value) check_documented(value, page);
    if (!json_is_object(o))
        return;
    json_object_foreach((json_t *)(uintptr_t)o, name, value)
    {
        snprintf(quoted, sizeof quoted, "`%s`", name);
        if (!strstr(page, quoted))
            fail_msg("docs/plan-json.md does not know %s", quoted);
        check_documented(value, page);
    }
}

static void json_is_documented(void **state)
{
    (void)state;
    static struct explanation e = {.seconds = 1, .n = 1, .decision = {{.what = "x", .n = 1, .by_cost = {{.seconds = 1}}}}};
    static struct advice c = {.n = 1};
    static char page[1 << 16];
    struct plan_request s;
    struct hardware h;
    const char *root = getenv("LTRAIN_SOURCE_ROOT");
    char path[4096];
    if (!root)
        skip();
    snprintf(path, sizeof path, "%s/docs/plan-json.md", root);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    page[fread(page, 1, sizeof page - 1, f)] = 0;
    fclose(f);
    struct model *m = model_for(FAMILY_LLAMA, 3);
    struct plan *plan = elsewhere(m, &s, &h);
    plan->longest = (struct longest){.step = 4, .longer = 104, .bytes = 1};
    plan->strategy.placement.promoted_layers = 1;
    json_t *o = written_with(plan, m, &s, &c, &e);
    check_documented(o, page);
    json_decref(o);
    plan_destroy(plan);
    model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(json), cmocka_unit_test(json_experts), cmocka_unit_test(machine_in_json),
                                       cmocka_unit_test(json_is_documented)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
