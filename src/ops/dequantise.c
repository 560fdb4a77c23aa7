/* Turning quantised matrices into numbers. */
#include "ops/dequantise.h"

#include "ops/ops.h"
#include "ops/rows.h"
#include "ops/simd.h"

enum { PART = 64 * NF4_BLOCK }; /* elements of a row at a time */

enum { NF4_PAIRS, MXFP4_PAIRS };

/* The two numbers of each byte of codes. */
static float pairs[2][2 * 256];

__attribute__((constructor)) static void make_pairs(void)
{
    for (int i = 0; i < 256; i++) {
        pairs[NF4_PAIRS][2 * i] = nf4_map[i >> 4];
        pairs[NF4_PAIRS][2 * i + 1] = nf4_map[i & 15];
        pairs[MXFP4_PAIRS][2 * i] = mxfp4_map[i & 15];
        pairs[MXFP4_PAIRS][2 * i + 1] = mxfp4_map[i >> 4];
    }
}

INLINE void scaled(const float *x, float scale, int n, void *y, int64_t at, int32_t dtype)
{
#pragma omp simd
    for (int i = 0; i < n; i++)
        row_set(y, at + i, dtype, x[i] * scale);
}

/* Dequantises n elements of one block of NF4 or MXFP4; the first one is the second of code[0] if `odd`. */
CLONES static void block(const float *pair, const uint8_t *code, int odd, int n, float scale, void *y, int64_t at, int32_t dtype)
{
    float x[NF4_BLOCK + 2];
    for (int i = 0; i < odd + n; i += 2)
        memcpy(x + i, pair + 2 * code[i / 2], 2 * sizeof *pair);
    FOR_DTYPE(dtype, scaled, x + odd, scale, n, y, at);
}

/* Returns the scale of a block of NF4 or MXFP4. */
static float scale_of(const struct dequantise_shape *s, const void *scales, int64_t block)
{
    if (s->form == QUANTISED_MXFP4)
        return mxfp4_scale(((const uint8_t *)scales)[block]);
    return nf4_scale(scales, s->n, quantised_scales(s->form), block);
}

/* Dequantises elements [first, first + n), written from y[at] on. */
static void run_blocks(const struct dequantise_shape *s, const uint8_t *codes, const void *scales, int64_t first, int64_t n,
                       void *y, int64_t at, int32_t dtype)
{
    const int mxfp4 = s->form == QUANTISED_MXFP4;
    const int64_t size = mxfp4 ? MXFP4_BLOCK : NF4_BLOCK;
    const float *pair = pairs[mxfp4 ? MXFP4_PAIRS : NF4_PAIRS];
    const uint8_t *code = codes - s->first / 2;
    for (int64_t done = 0; done < n;) {
        const int64_t e = first + done, part = min_i64(n - done, size - e % size);
        block(pair, code + e / 2, (int)(e % 2), (int)part, scale_of(s, scales, e / size), y, at + done, dtype);
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
        const int64_t row = k / parts, column = k % parts * PART, first = s->first + (s->stride > 0 ? 0 : row * s->ld) + column;
        (s->form == QUANTISED_INT8 ? run_int8 : run_blocks)(s, codes + row * s->stride, (const char *)scales + row * s->stride,
                                                            first, min_i64(PART, s->cols - column), y, row * s->cols + column,
                                                            dtype);
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
                                       .stride = a->dequantise.stride,
                                       .form = (enum quantised_form)a->dequantise.form};
    (void)stream;
    ops_dequantise(arg[0], arg[1], arg[2], &s, a->dequantise.y_type);
    return OK;
}
