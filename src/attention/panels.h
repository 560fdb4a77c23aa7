/* Building blocks of the AVX2 and AVX-512 kernels: panels, the tile product on them, packing, and vector helpers. panels_forward.c
 * and panels_backward.c are compiled once per instruction set (meson.build).
 *
 * Vector lanes are queries (or keys, for dk and dv). Three packed forms of rows x [n, d], all fp32, tails zero:
 *   lanes    [n/LANES][d][LANES]     LANES rows side by side: the B operand, and the form of every accumulator
 *   quads    [n/ROWS][d][ROWS]       ROWS rows side by side: the A operand of products summed over d
 *   columns  [d/ROWS][block][ROWS]   ROWS columns side by side, of one block of rows: the A operand of products summed over rows
 * Every panel is aligned to a vector. All products are C[ROWS][LANES] (+)= sum over k of A[k][ROWS] B[k][LANES], C contiguous:
 * - tile(k, a, b, c, add): C = A B, or C += A B; k a positive multiple of 4.
 * - tile_lanes(n, a, stride, b, c, add): the same, summed over the lanes of each of n lanes panels: a is row 0 of ROWS rows
 *   [ROWS][LANES] of the first panel, stride floats from panel to panel; b [n][LANES][LANES]. */
#ifndef LTRAIN_ATTENTION_PANELS_H
#define LTRAIN_ATTENTION_PANELS_H

#include "attention/kernels.h"
#include "ops/transpose.h"

#ifdef ATTN_AVX512
#include "attention/avx512_vector.h"
#define KERNEL(name) avx512_##name
#else
#include "attention/avx2_vector.h"
#define KERNEL(name) avx2_##name
#endif
#include "attention/cap.h"

#define LOG2_E 1.4426950408889634

/* Returns the scratch of panels_backward.c, for KERNEL(workspace). */
int64_t KERNEL(backward_workspace)(const struct op_attrs *attrs, int threads);

enum { VECTORS = LANES / WIDTH };

/* One head of x [rows, heads, d]. */
struct rows {
    const void *x;
    int64_t heads, head, d;
    int32_t dtype;
};

#endif
