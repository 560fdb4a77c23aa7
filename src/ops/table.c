/* The kernel table: CPU entries of all ops of this folder, each defined beside its kernel. */
#include "ops/ops.h"

#include "ops/experts.h"
#include "ops/gemm.h"
#include "ops/norm.h"
#include "ops/route.h"

int64_t op_workspace_bytes(enum op_kind kind, const struct op_attrs *attrs, int threads)
{
    if (kind == OP_ROUTE) {
        const struct route_shape s = route_shape_of(attrs);
        return ops_route_workspace(&s);
    }
    if (kind == OP_EXPERTS || kind == OP_EXPERTS_GRAD) {
        const struct experts_shape s = experts_shape_of(attrs);
        return kind == OP_EXPERTS ? ops_experts_workspace(&s, threads) : ops_experts_grad_workspace(&s, threads);
    }
    if (kind == OP_NORM_GRAD) {
        struct norm_shape s = norm_shape_of(attrs);
        return ops_norm_grad_workspace(&s);
    }
    if (kind == OP_GEMM) {
        struct gemm_shape s = gemm_shape_of(attrs);
        return ops_gemm_workspace(&s);
    }
    return 0;
}

enum status ops_cpu_kernels(op_kernel *table[OP_COUNT])
{
#define ENTRY_MATRIX(KIND, name) table[OP_##KIND] = ops_cpu_##name;
#define ENTRY_ELEMENTWISE(KIND, name) table[OP_##KIND] = ops_cpu_##name;
#define ENTRY_ATTENTION(KIND, name)
#define ENTRY_RECURRENT(KIND, name)
#define ENTRY_COLLECTIVE(KIND, name)
#define OP(KIND, name, class, ...) ENTRY_##class(KIND, name)
#include "program/op_table.h"
    return OK;
}
