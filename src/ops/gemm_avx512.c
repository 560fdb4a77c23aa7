/* Tiles of 12 x 32 for AVX-512, in assembly, because gcc 12 would fold the loads of B into every multiply-add. */
#include "ops/gemm_tile.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#define SIMD __attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")))

enum { ROWS = 12, COLS = 32, WIDTH = 16 };

/* zmm29-30 hold a row of B, zmm31 one element of A. */
#define FMA2(AT, C0, C1)                      \
    "vbroadcastss " #AT "(%[a]), %%zmm31\n\t" \
    "vfmadd231ps %%zmm29, %%zmm31, %" #C0 "\n\tvfmadd231ps %%zmm30, %%zmm31, %" #C1 "\n\t"
#define STEP(B, A0, A1, A2, A3, A4, A5, A6, A7, A8, A9, A10, A11)                                                          \
    "vmovaps " #B "(%[b]), %%zmm29\n\tvmovaps 64+" #B "(%[b]), %%zmm30\n\t" FMA2(A0, 0, 1) FMA2(A1, 2, 3) FMA2(A2, 4, 5)   \
        FMA2(A3, 6, 7) FMA2(A4, 8, 9) FMA2(A5, 10, 11) FMA2(A6, 12, 13) FMA2(A7, 14, 15) FMA2(A8, 16, 17) FMA2(A9, 18, 19) \
            FMA2(A10, 20, 21) FMA2(A11, 22, 23)
#define STEPS                                                            \
    STEP(0, 0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44)                 \
    STEP(128, 48, 52, 56, 60, 64, 68, 72, 76, 80, 84, 88, 92)            \
    STEP(256, 96, 100, 104, 108, 112, 116, 120, 124, 128, 132, 136, 140) \
    STEP(384, 144, 148, 152, 156, 160, 164, 168, 172, 176, 180, 184, 188)
#define PREFETCH "prefetcht0 1536(%[a])\n\tprefetcht0 1600(%[a])\n\tprefetcht0 1664(%[a])\n\t"
#define ZERO(C) "vpxord %" #C ", %" #C ", %" #C "\n\t"
/* clang-format off */
#define ZEROS                                                                                                             \
    ZERO(0)                                                                                                               \
    ZERO(1)                                                                                                               \
    ZERO(2) ZERO(3) ZERO(4) ZERO(5) ZERO(6) ZERO(7) ZERO(8) ZERO(9) ZERO(10) ZERO(11) ZERO(12) ZERO(13) ZERO(14) ZERO(15) \
        ZERO(16) ZERO(17) ZERO(18) ZERO(19) ZERO(20) ZERO(21) ZERO(22) ZERO(23)
/* clang-format on */
#define OUT(I) "=&v"(x[I])

static SIMD void run(int64_t k, const float *a, const float *b, float *c, int64_t ldc, int add)
{
    __m512 x[2 * ROWS];
    for (int i = 0; i < ROWS; i++) {
        _mm_prefetch((const char *)(c + i * ldc), _MM_HINT_T0);
        _mm_prefetch((const char *)(c + i * ldc + COLS - 1), _MM_HINT_T0);
    }
    k /= 4;
    __asm__(ZEROS ".p2align 5\n\t"
                  "1:\n\t" PREFETCH STEPS "addq $192, %[a]\n\t"
                  "addq $512, %[b]\n\t"
                  "decq %[k]\n\t"
                  "jnz 1b\n\t"
            : OUT(0), OUT(1), OUT(2), OUT(3), OUT(4), OUT(5), OUT(6), OUT(7), OUT(8), OUT(9), OUT(10), OUT(11), OUT(12), OUT(13),
              OUT(14), OUT(15), OUT(16), OUT(17), OUT(18), OUT(19), OUT(20), OUT(21), OUT(22),
              OUT(23), [k] "+r"(k), [a] "+r"(a), [b] "+r"(b)
            :
            : "xmm29", "xmm30", "xmm31", "cc", "memory");
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < 2; j++) {
            float *to = c + i * ldc + j * WIDTH;
            _mm512_storeu_ps(to, add ? _mm512_add_ps(_mm512_loadu_ps(to), x[2 * i + j]) : x[2 * i + j]);
        }
}

const struct gemm_tile gemm_tile_avx512 = {ROWS, COLS, 512, run, gemm_pack_avx2};

#else
typedef int gemm_avx512_is_empty;
#endif
