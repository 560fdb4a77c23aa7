/* Summing over ranks on the CPU. */
#include "ops/reduce.h"

enum { BLOCK = 2048 }; /* elements added at a time: 8 KiB of sums stay in the L1 cache */

static void add_rounded(float *sum, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += bf16_to_float(bf16_from_float(x[i]));
}

static void add_floats(float *sum, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += x[i];
}

static void add_bf16(float *sum, const bf16 *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += bf16_to_float(x[i]);
}

static void add_member(const struct reduce_pieces *r, int member, int64_t at, float *sum, int64_t n)
{
    const void *piece = r->pieces + member * r->stride;
    if (member == r->me && r->type == BF16)
        add_rounded(sum, r->own + at, n);
    else if (member == r->me)
        add_floats(sum, r->own + at, n);
    else if (r->type == BF16)
        add_bf16(sum, (const bf16 *)piece + at, n);
    else
        add_floats(sum, (const float *)piece + at, n);
}

/* Sums all members' pieces into dst, which may be the own piece: each block of it is read before its sum is written. */
void ops_reduce(const struct reduce_pieces *r)
{
    float sum[BLOCK];
    for (int64_t at = 0; at < r->n; at += BLOCK) {
        const int64_t n = min_i64(BLOCK, r->n - at);
        for (int64_t i = 0; i < n; i++)
            sum[i] = -0.0f; /* the zero that changes nothing, not even a sign */
        for (int m = 0; m < r->members; m++)
            add_member(r, m, at, sum, n);
        memcpy(r->dst + at, sum, (size_t)n * sizeof *sum);
    }
}
