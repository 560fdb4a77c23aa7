/* Bytes that a rank sends, by formula; counters are compared with them. */
#include "seqpar/seqpar.h"

#include "base/num.h"

/* Returns the widths of a key and of a value together. */
static int64_t both_dims(const struct seq_heads *h)
{
    return h->head_dim + (h->value_dim > 0 ? h->value_dim : h->head_dim);
}

/* Returns the elements of one ring member's K and V (or dK and dV) for the KV heads of one rank, or of its latents. */
static int64_t block_elements(const struct seq_shape *s, const struct seq_heads *h)
{
    const int64_t all_heads = max_i64(h->kv_heads, s->ulysses) / s->ulysses * both_dims(h);
    return seq_member_rows(s) * (h->latent > 0 && s->ulysses == 1 ? h->latent : all_heads);
}

struct seq_volume seq_volume(const struct seq_shape *s, const struct seq_heads *h, enum seq_resend resend)
{
    int64_t U = s->ulysses, H = h->heads, K = max_i64(h->kv_heads, U), D = h->head_dim, both = both_dims(h), b = h->storage_bytes;
    int64_t to_others = seq_rank_rows(s) * (U - 1); /* rows that are sent to other ranks */
    int64_t again = resend == SEQ_RESEND_QKV ? b * (D * (H / U) + both * (K / U)) : 0;
    int64_t blocks = (s->ring - 1) * block_elements(s, h);
    return (struct seq_volume){
        .all_to_all_forward = to_others * both * b * (H / U + K / U),
        .all_to_all_backward = to_others * (both * (b * (H / U) + 4 * (K / U)) + again + 4 * (H / U)),
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
