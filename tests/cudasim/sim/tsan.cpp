/* Functions that the compiler calls before every access of a kernel (-fsanitize=thread) and at every misaligned one
 * (-fsanitize=alignment). */
#include "sim.h"

#include <stdio.h>

static inline void plain(const void *p, size_t bytes, enum access kind, const void *pc)
{
    if (!sim_self || sim_on_stack(p))
        return;
    if (!sim_checking) {
        sim_count.accesses++;
        return;
    }
    memory_access(p, bytes, kind, sim_as_thread(pc, "plain"));
}

extern "C" {
#define HOOK(n)                             \
    void __tsan_read##n(void *p)            \
    {                                       \
        plain(p, n, READ, SIM_CALLER);      \
    }                                       \
    void __tsan_write##n(void *p)           \
    {                                       \
        plain(p, n, WRITE, SIM_CALLER);     \
    }                                       \
    void __tsan_unaligned_read##n(void *p)  \
    {                                       \
        plain(p, n, READ, SIM_CALLER);      \
    }                                       \
    void __tsan_unaligned_write##n(void *p) \
    {                                       \
        plain(p, n, WRITE, SIM_CALLER);     \
    }
HOOK(1)
HOOK(2)
HOOK(4)
HOOK(8)
HOOK(16)

void __tsan_read_range(void *p, size_t bytes)
{
    if (bytes)
        plain(p, bytes, READ, SIM_CALLER);
}

void __tsan_write_range(void *p, size_t bytes)
{
    if (bytes)
        plain(p, bytes, WRITE, SIM_CALLER);
}

void __tsan_init(void)
{
}

void __tsan_func_entry(void *)
{
}

void __tsan_func_exit(void)
{
}

struct type_mismatch {
    const char *file;
    uint32_t line, column;
    const void *type;
    unsigned char log_alignment, kind;
};

void __ubsan_handle_type_mismatch_v1(type_mismatch *data, uintptr_t p)
{
    if (sim_self)
        sim_fail(sim_pc_of(SIM_CALLER), "misaligned access: address %p must be a multiple of %u bytes (%s:%u)", (void *)p,
                 1u << data->log_alignment, data->file, data->line);
}

void __ubsan_handle_type_mismatch_v1_abort(type_mismatch *data, uintptr_t p)
{
    __ubsan_handle_type_mismatch_v1(data, p);
}
}
