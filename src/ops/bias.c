/* Bias and its gradient. */
#include "ops/bias.h"

#include "ops/ops.h"
#include "ops/rows.h"
#include "ops/simd.h"

enum {
    PANEL = 128, /* columns that one task owns */
    ROW_GROUP =
        64, /* rows summed in fp32 before their sum is added to an fp64 total, since fp32 alone loses digits over long sequences */
};

INLINE void add_bias(void *y, const void *bias, int64_t at, int64_t n, int32_t y_type, int32_t dtype)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        row_set(y, at + j, y_type, row_get(y, at + j, y_type) + row_get(bias, j, dtype));
}

CLONES static void bias_row(void *y, const void *bias, int64_t at, int64_t n, int32_t y_type, int32_t dtype)
{
    if (y_type == BF16)
        add_bias(y, bias, at, n, BF16, BF16);
    else if (dtype == BF16)
        add_bias(y, bias, at, n, F32, BF16);
    else
        add_bias(y, bias, at, n, F32, F32);
}

void ops_bias(void *y, const void *bias, int64_t rows, int64_t dim, int64_t ld, int32_t y_type, int32_t dtype)
{
#pragma omp parallel for schedule(static) if (rows * dim > ROWS_SERIAL)
    for (int64_t i = 0; i < rows; i++)
        bias_row(y, bias, i * ld, dim, y_type, dtype);
}

/* Adds the sum of `rows` rows of dy to sum[n]; the first row begins at element `at`. */
INLINE void add_rows(double *sum, const void *dy, int64_t at, int64_t rows, int64_t ld, int64_t n, int32_t dtype)
{
    float group[PANEL] = {0};
    for (int64_t i = 0; i < rows; i++, at += ld) {
#pragma omp simd
        for (int64_t j = 0; j < n; j++)
            group[j] += row_get(dy, at + j, dtype);
    }
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        sum[j] += (double)group[j];
}

CLONES static void panel_grad(float *dbias, const void *dy, int64_t at, int64_t rows, int64_t ld, int64_t n, int32_t dtype,
                              int32_t accumulate)
{
    double sum[PANEL] = {0};
    for (int64_t i = 0; i < rows; i += ROW_GROUP)
        FOR_DTYPE(dtype, add_rows, sum, dy, at + i * ld, min_i64(ROW_GROUP, rows - i), ld, n);
    for (int64_t j = 0; j < n; j++)
        dbias[j] = accumulate ? dbias[j] + (float)sum[j] : (float)sum[j];
}

void ops_bias_grad(float *dbias, const void *dy, int64_t rows, int64_t dim, int64_t ld, int32_t y_type, int32_t accumulate)
{
#pragma omp parallel for schedule(static) if (rows * dim > ROWS_SERIAL)
    for (int64_t j = 0; j < dim; j += PANEL)
        panel_grad(dbias + j, dy, j, rows, ld, min_i64(PANEL, dim - j), y_type, accumulate);
}

static int64_t ld_of(const struct op_attrs *a)
{
    return a->bias.ld > 0 ? a->bias.ld : a->bias.dim;
}

enum status ops_cpu_bias(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    ops_bias(arg[0], arg[1], a->bias.rows, a->bias.dim, ld_of(a), a->bias.y_type, a->bias.dtype);
    return OK;
}

enum status ops_cpu_bias_grad(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    ops_bias_grad(arg[0], arg[1], a->bias.rows, a->bias.dim, ld_of(a), a->bias.y_type, a->bias.accumulate);
    return OK;
}
