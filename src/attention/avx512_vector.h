/* AVX-512 (F, BW, DQ, VL): vectors of 16, tiles of 8 x 48.
 *
 * Tiles are in assembly, as AVX2's: zmm0-23 accumulate (row i in zmm 3i to 3i+2), zmm24-26 hold a row of B, zmm27 one element of
 * A. C is added at the end instead of starting the sum, so that a sum over millions of rows rounds once per block. */
#ifndef LTRAIN_ATTENTION_AVX512_VECTOR_H
#define LTRAIN_ATTENTION_AVX512_VECTOR_H

#include <immintrin.h>
#include <stdint.h>

#define SIMD __attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")))

/* Rows per block of queries and of keys, with 2 MiB of L2: 288 is 3 to 5% faster than 192 in backward, 3% slower in forward. */
enum { FORWARD_BLOCK = 192, BACKWARD_BLOCK = 288 };

enum { WIDTH = 16, ROWS = 8, LANES = 3 * WIDTH, EXP2_SATURATES = 1 /* 1: vf_exp2 of too large x is infinite */ };

typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;

static inline SIMD vf vf_set(float x)
{
    return _mm512_set1_ps(x);
}

static inline SIMD vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

static inline SIMD vi vi_load(const int32_t *p)
{
    return _mm512_loadu_si512(p);
}

static inline SIMD void vf_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}

/* Returns the lanes' maxima; b where one of them is NaN. */
static inline SIMD vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}

static inline SIMD vf vf_ceil(vf x)
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
}

static inline SIMD vm vf_greater(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ);
}

/* Returns the lanes in which a >= b, or a or b is NaN. */
static inline SIMD vm vf_not_less(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ);
}

static inline SIMD vm vf_unequal(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ);
}

/* Returns the lanes whose interval [from, to) contains key. */
static inline SIMD vm vi_contains(vi from, vi to, int64_t key)
{
    vi j = _mm512_set1_epi32((int)key);
    return _mm512_mask_cmplt_epi32_mask(_mm512_cmple_epi32_mask(from, j), j, to);
}

static inline SIMD int vm_any(vm m)
{
    return m != 0;
}

static inline SIMD vf vf_select(vm m, vf yes, vf no)
{
    return _mm512_mask_blend_ps(m, no, yes);
}

/* Returns x where m holds, else 0. */
static inline SIMD vf vf_keep(vm m, vf x)
{
    return _mm512_maskz_mov_ps(m, x);
}

/* Returns 2^x; relative error below 1.5e-7 of normal results, also for integer x; 0 below and inf above the range of floats; NaN
 * stays NaN. */
