/* Chooses the attention kernels of this machine. */
#include "attention/attention.h"

#include "attention/kernels.h"

#include <omp.h>

int64_t attention_workspace_bytes(enum op_kind kind, const struct op_attrs *attrs, int threads)
{
    return attn_portable_workspace(kind, attrs, threads > 0 ? threads : omp_get_max_threads());
}

void attention_cpu_kernels(op_kernel *table[OP_COUNT])
{
    table[OP_ATTN_FWD] = attn_portable_forward;
    table[OP_ATTN_BWD] = attn_portable_backward;
}
