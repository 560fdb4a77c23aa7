/* The tile product in plain C: the reference, and the fallback for CPUs without another. */
#include "ops/gemm_tile.h"

#include "base/num.h"

enum { ROWS = 6, COLS = 16 };

static void run(int64_t k, const float *a, const float *b, float *c, int64_t ldc, int add)
{
    float x[ROWS][COLS] = {{0}};
    for (int64_t l = 0; l < k; l++)
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLS; j++)
                x[i][j] += a[l * ROWS + i] * b[l * COLS + j];
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLS; j++)
            c[i * ldc + j] = add ? c[i * ldc + j] + x[i][j] : x[i][j];
}

static void pack(float *out, int64_t width, const struct gemm_operand *x, int64_t lane, int64_t n, int64_t l, int64_t k)
{
    for (int64_t p = 0; p < n; p += width)
        for (int64_t e = 0; e < round_up(k, 4); e++)
            for (int64_t i = 0; i < width; i++) {
                const int inside = p + i < n && e < k;
                const int64_t row = inside ? lane + p + i : lane,
                              at = x->across ? gemm_row_at(x, inside ? l + e : l) + row : gemm_row_at(x, row) + l + e;
                *out++ = !inside ? 0 : x->type == F32 ? ((const float *)x->x)[at] : bf16_to_float(((const bf16 *)x->x)[at]);
            }
}

const struct gemm_tile gemm_tile_portable = {ROWS, COLS, 256, run, pack};
