/* Bytes that a rank sends, by formula; counters are compared with them. */
#include "seqpar/seqpar.h"

#include "base/num.h"

/* Returns the elements of one ring member's K and V (or dK and dV) for the KV heads of one rank. */
static int64_t block_elements(const struct seq_shape *s, const struct seq_heads *h)
{
    return seq_member_rows(s) * 2 * (max_i64(h->kv_heads, s->ulysses) / s->ulysses) * h->head_dim;
}

struct seq_volume seq_volume(const struct seq_shape *s, const struct seq_heads *h, enum seq_resend resend)
{
    int64_t U = s->ulysses, H = h->heads, K = max_i64(h->kv_heads, U), D = h->head_dim, b = h->storage_bytes;
    int64_t to_others = seq_rank_rows(s) * (U - 1); /* rows that are sent to other ranks */
    int64_t again = resend == SEQ_RESEND_QKV ? b * (H / U + 2 * (K / U)) : 0;
    int64_t blocks = (s->ring - 1) * block_elements(s, h);
    return (struct seq_volume){
        .all_to_all_forward = to_others * D * b * (2 * (H / U) + 2 * (K / U)),
        .all_to_all_backward = to_others * (D * (2 * b * (H / U) + again + 8 * (K / U)) + 4 * (H / U)),
        .ring_forward = blocks * b,
        .ring_backward = blocks * (b + 4),
    };
}

struct seq_state_volume seq_state_volume(const struct seq_shape *s, const struct seq_states *x)
{
    const int64_t ranks = (int64_t)s->ulysses * s->ring, pieces = seq_rank_rows(s) / seq_piece(s), K = x->key_dim,
                  V = x->value_dim;
    const int64_t heads = (ranks - 1) * ceil_div(x->heads, ranks) * pieces, tails = (ranks - 1) * pieces * x->tail;
    return (struct seq_state_volume){.forward = heads * 4 * K * (K + 2 * V) + tails * x->storage_bytes,
                                     .backward = heads * 8 * K * V + tails * 4};
}
