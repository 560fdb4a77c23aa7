/* Building blocks of the AMX kernels: bf16 tiles of 16 rows x 64 bytes, products on them, and packing.
 *
 * A product is C[32][32] (+)= sum over steps of A[32][32] B[32][32], 2 x 2 tiles of C at a time: tiles 0-3 hold C, 4-5 rows of A,
 * 6-7 columns of B. Four forms of rows x [n, d], tiles of 1 KiB, tails zero; d is rounded up to 32:
 *   left rows      [n/16][d/32]   16 rows of x of 32 elements: A of products summed over d
 *   left columns   [d/16][n/32]   16 columns of x of 32 elements: A of products summed over rows
 *   right columns  [n/16][d/32]   pairs of elements of 16 rows, row after row: B of products summed over d
 *   right rows     [d/16][n/32]   pairs of rows, 16 elements of each: B of products summed over rows
 * The instruction adds products of even and of odd elements apart, rounds to nearest and flushes denormals. */
#ifndef LTRAIN_ATTENTION_AMX_H
#define LTRAIN_ATTENTION_AMX_H

#include "attention/amx_product.h"
#include "attention/avx512_vector.h"
#include "attention/kernels.h"
#include "attention/cap.h"
#include "base/amx.h"

#define AMX __attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16")))

enum {
    SIDE = 16,
    SPAN = 32,
    TILE = 1024
}; /* SIDE: rows of a tile; SPAN: rows or columns of 2 x 2 tiles, and elements of a step; TILE: bytes of a tile */

/* One head of x [rows, heads, d]. */
struct amx_rows {
    const bf16 *x;
    int64_t heads, head, d;
};

/* Loads 16 rows [row, row + n), 32 elements from c on; zeros elsewhere. */
static inline AMX void amx_load(vi r[SIDE], const struct amx_rows *x, int64_t row, int64_t n, int64_t c)
{
    const __mmask32 mask = (__mmask32)(0xffffffffu >> (SPAN - min_i64(SPAN, x->d - c)));
    for (int64_t i = 0; i < SIDE; i++)
        r[i] =
            i < n ? _mm512_maskz_loadu_epi16(mask, x->x + ((row + i) * x->heads + x->head) * x->d + c) : _mm512_setzero_si512();
}

/* Interleaves the first 16 elements of a and of b: a0, b0, a1, b1, ... (amx_pairs_high: the last 16). */
static inline AMX vi amx_pairs_low(vi a, vi b)
{
    const vi at = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37, 5, 36, 4, 35,
                                   3, 34, 2, 33, 1, 32, 0);
    return _mm512_permutex2var_epi16(a, at, b);
}

static inline AMX vi amx_pairs_high(vi a, vi b)
{
    const vi at = _mm512_set_epi16(63, 31, 62, 30, 61, 29, 60, 28, 59, 27, 58, 26, 57, 25, 56, 24, 55, 23, 54, 22, 53, 21, 52, 20,
                                   51, 19, 50, 18, 49, 17, 48, 16);
    return _mm512_permutex2var_epi16(a, at, b);
}

/* Interleaves two vectors, lane by lane, in bf16. */
static inline AMX vi amx_zip(vf a, vf b)
{
    const vi at = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19,
                                   3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(at, (vi)_mm512_cvtne2ps_pbh(b, a));
}

static inline AMX void amx_store(char *tile, const vi r[SIDE], int transposed)
{
    vf t[SIDE];
    for (int64_t i = 0; i < SIDE; i++)
        t[i] = _mm512_castsi512_ps(r[i]);
    if (transposed)
        vf_transpose(t);
    for (int64_t i = 0; i < SIDE; i++)
        _mm512_store_ps(tile + i * 64, t[i]);
}

/* Packs rows [row, row + n) as left rows, or as right columns if `right`. Tiles are written up to the next multiple of `unit`
 * rows. */
static inline AMX void amx_pack_rows(char *out, const struct amx_rows *x, int64_t row, int64_t n, int64_t unit, int right)
{
    for (int64_t i = 0; i < round_up(n, unit); i += SIDE)
        for (int64_t c = 0; c < x->d; c += SPAN, out += TILE) {
            vi r[SIDE];
            amx_load(r, x, row + i, n - i, c);
            amx_store(out, r, right);
        }
}

/* Packs rows [row, row + n) as right rows, or as left columns if `left`. Tiles are written up to the next multiple of `unit`
 * rows; tiles of different columns lie `block` rows apart. */
static inline AMX void amx_pack_pairs(char *out, const struct amx_rows *x, int64_t row, int64_t n, int64_t unit, int64_t block,
                                      int left)
{
    for (int64_t i = 0; i < round_up(n, unit); i += SPAN)
        for (int64_t c = 0; c < x->d; c += SPAN) {
            vi r[2][SIDE], low[SIDE], high[SIDE];
            char *to = out + (c / SIDE * (block / SPAN) + i / SPAN) * TILE;
            amx_load(r[0], x, row + i, n - i, c);
            amx_load(r[1], x, row + i + SIDE, n - i - SIDE, c);
            for (int64_t j = 0; j < SIDE; j++) {
                const vi *pair = &r[j / (SIDE / 2)][j % (SIDE / 2) * 2];
                low[j] = amx_pairs_low(pair[0], pair[1]);
                high[j] = amx_pairs_high(pair[0], pair[1]);
            }
            amx_store(to, low, left);
            amx_store(to + block / SPAN * TILE, high, left);
        }
}

#endif
