/* Tiles of 6 x 16 for AVX2 and FMA, in assembly, because gcc 12 would fold the loads of B into every multiply-add. */
#include "ops/gemm_tile.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#define SIMD __attribute__((target("avx2,fma")))

enum { ROWS = 6, COLS = 16, WIDTH = 8 };

/* ymm12-13 hold a row of B, ymm14-15 elements of A in turn. */
#define FMA2(AT, T, C0, C1)                       \
    "vbroadcastss " #AT "(%[a]), %%ymm" #T "\n\t" \
    "vfmadd231ps %%ymm12, %%ymm" #T ", %" #C0 "\n\tvfmadd231ps %%ymm13, %%ymm" #T ", %" #C1 "\n\t"
#define STEP(B, A0, A1, A2, A3, A4, A5)                                                                           \
    "vmovaps " #B "(%[b]), %%ymm12\n\tvmovaps 32+" #B "(%[b]), %%ymm13\n\t" FMA2(A0, 14, 0, 1) FMA2(A1, 15, 2, 3) \
        FMA2(A2, 14, 4, 5) FMA2(A3, 15, 6, 7) FMA2(A4, 14, 8, 9) FMA2(A5, 15, 10, 11)
#define STEPS                         \
    STEP(0, 0, 4, 8, 12, 16, 20)      \
    STEP(64, 24, 28, 32, 36, 40, 44)  \
    STEP(128, 48, 52, 56, 60, 64, 68) \
    STEP(192, 72, 76, 80, 84, 88, 92)
#define PREFETCH "prefetcht0 768(%[a])\n\tprefetcht0 832(%[a])\n\t"
#define ZERO(C) "vxorps %" #C ", %" #C ", %" #C "\n\t"
#define ZEROS ZERO(0) ZERO(1) ZERO(2) ZERO(3) ZERO(4) ZERO(5) ZERO(6) ZERO(7) ZERO(8) ZERO(9) ZERO(10) ZERO(11)
#define OUT(I) "=&x"(x[I])

static SIMD void run(int64_t k, const float *a, const float *b, float *c, int64_t ldc, int add)
{
    __m256 x[2 * ROWS];
    for (int i = 0; i < ROWS; i++) {
        _mm_prefetch((const char *)(c + i * ldc), _MM_HINT_T0);
        _mm_prefetch((const char *)(c + i * ldc + COLS - 1), _MM_HINT_T0);
    }
    k /= 4;
    __asm__(ZEROS ".p2align 5\n\t"
                  "1:\n\t" PREFETCH STEPS "addq $96, %[a]\n\t"
                  "addq $256, %[b]\n\t"
                  "decq %[k]\n\t"
                  "jnz 1b\n\t"
            : OUT(0), OUT(1), OUT(2), OUT(3), OUT(4), OUT(5), OUT(6), OUT(7), OUT(8), OUT(9), OUT(10),
              OUT(11), [k] "+r"(k), [a] "+r"(a), [b] "+r"(b)
            :
            : "xmm12", "xmm13", "xmm14", "xmm15", "cc", "memory");
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < 2; j++) {
            float *to = c + i * ldc + j * WIDTH;
            _mm256_storeu_ps(to, add ? _mm256_add_ps(_mm256_loadu_ps(to), x[2 * i + j]) : x[2 * i + j]);
        }
}

const struct gemm_tile gemm_tile_avx2 = {ROWS, COLS, 256, run, gemm_pack_avx2};

#else
typedef int gemm_avx2_is_empty;
#endif
