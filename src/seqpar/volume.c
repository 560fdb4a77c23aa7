/* Bytes that a rank sends, by formula; counters are compared with them. */
#include "seqpar/seqpar.h"

#include "base/num.h"

/* Returns the elements of one ring member's K and V (or dK and dV) for the KV heads of one rank. */
static int64_t block_elements(const struct seq_shape *s, const struct seq_heads *h)
{
    return seq_member_rows(s) * 2 * (max_i64(h->kv_heads, s->ulysses) / s->ulysses) * h->head_dim;
}

static struct seq_volume volume(const struct seq_shape *s, const struct seq_heads *h, enum seq_resend resend, int64_t sent,
                                int64_t returned)
{
    int64_t U = s->ulysses, H = h->heads, K = max_i64(h->kv_heads, U), D = h->head_dim, b = h->storage_bytes;
    int64_t to_others = seq_rank_rows(s) * (U - 1); /* rows that are sent to other ranks */
    int64_t again = resend == SEQ_RESEND_QKV ? b * (H / U + 2 * (K / U)) : 0;
    int64_t block = block_elements(s, h);
    return (struct seq_volume){
        .all_to_all_forward = to_others * D * b * (2 * (H / U) + 2 * (K / U)),
        .all_to_all_backward = to_others * (D * (2 * b * (H / U) + again + 8 * (K / U)) + 4 * (H / U)),
        .ring_forward = sent * block * b,
        .ring_backward = sent * block * b + returned * block * 4,
    };
}

struct seq_volume seq_volume(const struct seq_shape *s, const struct seq_heads *h, enum seq_resend resend)
{
    return volume(s, h, resend, s->ring - 1, s->ring - 1);
}

struct seq_volume seq_volume_pruned(const struct seq_shape *s, const struct seq_heads *h, enum seq_resend resend,
                                    const uint8_t *needs, int i)
{
    /* sent: blocks of keys for the members that attend them; returned: blocks of gradients for the members whose keys i attends */
    int64_t sent = 0, returned = 0;
    for (int m = 0; m < s->ring; m++) {
        sent += m != i && needs[m * s->ring + i];
        returned += m != i && needs[i * s->ring + m];
    }
    return volume(s, h, resend, sent, returned);
}

int64_t seq_zero_bytes(int stage, int64_t n, int ranks, int rank, int micro_batches, int64_t param_bytes, int64_t grad_bytes)
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
