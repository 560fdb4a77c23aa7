/* Tile products behind ops_gemm and linear attention, and the packed forms of their operands. */
#ifndef LTRAIN_OPS_GEMM_TILE_H
#define LTRAIN_OPS_GEMM_TILE_H

#include "base/isa.h"
#include "ops/gemm.h"

/* A stored matrix, F32 or BF16, as lanes of k elements: element l of lane i is x[i * ld + l], or x[l * ld + i] if `across`. With an
 * order, row i of these is row order[i] / per in memory. */
struct gemm_operand {
    const void *x;
    int32_t type, across;
    int64_t ld;
    const int32_t *order;
    int32_t per;
};

/* Returns the first element of a row of a stored matrix. */
static inline int64_t gemm_row_at(const struct gemm_operand *x, int64_t row)
{
    return (x->order ? x->order[row] / x->per : row) * x->ld;
}

/* A kernel that computes rows x cols elements of C at a time. Panels of A are [k][rows], of B [k][cols], on 64-byte boundaries;
 * missing rows and columns are zero. */
struct gemm_tile {
    int64_t rows, cols;
    int64_t depth; /* most of k between two visits to C: 16 panels of A stay in the L2 cache */
    /* Computes C[rows][cols] = A B, or C += A B; k is a positive multiple of 4. An element is one sum over k in order, then one
     * addition. */
    void (*run)(int64_t k, const float *a, const float *b, float *c, int64_t ldc, int add);
    /* Packs lanes [lane, lane + n), elements [l, l + k), as panels [k rounded up to 4][width], one after the other. */
    void (*pack)(float *out, int64_t width, const struct gemm_operand *x, int64_t lane, int64_t n, int64_t l, int64_t k);
};

enum { GEMM_TILE_MOST = 12 * 32 }; /* elements of the largest tile */

/* Tiles for any CPU, AVX2 and AVX-512. The latter two exist on x86-64 only, and run only if isa_of_processor() is at least as
 * high. */
extern const struct gemm_tile gemm_tile_portable, gemm_tile_avx2, gemm_tile_avx512;

const struct gemm_tile *gemm_tile_for(enum isa isa);

/* Computes ops_gemm, or its workspace, with a given tile. */
int64_t gemm_workspace(const struct gemm_tile *tile, const struct gemm_shape *s);
/* Returns bytes that suffice for any m and k up to those of s. */
int64_t gemm_workspace_most(const struct gemm_tile *tile, const struct gemm_shape *s);
void gemm_run(const struct gemm_tile *tile, const struct gemm_shape *s, void *c, const void *a, const void *b, void *work);

/* Computes a product with one row, which takes less time than packing B would. */
void gemm_row(const struct gemm_shape *s, void *c, const void *a, const void *b);

/* Implements `pack` for AVX2 and later. */
void gemm_pack_avx2(float *out, int64_t width, const struct gemm_operand *x, int64_t lane, int64_t n, int64_t l, int64_t k);

#endif
