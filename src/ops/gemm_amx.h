/* Products of BF16 matrices by AMX, in tiles of 16 lanes x 32 elements of k. Private to src/ops; x86-64 only, and only if
 * isa_has_amx().
 *
 * Operands are lanes as in gemm_tile.h. A step is two tiles: 32 lanes x 32 elements. A panel is all steps of 32 lanes over k. */
#ifndef LTRAIN_OPS_GEMM_AMX_H
#define LTRAIN_OPS_GEMM_AMX_H

#include "ops/gemm_tile.h"

enum {
    AMX_LANES = 32,  /* rows and columns of C in the accumulators: 2 x 2 tiles */
    AMX_UNIT = 32,   /* elements of k in a tile */
    AMX_STEP = 2048, /* bytes of a step */
    AMX_TASK_M = 192,
    AMX_TASK_N = 128, /* AMX_TASK_M, AMX_TASK_N: most rows and columns of C that one task computes */
};

/* Layouts of a tile's row: of the left operand, one lane; of the right operand, pairs of elements of k from 16 lanes, lane after
 * lane. */
enum gemm_amx_side { AMX_LEFT, AMX_RIGHT };

/* Packs lanes [lane, lane + n), elements [l, l + k), as panels one after the other, with zeros behind n and k. */
void gemm_amx_pack(char *out, enum gemm_amx_side side, const struct gemm_operand *x, int64_t lane, int64_t n, int64_t l,
                   int64_t k);

/* A left operand, packed or as stored: strides in bytes from one panel, step, half of a step (16 lanes), or lane to the next. */
struct gemm_amx_left {
    const char *x;
    int64_t panel, step, half, lane;
};

/* Rows of C that take sums, or to which sums are added (F32 only). */
struct gemm_amx_out {
    void *c;
    int64_t ld;
    int32_t type, add;
};

/* Computes C[m][n] over `depth` elements of k, a multiple of AMX_UNIT. Called between amx_begin and amx_end (base/amx.h) on the
 * same thread. Each element of C is summed over steps of AMX_UNIT elements of k, in order; a step adds the sum over its even
 * elements plus the sum over its odd ones. */
void gemm_amx_task(const struct gemm_amx_left *a, const char *b, int64_t depth, const struct gemm_amx_out *out, int64_t m,
                   int64_t n);

/* Computes ops_gemm, or its workspace, for two BF16 operands. */
int64_t gemm_amx_workspace(const struct gemm_shape *s);
/* Returns bytes that suffice for any m and k up to those of s. */
int64_t gemm_amx_workspace_most(const struct gemm_shape *s);
void gemm_amx_run(const struct gemm_shape *s, void *c, const void *a, const void *b, void *work);

#endif
