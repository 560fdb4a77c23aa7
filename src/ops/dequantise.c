/* Turning quantised matrices into numbers. */
#include "ops/dequantise.h"

#include "ops/ops.h"
#include "ops/rows.h"
#include "ops/simd.h"

enum { PART = 64 * NF4_BLOCK }; /* elements of a row at a time */

/* NF4: the two numbers of each byte */
static float pairs[256][2];

__attribute__((constructor)) static void make_pairs(void)
{
    for (int i = 0; i < 256; i++) {
        pairs[i][0] = nf4_map[i >> 4];
        pairs[i][1] = nf4_map[i & 15];
    }
}

INLINE void scaled(const float *x, float scale, int n, void *y, int64_t at, int32_t dtype)
{
#pragma omp simd
    for (int i = 0; i < n; i++)
        row_set(y, at + i, dtype, x[i] * scale);
}

/* Dequantises n elements of one NF4 block. The first is in the upper half of code[0], or in the lower half if `odd`. */
CLONES static void block(const uint8_t *code, int odd, int n, float scale, void *y, int64_t at, int32_t dtype)
{
    float x[NF4_BLOCK + 2];
    for (int i = 0; i < odd + n; i += 2)
        memcpy(x + i, pairs[code[i / 2]], sizeof pairs[0]);
    FOR_DTYPE(dtype, scaled, x + odd, scale, n, y, at);
}

/* Dequantises elements [first, first + n), written from y[at] on. */
static void run_nf4(const struct dequantise_shape *s, const uint8_t *codes, const void *scales, int64_t first, int64_t n, void *y,
                    int64_t at, int32_t dtype)
{
    const uint8_t *code = codes - s->first / 2;
    for (int64_t done = 0; done < n;) {
        const int64_t e = first + done, part = min_i64(n - done, NF4_BLOCK - e % NF4_BLOCK);
        block(code + e / 2, (int)(e % 2), (int)part, nf4_scale(scales, s->n, quantised_scales(s->form), e / NF4_BLOCK), y,
              at + done, dtype);
        done += part;
    }
}

INLINE void scaled_bytes(const int8_t *code, float scale, int64_t n, void *y, int64_t at, int32_t dtype)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        row_set(y, at + i, dtype, rows8_number(code[i], scale));
}

/* Dequantises n elements of one row. */
CLONES static void row_int8(const int8_t *code, float scale, int64_t n, void *y, int64_t at, int32_t dtype)
{
    FOR_DTYPE(dtype, scaled_bytes, code, scale, n, y, at);
}

static void run_int8(const struct dequantise_shape *s, const uint8_t *codes, const void *scales, int64_t first, int64_t n,
                     void *y, int64_t at, int32_t dtype)
{
    const int8_t *code = (const int8_t *)codes - s->first;
    for (int64_t done = 0; done < n;) {
        const int64_t e = first + done, part = min_i64(n - done, s->columns - e % s->columns);
        row_int8(code + e, ((const float *)scales)[e / s->columns], part, y, at + done, dtype);
        done += part;
    }
}

void ops_dequantise(void *y, const uint8_t *codes, const void *scales, const struct dequantise_shape *s, int32_t dtype)
{
    const int64_t parts = ceil_div(s->cols, PART);
#pragma omp parallel for schedule(static) if (s->rows * s->cols > ROWS_SERIAL)
    for (int64_t k = 0; k < s->rows * parts; k++) {
        const int64_t row = k / parts, column = k % parts * PART;
        (s->form == QUANTISED_INT8 ? run_int8 : run_nf4)(s, codes, scales, s->first + row * s->ld + column,
                                                         min_i64(PART, s->cols - column), y, row * s->cols + column, dtype);
    }
}

enum status ops_cpu_dequantise(const struct op_attrs *a, void *const *arg, void *stream)
{
    const struct dequantise_shape s = {.rows = a->dequantise.rows,
                                       .cols = a->dequantise.cols,
                                       .first = a->dequantise.first,
                                       .ld = a->dequantise.ld,
                                       .n = a->dequantise.n,
                                       .columns = a->dequantise.columns,
                                       .form = (enum quantised_form)a->dequantise.form};
    (void)stream;
    ops_dequantise(arg[0], arg[1], arg[2], &s, a->dequantise.y_type);
    return OK;
}
