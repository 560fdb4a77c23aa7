/* OP_GEMM on a GPU, by cuBLASLt. One device in a process.
 *
 * Every distinct call, that is: every op_attrs, is prepared before the first step: its layouts are made and its algorithm is
 * chosen. The choice depends on the attributes, the device and cuBLASLt's version, never on addresses: the alignment of which
 * cuBLASLt hears follows from leading dimensions (ops/cuda_product.h). Algorithms that split k reduce in fp32, in an order of
 * their own that is always the same. Products are of bf16 operands with sums in fp32. */
#ifndef LTRAIN_OPS_CUDA_GEMM_H
#define LTRAIN_OPS_CUDA_GEMM_H

#include "device/kernel.h"

#include <stdint.h>

/* By a thread that has the device. capability: 10 * major + minor, for the scratch. ERR_INVALID: there is no cuBLASLt. */
enum status cuda_gemm_open(int capability);
/* What was prepared is gone; nothing of it may run any more. */
void cuda_gemm_close(void);
/* Allocates, and is fast where the call is prepared already. ERR_INVALID: a call that cuBLASLt does not take. */
enum status cuda_gemm_prepare(const struct op_attrs *attrs);
/* Of all prepared calls' algorithms and cuBLASLt's version, for the numerics key; the order in which they were prepared does not
 * matter. */
enum status cuda_gemm_digest(uint64_t *out);

/* Of a call that is prepared: enqueues, allocates nothing. Each address is a multiple of what its operand's leading dimension
 * keeps from row to row, at most 16 bytes; that of `work` is a multiple of 256, and it has cuda_product_workspace bytes. */
op_kernel ops_cuda_gemm;

#endif
