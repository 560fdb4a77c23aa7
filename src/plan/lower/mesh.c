/* How many ranks share what: data parallel, heads (ulysses), tokens (ring). */
#include "plan/lower/mesh.h"

#include "machine/hardware.h"
#include "seqpar/seqpar.h"

#include <stdio.h>

static struct seq_heads heads_of(const struct model *m, const struct plan_request *s)
{
    return (struct seq_heads){.heads = m->config.heads,
                              .kv_heads = m->config.kv_heads,
                              .head_dim = m->config.head_dim,
                              .storage_bytes = dtype_size(s->dtype)};
}

static void rates_of(const struct model *m, const struct plan_request *s, struct seq_rates *out)
{
    struct hardware assumed;
    const struct hardware *h = s->hardware;
    if (!h) {
        hardware_assumed(&assumed);
        h = &assumed;
    }
    *out = (struct seq_rates){
        .flops = attention_rate(h->device.attention[s->dtype], OP_ATTN_FWD, (double)m->config.head_dim, (double)s->seq_len),
        .inside = h->inside,
        .across = h->across};
}

static enum status indivisible(const char *what, int divisor, int ranks)
{
    return status_fail(ERR_INVALID,
                       "--mesh: %s=%d does not divide the %d rank%s: give a divisor, or start another number of ranks", what,
                       divisor, ranks, ranks == 1 ? "" : "s");
}

/* A program has exchanges with every other member of its ring in every layer. Rings beyond LONGEST_RING take too long to plan;
 * and a tensor has up to VERSIONS_EACH versions for each exchange, which PROGRAM_MOST_VERSIONS limits. */
enum { LONGEST_RING = 1024, VERSIONS_EACH = 12 };

static int longest_ring(const struct model *m)
{
    return (int)max_i64(1, min_i64(LONGEST_RING, PROGRAM_MOST_VERSIONS / VERSIONS_EACH / m->config.layers));
}

/* The sentence names the fewest sequences side by side that would do, if the ring can be divided so. */
static enum status refuse_ring(const struct model *m, const struct plan_request *s)
{
    int longest = longest_ring(m), parts = 2;
    char dp[16] = "N";
    while (parts < s->ring && (s->ring % parts || s->ring / parts > longest))
        parts++;
    if (parts < s->ring)
        snprintf(dp, sizeof dp, "%d", s->dp * parts);
    return status_fail(ERR_INVALID,
                       "--mesh: a ring of %d ranks is longer than the %d that are planned for %d layers: let more sequences run "
                       "side by side (--mesh dp=%s), or take fewer ranks",
                       s->ring, longest, (int)m->config.layers, dp);
}

/* Degrees that are given stay; the others are derived. */
static enum status derive(const struct model *m, struct plan_request *s, int ranks, int per_host)
{
    struct seq_heads heads = heads_of(m, s);
    struct seq_rates rates;
    s->together = 0;
    if (s->dp <= 0)
        s->dp = s->ulysses > 0 && s->ring > 0 && ranks % (s->ulysses * s->ring) == 0 ? ranks / (s->ulysses * s->ring) : 1;
    if (ranks % s->dp)
        return indivisible("dp", s->dp, ranks);
    int sp = ranks / s->dp;
    if (s->ulysses > 0 && s->ring <= 0) {
        if (sp % s->ulysses)
            return indivisible("ulysses", s->ulysses, sp);
        s->ring = sp / s->ulysses;
    } else if (s->ring > 0 && s->ulysses <= 0) {
        if (sp % s->ring)
            return indivisible("ring", s->ring, sp);
        s->ulysses = sp / s->ring;
    } else if (s->ulysses <= 0) {
        rates_of(m, s, &rates);
        /* the ranks of one sequence that lie on one host, wherever they begin */
        s->together = ranks > per_host ? (int)gcd_i64(sp, per_host) : per_host;
        TRY(seq_degrees_choose(sp, s->together, &heads, s->seq_len, 0, &rates, &s->ulysses, &s->ring));
    }
    return OK;
}

enum status plan_mesh(const struct model *m, struct plan_request *s, int ranks, int per_host)
{
    struct seq_heads heads = heads_of(m, s);
    TRY(derive(m, s, ranks, per_host));
    if (s->dp * s->ulysses * s->ring != ranks)
        return status_fail(
            ERR_INVALID, "--mesh: dp=%d,ulysses=%d,ring=%d makes %d ranks, but there are %d: start that many, or change the mesh",
            s->dp, s->ulysses, s->ring, s->dp * s->ulysses * s->ring, ranks);
    TRY(seq_degrees_check(s->ulysses * s->ring, s->ulysses, s->ring, &heads));
    if (s->ring > longest_ring(m))
        return refuse_ring(m, s);
    if (s->batch > 0)
        s->grad_accum = ceil_div(s->batch, s->dp);
    else
        s->batch = s->grad_accum * s->dp;
    return OK;
}

int plan_other_degrees(const struct model *m, const struct plan_request *s, int i, int *ulysses, int *ring)
{
    struct seq_heads heads = heads_of(m, s);
    int ranks = s->ulysses * s->ring;
    for (int u = 1; u <= ranks && s->together > 0; u++)
        if (u != s->ulysses && ranks % u == 0 && (ranks <= s->together || s->together % u == 0) &&
            seq_degrees_check(ranks, u, ranks / u, &heads) == OK && i-- == 0) {
            *ulysses = u;
            *ring = ranks / u;
            return 1;
        }
    return 0;
}
