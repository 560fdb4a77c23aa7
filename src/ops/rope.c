/* Rotary position embedding. */
#include "ops/rope.h"

#include "ops/ops.h"
#include "ops/rows.h"
#include "ops/simd.h"

#include <math.h>

/* Returns sin(r) for |r| <= pi/4 + tiny (cos_poly: cos(r)), by minimax polynomials of the Cephes library (Moshier 1992), sinf and
 * cosf. */
INLINE float sin_poly(float r)
{
    float s = r * r, p = -1.9515295891e-4f;
    p = fmaf(p, s, 8.3321608736e-3f);
    p = fmaf(p, s, -1.6666654611e-1f);
    return fmaf(p * s, r, r);
}

INLINE float cos_poly(float r)
{
    float s = r * r, p = 2.443315711809948e-5f;
    p = fmaf(p, s, -1.388731625493765e-3f);
    p = fmaf(p, s, 4.166664568298827e-2f);
    return fmaf(p * s, s, fmaf(-0.5f, s, 1.0f));
}

/* Computes cosine[j] and sine[j] of position * inv_freq[j]. pi/2 is split so that quadrant * pio2_high is exact for quadrants
 * below 2^31. */
CLONES static void angles(float *cosine, float *sine, const float *inv_freq, int64_t n, double position, float sign)
{
    const double two_over_pi = 0x1.45f306dc9c883p-1, pio2_high = 0x1.921f8p0, pio2_low = 0x1.aa22168c234c5p-19;
    const double shift = 6755399441055744.0; /* 1.5 * 2^52: adding it rounds to an integer, left in the low mantissa bits */
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        double angle = position * (double)inv_freq[j];
        double t = angle * two_over_pi + shift;
        double q = t - shift;
        float r = (float)((angle - q * pio2_high) - q * pio2_low);
        uint64_t bits;
        memcpy(&bits, &t, 8);
        uint32_t quadrant = (uint32_t)bits;
        float s = sin_poly(r), c = cos_poly(r);
        float a = quadrant & 1u ? c : s, b = quadrant & 1u ? s : c;
        a = quadrant & 2u ? -a : a;
        b = (quadrant + 1u) & 2u ? -b : b;
        sine[j] = sign * a;
        cosine[j] = b;
    }
}

/* Multiplies cosine[j] and sine[j] by factor. */
CLONES static void scale(float *cosine, float *sine, int64_t n, float factor)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        cosine[j] *= factor;
        sine[j] *= factor;
    }
}

/* Rotates, for each head, elements [at, at + n) with the elements `half` places further on. Heads lie `stride` elements apart. */
INLINE void rotate_typed(void *x, int64_t at, int64_t heads, int64_t stride, int64_t half, int64_t n, const float *cosine,
                         const float *sine, int32_t dtype)
{
    for (int64_t h = 0; h < heads; h++, at += stride) {
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            float a = row_get(x, at + j, dtype), b = row_get(x, at + half + j, dtype);
            row_set(x, at + j, dtype, fmaf(a, cosine[j], -(b * sine[j])));
            row_set(x, at + half + j, dtype, fmaf(b, cosine[j], a * sine[j]));
        }
    }
}

CLONES static void rotate(void *x, int64_t at, int64_t heads, int64_t stride, int64_t half, int64_t n, const float *cosine,
                          const float *sine, int32_t dtype)
{
    FOR_DTYPE(dtype, rotate_typed, x, at, heads, stride, half, n, cosine, sine);
}

/* Rotates, for each head, n pairs of neighbours from element `at` on. */
INLINE void rotate_neighbours_typed(void *x, int64_t at, int64_t heads, int64_t stride, int64_t n, const float *cosine,
                                    const float *sine, int32_t dtype)
{
    for (int64_t h = 0; h < heads; h++, at += stride) {
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            float a = row_get(x, at + 2 * j, dtype), b = row_get(x, at + 2 * j + 1, dtype);
            row_set(x, at + 2 * j, dtype, fmaf(a, cosine[j], -(b * sine[j])));
            row_set(x, at + 2 * j + 1, dtype, fmaf(b, cosine[j], a * sine[j]));
        }
    }
}

CLONES static void rotate_neighbours(void *x, int64_t at, int64_t heads, int64_t stride, int64_t n, const float *cosine,
                                     const float *sine, int32_t dtype)
{
    FOR_DTYPE(dtype, rotate_neighbours_typed, x, at, heads, stride, n, cosine, sine);
}

void ops_rope(const struct rope_shape *s, void *x, const int32_t *positions, const float *inv_freq)
{
    int64_t half = s->rotated / 2, dim = s->heads * s->head_dim;
    float sign = s->inverse ? -1.0f : 1.0f;
#pragma omp parallel for schedule(static) if (s->rows * dim > ROWS_SERIAL)
    for (int64_t i = 0; i < s->rows; i++) {
        float cosine[ROWS_BLOCK], sine[ROWS_BLOCK], factor = s->factor;
        if (s->slope != 0.0f)
            factor *= (float)(1.0 + (double)s->slope * log1p((double)(positions[i] / s->period)));
        for (int64_t j = 0; j < half; j += ROWS_BLOCK) {
            int64_t n = min_i64(ROWS_BLOCK, half - j);
            angles(cosine, sine, inv_freq + j, n, (double)positions[i], sign);
            if (factor != 1.0f)
                scale(cosine, sine, n, factor);
            if (s->interleaved)
                rotate_neighbours(x, i * dim + s->first + 2 * j, s->heads, s->head_dim, n, cosine, sine, s->type);
            else
                rotate(x, i * dim + s->first + j, s->heads, s->head_dim, half, n, cosine, sine, s->type);
        }
    }
}

enum status ops_cpu_rope(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    struct rope_shape s = {.rows = a->rope.rows,
                           .heads = a->rope.heads,
                           .head_dim = a->rope.head_dim,
                           .rotated = a->rope.rotated ? a->rope.rotated : a->rope.head_dim,
                           .first = a->rope.first,
                           .type = a->rope.x_type,
                           .inverse = a->rope.inverse,
                           .interleaved = a->rope.interleaved,
                           .factor = a->rope.factor != 0.0f ? a->rope.factor : 1.0f,
                           .slope = a->rope.slope,
                           .period = a->rope.period};
    ops_rope(&s, arg[0], arg[1], arg[2]);
    return OK;
}
