/* Legal degrees of sequence parallelism, and the choice of the fastest. */
#include "seqpar/seqpar.h"

#include "base/num.h"

#include <stdio.h>
#include <string.h>

static int divides(int ulysses, const struct seq_heads *h)
{
    return h->heads % ulysses == 0 && (h->kv_heads % ulysses == 0 || ulysses % h->kv_heads == 0);
}

/* Returns the first of n kinds of layers whose heads cannot be divided over `ulysses` ranks; NULL: all can. */
static const struct seq_heads *find_misfit(int ulysses, const struct seq_heads *h, int n)
{
    for (int i = 0; i < n; i++)
        if (!divides(ulysses, &h[i]))
            return &h[i];
    return NULL;
}

static int is_legal(int ranks, int ulysses, const struct seq_heads *h, int n)
{
    return ranks % ulysses == 0 && !find_misfit(ulysses, h, n);
}

/* Lists the legal pairs of degrees, as many as fit into text: "ulysses=1 with ring=8, ulysses=2 with ring=4". */
static void list_legal(int ranks, const struct seq_heads *h, int n, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = 0;
    for (int u = 1; u <= ranks; u++)
        if (is_legal(ranks, u, h, n) && used + 40 < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%sulysses=%d with ring=%d", used ? ", " : "", u, ranks / u);
}

enum status seq_degrees_check(int ranks, int ulysses, int ring, const struct seq_heads *h, int n)
{
    char legal[400], kind[128] = "";
    if (ranks >= 1 && ulysses >= 1 && ring >= 1 && (int64_t)ulysses * ring == ranks && is_legal(ranks, ulysses, h, n))
        return OK;
    if (ranks < 1)
        return status_fail(ERR_INVALID, "--mesh: %d ranks for sequence parallelism, at least 1 is needed", ranks);
    list_legal(ranks, h, n, legal, sizeof legal);
    const struct seq_heads *misfit = ulysses >= 1 ? find_misfit(ulysses, h, n) : NULL, *x = misfit ? misfit : h;
    if (n > 1 && misfit)
        snprintf(kind, sizeof kind, " of the %lld layer%s with %s", (long long)x->layers, x->layers > 1 ? "s" : "", x->kind);
    return status_fail(
        ERR_INVALID,
        "--mesh: ulysses=%d with ring=%d cannot share %lld query head%s and %lld KV head%s%s over %d ranks; legal: %s", ulysses,
        ring, (long long)x->heads, x->heads > 1 ? "s" : "", (long long)x->kv_heads, x->kv_heads > 1 ? "s" : "", kind, ranks,
        legal);
}

/* Share of a hidden transfer's time by which attention is slowed down, as the transfer takes memory bandwidth and
 * multiprocessors. Reported slow-downs reach 1.8 (NCCL); 1.25 is assumed. Without it a ring whose transfers are hidden would
 * always win, however much it sends. */
static const double CONTENTION = 0.25;

/* Ratio of the largest to the mean work of ring members, for most mixes of documents (bench/results/balance.txt). Within an
 * ulysses group work is even. */
static const double RING_IMBALANCE = 1.01;

/* Estimates the seconds per layer, forward and backward: attention, plus the cost of its communication. */
static double layer_seconds(int ulysses, int ring, int ranks_per_node, const struct seq_heads *h, int64_t seq_len, double pairs,
                            const struct seq_rates *rates)
{
    int64_t ranks = (int64_t)ulysses * ring, local_kv = max_i64(h->kv_heads, ulysses) / ulysses;
    struct seq_shape shape = {.padded = round_up(seq_len, ranks), .ulysses = ulysses, .ring = ring};
    struct seq_volume v = seq_volume(&shape, h, SEQ_RESEND_QKV);
    /* with a ring, a tile has all query heads of a KV group: smaller tiles would send the group's keys and values again */
    double tiles = (double)(ring > 1 ? local_kv : h->heads / ulysses);
    double compute = 14.0 * (double)(h->heads * h->head_dim) * pairs / ((double)ranks * rates->flops);
    double inside = (double)(v.all_to_all_forward + v.all_to_all_backward) / rates->inside;
    double across = (double)(v.ring_forward + v.ring_backward) / (ranks > ranks_per_node ? rates->across : rates->inside);
    double beside = compute * (ring - 1) / ring; /* seconds of compute behind which a ring's transfers can hide */
    double hidden = inside * (1 - 1 / tiles) + (across < beside ? across : beside);
    double seconds = compute * (ring > 1 ? RING_IMBALANCE : 1.0) + inside / tiles + CONTENTION * hidden;
    if (inside > compute)
        seconds += inside - compute;
    if (across > beside)
        seconds += across - beside;
    return seconds;
}

enum status seq_degrees_choose(int ranks, int ranks_per_node, const struct seq_heads *h, int n, int64_t seq_len, double pairs,
                               const struct seq_rates *rates, int *ulysses, int *ring)
{
    if (ranks < 1 || ranks_per_node < 1)
        return status_fail(ERR_INVALID, "--mesh: %d ranks with %d on a node, both must be 1 or more", ranks, ranks_per_node);
    if (!(rates->flops > 0 && rates->inside > 0 && rates->across > 0))
        return status_fail(ERR_INVALID, "--mesh: rates of %g FLOP/s, %g and %g bytes/s must be above 0", rates->flops,
                           rates->inside, rates->across);
    double best = 0;
    if (pairs <= 0)
        pairs = 0.5 * (double)seq_len * (double)(seq_len + 1);
    *ulysses = 0;
    for (int u = 1; u <= ranks; u++) {
        int in_nodes = ranks <= ranks_per_node || ranks_per_node % u == 0;
        if (!in_nodes || !is_legal(ranks, u, h, n))
            continue;
        double seconds = 0;
        for (int i = 0; i < n; i++)
            seconds +=
                (double)max_i64(1, h[i].layers) * layer_seconds(u, ranks / u, ranks_per_node, &h[i], seq_len, pairs, rates);
        if (*ulysses == 0 || seconds <= best) {
            best = seconds;
            *ulysses = u;
        }
    }
    *ring = ranks / *ulysses;
    return OK;
}
