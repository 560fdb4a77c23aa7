/* The sets of vector instructions of this processor for which there are kernels. */
#ifndef LTRAIN_BASE_ISA_H
#define LTRAIN_BASE_ISA_H

#include <stdint.h> /* defines __GLIBC__ where this header is the first */

/* Put before a function, compiles it for several sets of vector instructions; at the start the processor's is chosen. */
/* not with sanitizers, which would instrument the code that chooses: it runs before their runtime is ready */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONES
#endif

enum isa {
    ISA_PORTABLE,
    ISA_AVX2,   /* and FMA */
    ISA_AVX512, /* F, BW, CD, DQ and VL, and the above */
};

static inline enum isa isa_of_processor(void)
{
#ifdef __x86_64__
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return ISA_PORTABLE;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
               ? ISA_AVX512
               : ISA_AVX2;
#else
    return ISA_PORTABLE;
#endif
}

/* Tells whether products of bf16 tiles may be used (AMX-BF16 together with ISA_AVX512 and AVX512-BF16). The first call asks the
 * kernel for permission for the process. */
int isa_has_amx(void);

static inline const char *isa_name(enum isa isa)
{
    static const char *const name[] = {"portable", "avx2", "avx512"};
    return name[isa];
}

#endif
