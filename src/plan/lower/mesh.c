/* How many ranks share what: data parallel, heads (ulysses), tokens (ring). */
#include "plan/lower/mesh.h"

#include "machine/hardware.h"
#include "seqpar/seqpar.h"

#include <math.h>
#include <stdio.h>

/* What layers of the model's kinds share among ranks. */
struct kinds {
    struct seq_heads heads[MODEL_KINDS];
    char name[MODEL_KINDS][KIND_NAME];
};

static void kinds_of(const struct model *m, const struct plan_request *s, struct kinds *out)
{
    for (int i = 0; i < m->n_kinds; i++) {
        const struct attention_shape *shape = &m->shapes[m->kinds[i].shape];
        out->heads[i] = (struct seq_heads){.heads = shape->heads,
                                           .kv_heads = shape->kv_heads,
                                           .head_dim = shape->head_dim,
                                           .storage_bytes = dtype_size(s->dtype),
                                           .layers = m->kinds[i].layers,
                                           .kind = model_kind_name(m, &m->kinds[i], out->name[i])};
    }
}

/* Where all layers have the same heads, one kind stands for them. */
static int n_kinds_of(const struct model *m)
{
    return m->n_shapes > 1 ? m->n_kinds : 1;
}

static void rates_of(const struct model *m, const struct plan_request *s, struct seq_rates *out)
{
    struct hardware assumed;
    const struct hardware *h = s->hardware;
    double dim = 0;
    for (int i = 0; i < m->n_shapes; i++)
        dim = fmax(dim, (double)m->shapes[i].head_dim);
    if (!h) {
        hardware_assumed(&assumed);
        h = &assumed;
    }
    *out = (struct seq_rates){
        .flops = attention_rate(h->device.attention[s->dtype], OP_ATTN_FWD, dim, (double)s->seq_len),
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
    const int ring = s->mesh.degree[MESH_RING];
    while (parts < ring && (ring % parts || ring / parts > longest))
        parts++;
    if (parts < ring)
        snprintf(dp, sizeof dp, "%d", s->mesh.degree[MESH_DP] * parts);
    return status_fail(ERR_INVALID,
                       "--mesh: a ring of %d ranks is longer than the %d that are planned for %d layers: let more sequences run "
                       "side by side (--mesh dp=%s), or take fewer ranks",
                       ring, longest, (int)m->config.layers, dp);
}

/* Degrees that are given stay; the others are derived. */
static enum status derive(const struct model *m, struct plan_request *s, int ranks, int per_host)
{
    int *dp = &s->mesh.degree[MESH_DP], *ulysses = &s->mesh.degree[MESH_ULYSSES], *ring = &s->mesh.degree[MESH_RING];
    struct kinds kinds;
    struct seq_rates rates;
    s->together = 0;
    if (*dp <= 0)
        *dp = *ulysses > 0 && *ring > 0 && ranks % (*ulysses * *ring) == 0 ? ranks / (*ulysses * *ring) : 1;
    if (ranks % *dp)
        return indivisible("dp", *dp, ranks);
    int sp = ranks / *dp;
    if (*ulysses > 0 && *ring <= 0) {
        if (sp % *ulysses)
            return indivisible("ulysses", *ulysses, sp);
        *ring = sp / *ulysses;
    } else if (*ring > 0 && *ulysses <= 0) {
        if (sp % *ring)
            return indivisible("ring", *ring, sp);
        *ulysses = sp / *ring;
    } else if (*ulysses <= 0) {
        rates_of(m, s, &rates);
        kinds_of(m, s, &kinds);
        /* the ranks of one sequence that lie on one host, wherever they begin */
        s->together = ranks > per_host ? (int)gcd_i64(sp, per_host) : per_host;
        TRY(seq_degrees_choose(sp, s->together, kinds.heads, n_kinds_of(m), s->seq_len, 0, &rates, ulysses, ring));
    }
    return OK;
}

enum status plan_mesh(const struct model *m, struct plan_request *s, int ranks, int per_host)
{
    struct kinds kinds;
    char mesh[MESH_TEXT];
    kinds_of(m, s, &kinds);
    TRY(derive(m, s, ranks, per_host));
    const int *degree = s->mesh.degree;
    if (mesh_ranks(&s->mesh) != ranks)
        return status_fail(ERR_INVALID, "--mesh: %s makes %lld ranks, but there are %d: start that many, or change the mesh",
                           mesh_format(&s->mesh, mesh), (long long)mesh_ranks(&s->mesh), ranks);
    TRY(seq_degrees_check(degree[MESH_ULYSSES] * degree[MESH_RING], degree[MESH_ULYSSES], degree[MESH_RING], kinds.heads,
                          n_kinds_of(m)));
    if (degree[MESH_RING] > longest_ring(m))
        return refuse_ring(m, s);
    if (s->batch > 0)
        s->grad_accum = ceil_div(s->batch, degree[MESH_DP]);
    else if (s->grad_accum <= SETTINGS_MOST_SEQUENCES / degree[MESH_DP])
        s->batch = s->grad_accum * degree[MESH_DP];
    else
        return status_fail(ERR_INVALID,
                           "--grad-accum: %lld sequences on each of %d data-parallel ranks are more than the %d that a step may have",
                           (long long)s->grad_accum, degree[MESH_DP], SETTINGS_MOST_SEQUENCES);
    return OK;
}

int plan_other_degrees(const struct model *m, const struct plan_request *s, int i, int *ulysses, int *ring)
{
    struct kinds kinds;
    const int *degree = s->mesh.degree, ranks = degree[MESH_ULYSSES] * degree[MESH_RING];
    kinds_of(m, s, &kinds);
    for (int u = 1; u <= ranks && s->together > 0; u++)
        if (u != degree[MESH_ULYSSES] && ranks % u == 0 && (ranks <= s->together || s->together % u == 0) &&
            seq_degrees_check(ranks, u, ranks / u, kinds.heads, n_kinds_of(m)) == OK && i-- == 0) {
            *ulysses = u;
            *ring = ranks / u;
            return 1;
        }
    return 0;
}
