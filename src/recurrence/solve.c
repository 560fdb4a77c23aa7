/* Triangular systems of a chunk: blocks on the diagonal by substitution, all else by products. */
#include "ops/simd.h"
#include "recurrence/heads.h"

enum {
    BLOCK = 16,   /* rows that are solved by substitution */
    COLUMNS = 32, /* columns that a block is solved for at a time: four vectors, which stay in registers */
};

/* Adds the rows [from, to) of z, weighted by a[j * stride], to row i. */
INLINE void add_rows(const float *a, int64_t stride, float *z, int64_t wide, int64_t i, int64_t from, int64_t to)
{
    f32x8 x[COLUMNS / 8], y;
    memcpy(x, z + i * wide, sizeof x);
    for (int64_t j = from; j < to; j++) {
        const float w = a[j * stride];
        for (int p = 0; p < COLUMNS / 8; p++) {
            memcpy(&y, z + j * wide + p * 8, sizeof y);
            x[p] += w * y;
        }
    }
    memcpy(z + i * wide, x, sizeof x);
}

/* Solves a block of n rows, a and z at its first row. */
CLONES static void block_lower(const float *a, float *z, int64_t n, int64_t wide)
{
    for (int64_t column = 0; column < wide; column += COLUMNS)
        for (int64_t i = 1; i < n; i++)
            add_rows(a + i * CHUNK, 1, z + column, wide, i, 0, i);
}

CLONES static void block_upper(const float *a, float *z, int64_t n, int64_t wide)
{
    for (int64_t column = 0; column < wide; column += COLUMNS)
        for (int64_t i = n - 2; i >= 0; i--)
            add_rows(a + i, CHUNK, z + column, wide, i, i + 1, n);
}

void solve_lower(const struct gemm_tile *t, const float *a, float *z, int64_t c, int64_t wide, float *left, float *right)
{
    for (int64_t i = 0; i < c; i += BLOCK) {
        const int64_t n = min_i64(BLOCK, c - i);
        if (i > 0) {
            pack_left(t, left, a + i * CHUNK, CHUNK, n, i);
            pack_right(t, right, z, wide, i, wide);
            multiply(t, WHOLE, n, wide, i, left, right, z + i * wide, wide, 1);
        }
        block_lower(a + i * CHUNK + i, z + i * wide, n, wide);
    }
}

void solve_upper(const struct gemm_tile *t, const float *a, float *z, int64_t c, int64_t wide, float *left, float *right)
{
    for (int64_t i = (c - 1) / BLOCK * BLOCK; i >= 0; i -= BLOCK) {
        const int64_t n = min_i64(BLOCK, c - i), end = i + n;
        if (end < c) {
            pack_left_across(t, left, a + end * CHUNK + i, CHUNK, c - end, n);
            pack_right(t, right, z + end * wide, wide, c - end, wide);
            multiply(t, WHOLE, n, wide, c - end, left, right, z + i * wide, wide, 1);
        }
        block_upper(a + i * CHUNK + i, z + i * wide, n, wide);
    }
}
