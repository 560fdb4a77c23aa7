/* The CUDA kernel table. OP_GEMM, attention and collectives have no entry (cuda_ops.h). */
#include "ops/cuda_ops.h"

void ops_cuda_kernels(op_kernel *table[OP_COUNT])
{
#define ENTRY_MATRIX(KIND, name)
#define ENTRY_ELEMENTWISE(KIND, name) table[OP_##KIND] = ops_cuda_##name;
#define ENTRY_ATTENTION(KIND, name)
#define ENTRY_RECURRENT(KIND, name)
#define ENTRY_COLLECTIVE(KIND, name)
#define OP(KIND, name, class, ...) ENTRY_##class(KIND, name)
#define CPU_OP(...)
#include "program/op_table.h"
    table[OP_EXPERTS] = ops_cuda_experts;
    table[OP_EXPERTS_GRAD] = ops_cuda_experts_grad;
}
