/* Bytes that ranks send, by formula, for programs with predicates and for ZeRO. */
#ifndef LTRAIN_TESTS_SEQPAR_VOLUMES_H
#define LTRAIN_TESTS_SEQPAR_VOLUMES_H

#include "base/num.h"
#include "seqpar/seqpar.h"

/* Returns the bytes of a ring in which member i's program runs with these predicates: each block that another member needs is
 * sent once. */
static inline struct seq_volume seq_volume_pruned(const struct seq_shape *s, const struct seq_heads *h, enum seq_resend resend,
                                                  const uint8_t *needs, int i)
{
    struct seq_volume v = seq_volume(s, h, resend);
    if (s->ring == 1)
        return v;
    const int64_t block = v.ring_forward / (s->ring - 1), gradients = v.ring_backward / (s->ring - 1) - block;
    /* sent: blocks of keys for the members that attend them; returned: blocks of gradients for the members whose keys i attends */
    int64_t sent = 0, returned = 0;
    for (int m = 0; m < s->ring; m++) {
        sent += m != i && needs[m * s->ring + i];
        returned += m != i && needs[i * s->ring + m];
    }
    v.ring_forward = sent * block;
    v.ring_backward = sent * block + returned * gradients;
    return v;
}

/* Returns the bytes that rank `rank` of `ranks` sends per optimizer step for one group of n parameters under ZeRO `stage`. Every
 * share of ceil(n / ranks) elements is sent straight to the ranks that need it:
 *   0  gradients reduced to shares once, their fp32 sums gathered once
 *   1  gradients reduced to shares once, parameters gathered once
 *   2  gradients reduced for each micro-batch, parameters gathered once
 *   3  gradients reduced for each micro-batch, parameters gathered twice for each (forward, backward)
 * param_bytes, grad_bytes: of an element on the way. */
static inline int64_t seq_zero_bytes(int stage, int64_t n, int ranks, int rank, int micro_batches, int64_t param_bytes,
                                     int64_t grad_bytes)
{
    int64_t share = ceil_div(n, ranks), own = min_i64(max_i64(n - rank * share, 0), share);
    int64_t gather = own * (ranks - 1), scatter = (n - own) * grad_bytes;
    switch (stage) {
    case 0:
        return scatter + gather * 4; /* sums are fp32 */
    case 1:
        return scatter + gather * param_bytes;
    case 2:
        return micro_batches * scatter + gather * param_bytes;
    default:
        return micro_batches * (scatter + 2 * gather * param_bytes);
    }
}

#endif
