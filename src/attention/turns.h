/* Turns that threads take one after the other, so that sums have one order. */
#ifndef LTRAIN_ATTENTION_TURNS_H
#define LTRAIN_ATTENTION_TURNS_H

#include <immintrin.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>

typedef _Atomic int32_t ticket; /* whose turn it is */

/* Waits for it; what those before wrote is seen. */
static inline void take_turn(ticket *t, int32_t turn)
{
    for (int spins = 0; atomic_load_explicit(t, memory_order_acquire) != turn; spins++)
        if (spins < 2000)
            _mm_pause();
        else
            sched_yield(); /* more threads than cores */
}

static inline void pass_turn(ticket *t, int32_t turn)
{
    atomic_store_explicit(t, turn, memory_order_release);
}

#endif
