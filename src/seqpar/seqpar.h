/* Sequence parallelism as integer arithmetic: the tokens of each rank, the other ranks' tokens that it attends, and the bytes to
 * send.
 *
 * A sequence of S tokens (padded to S_pad) lies on ring x ulysses ranks. It is cut into equal chunks. Ring member i holds S_pad /
 * ring rows: its chunks in ascending order. Rank (i, j) holds the j-th part of these rows: S_pad / (ring * ulysses) of them.
 * After an all-to-all among the ranks of member i, each of these ranks has all rows of member i for its own heads, in order,
 * without any permutation. At ring step s member i attends the keys of member (i - s) mod ring. Sources: Jacobs et al. 2023
 * (Ulysses), Liu et al. 2023 (ring attention), Fang and Zhao 2024 (2D).
 *
 * Masks: query q (a global token number) attends the keys lo[q] .. q; lo is non-decreasing and lo[q] <= q. A padding token is a
 * document of its own: lo[q] = q. A member's rows are in ascending order of tokens, so a query attends one interval of them.
 *
 * Every result depends on the arguments only, in integers: all ranks compute the same without communication. */
#ifndef LTRAIN_SEQPAR_SEQPAR_H
#define LTRAIN_SEQPAR_SEQPAR_H

#include "base/num.h"
#include "base/status.h"

#include <stdint.h>

/* ---- shapes: fixed for a run ---- */

enum seq_kind {
    SEQ_ZIGZAG, /* two chunks per ring member: the i-th from the front and the i-th from the back; even work for one causal document */
    SEQ_BALANCED, /* up to 32 chunks per ring member, distributed anew for every sequence by attended pairs; even work for any documents */
    SEQ_AUTO /* balanced if every member gets at least four chunks of 64 tokens or more, else zigzag */
};

struct seq_shape {
    int64_t seq_len, padded; /* tokens without and with the padding at the end */
    int ulysses, ring;
    enum seq_kind kind; /* zigzag or balanced */
    int64_t chunk;      /* tokens of a chunk */
    int chunks;         /* padded / chunk, a multiple of ring */
};

/* Creates a shape with the smallest padding that the kind allows and that lets `slices` divide every rank's rows. ERR_INVALID: lengths
 * or degrees below 1, or S_pad beyond 2^31 - 1.
 *
 * least > 0, on several ranks: layers pass states between ranks (seq_piece). Every piece then has at least `least` tokens, a multiple
 * of a power of two, up to 1,024, that pads the sequence by an eighth at most. */
enum status seq_shape_create_pieces(int64_t seq_len, int ulysses, int ring, enum seq_kind kind, int64_t least, int slices,
                                    struct seq_shape *out);

static inline int64_t seq_member_rows(const struct seq_shape *s)
{
    return s->padded / s->ring;
}

static inline int64_t seq_rank_rows(const struct seq_shape *s)
{
    return s->padded / s->ring / s->ulysses;
}

/* Returns the tokens of a piece: consecutive tokens in consecutive rows of a rank, wherever the layout puts them. All rows of all ranks
 * are cut into pieces, from a rank's first row on. */
static inline int64_t seq_piece(const struct seq_shape *s)
{
    return gcd_i64(s->chunk, seq_rank_rows(s));
}

/* The arrays of one sequence, [padded], in global token order. */
struct seq_tokens {
    int32_t *tokens, *targets, *positions, *lo;
};

/* Turns tokens [first, end) into padding: token 0, target -1, position 0, lo = own number. */
void seq_pad(int64_t first, int64_t end, const struct seq_tokens *t);

/* ---- layouts: assigned anew for every sequence, in memory allocated once ---- */

struct seq_layout;

/* Creates a layout in zigzag order. ERR_NOMEM; ERR_INVALID: the shape does not divide as described above. */
enum status seq_layout_create(const struct seq_shape *shape, struct seq_layout **out);
void seq_layout_destroy(struct seq_layout *l); /* NULL is fine */

/* Distributes the chunks for the mask lo [padded], and counts attended pairs. ERR_INVALID: lo is no mask as described above.
 *
 * A balanced layout gives the chunk with the most pairs first, to the member with the fewest pairs that still has room (LPT,
 * Graham 1969; ties by index). That scatters chunks, so most blocks have pairs and are sent. The alternative is zigzag with
 * chunks swapped until the heaviest member is within 1% of the mean. The alternative is taken if it is as even, or is within 1%
 * and sends at most half the blocks (windows, short documents). */
enum status seq_layout_assign(struct seq_layout *l, const int32_t *lo);

/* Returns a hash of the assignment and of its mask, which differs between ranks if they see documents of different lengths. */
uint64_t seq_layout_digest(const struct seq_layout *l);

/* ---- places of tokens ---- */

/* Returns the global token number of row `row` (0 .. S_pad/ring - 1) of a ring member. Row r of rank (i, j) is row j *
 * seq_rank_rows() + r of member i. */
int64_t seq_token_of(const struct seq_layout *l, int member, int64_t row);

/* Sets local[r] = full[token of rank (i, j)'s row r], r < seq_rank_rows(). */
void seq_gather(const struct seq_layout *l, int i, int j, const int32_t *full, int32_t *local);

/* Lists pieces by their tokens. Piece s of rank (i, j), member p = i * ulysses + j of those that share the sequence, has the number s *
 * P + p by pieces and n * p + s by members, P being these members and n the pieces of a rank. order [P * n + 2 * n]: the numbers by
 * pieces, in the order of tokens; then, for each of the rank's pieces, the number by members of the piece before it, and of the one
 * after it. The last piece comes before the first. */
