/* The 4 x 24 tile product, in assembly: gcc 12 folds the loads of B into every multiply-add (16 loads for 12, 75% of the speed).
 *
 * ymm0-11 accumulate (row i in ymm 3i to 3i+2), ymm12-14 hold a row of B, ymm15 one element of A. */
#include "attention/avx2.h"

#ifdef ATTN_HAVE_AVX2

#define FMA3(A, C0, C1, C2)                                                                                                        \
    "vbroadcastss " #A "(%[a]), %%ymm15\n\t"                                                                                       \
    "vfmadd231ps %%ymm12, %%ymm15, %%ymm" #C0 "\n\tvfmadd231ps %%ymm13, %%ymm15, %%ymm" #C1                                        \
    "\n\tvfmadd231ps %%ymm14, %%ymm15, %%ymm" #C2 "\n\t"
#define STEP(B, A0, A1, A2, A3)                                                                                                    \
    "vmovaps " #B "(%[b]), %%ymm12\n\tvmovaps 32+" #B "(%[b]), %%ymm13\n\tvmovaps 64+" #B "(%[b]), %%ymm14\n\t"                    \
    FMA3(A0, 0, 1, 2) FMA3(A1, 3, 4, 5) FMA3(A2, 6, 7, 8) FMA3(A3, 9, 10, 11)
#define ZERO(C) "vxorps %%ymm" #C ", %%ymm" #C ", %%ymm" #C "\n\t"
#define ADD(AT, C) "vaddps " #AT "(%[c]), %%ymm" #C ", %%ymm" #C "\n\t"
#define STORE(AT, C) "vmovaps %%ymm" #C ", " #AT "(%[c])\n\t"
#define EACH(DO)                                                                                                                   \
    DO(0, 0) DO(32, 1) DO(64, 2) DO(96, 3) DO(128, 4) DO(160, 5) DO(192, 6) DO(224, 7) DO(256, 8) DO(288, 9) DO(320, 10) DO(352, 11)
#define CLEAR ZERO(0) ZERO(1) ZERO(2) ZERO(3) ZERO(4) ZERO(5) ZERO(6) ZERO(7) ZERO(8) ZERO(9) ZERO(10) ZERO(11)
#define LINE(AT) "prefetcht0 " #AT "(%[c])\n\t"
#define FETCH LINE(0) LINE(64) LINE(128) LINE(192) LINE(256) LINE(320)
#define FINISH "testl %[add], %[add]\n\tjz 3f\n\t" EACH(ADD) "3:\n\t" EACH(STORE) "vzeroupper\n\t"
#define REGISTERS                                                                                                                  \
    "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7", "ymm8", "ymm9", "ymm10", "ymm11", "ymm12", "ymm13", "ymm14",   \
        "ymm15", "cc", "memory"

AVX2 void avx2_tile(int64_t k, const float *a, const float *b, float *c, int add)
{
    k /= 4;
    __asm__ volatile(FETCH CLEAR
        ".p2align 5\n\t"
        "1:\n\t" STEP(0, 0, 4, 8, 12) STEP(96, 16, 20, 24, 28) STEP(192, 32, 36, 40, 44) STEP(288, 48, 52, 56, 60)
        "addq $64, %[a]\n\t"
        "addq $384, %[b]\n\t"
        "decq %[k]\n\t"
        "jnz 1b\n\t" FINISH
        : [k] "+r"(k), [a] "+r"(a), [b] "+r"(b)
        : [c] "r"(c), [add] "r"(add)
        : REGISTERS);
}

AVX2 void avx2_tile_lanes(int64_t n, const float *a, int64_t stride, const float *b, float *c, int add)
{
    int64_t k = 0;
    stride = (stride - LANES) * 4;
    __asm__ volatile(FETCH CLEAR
        "2:\n\t"
        "movl $12, %k[k]\n\t"
        ".p2align 5\n\t"
        "1:\n\t" STEP(0, 0, 96, 192, 288) STEP(96, 4, 100, 196, 292)
        "addq $8, %[a]\n\t"
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

#else
typedef int avx2_tile_is_empty;
#endif
