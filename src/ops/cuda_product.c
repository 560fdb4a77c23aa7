/* Calls of OP_GEMM as products of bf16 matrices stored by columns. */
#include "ops/cuda_product.h"

enum {
    UNIT = 128, /* rows or columns of C: slabs begin at multiples of this, so that they are aligned like the whole call */
    PAD = 8,    /* elements (16 bytes of bf16) to which rows of a cast operand are padded */
    ALIGN = 256 /* alignment of cuBLASLt's workspace */
};
#define MOST ((int64_t)1 << 31)

static enum status check_matrix(const char *name, int64_t cols, int64_t ld, int32_t type)
{
    if (type != F32 && type != BF16)
        return status_fail(ERR_INVALID, "gemm on cuda: %s is fp32 or bf16, not %s", name, dtype_name((enum dtype)type));
    if (ld < cols || ld >= MOST)
        return status_fail(ERR_INVALID,
                           "gemm on cuda: %s has %lld columns and rows %lld elements apart; at least as far, and "
                           "less than 2^31, is needed",
                           name, (long long)cols, (long long)ld);
    return OK;
}

/* Tells whether both operands are fp32: a router's gradient. Nothing is cast then. */
static int is_fp32(const struct gemm_shape *s)
{
    return s->a_type == F32 && s->b_type == F32;
}

enum status cuda_product_check(const struct gemm_shape *s)
{
    if (s->m < 1 || s->n < 1 || s->k < 1 || s->m >= MOST || s->n >= MOST || s->k >= MOST)
        return status_fail(ERR_INVALID, "gemm on cuda: m, n and k are from 1 to 2^31 - 1, not %lld, %lld and %lld",
                           (long long)s->m, (long long)s->n, (long long)s->k);
    TRY(check_matrix("a", s->ta ? s->m : s->k, s->lda, s->a_type));
    TRY(check_matrix("b", s->tb ? s->k : s->n, s->ldb, s->b_type));
    TRY(check_matrix("c", s->n, s->ldc, s->c_type));
    if (is_fp32(s) && s->c_type != F32)
        return status_fail(ERR_INVALID, "gemm on cuda: the product of two fp32 matrices is fp32, not %s",
                           dtype_name((enum dtype)s->c_type));
    return OK;
}

/* Tells whether k runs along the stored rows of operand 1 or 2. */
static int k_in_rows(const struct gemm_shape *s, int operand)
{
    return operand == 1 ? !s->ta : s->tb;
}

struct cuda_slabs cuda_product_slabs(const struct gemm_shape *s)
{
    struct cuda_slabs all = {.cast = is_fp32(s) ? 0 : s->a_type == F32 ? 1 : s->b_type == F32 ? 2 : 0, .count = 1};
    const int64_t lines = all.cast == 2 ? s->n : s->m;
    all.size = lines;
    if (all.cast == 0)
        return all;
    const int64_t most = max_i64(UNIT, CUDA_PRODUCT_SLAB / (round_up(s->k, PAD) * 2) / UNIT * UNIT);
    all.size = min_i64(lines, round_up(ceil_div(lines, ceil_div(lines, most)), UNIT));
    all.count = ceil_div(lines, all.size);
    const int by_rows = k_in_rows(s, all.cast);
    all.bytes = round_up((by_rows ? all.size : s->k) * round_up(by_rows ? s->k : all.size, PAD) * 2, ALIGN);
    return all;
}

/* Describes a matrix stored by rows as [rows, cols] by columns. */
static struct cuda_matrix by_columns(int64_t rows, int64_t cols, int64_t ld, int32_t type, int transposed)
{
    return (struct cuda_matrix){.rows = cols,
                                .cols = rows,
                                .ld = ld,
                                .type = type,
                                .transposed = transposed,
                                .alignment = (uint32_t)gcd_i64(16, ld * dtype_size((enum dtype)type))};
}

struct cuda_slab cuda_product_slab(const struct gemm_shape *call, const struct cuda_slabs *all, int64_t index)
{
    struct gemm_shape s = *call;
    struct cuda_slab out = {0};
    const int64_t first = index * all->size;
    const int32_t type = is_fp32(call) ? F32 : BF16;
    if (all->cast) {
        int64_t *lines = all->cast == 1 ? &s.m : &s.n, *ld = all->cast == 1 ? &s.lda : &s.ldb;
        const int by_rows = k_in_rows(&s, all->cast);
        *lines = min_i64(all->size, *lines - first);
        out.cast_rows = by_rows ? *lines : s.k;
        out.cast_cols = by_rows ? s.k : *lines;
        out.from_ld = *ld;
        out.at[0] = first * (all->cast == 1 ? s.ldc : 1) * dtype_size((enum dtype)s.c_type);
        out.at[all->cast] = first * (by_rows ? *ld : 1) * dtype_size(F32);
        out.cast_ld = *ld = round_up(by_rows ? s.k : all->size, PAD);
    }
    out.product = (struct cuda_product){.a = by_columns(s.tb ? s.n : s.k, s.tb ? s.k : s.n, s.ldb, type, s.tb),
                                        .b = by_columns(s.ta ? s.k : s.m, s.ta ? s.m : s.k, s.lda, type, s.ta),
                                        .d = by_columns(s.m, s.n, s.ldc, s.c_type, 0),
                                        .accumulate = s.accumulate};
    return out;
}

int64_t cuda_product_most_scratch(int capability)
{
    return (int64_t)(capability >= 90 ? 32 : 8) << 20;
}

int64_t cuda_product_workspace(const struct gemm_shape *s, int capability)
{
    return cuda_product_slabs(s).bytes + cuda_product_most_scratch(capability);
}