static inline SIMD vf vf_exp2(vf x)
{
    const vf f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); /* x - floor(x) */
    vf y = _mm512_set1_ps(1.877576695e-03f);                                     /* minimax of degree 5 on [0, 1] */
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(8.989339694e-03f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(5.582631752e-02f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(2.401536107e-01f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(6.931530833e-01f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(9.999999404e-01f));
    return _mm512_scalef_ps(y, x); /* y 2^floor(x) */
}

/* Returns 2^x of an integer x, exactly; 0 below the range of floats. */
static inline SIMD vf vf_exp2_whole(vf x)
{
    return _mm512_scalef_ps(_mm512_set1_ps(1), x);
}

static inline SIMD void vf_transpose(vf r[WIDTH])
{
    vf t[16], u[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) /* u[i + c]: columns c, 4 + c, 8 + c, 12 + c of rows i to i + 3, one per 128 bits */
        for (int c = 0; c < 4; c += 2) {
            u[i + c] = _mm512_shuffle_ps(t[i + c / 2], t[i + 2 + c / 2], 0x44);
            u[i + c + 1] = _mm512_shuffle_ps(t[i + c / 2], t[i + 2 + c / 2], 0xee);
        }
    for (int c = 0; c < 4; c++) {
        vf a = _mm512_shuffle_f32x4(u[c], u[4 + c], 0x44), b = _mm512_shuffle_f32x4(u[8 + c], u[12 + c], 0x44);
        vf e = _mm512_shuffle_f32x4(u[c], u[4 + c], 0xee), g = _mm512_shuffle_f32x4(u[8 + c], u[12 + c], 0xee);
        r[c] = _mm512_shuffle_f32x4(a, b, 0x88);
        r[4 + c] = _mm512_shuffle_f32x4(a, b, 0xdd);
        r[8 + c] = _mm512_shuffle_f32x4(e, g, 0x88);
        r[12 + c] = _mm512_shuffle_f32x4(e, g, 0xdd);
    }
}

#define FMA3(A, C0, C1, C2)                                                                 \
    "vbroadcastss " #A "(%[a]), %%zmm27\n\t"                                                \
    "vfmadd231ps %%zmm24, %%zmm27, %%zmm" #C0 "\n\tvfmadd231ps %%zmm25, %%zmm27, %%zmm" #C1 \
    "\n\tvfmadd231ps %%zmm26, %%zmm27, %%zmm" #C2 "\n\t"
#define STEP(B, A0, A1, A2, A3, A4, A5, A6, A7)                                                                          \
    "vmovaps " #B "(%[b]), %%zmm24\n\tvmovaps 64+" #B "(%[b]), %%zmm25\n\tvmovaps 128+" #B                               \
    "(%[b]), %%zmm26\n\t" FMA3(A0, 0, 1, 2) FMA3(A1, 3, 4, 5) FMA3(A2, 6, 7, 8) FMA3(A3, 9, 10, 11) FMA3(A4, 12, 13, 14) \
        FMA3(A5, 15, 16, 17) FMA3(A6, 18, 19, 20) FMA3(A7, 21, 22, 23)
#define ZERO(AT, C) "vpxord %%zmm" #C ", %%zmm" #C ", %%zmm" #C "\n\t"
#define FETCH(AT, C) "prefetcht0 " #AT "(%[c])\n\t"
#define ADD(AT, C) "vaddps " #AT "(%[c]), %%zmm" #C ", %%zmm" #C "\n\t"
#define STORE(AT, C) "vmovaps %%zmm" #C ", " #AT "(%[c])\n\t"
/* clang-format off */
#define EACH(DO)                                                                                                           \
    DO(0, 0)                                                                                                               \
    DO(64, 1)                                                                                                              \
    DO(128, 2)                                                                                                             \
    DO(192, 3)                                                                                                             \
    DO(256, 4) DO(320, 5) DO(384, 6) DO(448, 7) DO(512, 8) DO(576, 9) DO(640, 10) DO(704, 11) DO(768, 12) DO(832, 13)      \
        DO(896, 14) DO(960, 15) DO(1024, 16) DO(1088, 17) DO(1152, 18) DO(1216, 19) DO(1280, 20) DO(1344, 21) DO(1408, 22) \
            DO(1472, 23)
/* clang-format on */
#define START "testl %[add], %[add]\n\tjz 2f\n\t" EACH(FETCH) "2:\n\t" EACH(ZERO)
#define FINISH "testl %[add], %[add]\n\tjz 3f\n\t" EACH(ADD) "3:\n\t" EACH(STORE)
#define REGISTERS                                                                                                                \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", \
        "xmm15", "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27",     \
        "cc", "memory"

static inline SIMD void tile(int64_t k, const float *a, const float *b, float *c, int add)
{
    k /= 4;
    __asm__ volatile(START ".p2align 5\n\t"
                           "1:\n\t" STEP(0, 0, 4, 8, 12, 16, 20, 24, 28) STEP(192, 32, 36, 40, 44, 48, 52, 56, 60)
                               STEP(384, 64, 68, 72, 76, 80, 84, 88, 92)
                                   STEP(576, 96, 100, 104, 108, 112, 116, 120, 124) "addq $128, %[a]\n\t"
                                                                                    "addq $768, %[b]\n\t"
                                                                                    "decq %[k]\n\t"
                                                                                    "jnz 1b\n\t" FINISH
                     : [k] "+&r"(k), [a] "+&r"(a), [b] "+&r"(b)
                     : [c] "r"(c), [add] "r"(add)
                     : REGISTERS);
}

static inline SIMD void tile_lanes(int64_t n, const float *a, int64_t stride, const float *b, float *c, int add)
{
    int64_t k = 0;
    stride = (stride - LANES) * 4;
    __asm__ volatile(START "4:\n\t"
                           "movl $24, %k[k]\n\t"
                           ".p2align 5\n\t"
                           "1:\n\t" STEP(0, 0, 192, 384, 576, 768, 960, 1152, 1344)
                               STEP(192, 4, 196, 388, 580, 772, 964, 1156, 1348) "addq $8, %[a]\n\t"
                                                                                 "addq $384, %[b]\n\t"
                                                                                 "decq %[k]\n\t"
                                                                                 "jnz 1b\n\t"
                                                                                 "addq %[stride], %[a]\n\t"
                                                                                 "decq %[n]\n\t"
                                                                                 "jnz 4b\n\t" FINISH
                     : [k] "+&r"(k), [a] "+&r"(a), [b] "+&r"(b), [n] "+&r"(n)
                     : [c] "r"(c), [add] "r"(add), [stride] "r"(stride)
                     : REGISTERS);
}

#endif
