/* Linear attention on CUDA: the contracts of program/op_table.h, enqueued on a stream.
 *
 * Differences from the CPU twin: keys and values have at most CUDA_SCAN_DIM columns. Products of rows stored in bf16 take operands
 * rounded to bf16; sums, states, decays and the solution of a chunk's system are fp32, sums of g fp64. fp32 rows are multiplied in
 * fp32. There are no atomic sums: results have the same bits every time. */
#ifndef LTRAIN_RECURRENCE_CUDA_RECURRENCE_H
#define LTRAIN_RECURRENCE_CUDA_RECURRENCE_H

#include "device/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CUDA_SCAN_DIM = 256, /* most columns of a key or a value */
    CUDA_CONV_ROWS = 64, /* rows of a convolution's thread block, and of a partial sum of its weights' gradient */
};

/* Returns the scratch bytes of an op of class RECURRENT on CUDA; they grow with the rows. */
int64_t recurrence_cuda_workspace_bytes(enum op_kind kind, const struct op_attrs *attrs);

/* Sets the entries of all ops of class RECURRENT. They neither synchronise nor allocate. ERR_INVALID: a shape that no kernel takes;
 * nothing is launched then. ERR_IO: a launch failed. */
void recurrence_cuda_kernels(op_kernel *table[OP_COUNT]);

op_kernel ops_cuda_conv, ops_cuda_conv_grad, ops_cuda_decay, ops_cuda_decay_grad, ops_cuda_scan, ops_cuda_scan_grad,
    ops_cuda_scan_sum, ops_cuda_scan_grad_sum, ops_cuda_scan_fold;

#ifdef __cplusplus
}
#endif
#endif
