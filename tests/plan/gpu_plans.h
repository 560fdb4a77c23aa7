/* Makes plans of all presets for all GPUs with data sheets, for tests of kernels' operands. Nothing is executed. */
#ifndef LTRAIN_TESTS_PLAN_GPU_PLANS_H
#define LTRAIN_TESTS_PLAN_GPU_PLANS_H

#include "engine/cuda_target.h"
#include "extent.h"
#include "machine/hardware.h"
#include "plan/lower/mesh.h"
#include "plan/plan.h"
#include "plan_request.h"

#include <stdio.h>
#include <string.h>

struct gpu_question {
    const char *model, *machine; /* machine: the name of a data sheet */
    int64_t tokens, rows;        /* rows: rows of a chunk; 0: AUTO */
    enum offload at;
    int mesh[MESH_DIMS];
    int heads; /* heads per tile; 0: AUTO */
};

typedef void gpu_plan_check(const struct plan *plan, const struct target *t, const char *model);

static inline void gpu_plan(const struct gpu_question *q, gpu_plan_check *check)
{
    const int64_t limit[TIERS] = {(int64_t)1 << 45, (int64_t)1 << 45, (int64_t)1 << 45};
    struct model_config c;
    struct plan_request s;
    struct hardware h;
    struct model *m;
    struct plan *plan;
    int ranks = 1;
    assert_int_equal(model_preset(q->model, &c), OK);
    c.positions = q->tokens;
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    assert_int_equal(hardware_preset(q->machine, &h), OK);
    plan_request_defaults(&s, q->tokens);
    struct target t = cuda_target(h.capability, h.processors, 1);
    t.fast = q->at == OFFLOAD_CPU;
    s.target = &t;
    s.hardware = &h;
    s.device = DEVICE_CUDA;
    s.dtype = BF16;
    s.params = s.grads = s.optim = s.acts = s.passing = q->at;
    s.alpha = 1;
    s.effort = EFFORT_QUICK;
    s.update = UPDATE_DEVICE;
    if (q->rows)
        s.row_chunk = q->rows;
    if (q->heads)
        s.head_tile = q->heads;
    for (int d = 0; d < MESH_DIMS; d++) {
        s.mesh.degree[d] = q->mesh[d] ? q->mesh[d] : 1;
        ranks *= s.mesh.degree[d];
    }
    if (plan_mesh(m, &s, ranks, ranks) != OK || plan_create(m, &s, limit, &plan) != OK)
        fail_msg("%s: %s", q->model, status_message());
    check(plan, &t, q->model);
    plan_destroy(plan);
    model_destroy(m);
}

/* Checks that the error sentence has, between the words `from` and `to`, exactly these names, separated by commas. */
static inline void gpu_plans_have_all(const char *from, const char *to, const char *const *have, int n)
{
    char list[512], *word, *rest = list;
    const char *begin = strstr(status_message(), from), *end = begin ? strstr(begin, to) : NULL;
    assert_non_null(end);
    snprintf(list, sizeof list, "%.*s", (int)(end - begin) - (int)strlen(from), begin + strlen(from));
    while ((word = strsep(&rest, ","))) {
        int found = 0;
        word += strspn(word, " ");
        for (int i = 0; i < n; i++)
            found |= strcmp(word, have[i]) == 0;
        if (!found)
            fail_msg("there are no plans of %s", word);
    }
}

/* Plans every preset three times: with everything on the device, in host memory, and on nvme, each time for another machine, so
 * that all data sheets occur. With LTRAIN_LONG, plans all presets for all data sheets. */
static inline void gpu_plans_of_presets(gpu_plan_check *check)
{
    static const char *const presets[] = {"tiny", "25m", "125m", "1b", "8b", "gpt2-tiny", "gpt2-125m", "gpt-25b", "moe-20m"};
    static const char *const machines[] = {"a100-40", "h100", "h200",     "gh200",      "rtx3090",
                                           "rtx4090", "l4",   "a100-80",  "h100-pcie",  "l40s",
                                           "a40",     "a10",  "rtxa6000", "rtx6000ada", "rtx4090-laptop"};
    enum { PRESETS = sizeof presets / sizeof *presets, MACHINES = sizeof machines / sizeof *machines };
    struct model_config unknown_model;
    struct hardware unknown_machine;
    assert_int_not_equal(model_preset("?", &unknown_model), OK);
    gpu_plans_have_all("presets are ", ", or give", presets, PRESETS);
    assert_int_not_equal(hardware_preset("?", &unknown_machine), OK);
    gpu_plans_have_all("a file nor one of ", " (several", machines, MACHINES);
    static const enum offload at[] = {OFFLOAD_NONE, OFFLOAD_CPU, OFFLOAD_NVME};
    static const int rows[] = {512, 999, 0};
    for (int i = 0; i < PRESETS; i += extent(2, 1, 1)) { /* experts are the last */
        const int64_t tokens = strcmp(presets[i], "gpt2-125m") == 0 ? 1000 : 2000;
        for (int k = 0; k < (extent_is_long() ? 3 * MACHINES : 3); k++)
            gpu_plan(&(struct gpu_question){presets[i],
                                            machines[extent_is_long() ? k / 3 : (3 * i + k) % MACHINES],
                                            tokens,
                                            rows[k % 3],
                                            at[k % 3],
                                            {0},
                                            0},
                     check);
    }
}

/* Plans for meshes of several ranks. */
static inline void gpu_plans_of_meshes(gpu_plan_check *check)
{
    static const struct gpu_question questions[] = {{"1b", "h200", 16 << 10, 0, OFFLOAD_CPU, {2, 1, 1}, 0},
                                                    {"1b", "h200", 16 << 10, 0, OFFLOAD_CPU, {1, 2, 1}, 0},
                                                    {"8b", "h100", 8 << 10, 0, OFFLOAD_NVME, {1, 1, 2}, 0},
                                                    {"gpt-25b", "a100-40", 8 << 10, 0, OFFLOAD_CPU, {1, 4, 2}, 0}};
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++)
        gpu_plan(&questions[i], check);
}

#endif
