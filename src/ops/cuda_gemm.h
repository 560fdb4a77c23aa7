/* OP_GEMM on a GPU, by cuBLASLt; one device in a process.
 *
 * Every distinct call (every op_attrs) is prepared before the first step: its layouts are made and its algorithm is chosen. The
 * choice depends on the attributes, the device and cuBLASLt's version, never on addresses: the alignment told to cuBLASLt follows
 * from leading dimensions (ops/cuda_product.h).
 *
 * Products are of bf16 operands with sums in fp32. Algorithms that split k reduce in fp32, in an order of their own that is
 * always the same. */
#ifndef LTRAIN_OPS_CUDA_GEMM_H
#define LTRAIN_OPS_CUDA_GEMM_H

#include "device/kernel.h"

#include <stdint.h>

/* Opens cuBLASLt, on a thread that has the device. capability: 10 * major + minor, for the scratch. ERR_INVALID: there is no
 * cuBLASLt. */
enum status cuda_gemm_open(int capability);
/* Frees all prepared calls, none of which may run any more. */
void cuda_gemm_close(void);
/* Prepares a call; returns at once if it is prepared already. Allocates. ERR_INVALID: cuBLASLt does not take the call. */
enum status cuda_gemm_prepare(const struct op_attrs *attrs);
/* Digests all prepared calls' algorithms and cuBLASLt's version, for the numerics key. The order of preparation does not matter. */
enum status cuda_gemm_digest(uint64_t *out);

/* Enqueues a prepared call without allocating. Each operand's address has the alignment that its leading dimension preserves from
 * row to row, at most 16 bytes. `work` has cuda_product_workspace bytes, at a multiple of 256. */
op_kernel ops_cuda_gemm;

#endif
