/* Goes through the programs of all presets for all GPUs with data sheets, instruction by instruction, without executing anything.
 * Every kernel accepts its shapes, and its operands at the addresses that the plan gives them. All kernels that are launched were
 * prepared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "cuda_walk.h"

#include "cudasim/fake/fake.h"
#include "device/cuda/device.h"
#include "engine/cuda_plugin.h"
#include "plan/gpu_plans.h"

#include <stdio.h>
#include <stdlib.h>

#define ARENA ((char *)((uintptr_t)1 << 45)) /* unmapped addresses */

static struct {
    int plans, calls[OP_COUNT];
    long kernels; /* number of prepared kernels */
} seen;

static void find_addresses(const struct program *p, const struct instr *in, void *arg[OP_MAX_ARGS])
{
    for (int i = 0; i < OP_MAX_ARGS; i++)
        arg[i] = NULL;
    for (int i = in->n_operands - 1; i >= 0; i--) { /* an argument's pieces are consecutive operands */
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
        if (in->lane != LANE_COMPUTE || in->op == OP_GEMM) /* products are tested in tests/plan/test_cuda_products.c */
            continue;
        find_addresses(p, in, arg);
        for (int a = 0; a < op_arg_count(in->op); a++)
            if (op_arg_use(in->op, a, attrs) != ARG_WORK &&
                (uintptr_t)arg[a] % (size_t)op_arg_element_bytes(in->op, a, attrs) != 0)
                fail_msg("%s: argument %d of %s is at %p, between elements", name, a, op_name(in->op), arg[a]);
        if (b->kernels[in->op](attrs, arg, b->stream[LANE_COMPUTE]) != OK)
            fail_msg("%s: %s: %s", name, op_name(in->op), status_message());
        if (fake_cuda_loaded() != seen.kernels)
            fail_msg("%s: instruction %d, %s, launches a kernel that was not prepared: its operands are aligned otherwise", name,
                     i, op_name(in->op));
        seen.calls[in->op]++;
    }
}

/* Prepares kernels as engine/exec_context.c does: the first instruction of each call stands for all of them. */
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

void walk_presets(void **state)
{
    (void)state;
    gpu_plans_of_presets(walk_plan);
    gpu_plans_of_meshes(walk_plan);
    gpu_plan(&(struct gpu_question){"1b", "h200", 1 << 20, 0, OFFLOAD_CPU, {0}, 0}, walk_plan);
    int ops = 0;
    for (int i = 0; i < OP_COUNT; i++)
        ops += seen.calls[i] > 0;
    print_message("%d plans, %d ops; %d calls of forward attention, %d of backward\n", seen.plans, ops, seen.calls[OP_ATTN_FWD],
                  seen.calls[OP_ATTN_BWD]);
    assert_true(ops >= 20 && seen.calls[OP_ATTN_BWD] > 500);
}
