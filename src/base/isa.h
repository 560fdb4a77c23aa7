/* The vector instructions of this processor, as far as kernels are written for them. */
#ifndef LTRAIN_BASE_ISA_H
#define LTRAIN_BASE_ISA_H

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

/* Whether products of bf16 tiles (AMX-BF16, beside ISA_AVX512 and AVX512-BF16) may be used: asks the kernel for the process's
 * permission the first time. */
int isa_has_amx(void);

static inline const char *isa_name(enum isa isa)
{
    static const char *const name[] = {"portable", "avx2", "avx512"};
    return name[isa];
}

#endif