void seq_piece_order(const struct seq_layout *l, int i, int j, int32_t *order);

/* ---- attended rows; the layout must have been assigned with the same lo ---- */

/* Finds the rows of member `src` that member `dst`'s queries attend: query row r attends rows from[r] .. to[r] (no row: to[r] =
 * from[r] - 1). Both arrays [S_pad/ring], non-decreasing, may be NULL; they are lo and hi of attention/attention.h with k0 = 0.
 * Returns the attended pairs. */
int64_t seq_block_mask(const struct seq_layout *l, const int32_t *lo, int dst, int src, int32_t *from, int32_t *to);

/* Finds the masks of member i for all ring steps: row s of from and to, [ring][S_pad/ring], is the block with the keys of member
 * (i - s) mod ring. Returns the attended pairs of all blocks. */
int64_t seq_member_masks(const struct seq_layout *l, const int32_t *lo, int i, int32_t *from, int32_t *to);

/* Sets needs[dst * ring + src] to 1 if some query of dst attends some key of src, else to 0. needs [ring][ring]. */
void seq_needs(const struct seq_layout *l, const int32_t *lo, uint8_t *needs);

/* Sets the predicates of ring member i's program, one byte each, `bits` [2 * ring - 1]. [0] = 1. For every step s = 1 .. ring-1,
 * [2s-1] = needs(i, i-s): member i attends that block, and so receives it; [2s] = needs(i+s, i): member i+s attends i's block, so
 * i sends it. */
void seq_predicates(int ring, const uint8_t *needs, int i, uint8_t *bits);

/* ---- degrees ---- */

struct seq_heads {
    int64_t heads, kv_heads, head_dim;
    int64_t storage_bytes; /* bytes of an element of q, k, v, o and their gradients in messages: 2 or 4 */
    int64_t layers;        /* number of the model's layers that have these heads */
    const char *kind;      /* name of such layers in messages */
    int64_t value_dim;     /* width of v and o; 0: head_dim */
    int64_t latent; /* elements of a token's row that a ring sends in place of k and v, which members make of it; 0: none */
};

/* Checks the degrees: ulysses * ring = ranks; ulysses divides heads, and divides kv_heads or is a multiple of them (KV heads are
 * then replicated), in layers of all n kinds. ERR_INVALID with one sentence that names the legal degrees. */
enum status seq_degrees_check(int ranks, int ulysses, int ring, const struct seq_heads *h, int n);

struct seq_rates {
    double flops;          /* FLOPs of attention per second and rank */
    double inside, across; /* bytes per second, rank and direction, inside a node and between nodes */
};

/* Chooses the legal degrees with ulysses groups inside nodes that minimise the estimated seconds of all layers: attention, the
 * all-to-all that no tile hides, the ring that attention does not hide, and a charge for hidden transfers; ties to the larger
 * ulysses. pairs: attended pairs of a sequence; 0: causal over all of it. Ranks are numbered node by node, ranks_per_node on
 * each. ulysses = 1 is always legal. */
enum status seq_degrees_choose(int ranks, int ranks_per_node, const struct seq_heads *h, int n, int64_t seq_len, double pairs,
                               const struct seq_rates *rates, int *ulysses, int *ring);

/* ---- bytes sent ---- */

enum seq_resend {
    SEQ_RESEND_QKV, /* backward sends q, k, v to head-sharded form again (saved or recomputed token-sharded) */
    SEQ_KEEP_QKV    /* q, k and v were saved head-sharded, after the first all-to-all */
};

/* Bytes that one rank sends for one layer and one sequence to other ranks, without pruning. With U = ulysses, R = ring, H heads,
 * K' = max(kv_heads, U), D = head_dim, V = value_dim, b = storage_bytes, n = S_pad / ranks:
 *   all-to-all forward   (U-1)/U * n * (D + V) * b * (H + K')               q, k, v out, o back
 *   all-to-all backward  (U-1)/U * n * (D*H*b + (D + V) * (H*b + K'*b + 4K') + 4H)
 *                                                                           q, k, v, do, delta out; dq (storage), dk, dv (fp32) back
 *   ring forward         (R-1) * S_pad/R * K'/U * (D + V) * b               k, v
 *   ring backward        (R-1) * S_pad/R * K'/U * (D + V) * (b + 4)         k, v; dk, dv in fp32 back
 * With U = 1 and a latent its width stands for K' * (D + V) in the ring's rows. */
struct seq_volume {
    int64_t all_to_all_forward, all_to_all_backward, ring_forward, ring_backward;
};
struct seq_volume seq_volume(const struct seq_shape *s, const struct seq_heads *h, enum seq_resend resend);

/* A layer whose states pass between ranks. */
struct seq_states {
    int64_t heads, key_dim, value_dim;
    int64_t tail;          /* elements of the rows before a convolution */
    int64_t storage_bytes; /* bytes of an element of these rows: 2 or 4 */
};

/* Bytes that one rank sends for one such layer and one sequence. With P ranks, I pieces a rank, H heads rounded up to a multiple of P:
 *   forward   (P-1)/P * I * H * 4 (key_dim^2 + 2 key_dim value_dim) + (P-1) * I * tail * b    summaries out, states back; rows
 *   backward  (P-1)/P * I * H * 8 key_dim value_dim + (P-1) * I * tail * 4                    gradients out and back; those of rows */
struct seq_state_volume {
    int64_t forward, backward;
};
struct seq_state_volume seq_state_volume(const struct seq_shape *s, const struct seq_states *x);

#endif
