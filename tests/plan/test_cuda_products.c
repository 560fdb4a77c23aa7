/* Tests the products of all presets' GPU programs: cuBLASLt accepts each, operands are aligned as leading dimensions promise, and
 * scratch is large enough. Nothing is computed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ops/cuda_product.h"
#include "plan/gpu_plans.h"

static struct {
    int calls, casts, slabs, odd, kinds[2][2][2];
} seen;

/* Returns the offset of argument `arg` in its tier's arena, and the number of its bytes. */
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

static void check_product(const struct program *p, const struct instr *in, const struct target *t)
{
    const struct gemm_shape s = gemm_shape_of(&p->calls[in->call].attrs);
    int64_t bytes[4], at[4];
    if (cuda_product_check(&s) != OK)
        fail_msg("%s", status_message());
    for (int i = 0; i < 4; i++)
        at[i] = argument(p, in, i, &bytes[i]);
    assert_true(at[3] >= 0 && at[3] % 256 == 0 && bytes[3] >= cuda_product_workspace(&s, t->capability));
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

static void check_plan(const struct plan *plan, const struct target *t, const char *model)
{
    const int fp32 = seen.kinds[0][0][0] + seen.kinds[0][0][1];
    for (int k = 0; k < PLAN_PROGRAMS; k++)
        for (int i = 0; plan->programs[k] && i < plan->programs[k]->n_instrs; i++)
            if (plan->programs[k]->instrs[i].op == OP_GEMM)
                check_product(plan->programs[k], &plan->programs[k]->instrs[i], t);
    const int routed = !strncmp(model, "moe-", 4); /* products of routers are the only ones with two operands in fp32 */
    assert_int_equal(seen.kinds[0][0][0] + seen.kinds[0][0][1] > fp32, routed);
}

static void every_preset(void **state)
{
    (void)state;
    gpu_plans_of_presets(check_plan);
    assert_true(seen.calls > 1000 && seen.casts > 100);
    assert_int_equal(seen.odd, 0); /* GPT-2's vocabulary is odd, but rows of its logits are padded */
}

/* Meshes of several ranks, and chunks so long that operands are cast in slabs. */
static void meshes_and_long_chunks(void **state)
{
    (void)state;
    gpu_plans_of_meshes(check_plan);
    gpu_plan(&(struct gpu_question){"1b", "h200", 256 << 10, 256 << 10, OFFLOAD_CPU, {0}, 16}, check_plan);
    print_message("%d products, %d with a cast, %d in slabs, %d matrices with odd rows\n", seen.calls, seen.casts, seen.slabs,
                  seen.odd);
    assert_true(seen.slabs > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_preset), cmocka_unit_test(meshes_and_long_chunks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
