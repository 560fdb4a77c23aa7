/* AVX2 + FMA: vectors of 8, tiles of 4 x 24.
 *
 * Tiles are in assembly: gcc 12 folds the loads of B into every multiply-add (16 loads for 12, 75% of the speed). ymm0-11
 * accumulate (row i in ymm 3i to 3i+2), ymm12-14 hold a row of B, ymm15 one element of A. */
#ifndef LTRAIN_ATTENTION_AVX2_VECTOR_H
#define LTRAIN_ATTENTION_AVX2_VECTOR_H

#include <immintrin.h>
#include <stdint.h>

#define SIMD __attribute__((target("avx2,fma")))

/* Rows per block of queries and of keys: below 128 costs 2 to 5% in backward. */
enum { FORWARD_BLOCK = 192, BACKWARD_BLOCK = 192 };

enum {
    WIDTH = 8,
    ROWS = 4,
    LANES = 3 * WIDTH,
    EXP2_SATURATES = 0 /* 0: vf_exp2 of too large x is not infinite, but undefined */
};

typedef __m256 vf;
typedef __m256i vi;
typedef __m256 vm; /* mask: all ones in the lanes for which a condition holds */

static inline SIMD vf vf_set(float x)
{
    return _mm256_set1_ps(x);
}

static inline SIMD vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

static inline SIMD vi vi_load(const int32_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

static inline SIMD void vf_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x);
}

/* Returns the lanes' maxima; b where one of them is NaN. */
static inline SIMD vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}

static inline SIMD vf vf_ceil(vf x)
{
    return _mm256_ceil_ps(x);
}

static inline SIMD vm vf_greater(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_GT_OQ);
}

/* Returns the lanes in which a >= b, or a or b is NaN. */
static inline SIMD vm vf_not_less(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_NLT_UQ);
}

static inline SIMD vm vf_unequal(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_NEQ_UQ);
}

/* Returns the lanes whose interval [from, to) contains key. */
static inline SIMD vm vi_contains(vi from, vi to, int64_t key)
{
    vi j = _mm256_set1_epi32((int)key);
    return _mm256_castsi256_ps(_mm256_andnot_si256(_mm256_cmpgt_epi32(from, j), _mm256_cmpgt_epi32(to, j)));
}

static inline SIMD int vm_any(vm m)
{
    return _mm256_movemask_ps(m) != 0;
}

static inline SIMD vf vf_select(vm m, vf yes, vf no)
{
    return _mm256_blendv_ps(no, yes, m);
}

/* Returns x where m holds, else 0. */
static inline SIMD vf vf_keep(vm m, vf x)
{
    return _mm256_and_ps(x, m);
}

/* Returns 2^x for x <= 127; relative error below 2.5e-7 on [-126, 0], 2^-126 below; NaN stays NaN. */
static inline SIMD vf vf_exp2(vf x)
{
    const __m256 round =
        _mm256_set1_ps(12582912.0f + 127.0f);      /* 1.5 * 2^23: rounds to an integer, which lands in the low bits, biased */
    x = _mm256_max_ps(_mm256_set1_ps(-126.0f), x); /* in this order NaN passes */
    __m256 t = _mm256_add_ps(x, round), f = _mm256_sub_ps(x, _mm256_sub_ps(t, round));
    __m256 y = _mm256_set1_ps(1.327647217e-03f); /* minimax of degree 5 on [-1/2, 1/2], constant term rounded to 1 */
    y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(9.675541331e-03f));
    y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(5.550713273e-02f));
    y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(2.402211972e-01f));
    y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(6.931469671e-01f));
    y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(1.0f));
    return _mm256_mul_ps(y, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(t), 23)));
}

/* Returns 2^x of an integer x <= 127, exactly; 2^-126 below. */
static inline SIMD vf vf_exp2_whole(vf x)
{
    return vf_exp2(x); /* x - round(x) is 0, and the polynomial's constant term 1 */
}

static inline SIMD void vf_transpose(vf r[WIDTH])
{
    transpose8(r);
}

