/* What the kernels need from the compiler to be vectorised without a global -march.
 *
 * CLONES compiles a function twice, for baseline x86-64 and for AVX2 + FMA, and the loader picks one. Both give the same bits:
 * contraction is off (meson.build), fused multiply-adds are explicit calls of fmaf, and every reduction has 16 fixed lanes
 * whatever the vector width is. Functions marked CLONES hold no OpenMP regions (outlined regions would lose the target); callers
 * loop over blocks instead. Their `omp simd` says that iterations are independent: arguments may be the very same array, but must
 * not overlap otherwise. */
#ifndef LTRAIN_OPS_SIMD_H
#define LTRAIN_OPS_SIMD_H

#include <stdint.h>
#include <string.h>

/* Sanitizers instrument the resolver, which runs before their runtime is up. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)
#define CLONES __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define CLONES
#endif

/* Sums have sixteen partial sums: element j of a row belongs to lane j % 16. They are held in vectors of 32 bytes: GCC keeps
 * wider ones in memory. */
enum { LANES = 16 };
typedef float f32x8 __attribute__((vector_size(32)));
typedef double f64x4 __attribute__((vector_size(32)));

static inline float lanes_sum(const float a[LANES])
{
    float s[LANES];
    memcpy(s, a, sizeof s);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++)
            s[j] += s[j + half];
    return s[0];
}

#endif
