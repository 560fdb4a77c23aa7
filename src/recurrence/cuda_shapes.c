/* Scratch of linear attention's CUDA kernels. */
#include "recurrence/cuda_layout.h"

int64_t recurrence_cuda_workspace_bytes(enum op_kind kind, const struct op_attrs *attrs)
{
    if (kind == OP_CONV_GRAD)
        return conv_layout_of(attrs).floats * (int64_t)sizeof(float);
    if (op_is_scan(kind))
        return scan_layout_of(kind, attrs).bytes + CUDA_SCAN_ALIGN;
    return 0;
}
