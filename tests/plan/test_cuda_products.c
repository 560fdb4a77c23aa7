/* Products of all presets' programs for GPUs, as plans have them: each is one that cuBLASLt takes, its operands lie where leading
 * dimensions promise, and there is scratch enough. Nothing is computed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/cuda_target.h"
#include "machine/hardware.h"
#include "ops/cuda_product.h"
#include "plan/cells.h"
#include "plan/lower/mesh.h"

static struct target gpu; /* of the machine in question */

static struct {
    int calls, casts, slabs, odd, kinds[2][2][2];
} seen;

/* Where argument `arg` begins, in its tier's arena, and its bytes. */
static int64_t argument(const struct program *p, const struct instr *in, int arg, int64_t *bytes)
{
    int64_t at = -1;
    *bytes = 0;
    for (int i = 0; i < in->n_operands; i++) {
        const struct operand *o = &p->operands[in->first_operand + i];
        if (o->arg != (unsigned)arg)
            continue;
        if (at < 0)
            at = p->buffers[o->buffer].address + o->offset;
        *bytes += o->bytes;
    }
    return at;
}

static void check_matrix(const struct gemm_shape *s, const struct cuda_matrix *m, int64_t at)
{
    if (at % m->alignment != 0)
        fail_msg("[%lld,%lld] x [%lld,%lld] lies at %lld, which is no multiple of %u", (long long)s->m, (long long)s->k,
                 (long long)s->k, (long long)s->n, (long long)at, m->alignment);
    seen.odd += m->alignment < 16;
}

static void check_product(const struct program *p, const struct instr *in)
{
    const struct gemm_shape s = gemm_shape_of(&p->calls[in->call].attrs);
    int64_t bytes[4], at[4];
    if (cuda_product_check(&s) != OK)
        fail_msg("%s", status_message());
    for (int i = 0; i < 4; i++)
        at[i] = argument(p, in, i, &bytes[i]);
    assert_true(at[3] >= 0 && at[3] % 256 == 0 && bytes[3] >= cuda_product_workspace(&s, gpu.capability));
    const struct cuda_slabs all = cuda_product_slabs(&s);
    for (int64_t i = 0; i<all.count; i += all.count> 1 ? all.count - 1 : 1) {
        const struct cuda_slab slab = cuda_product_slab(&s, &all, i);
        check_matrix(&s, &slab.product.d, at[0] + slab.at[0]);
        check_matrix(&s, &slab.product.b, all.cast == 1 ? at[3] : at[1]);
        check_matrix(&s, &slab.product.a, all.cast == 2 ? at[3] : at[2]);
        const struct cuda_matrix *const matrices[] = {&slab.product.a, &slab.product.b, &slab.product.d};
        for (int k = 0; k < 3; k++)
            assert_true(matrices[k]->rows > 0 && matrices[k]->cols > 0 && matrices[k]->rows < (int64_t)1 << 31 &&
                        matrices[k]->cols < (int64_t)1 << 31 && matrices[k]->ld >= matrices[k]->rows);
    }
    seen.calls++;
    seen.casts += all.cast != 0;
    seen.slabs += all.count > 1;
    seen.kinds[s.a_type == BF16][s.b_type == BF16][s.c_type == BF16]++;
}

static void check_plan(const struct plan *plan)
{
    for (int k = 0; k < PLAN_PROGRAMS; k++)
        for (int i = 0; plan->programs[k] && i < plan->programs[k]->n_instrs; i++)
            if (plan->programs[k]->instrs[i].op == OP_GEMM)
                check_product(plan->programs[k], &plan->programs[k]->instrs[i]);
}

struct question {
    const char *model, *machine; /* machine: a data sheet */
    int64_t tokens, rows;        /* rows: of a chunk; 0: AUTO */
    enum offload at;
    int mesh[MESH_DIMS];
    int heads; /* of a tile; 0: AUTO */
};

static void check_question(const struct question *q)
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
    gpu = cuda_target(h.capability, h.processors, 1);
    s.target = &gpu;
    s.hardware = &h;
    s.device = DEVICE_CUDA;
    s.dtype = BF16;
    s.params = s.grads = s.optim = s.acts = s.carry = q->at;
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
    check_plan(plan);
    plan_destroy(plan);
    model_destroy(m);
}

static const char *const presets[] = {"tiny", "25m", "125m", "1b", "8b", "gpt2-tiny", "gpt2-125m", "gpt-25b"};
enum { PRESETS = sizeof presets / sizeof *presets };

static void every_preset(void **state)
{
    (void)state;
    static const char *const machines[] = {"a100-40", "h100", "h200", "gh200", "rtx3090", "rtx4090", "rtx4090-laptop", "a100-80"};
    for (int i = 0; i < PRESETS; i++) {
        const int64_t tokens = strcmp(presets[i], "gpt2-125m") == 0 ? 1000 : 2000;
        check_question(&(struct question){presets[i], machines[i], tokens, 512, OFFLOAD_NONE, {0}});
        check_question(&(struct question){presets[i], machines[(i + 3) % 8], tokens, 999, OFFLOAD_CPU, {0}});
        check_question(&(struct question){presets[i], machines[(i + 5) % 8], tokens, 0, OFFLOAD_NVME, {0}});
    }
    assert_true(seen.calls > 1000 && seen.casts > 100);
    assert_int_equal(seen.odd, 0); /* the vocabulary of GPT-2 is odd, rows of its logits are not */
    assert_int_equal(seen.kinds[0][0][0] + seen.kinds[0][0][1], 0);
}

/* Shared by ranks, and chunks so long that operands are cast in slabs. */
static void meshes_and_long_chunks(void **state)
{
    (void)state;
    static const struct question questions[] = {{"1b", "h200", 16 << 10, 0, OFFLOAD_CPU, {2, 1, 1}},
                                                {"1b", "h200", 16 << 10, 0, OFFLOAD_CPU, {1, 2, 1}},
                                                {"8b", "h100", 8 << 10, 0, OFFLOAD_NVME, {1, 1, 2}},
                                                {"gpt-25b", "a100-40", 8 << 10, 0, OFFLOAD_CPU, {1, 4, 2}},
                                                {"1b", "h200", 256 << 10, 256 << 10, OFFLOAD_CPU, {0}, 16}};
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++)
        check_question(&questions[i]);
    print_message("%d products, %d with a cast, %d in slabs, %d matrices with odd rows\n", seen.calls, seen.casts, seen.slabs,
                  seen.odd);
    assert_true(seen.slabs > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_preset), cmocka_unit_test(meshes_and_long_chunks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