#define FMA3(A, C0, C1, C2)                                                                 \
    "vbroadcastss " #A "(%[a]), %%ymm15\n\t"                                                \
    "vfmadd231ps %%ymm12, %%ymm15, %%ymm" #C0 "\n\tvfmadd231ps %%ymm13, %%ymm15, %%ymm" #C1 \
    "\n\tvfmadd231ps %%ymm14, %%ymm15, %%ymm" #C2 "\n\t"
#define STEP(B, A0, A1, A2, A3)                                                           \
    "vmovaps " #B "(%[b]), %%ymm12\n\tvmovaps 32+" #B "(%[b]), %%ymm13\n\tvmovaps 64+" #B \
    "(%[b]), %%ymm14\n\t" FMA3(A0, 0, 1, 2) FMA3(A1, 3, 4, 5) FMA3(A2, 6, 7, 8) FMA3(A3, 9, 10, 11)
#define ZERO(C) "vxorps %%ymm" #C ", %%ymm" #C ", %%ymm" #C "\n\t"
#define ADD(AT, C) "vaddps " #AT "(%[c]), %%ymm" #C ", %%ymm" #C "\n\t"
#define STORE(AT, C) "vmovaps %%ymm" #C ", " #AT "(%[c])\n\t"
#define EACH(DO) \
    DO(0, 0)     \
    DO(32, 1) DO(64, 2) DO(96, 3) DO(128, 4) DO(160, 5) DO(192, 6) DO(224, 7) DO(256, 8) DO(288, 9) DO(320, 10) DO(352, 11)
#define CLEAR ZERO(0) ZERO(1) ZERO(2) ZERO(3) ZERO(4) ZERO(5) ZERO(6) ZERO(7) ZERO(8) ZERO(9) ZERO(10) ZERO(11)
#define LINE(AT) "prefetcht0 " #AT "(%[c])\n\t"
#define FETCH LINE(0) LINE(64) LINE(128) LINE(192) LINE(256) LINE(320)
#define FINISH "testl %[add], %[add]\n\tjz 3f\n\t" EACH(ADD) "3:\n\t" EACH(STORE) "vzeroupper\n\t"
#define REGISTERS                                                                                                                \
    "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7", "ymm8", "ymm9", "ymm10", "ymm11", "ymm12", "ymm13", "ymm14", \
        "ymm15", "cc", "memory"

static inline SIMD void tile(int64_t k, const float *a, const float *b, float *c, int add)
{
    k /= 4;
    __asm__ volatile(FETCH CLEAR ".p2align 5\n\t"
                                 "1:\n\t" STEP(0, 0, 4, 8, 12) STEP(96, 16, 20, 24, 28) STEP(192, 32, 36, 40, 44)
                                     STEP(288, 48, 52, 56, 60) "addq $64, %[a]\n\t"
                                                               "addq $384, %[b]\n\t"
                                                               "decq %[k]\n\t"
                                                               "jnz 1b\n\t" FINISH
                     : [k] "+r"(k), [a] "+r"(a), [b] "+r"(b)
                     : [c] "r"(c), [add] "r"(add)
                     : REGISTERS);
}

static inline SIMD void tile_lanes(int64_t n, const float *a, int64_t stride, const float *b, float *c, int add)
{
    int64_t k = 0;
    stride = (stride - LANES) * 4;
    __asm__ volatile(FETCH CLEAR "2:\n\t"
                                 "movl $12, %k[k]\n\t"
                                 ".p2align 5\n\t"
                                 "1:\n\t" STEP(0, 0, 96, 192, 288) STEP(96, 4, 100, 196, 292) "addq $8, %[a]\n\t"
                                                                                              "addq $192, %[b]\n\t"
                                                                                              "decq %[k]\n\t"
                                                                                              "jnz 1b\n\t"
                                                                                              "addq %[stride], %[a]\n\t"
                                                                                              "decq %[n]\n\t"
                                                                                              "jnz 2b\n\t" FINISH
                     : [k] "+r"(k), [a] "+r"(a), [b] "+r"(b), [n] "+r"(n)
                     : [c] "r"(c), [add] "r"(add), [stride] "r"(stride)
                     : REGISTERS);
}

#endif
