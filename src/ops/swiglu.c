/* SwiGLU, forward and backward. */
#include "ops/swiglu.h"

#include "ops/rows.h"
#include "ops/simd.h"
#include "ops/vexp.h"

CLONES static void forward(float *y, const float *gate, const float *up, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        y[j] = gate[j] * vsigmoid(gate[j]) * up[j];
}

CLONES static void backward(float *dgate, float *dup, const float *gate, const float *up, const float *dy, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        float g = gate[j], u = up[j], d = dy[j], s = vsigmoid(g);
        dup[j] = d * (g * s);
        dgate[j] = d * u * (s * fmaf(g, 1.0f - s, 1.0f));
    }
}

void ops_swiglu(void *y, const void *gate, const void *up, int64_t n, int32_t dtype)
{
#pragma omp parallel for schedule(static) if (n > ROWS_SERIAL)
    for (int64_t b = 0; b < ceil_div(n, ROWS_BLOCK); b++) {
        float bg[ROWS_BLOCK], bu[ROWS_BLOCK], by[ROWS_BLOCK];
        int64_t at = b * ROWS_BLOCK, count = rows_block_size(b, n);
        float *out = rows_target(y, at, dtype, by);
        forward(out, rows_read(gate, at, count, dtype, bg), rows_read(up, at, count, dtype, bu), count);
        rows_write(y, at, count, dtype, out);
    }
}

void ops_swiglu_grad(void *dgate, void *dup, const void *gate, const void *up, const void *dy, int64_t n, int32_t dtype)
{
#pragma omp parallel for schedule(static) if (n > ROWS_SERIAL)
    for (int64_t b = 0; b < ceil_div(n, ROWS_BLOCK); b++) {
        float bg[ROWS_BLOCK], bu[ROWS_BLOCK], bd[ROWS_BLOCK], og[ROWS_BLOCK], ou[ROWS_BLOCK];
        int64_t at = b * ROWS_BLOCK, count = rows_block_size(b, n);
        float *out_gate = rows_target(dgate, at, dtype, og), *out_up = rows_target(dup, at, dtype, ou);
        backward(out_gate, out_up, rows_read(gate, at, count, dtype, bg), rows_read(up, at, count, dtype, bu),
                 rows_read(dy, at, count, dtype, bd), count);
        rows_write(dgate, at, count, dtype, out_gate);
        rows_write(dup, at, count, dtype, out_up);
    }
}
