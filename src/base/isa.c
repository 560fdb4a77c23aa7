/* Features of the processor, and the kernel's permission to use them. */

#if defined(__x86_64__) && defined(__linux__)
#include "base/isa.h"

#include <cpuid.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 }; /* asm/prctl.h of Linux 5.16 and later */
enum { UNKNOWN, REFUSED, GRANTED };

static int ask(void)
{
    const unsigned bf16 = 1u << 22, tile = 1u << 24;
    unsigned a, b, c, d;
    if (isa_of_processor() != ISA_AVX512 || !__builtin_cpu_supports("avx512bf16") || !__get_cpuid_count(7, 0, &a, &b, &c, &d) ||
        (d & bf16) == 0 || (d & tile) == 0)
        return REFUSED;
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 ? GRANTED : REFUSED;
}

int isa_has_amx(void)
{
    static atomic_int known;
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (answer == UNKNOWN) {
        answer = ask();
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer == GRANTED;
}

#else

int isa_has_amx(void)
{
    return 0;
}

#endif
