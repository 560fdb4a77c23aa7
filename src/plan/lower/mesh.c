/* Degrees of the mesh: data parallel (dp), shared heads (ulysses), shared tokens (ring). */
#include "plan/lower/mesh.h"

#include "machine/hardware.h"
#include "machine/islands.h"
#include "model/share.h"
#include "plan/lower/heads.h"
#include "plan/lower/mesh_parts.h"
#include "program/target.h"
#include "seqpar/seqpar.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Rows of a micro-batch on a rank beyond which planning packs no further sequences: messages are hidden by then, and activations leave
 * the device. */
#define PACKED_ROWS 65536

/* Heads of a slice that the ranks of a sequence share, for each of the model's kinds of layers with attention. */
struct kinds {
    int n; /* number of kinds to check: if all have the same heads, one stands for them */
    struct seq_heads heads[MODEL_KINDS];
    char name[MODEL_KINDS][KIND_NAME];
};

static void kinds_of(const struct model *m, const struct plan_request *s, struct kinds *out)
{
    const int slices = mesh_degree(&s->mesh, MESH_TP) / m->part.slices;
    out->n = 0;
    for (int i = 0; i < m->n_kinds; i++) {
        const struct attention_block *a = model_attention(m, m->kinds[i].first);
        if (!a)
            continue;
        const struct attention_shape *shape = &m->shapes[a->shape];
        out->heads[out->n] = (struct seq_heads){.heads = shape->heads / slices,
                                                .kv_heads = shape->kv_heads / slices,
                                                .head_dim = shape->head_dim,
                                                .value_dim = shape->value_dim,
                                                .latent = slices == 1 ? heads_latent(m, a) : 0,
                                                .storage_bytes = dtype_size(s->dtype),
                                                .layers = m->kinds[i].layers,
                                                .kind = model_kind_name(m, &m->kinds[i], out->name[out->n])};
        out->n++;
    }
    if (m->n_shapes < 2)
        out->n = (int)min_i64(out->n, 1);
}

/* Refuses to share a sequence in a model with a block that needs it whole. */
static enum status check_whole(const struct model *m, int sharing)
{
    const enum block_kind whole = model_whole_block(m);
    if (sharing == 1 || whole == BLOCK_KINDS)
        return OK;
    return status_fail(
        ERR_INVALID,
        "--mesh: ulysses times ring is %d, and the model's blocks of %s need a sequence whole on each rank: let the "
        "ranks take sequences of their own (ulysses=1,ring=1)",
        sharing, block_name(whole));
}

/* Tells whether states pass between the ranks of a mesh. */
static int passes_states(const struct model *m, const struct mesh *mesh)
{
    return model_least_piece(m) > 0 && mesh->degree[MESH_ULYSSES] * mesh->degree[MESH_RING] > 1;
}

/* Tells whether the ranks of a sequence have no lane of their own: with ulysses and ring above 1 beside stages. */
static int lacks_lane(const struct mesh *mesh)
{
    return mesh_degree(mesh, MESH_PP) > 1 && mesh->degree[MESH_ULYSSES] > 1 && mesh->degree[MESH_RING] > 1;
}

/* Returns the name of blocks whose states, or last rows before a convolution, pass between ranks. */
static const char *passing_name(const struct model *m)
{
    return block_name(model_has_block(m, BLOCK_RECURRENT) ? BLOCK_RECURRENT : BLOCK_CONV);
}

