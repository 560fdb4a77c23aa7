/* The product of AMX tiles: the instructions of the attention kernels that only a CPU with AMX has, beside base/amx.h. */
#ifndef LTRAIN_ATTENTION_AMX_PRODUCT_H
#define LTRAIN_ATTENTION_AMX_PRODUCT_H

#include <stdint.h>

/* Computes C = A B, or C += A B if `add`, for 2 x 2 tiles of C. A has two rows of `steps` consecutive tiles, at a and at a +
 * a_next; B has two columns of them, at b and at b + b_next. C has rows `row` bytes apart, its lower two tiles at c + c_below,
 * its right two at c + c_beside. */
static inline void amx_product(int64_t steps, const char *a, int64_t a_next, const char *b, int64_t b_next, char *c, int64_t row,
                               int64_t c_below, int64_t c_beside, int add)
{
    const int64_t tile_row = 64;
    const char *an = a + a_next, *bn = b + b_next;
    __asm__ volatile("testl %[add], %[add]\n\tjz 2f\n\t"
                     "tileloadd (%[c],%[row]), %%tmm0\n\ttileloadd (%[cb],%[row]), %%tmm1\n\t"
                     "tileloadd (%[cl],%[row]), %%tmm2\n\ttileloadd (%[clb],%[row]), %%tmm3\n\tjmp 1f\n\t"
                     "2:\n\ttilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3\n\t"
                     "1:\n\t"
                     "tileloadd (%[b],%[t]), %%tmm6\n\ttileloadd (%[a],%[t]), %%tmm4\n\ttdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\t"
                     "tileloadd (%[bn],%[t]), %%tmm7\n\ttdpbf16ps %%tmm7, %%tmm4, %%tmm1\n\t"
                     "tileloadd (%[an],%[t]), %%tmm5\n\ttdpbf16ps %%tmm6, %%tmm5, %%tmm2\n\ttdpbf16ps %%tmm7, %%tmm5, %%tmm3\n\t"
                     "addq $1024, %[a]\n\taddq $1024, %[an]\n\taddq $1024, %[b]\n\taddq $1024, %[bn]\n\tdecq %[k]\n\tjnz 1b\n\t"
                     "tilestored %%tmm0, (%[c],%[row])\n\ttilestored %%tmm1, (%[cb],%[row])\n\t"
                     "tilestored %%tmm2, (%[cl],%[row])\n\ttilestored %%tmm3, (%[clb],%[row])"
                     : [k] "+&r"(steps), [a] "+&r"(a), [an] "+&r"(an), [b] "+&r"(b), [bn] "+&r"(bn)
                     : [c] "r"(c), [cb] "r"(c + c_beside), [cl] "r"(c + c_below), [clb] "r"(c + c_below + c_beside),
                       [row] "r"(row), [t] "r"(tile_row), [add] "r"(add)
                     : "cc", "memory");
}

#endif
