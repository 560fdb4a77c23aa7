/* Programs of all presets for all data sheets of GPUs, instruction by instruction: every kernel's entry takes its shape, and its
 * operands where the plan puts them, and all kernels are those that were prepared. Nothing is executed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "cuda_walk.h"

#include "cudasim/fake/fake.h"
#include "device/cuda/device.h"
#include "engine/cuda_plugin.h"
#include "engine/cuda_target.h"
#include "machine/hardware.h"
#include "plan/lower/mesh.h"
#include "plan/plan.h"

#include <stdio.h>
#include <stdlib.h>

#define ARENA ((char *)((uintptr_t)1 << 45)) /* where nothing is */

struct question {
    const char *model, *machine;
    int64_t tokens, rows; /* rows: of a chunk; 0: AUTO */
    enum offload at;
    int mesh[MESH_DIMS];
};

static struct {
    int plans, calls[OP_COUNT];
    long kernels; /* that were prepared */
} seen;

static void find_addresses(const struct program *p, const struct instr *in, void *arg[OP_MAX_ARGS])
{
    for (int i = 0; i < OP_MAX_ARGS; i++)
        arg[i] = NULL;
    for (int i = in->n_operands - 1; i >= 0; i--) { /* pieces of an argument follow each other */
        const struct operand *o = &p->operands[in->first_operand + i];
        assert_int_equal(p->buffers[o->buffer].tier, TIER_DEVICE);
        arg[o->arg] = ARENA + p->buffers[o->buffer].address + o->offset;
    }
}

static void walk_program(const struct backend *b, const struct program *p, const char *name)
{
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *in = &p->instrs[i];
        const struct op_attrs *attrs = &p->calls[in->call].attrs;
        void *arg[OP_MAX_ARGS];
        if (in->lane != LANE_COMPUTE || in->op == OP_GEMM) /* products: tests/plan/test_cuda_products.c */
            continue;
        find_addresses(p, in, arg);
        for (int a = 0; a < op_arg_count(in->op); a++)
            if (op_arg_use(in->op, a, attrs) != ARG_WORK && (uintptr_t)arg[a] % (size_t)op_arg_element_bytes(in->op, a, attrs) != 0)
                fail_msg("%s: argument %d of %s is at %p, between elements", name, a, op_name(in->op), arg[a]);
        if (b->kernels[in->op](attrs, arg, b->stream[LANE_COMPUTE]) != OK)
            fail_msg("%s: %s: %s", name, op_name(in->op), status_message());
        if (fake_cuda_loaded() != seen.kernels)
            fail_msg("%s: instruction %d, %s, launches a kernel that was not prepared: its operands are aligned otherwise", name, i,
                     op_name(in->op));
        seen.calls[in->op]++;
    }
}

/* As engine/exec_context.c does: a call's first instruction stands for all. */
static void prepare_program(struct backend *b, const struct program *p, const char *name)
{
    char *prepared = calloc((size_t)p->n_calls + 1, 1);
    assert_non_null(prepared);
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *in = &p->instrs[i];
        void *arg[OP_MAX_ARGS];
        if (in->lane != LANE_COMPUTE || in->op == OP_GEMM || prepared[in->call])
            continue;
        prepared[in->call] = 1;
        find_addresses(p, in, arg);
        if (b->prepare(b, in->op, &p->calls[in->call].attrs, arg) != OK)
            fail_msg("%s: %s: %s", name, op_name(in->op), status_message());
    }
    free(prepared);
}

static void walk_plan(const struct plan *plan, const struct target *t, const char *name)
{
    char words[96];
    struct backend *b;
    snprintf(words, sizeof words, "dry=1,capability=%d,processors=%d", t->capability, t->processors);
    fake_cuda_configure(words);
    assert_int_equal(cuda_device_open(0, &b), OK);
    assert_int_equal(cuda_plugin_kernels(b, t), OK);
    for (int k = 0; k < PLAN_PROGRAMS; k++)
        if (plan->programs[k])
            prepare_program(b, plan->programs[k], name);
    seen.kernels = fake_cuda_loaded();
    for (int k = 0; k < PLAN_PROGRAMS; k++)
        if (plan->programs[k])
            walk_program(b, plan->programs[k], name);
    b->close(b);
    seen.plans++;
}

static void walk(const struct question *q)
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
    s.params = s.grads = s.optim = s.acts = s.carry = q->at;
    s.alpha = 1;
    s.effort = EFFORT_QUICK;
    s.update = UPDATE_DEVICE;
    if (q->rows)
        s.row_chunk = q->rows;
    for (int d = 0; d < MESH_DIMS; d++) {
        s.mesh.degree[d] = q->mesh[d] ? q->mesh[d] : 1;
        ranks *= s.mesh.degree[d];
    }
    if (plan_mesh(m, &s, ranks, ranks) != OK || plan_create(m, &s, limit, &plan) != OK)
        fail_msg("%s: %s", q->model, status_message());
    walk_plan(plan, &t, q->model);
    plan_destroy(plan);
    model_destroy(m);
}

void walk_presets(void **state)
{
    (void)state;
    static const char *const presets[] = {"tiny", "25m", "125m", "1b", "8b", "gpt2-tiny", "gpt2-125m", "gpt-25b"};
    static const char *const machines[] = {"a100-40", "h100", "h200", "gh200", "rtx3090", "rtx4090", "l4", "a100-80"};
    static const struct question others[] = {{"1b", "h200", 16 << 10, 0, OFFLOAD_CPU, {2, 1, 1}},
                                             {"1b", "h200", 16 << 10, 0, OFFLOAD_CPU, {1, 2, 1}},
                                             {"8b", "h100", 8 << 10, 0, OFFLOAD_NVME, {1, 1, 2}},
                                             {"gpt-25b", "a100-40", 8 << 10, 0, OFFLOAD_CPU, {1, 4, 2}},
                                             {"1b", "h200", 1 << 20, 0, OFFLOAD_CPU, {0}}};
    for (int i = 0; i < 8; i++) {
        const int64_t tokens = strcmp(presets[i], "gpt2-125m") == 0 ? 1000 : 2000;
        walk(&(struct question){presets[i], machines[i], tokens, 512, OFFLOAD_NONE, {0}});
        walk(&(struct question){presets[i], machines[(i + 3) % 8], tokens, 999, OFFLOAD_CPU, {0}});
        walk(&(struct question){presets[i], machines[(i + 5) % 8], tokens, 0, OFFLOAD_NVME, {0}});
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        walk(&others[i]);
    int ops = 0;
    for (int i = 0; i < OP_COUNT; i++)
        ops += seen.calls[i] > 0;
    print_message("%d plans, %d ops; %d calls of forward attention, %d of backward\n", seen.plans, ops, seen.calls[OP_ATTN_FWD],
                  seen.calls[OP_ATTN_BWD]);
    assert_true(ops >= 20 && seen.calls[OP_ATTN_BWD] > 500);
}
