/* The entries of linear attention's ops on CUDA. */
#include "recurrence/cuda_recurrence.h"

void recurrence_cuda_kernels(op_kernel *table[OP_COUNT])
{
    table[OP_CONV] = ops_cuda_conv;
    table[OP_CONV_GRAD] = ops_cuda_conv_grad;
    table[OP_DECAY] = ops_cuda_decay;
    table[OP_DECAY_GRAD] = ops_cuda_decay_grad;
    table[OP_SCAN] = ops_cuda_scan;
    table[OP_SCAN_GRAD] = ops_cuda_scan_grad;
    table[OP_SCAN_SUM] = ops_cuda_scan_sum;
    table[OP_SCAN_GRAD_SUM] = ops_cuda_scan_grad_sum;
    table[OP_SCAN_FOLD] = ops_cuda_scan_fold;
}
