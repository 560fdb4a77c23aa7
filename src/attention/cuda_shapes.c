/* Shapes and scratch of the CUDA attention kernels, from attributes alone: plans ask on machines without CUDA. */
#include "attention/cuda_kernels.h"
#include "program/target.h"

#include <stddef.h>

#define MAX_TOKENS ((int64_t)1 << 30) /* tiles count rows in 32 bits */
#define ALIGN 16                      /* alignment of every bf16 row and fp32 pair: kernels copy 16 bytes at a time */

int64_t attn_sm80_workspace_bytes(enum op_kind kind, const struct op_attrs *attrs, const struct attn_cuda *cuda)
{
    (void)cuda;
    return kind == OP_ATTN_BWD ? attn_rows_bytes(attrs) : 0;
}

/* Tells whether sm90 has a kernel. Head dimensions above 128 have no backward: dK, dV, scores and their gradient do not fit into
 * the registers. */
int attn_sm90_supports(enum op_kind kind, const struct op_attrs *attrs, const struct attn_cuda *cuda)
{
    return cuda->capability == 90 && cuda->shared_bytes >= ATTN_SM90_SHARED &&
           op_wider_dim(attrs) <= (kind == OP_ATTN_FWD ? 256 : 128);
}

int64_t attn_sm90_workspace_bytes(enum op_kind kind, const struct op_attrs *attrs, const struct attn_cuda *cuda)
{
    (void)cuda;
    return kind == OP_ATTN_FWD ? ATTN_SM90_WORK_ALIGN : attn_sm90_work_of(attrs).bytes;
}

int attention_cuda_on_sm90(enum op_kind kind, const struct op_attrs *attrs, const struct attn_cuda *cuda)
{
    return cuda->capability == 90 && attrs->attn.sq > 0 && attrs->attn.sk > 0 && attn_sm90_supports(kind, attrs, cuda);
}

int64_t attention_cuda_workspace_bytes(enum op_kind kind, const struct op_attrs *attrs, const struct attn_cuda *cuda)
{
    return attention_cuda_on_sm90(kind, attrs, cuda) ? attn_sm90_workspace_bytes(kind, attrs, cuda)
                                                     : attn_sm80_workspace_bytes(kind, attrs, cuda);
}

enum status attention_cuda_check(const struct op_attrs *attrs, const struct attn_cuda *cuda)
{
    const int d = attrs->attn.head_dim, w = (int)op_value_dim(attrs), wide = (int)op_wider_dim(attrs), hq = attrs->attn.hq,
              hk = attrs->attn.hk;
    const int64_t sq = attrs->attn.sq, sk = attrs->attn.sk;
    if (cuda->capability < 80)
        return status_fail(ERR_INVALID, "attention needs a GPU of compute capability 8.0 or later, this one has %d.%d",
                           cuda->capability / 10, cuda->capability % 10);
    if (attrs->attn.dtype != BF16)
        return status_fail(ERR_INVALID, "attention on CUDA computes in bf16, not %s: use --dtype bf16",
                           dtype_name((enum dtype)attrs->attn.dtype));
    if (d < 8 || wide > 512 || d % 8 != 0 || w % 8 != 0)
        return status_fail(ERR_INVALID,
                           "attention on CUDA takes head dimensions that are multiples of 8 up to 512, not %d with values of %d",
                           d, w);
    if (wide > 256 && (cuda->shared_bytes < ATTN_WIDE_SHARED || attrs->attn.cap != 0.0f))
        return status_fail(ERR_INVALID,
                           "attention on CUDA: head dimensions above 256 need %d KiB of shared memory, as of an A100 or "
                           "H100, and have no soft cap: this one is %d",
                           ATTN_WIDE_SHARED / 1024, wide);
    if (hk < 1 || hq < 1 || hq % hk != 0)
        return status_fail(ERR_INVALID, "attention: %d query heads are no multiple of %d key heads", hq, hk);
    if (sq < 0 || sk < 0 || sq > MAX_TOKENS || sk > MAX_TOKENS)
        return status_fail(ERR_INVALID, "attention: %lld queries and %lld keys in one call, the limit is %lld", (long long)sq,
                           (long long)sk, (long long)MAX_TOKENS);
    /* limits of a grid: at most 2^31 - 1 blocks, and no kernel's tile is smaller than 32 rows */
    if (ceil_div(sq, 32) * hq > INT32_MAX || ceil_div(sk, 32) * hk > INT32_MAX)
        return status_fail(ERR_INVALID,
                           "attention: %lld queries of %d heads are too many blocks for one launch: call it with fewer heads",
                           (long long)sq, hq);
    if (!(attrs->attn.scale > 0))
        return status_fail(ERR_INVALID, "attention on CUDA takes a positive scale, not %g", (double)attrs->attn.scale);
    if (!(attrs->attn.cap >= 0))
        return status_fail(ERR_INVALID, "attention on CUDA takes a positive cap of scores, or 0 for none, not %g",
                           (double)attrs->attn.cap);
    return OK;
}

/* Returns the set of arguments whose rows are read one number at a time: lse, lo, hi (forward); delta, lse, lo, hi (backward). */
static unsigned of_numbers(enum op_kind kind)
{
    return kind == OP_ATTN_FWD ? 1u << 1 | 1u << 5 | 1u << 6 : 1u << 6 | 1u << 7 | 1u << 9 | 1u << 10;
}

enum status attention_cuda_check_addresses(enum op_kind kind, void *const *arg)
{
    for (int i = 0; i < op_arg_count(kind); i++) {
        const int align = of_numbers(kind) >> i & 1 ? 4 : ALIGN;
        if ((uintptr_t)arg[i] % (unsigned)align != 0)
            return status_fail(ERR_INVALID, "attention: argument %d at %p is not aligned to %d bytes", i, arg[i], align);
    }
    return OK;
}
