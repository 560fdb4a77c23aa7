/* Copying and clearing in pieces that threads share. */
#include "ops/memory.h"

#include "base/num.h"
#include "ops/ops.h"

enum { PIECE = 1 << 18 }; /* bytes */

void ops_copy(void *dst, const void *src, int64_t bytes)
{
    if (dst == src)
        return;
#pragma omp parallel for schedule(static) if (bytes > 4 * PIECE)
    for (int64_t at = 0; at < bytes; at += PIECE)
        memcpy((char *)dst + at, (const char *)src + at, (size_t)min_i64(PIECE, bytes - at));
}

void ops_zero(void *dst, int64_t bytes)
{
#pragma omp parallel for schedule(static) if (bytes > 4 * PIECE)
    for (int64_t at = 0; at < bytes; at += PIECE)
        memset((char *)dst + at, 0, (size_t)min_i64(PIECE, bytes - at));
}

enum status ops_cpu_copy(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    ops_copy(arg[1], arg[0], a->copy.bytes);
    return OK;
}

enum status ops_cpu_fill(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    ops_zero(arg[0], a->fill.bytes);
    return OK;
}
