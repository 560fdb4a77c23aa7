/* Sum of squares, and the clip factor. */
#include "ops/clip.h"

#include "ops/ops.h"
#include "ops/rows.h"
#include "ops/simd.h"

#include <math.h>

enum { BATCH = 512 }; /* blocks whose sums are held on the stack before they are added in order */

INLINE void add_squares(f64x4 sum[LANES / 4], const float *x)
{
    for (int q = 0; q < LANES / 4; q++) {
        f64x4 d = {x[4 * q], x[4 * q + 1], x[4 * q + 2], x[4 * q + 3]};
        sum[q] += d * d;
    }
}

CLONES static double block_sumsq(const float *x, int64_t n)
{
    f64x4 a[LANES / 4] = {{0}};
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES)
        add_squares(a, x + j);
    if (j < n) {
        float pad[LANES] = {0};
        memcpy(pad, x + j, (size_t)(n - j) * sizeof *x);
        add_squares(a, pad);
    }
    double s[LANES];
    memcpy(s, a, sizeof s);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            s[l] += s[l + half];
    return s[0];
}

void ops_sumsq(double *sum, const float *x, int64_t n)
{
    double total = 0.0;
    int64_t blocks = ceil_div(n, SUMSQ_BLOCK);
    for (int64_t b0 = 0; b0 < blocks; b0 += BATCH) {
        double part[BATCH];
        int64_t count = min_i64(BATCH, blocks - b0);
#pragma omp parallel for schedule(static) if (n > ROWS_SERIAL)
        for (int64_t b = 0; b < count; b++) {
            int64_t at = (b0 + b) * SUMSQ_BLOCK;
            part[b] = block_sumsq(x + at, min_i64(SUMSQ_BLOCK, n - at));
        }
        for (int64_t b = 0; b < count; b++)
            total += part[b];
    }
    *sum = total;
}

void ops_clip(struct norm_result *result, const double *sums, int64_t n, float clip)
{
    double total = 0.0;
    for (int64_t i = 0; i < n; i++)
        total += sums[i];
    double norm = sqrt(total), factor = 1.0;
    if (clip > 0.0f)
        factor = fmin(1.0, (double)clip / (norm + 1e-6));
    int skip = !isfinite(norm);
    *result = (struct norm_result){.norm = norm, .factor = skip ? 0.0f : (float)factor, .skip = skip};
}

enum status ops_cpu_sumsq(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    double *sum = arg[0];
    ops_sumsq(sum, arg[1], a->vec.n);
    if (a->vec.share > 1)
        *sum /= (double)a->vec.share;
    return OK;
}

enum status ops_cpu_clip(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    const struct step_record *record = arg[2];
    ops_clip(arg[0], arg[1], a->vec.n, record->clip);
    return OK;
}
