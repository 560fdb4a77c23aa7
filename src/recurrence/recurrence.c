/* The entries of linear attention's ops on CPUs. */
#include "recurrence/recurrence.h"

#include "recurrence/heads.h"

static enum status scan(const struct op_attrs *a, void *const *arg, void *stream)
{
    scan_run(gemm_tile_for(isa_of_processor()), a, arg, stream);
    return OK;
}

static enum status scan_grad(const struct op_attrs *a, void *const *arg, void *stream)
{
    scan_grad_run(gemm_tile_for(isa_of_processor()), a, arg, stream);
    return OK;
}

static enum status scan_sum(const struct op_attrs *a, void *const *arg, void *stream)
{
    scan_sum_run(gemm_tile_for(isa_of_processor()), a, arg, stream);
    return OK;
}

static enum status scan_grad_sum(const struct op_attrs *a, void *const *arg, void *stream)
{
    scan_grad_sum_run(gemm_tile_for(isa_of_processor()), a, arg, stream);
    return OK;
}

int64_t recurrence_workspace_bytes(enum op_kind kind, const struct op_attrs *attrs, int threads)
{
    switch (kind) {
    case OP_SCAN:
        return scan_workspace(attrs, threads);
    case OP_SCAN_GRAD:
        return scan_grad_workspace(attrs, threads);
    case OP_SCAN_SUM:
        return scan_sum_workspace(attrs, threads);
    case OP_SCAN_GRAD_SUM:
        return scan_grad_sum_workspace(attrs, threads);
    default:
        return 0;
    }
}

void recurrence_cpu_kernels(op_kernel *table[OP_COUNT])
{
    table[OP_CONV] = recurrence_conv;
    table[OP_CONV_GRAD] = recurrence_conv_grad;
    table[OP_DECAY] = recurrence_decay;
    table[OP_DECAY_GRAD] = recurrence_decay_grad;
    table[OP_SCAN] = scan;
    table[OP_SCAN_GRAD] = scan_grad;
    table[OP_SCAN_SUM] = scan_sum;
    table[OP_SCAN_GRAD_SUM] = scan_grad_sum;
    table[OP_SCAN_FOLD] = recurrence_scan_fold;
}
