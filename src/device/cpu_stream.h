/* What kernels of the CPU get as their stream. */
#ifndef LTRAIN_DEVICE_CPU_STREAM_H
#define LTRAIN_DEVICE_CPU_STREAM_H

#include <stdatomic.h>
#include <stddef.h>

/* Attention starts that many threads, for which its scratch is; the others take OpenMP's number, which backend.enter sets. */
struct cpu_stream {
    int threads;
    const atomic_int *stop; /* once it is not 0, nobody reads what the call writes; it stays so until the call ends. NULL: never */
};

/* Whether the call may end as it is. Attention and products, which take seconds, ask between tiles. stream: NULL is fine. */
static inline int cpu_stops(const struct cpu_stream *stream)
{
    return stream && stream->stop && atomic_load_explicit(stream->stop, memory_order_relaxed) != 0;
}

#endif