/* Refuses meshes between whose ranks states would have to pass, but cannot. */
static enum status check_states(const struct model *m, const struct plan_request *s)
{
    char text[MESH_TEXT];
    if (!passes_states(m, &s->mesh))
        return OK;
    if (lacks_lane(&s->mesh))
        return status_fail(
            ERR_INVALID,
            "--mesh: %s has pp, ulysses and ring above 1, and the model's blocks of %s pass states between ranks along "
            "one or two of them only: take ulysses=1 or ring=1",
            mesh_format(&s->mesh, text), passing_name(m));
    return OK;
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
    *out = (struct seq_rates){.flops = attention_rate(h->device.attention[s->dtype], OP_ATTN_FWD, dim, (double)s->seq_len),
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

/* Makes the error of a ring that is too long. The sentence names the least dp with which the ring is short enough, if there is
 * such a dp. */
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

static unsigned bit_of(enum mesh_dim d)
{
    return 1u << d;
}

static int is_open(const struct plan_request *s, enum mesh_dim d)
{
    return (s->open_degrees & bit_of(d)) != 0;
}

/* Returns the set (bits) of degrees that planning may choose: none, or two and more, as the last one follows from the others.
 * Without a batch dp is not open, since the sequences of a step would follow from it. */
static unsigned find_open(const struct plan_request *s)
{
    unsigned open = 0;
    int n = 0;
    for (int d = 0; d < MESH_DIMS; d++)
        if (!mesh_rows[d].optional && s->mesh.degree[d] <= 0 && (d != MESH_DP || s->batch > 0)) {
            open |= bit_of((enum mesh_dim)d);
            n++;
        }
    return n > 1 ? open : 0;
}

/* Returns the number of ranks that have different parts of the layers: the product of the degrees of slices and stages. */
static int parts_of(const struct mesh *mesh)
{
    return mesh_degree(mesh, MESH_TP) * mesh_degree(mesh, MESH_PP);
}

/* Tells whether planning may choose how many ranks share experts out: only beside other degrees, and between whole layers. */
static int may_choose_experts(const struct model *m, const struct plan_request *s)
{
    return s->open_degrees != 0 && s->mesh.degree[MESH_EP] < 0 && parts_of(&s->mesh) == 1 && m->config.experts > 0 &&
           model_share_check(m, (int)m->config.experts) == OK;
}

/* Returns how many ranks of one host surely share a sequence, no matter at which of the host's ranks a sequence begins. ranks: those
 * with one part of the layers, as `sharing`; ranks with the other slices stand beside each of them. */
static int sharing_on_host(const struct plan_request *s, int sharing, int ranks)
{
    const int here = (int)max_i64(1, s->per_host / mesh_degree(&s->mesh, MESH_TP));
    return ranks > here ? (int)gcd_i64(sharing, here) : here;
}

/* Sets the degrees of slices and stages to 1 unless they are given, and refuses those that do not divide the ranks. */
static enum status settle_parts(const struct model *m, struct plan_request *s, int ranks)
{
    static const enum mesh_dim dims[] = {MESH_TP, MESH_PP};
    for (int i = 0; i < 2; i++) {
        int *degree = &s->mesh.degree[dims[i]];
        if (*degree <= 0 && dims[i] == MESH_PP && mesh_islands(s))
            *degree = islands_stages(mesh_islands(s), 1);
        *degree = (int)max_i64(1, *degree);
        if (ranks % *degree)
            return indivisible(mesh_rows[dims[i]].key, *degree, ranks);
        ranks /= *degree;
    }
    return mesh_check_slices(m, s);
}

/* Derives the degrees that are not given; ranks: those with one part of the layers. */
static enum status derive(const struct model *m, struct plan_request *s, int ranks)
{
    int *dp = &s->mesh.degree[MESH_DP], *ulysses = &s->mesh.degree[MESH_ULYSSES], *ring = &s->mesh.degree[MESH_RING];
    struct kinds kinds;
    struct seq_rates rates;
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
        TRY(seq_degrees_choose(sp, sharing_on_host(s, sp, ranks), kinds.heads, kinds.n, s->seq_len, 0, &rates, ulysses, ring));
    }
    return OK;
}

/* Tells whether the ranks that share a sequence are more than the model allows. */
static int shares_too_much(const struct model *m, const struct plan_request *s)
{
    const int ring = s->mesh.degree[MESH_RING], sharing = s->mesh.degree[MESH_ULYSSES] * ring;
    return ring > longest_ring(m) || (sharing > 1 && model_whole_block(m) != BLOCK_KINDS);
}

/* Derives the degrees that are not given. If dp is open and too many ranks share a sequence, it takes the smallest dp that mends
 * this. */
static enum status derive_open(const struct model *m, struct plan_request *s, int ranks)
{
    struct plan_request next = *s;
    TRY(derive(m, s, ranks));
    for (int dp = 2; is_open(s, MESH_DP) && shares_too_much(m, s) && dp <= min_i64(ranks, s->batch / s->micro_batch); dp++) {
        struct plan_request more = next;
        more.mesh.degree[MESH_DP] = dp;
        if (ranks % dp == 0 && derive(m, &more, ranks) == OK)
            *s = more;
    }
    return OK;
}

/* Makes the error of a batch that is smaller than dp. Its sentence names the legal values of dp. */
static enum status refuse_batch(const struct plan_request *s, int ranks)
{
    const int dp = s->mesh.degree[MESH_DP];
    char legal[128] = "";
    for (int fewer = 1; fewer <= s->batch; fewer++)
        if (ranks % fewer == 0 && strlen(legal) + 16 < sizeof legal)
            snprintf(legal + strlen(legal), sizeof legal - strlen(legal), "%s%d", fewer > 1 ? ", " : "", fewer);
    return status_fail(
        ERR_INVALID,
        "--batch: %lld sequence%s a step for the %d data-parallel groups of dp=%d would leave %lld of them without any: take "
        "--batch %d or a multiple, or one of --mesh dp=%s",
        (long long)s->batch, s->batch == 1 ? "" : "s", dp, dp, (long long)(dp - s->batch), dp, legal);
}

/* Makes the error of micro-batches that the sequences of a data-parallel group do not fill. */
static enum status refuse_micro_batch(const struct plan_request *s)
{
    const int64_t dp = s->mesh.degree[MESH_DP], each = s->batch / dp;
    return status_fail(
        ERR_INVALID,
        "--micro-batch: %lld sequences are more than the %lld that dp=%lld leaves each group of a step of %lld: take "
        "--micro-batch %lld, or --batch %lld",
        (long long)s->micro_batch, (long long)each, (long long)dp, (long long)s->batch, (long long)each,
        (long long)(s->micro_batch * dp));
}

void plan_take_mesh(struct plan_request *s, const struct mesh *mesh, int64_t packed)
{
    s->mesh = *mesh;
    s->micro_batch = packed;
    s->grad_accum = s->batch > 0 ? ceil_div(s->batch, mesh->degree[MESH_DP] * s->micro_batch) : s->grad_accum;
}

int64_t plan_packing(const struct plan_request *s, const struct mesh *mesh, int i)
{
    const int64_t each = s->packing_is_open ? s->batch / mesh->degree[MESH_DP] : 1;
    int halvings = 0;
    while (each > (int64_t)1 << halvings)
        halvings++;
    if (i > halvings)
        return 0;
    const int64_t packed = s->packing_is_open ? ceil_div(each, (int64_t)1 << (halvings - i)) : s->micro_batch,
                  rows = packed * s->seq_len / ((int64_t)mesh->degree[MESH_ULYSSES] * mesh->degree[MESH_RING]);
    return i > 0 && rows > PACKED_ROWS ? 0 : packed;
}

/* Derives batch or grad_accum from the one that is given. */
static enum status settle_batch(struct plan_request *s, int ranks)
{
    const int dp = s->mesh.degree[MESH_DP];
    if (s->batch > 0 && s->batch < dp)
        return refuse_batch(s, ranks);
    if (s->batch > 0 && s->batch / dp < s->micro_batch && s->packing_is_recalled)
        s->micro_batch = s->batch / dp;
    if (s->batch > 0 && s->batch / dp < s->micro_batch)
        return refuse_micro_batch(s);
    if (s->batch <= 0 && s->grad_accum > SETTINGS_MOST_SEQUENCES / dp / s->micro_batch)
        return status_fail(
            ERR_INVALID,
            "--grad-accum: %lld sequences on each of %d data-parallel ranks are more than the %d that a step may have",
            (long long)(s->grad_accum * s->micro_batch), dp, SETTINGS_MOST_SEQUENCES);
    if (s->batch <= 0)
        s->batch = s->grad_accum * dp * s->micro_batch;
    plan_take_mesh(s, &s->mesh, s->micro_batch);
    return OK;
}

/* Decides how many ranks share experts out, and refuses a number that cannot be. */
static enum status settle_experts(const struct model *m, struct plan_request *s, int ranks)
{
    int *ep = &s->mesh.degree[MESH_EP];
    const int stages = mesh_degree(&s->mesh, MESH_PP);
    if (*ep <= 0)
        *ep = 1;
    if (stages == 1 && ranks % *ep)
        return indivisible("ep", *ep, ranks);
    if (ranks / stages % *ep)
        return status_fail(ERR_INVALID, "--mesh: ep=%d does not divide the %d rank%s of each of the %d stages: give a divisor",
                           *ep, ranks / stages, ranks == stages ? "" : "s", stages);
    return model_share_check(m, *ep);
}

enum status plan_mesh(const struct model *m, struct plan_request *s, int ranks, int per_host)
{
    struct kinds kinds;
    char mesh[MESH_TEXT];
    s->open_parts = mesh_open_parts(s, ranks, per_host);
    TRY(settle_parts(m, s, ranks));
    kinds_of(m, s, &kinds);
    if (mesh_degree(&s->mesh, MESH_SLICES) > 1 && s->mesh.degree[MESH_RING] <= 0)
        s->mesh.degree[MESH_RING] = 1;
    s->open_degrees = find_open(s);
    if (may_choose_experts(m, s))
        s->open_degrees |= bit_of(MESH_EP);
    s->per_host = per_host;
    s->packing_is_open = s->micro_batch == AUTO && s->batch > 0 && !s->evaluation && model_aux(&m->config) == 0;
    s->micro_batch = max_i64(1, s->micro_batch);
    TRY(derive_open(m, s, ranks / parts_of(&s->mesh)));
    const int *degree = s->mesh.degree;
    if (mesh_ranks(&s->mesh) != ranks)
        return status_fail(ERR_INVALID, "--mesh: %s makes %lld ranks, but there are %d: start that many, or change the mesh",
                           mesh_format(&s->mesh, mesh), (long long)mesh_ranks(&s->mesh), ranks);
    TRY(settle_experts(m, s, ranks));
    TRY(mesh_check_stages(m, s));
    TRY(check_whole(m, degree[MESH_ULYSSES] * degree[MESH_RING]));
    TRY(check_states(m, s));
    TRY(seq_degrees_check(degree[MESH_ULYSSES] * degree[MESH_RING], degree[MESH_ULYSSES], degree[MESH_RING], kinds.heads,
                          kinds.n));
    if (degree[MESH_RING] > longest_ring(m))
        return refuse_ring(m, s);
    TRY(settle_batch(s, ranks));
    return mesh_settle_slices(m, s);
}

/* Tells whether `ep` of the ranks may share experts out. */
static int may_share_experts(const struct model *m, const struct plan_request *s, int ranks, int ep)
{
    if (!is_open(s, MESH_EP))
        return ep == mesh_degree(&s->mesh, MESH_EP);
    return ranks % ep == 0 && m->config.experts % ep == 0;
}

static struct mesh with_degrees(const struct mesh *given, int dp, int ulysses, int ring, int ep)
{
    struct mesh mesh = *given;
    mesh.degree[MESH_EP] = ep;
    mesh.degree[MESH_DP] = dp;
    mesh.degree[MESH_ULYSSES] = ulysses;
    mesh.degree[MESH_RING] = ring;
    return mesh;
}

/* Tells whether groups of `ulysses` ranks may share heads, if `sharing` ranks share a sequence. If that degree is open, a group
 * must lie inside a host. */
static int may_share(const struct model *m, const struct plan_request *s, const struct kinds *kinds, int sharing, int ulysses)
{
    const int ranks = (int)mesh_ranks(&s->mesh) / parts_of(&s->mesh), together = sharing_on_host(s, sharing, ranks),
              ring = sharing / ulysses;
    if (sharing > 1 && model_whole_block(m) != BLOCK_KINDS)
        return 0;
    const struct mesh mesh = with_degrees(&s->mesh, ranks / sharing, ulysses, sharing / ulysses, 1);
    if (passes_states(m, &mesh) && lacks_lane(&mesh))
        return 0;
    if (sharing % ulysses || ring > longest_ring(m) || (!is_open(s, MESH_ULYSSES) && ulysses != s->mesh.degree[MESH_ULYSSES]) ||
        (!is_open(s, MESH_RING) && ring != s->mesh.degree[MESH_RING]))
        return 0;
    return (!is_open(s, MESH_ULYSSES) || sharing <= together || together % ulysses == 0) &&
           seq_degrees_check(sharing, ulysses, ring, kinds->heads, kinds->n) == OK;
}

int plan_meshes(const struct model *m, const struct plan_request *s, struct mesh *out, int most)
{
    const int ranks = (int)mesh_ranks(&s->mesh) / parts_of(&s->mesh);
    struct kinds kinds;
    int n = 0;
    kinds_of(m, s, &kinds);
    for (int dp = 1; dp <= ranks; dp++) {
        if (ranks % dp || (is_open(s, MESH_DP) ? dp * s->micro_batch > s->batch : dp != s->mesh.degree[MESH_DP]))
            continue;
        for (int ulysses = 1, sharing = ranks / dp; ulysses <= sharing; ulysses++)
            for (int ep = 1; ep <= ranks && may_share(m, s, &kinds, sharing, ulysses); ep++) {
                if (!may_share_experts(m, s, ranks, ep))
                    continue;
                if (n < most)
                    out[n] = with_degrees(&s->mesh, dp, ulysses, sharing / ulysses, ep);
                n++;
            }
    }
    return n;
}

int plan_other_degrees(const struct model *m, const struct plan_request *s, int i, int *ulysses, int *ring)
{
    struct kinds kinds;
    const int *degree = s->mesh.degree, ranks = degree[MESH_ULYSSES] * degree[MESH_RING];
    kinds_of(m, s, &kinds);
    for (int u = 1; u <= ranks && is_open(s, MESH_ULYSSES) && is_open(s, MESH_RING); u++)
        if (u != degree[MESH_ULYSSES] && may_share(m, s, &kinds, ranks, u) && i-- == 0) {
            *ulysses = u;
            *ring = ranks / u;
            return 1;
        }
    return 0;
}
