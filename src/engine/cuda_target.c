/* Scratch sizes of a GPU's kernels. */
#include "engine/cuda_target.h"

#include "attention/cuda_attention.h"
#include "engine/backend_cpu.h"
#include "ops/cuda_product.h"
#include "recurrence/cuda_recurrence.h"

#include <stddef.h>

#define KIB 1024

int64_t cuda_target_shared_bytes(int capability)
{
    static const struct {
        int capability, kib;
    } most[] = {{80, 163}, {86, 99}, {87, 163}, {89, 99}, {90, 227}, {100, 227}, {103, 227}, {110, 227}};
    for (size_t i = 0; i < sizeof most / sizeof *most; i++)
        if (most[i].capability == capability)
            return (int64_t)most[i].kib * KIB;
    return capability > 0 ? 99 * KIB : 0; /* the least of all capabilities since 8.0 */
}

static int64_t attention(const struct target *t, enum op_kind op, const struct op_attrs *attrs)
{
    const struct attn_cuda cuda = {.capability = t->capability,
                                   .processors = t->processors,
                                   .shared_bytes = t->shared_bytes,
                                   .mode = t->fast ? ATTN_FAST : ATTN_DETERMINISTIC};
    return attention_cuda_workspace_bytes(op, attrs, &cuda);
}

static int64_t workspace(const struct target *t, enum op_kind op, const struct op_attrs *attrs, int members)
{
    const struct target here = backend_cpu_target(t->threads);
    if (t->capability > 0 && op_class(op) == OPS_ATTENTION)
        return attention(t, op, attrs);
    if (t->capability > 0 && op_class(op) == OPS_RECURRENT)
        return recurrence_cuda_workspace_bytes(op, attrs);
    if (t->capability > 0 && op == OP_GEMM) {
        const struct gemm_shape s = gemm_shape_of(attrs);
        return cuda_product_workspace(&s, t->capability);
    }
    if (t->capability > 0 && op_class(op) == OPS_MATRIX)
        return 0; /* experts' products need none */
    return here.workspace(&here, op, attrs, members);
}

struct target cuda_target(int capability, int processors, int threads)
{
    return (struct target){.workspace = workspace,
                           .threads = threads,
                           .capability = capability,
                           .processors = processors,
                           .shared_bytes = cuda_target_shared_bytes(capability)};
}
