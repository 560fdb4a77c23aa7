/* Scratch of linear attention's CUDA kernels. */
#include "recurrence/cuda_layout.h"

int64_t recurrence_cuda_workspace_bytes(enum op_kind kind, const struct op_attrs *attrs)
{
    if (kind == OP_CONV_GRAD)
        return conv_layout_of(attrs).floats * (int64_t)sizeof(float);
    if (kind == OP_SCAN || kind == OP_SCAN_GRAD)
        return scan_layout_of(attrs, kind == OP_SCAN_GRAD).bytes + CUDA_SCAN_ALIGN;
    return 0;
}
