/* The stream of CPU kernels. */
#ifndef LTRAIN_DEVICE_CPU_STREAM_H
#define LTRAIN_DEVICE_CPU_STREAM_H

#include <stdatomic.h>
#include <stddef.h>

/* Arguments of a CPU kernel's run. Attention starts `threads` threads, and experts' products at most as many, since their scratch is
 * sized for that number; other kernels take OpenMP's number, which backend.enter sets. */
struct cpu_stream {
    int threads;
    const atomic_int *stop; /* once not 0 (until the call ends), the call's results are not needed; NULL: always needed */
};

/* Tells whether the call may end unfinished. Attention and products, which take seconds, ask between tiles. stream may be NULL. */
static inline int cpu_stops(const struct cpu_stream *stream)
{
    return stream && stream->stop && atomic_load_explicit(stream->stop, memory_order_relaxed) != 0;
}

#endif
