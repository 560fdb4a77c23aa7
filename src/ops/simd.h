/* Vectorising kernels without a global -march.
 *
 * CLONES compiles a function for baseline x86-64, for AVX2 + FMA and for AVX-512; the loader picks one. All give the same bits:
 * contraction is off (meson.build), fused multiply-adds are explicit calls of fmaf, and every reduction has 16 fixed lanes
 * whatever the vector width.
 *
 * Functions marked CLONES hold no OpenMP regions (outlined regions would lose the target); callers loop over blocks instead.
 * Their `omp simd` says that iterations are independent: arguments may be the very same array, but must not overlap otherwise. */
#ifndef LTRAIN_OPS_SIMD_H
#define LTRAIN_OPS_SIMD_H

#include "base/isa.h"
#include "ops/rows.h"

/* Partial sums of every sum: element j of a row belongs to lane j % 16. Vectors have 32 bytes, because GCC keeps wider ones in
 * memory. */
enum { LANES = 16 };
typedef float f32x8 __attribute__((vector_size(32)));
typedef double f64x4 __attribute__((vector_size(32)));

/* Calls an inline loop with the dtype as a constant. */
#define FOR_DTYPE(dtype, loop, ...) ((dtype) == F32 ? loop(__VA_ARGS__, F32) : loop(__VA_ARGS__, BF16))

/* Loads eight elements of x from i on. */
INLINE void half_get(f32x8 *v, const void *x, int64_t i, int32_t dtype)
{
    typedef uint16_t u16x8 __attribute__((vector_size(16)));
    typedef uint32_t u32x8 __attribute__((vector_size(32)));
    if (dtype == F32) {
        memcpy(v, (const float *)x + i, sizeof *v);
    } else {
        u16x8 h;
        memcpy(&h, (const bf16 *)x + i, sizeof h);
        u32x8 u = __builtin_convertvector(h, u32x8) << 16;
        memcpy(v, &u, sizeof u);
    }
}

/* Loads sixteen elements of x from i on; those from `left` on are `fill`. */
INLINE void lanes_get(f32x8 v[2], const void *x, int64_t i, int64_t left, float fill, int32_t dtype)
{
    float pad[LANES];
    if (left < LANES) {
        for (int64_t l = 0; l < LANES; l++)
            pad[l] = l < left ? row_get(x, i + l, dtype) : fill;
        half_get(&v[0], pad, 0, F32);
        half_get(&v[1], pad, LANES / 2, F32);
    } else {
        half_get(&v[0], x, i, dtype);
        half_get(&v[1], x, i + LANES / 2, dtype);
    }
}

INLINE float lanes_sum(const f32x8 v[2])
{
    f32x8 both = v[0] + v[1];
    float s[LANES / 2];
    memcpy(s, &both, sizeof s);
    for (int half = LANES / 4; half > 0; half /= 2)
        for (int j = 0; j < half; j++)
            s[j] += s[j + half];
    return s[0];
}

#endif
