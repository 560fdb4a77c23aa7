/* Compares one long sequence on a mesh with one rank: loss, log-sum-exp and every gradient. Runs under mpiexec.
 *
 * Usage: long_context TOKENS ULYSSES RING. The model has one layer with two heads of 32. A full-size run has 262144 tokens on 2 x
 * 4 ranks. */
#include "engine/rig.h"

#include "base/clock.h"
#include "comm/launch.h"
#include "seqpar/layouts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 2, HEAD_DIM = 32 };

static struct comm *comm;
static int64_t S;

static enum status make_model(struct model **out)
{
    struct model_config c = {.family = FAMILY_LLAMA,
                             .vocab = 256,
                             .dim = HEADS * HEAD_DIM,
                             .ffn = 128,
                             .layers = 1,
                             .heads = HEADS,
                             .kv_heads = HEADS,
                             .head_dim = HEAD_DIM,
                             .max_positions = 1 << 20,
                             .norm_eps = 1e-5f,
                             .init_std = 0.1f,
                             .rope_theta = 10000};
    strcpy(c.name, "long");
    return model_create(&c, NULL, 0, out);
}

/* Log-sum-exps that the backward kernel gets. All calls of the ring get the same values, merged over the ring. */
static op_kernel *backward_kernel;
static float *seen_lse; /* [heads of the tile][rows], one tile after another */
static int64_t seen, calls_per_tile;

static enum status spy(const struct op_attrs *a, void *const *arg, void *stream)
{
    int64_t n = a->attn.hq * a->attn.sq;
    if (seen % calls_per_tile == 0)
        memcpy(seen_lse + seen / calls_per_tile * n, arg[7], (size_t)n * 4);
    seen++;
    return backward_kernel(a, arg, stream);
}

struct outcome {
    double loss, norm;
    float *lse;       /* [HEADS][S], in the order of tokens */
    double *gradient; /* [parameters] */
    int64_t n;        /* parameters */
    double seconds;
};

static int64_t unit_start(const struct model *m, int unit)
{
    int64_t at = 0;
    for (int u = 0; u < unit; u++)
        at += m->units[u].elements;
    return at;
}

struct into {
    const struct model *model;
    double *gradient;
};

static enum status keep(void *user, int unit, int64_t first, int64_t n, float *data)
{
    struct into *x = user;
    int64_t at = unit_start(x->model, unit) + first;
    for (int64_t i = 0; i < n; i++)
        x->gradient[at + i] = (double)data[i];
    return OK;
}

/* Gathers every rank's rows and puts them in order of tokens. */
static enum status spread_lse(struct rig *r, struct outcome *o)
{
    const struct strategy *s = &r->session->plan->strategy;
    struct seq_shape shape;
    struct seq_layout *layout;
    int ranks = s->ranks;
    int64_t rows = s->rows * s->key.mesh.degree[MESH_ULYSSES], heads = HEADS / s->key.mesh.degree[MESH_ULYSSES];
    float *all = malloc(sizeof *all * (size_t)(ranks * heads * rows));
    struct sequence q = batch_arrays(r->batch, 0);
    TRY(seq_shape_create(S, s->key.mesh.degree[MESH_ULYSSES], s->key.mesh.degree[MESH_RING], SEQ_AUTO, &shape));
    TRY(seq_layout_create(&shape, &layout));
    TRY(seq_layout_assign(layout, q.lo));
    TRY(comm_gather(r->session->comm, seen_lse, heads * rows * 4, all));
    for (int k = 0; k < ranks; k++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < rows; i++) {
                int64_t token = seq_token_of(layout, k / s->key.mesh.degree[MESH_ULYSSES], i);
                if (token < S)
                    o->lse[(k % s->key.mesh.degree[MESH_ULYSSES] * heads + h) * S + token] = all[(k * heads + h) * rows + i];
            }
    seq_layout_destroy(layout);
    free(all);
    return OK;
}

/* Runs one step, up to its gradients. */
static enum status compute(struct comm *on, int ulysses, int ring, struct outcome *o)
{
    struct rig r;
    struct model *m;
    struct sequence q;
    rig_defaults(&r, S);
    r.comm = on;
    r.settings.plan.mesh.degree[MESH_DP] = 1;
    r.settings.plan.mesh.degree[MESH_ULYSSES] = ulysses;
    r.settings.plan.mesh.degree[MESH_RING] = ring;
    r.settings.plan.row_chunk = r.settings.plan.loss_tile = AUTO;
    r.settings.plan.group = 1 << 20;
    r.settings.plan.threads = on ? 1 : AUTO;
    TRY(make_model(&m));
    sequence_random(&q, S, 256, 5, NULL);
    TRY(rig_start(&r, m));
    TRY(session_initialise(r.session, 3));
    backward_kernel = r.session->backend->kernels[OP_ATTN_BWD];
    r.session->backend->kernels[OP_ATTN_BWD] = spy;
    seen = 0;
    calls_per_tile = ring;
    seen_lse = calloc((size_t)(HEADS * (S + 64 * ring)), 4);
    double began = clock_seconds();
    TRY(rig_step(&r, &q, 1, &o->loss, &o->norm));
    o->seconds = clock_seconds() - began;
    o->n = unit_start(m, m->n_units);
    o->lse = calloc((size_t)(HEADS * S), 4);
    o->gradient = calloc((size_t)o->n, sizeof *o->gradient);
    for (int u = 0; u < m->n_units; u++)
        TRY(session_visit(r.session, u, STATE_GRAD, STATE_READ, keep, &(struct into){m, o->gradient}));
    TRY(comm_sum(r.session->comm, o->gradient,
                 (int)o->n)); /* each element is non-zero on one rank only, so the sum collects them */
    TRY(spread_lse(&r, o));
    rig_stop(&r);
    sequence_free(&q);
    free(seen_lse);
    return OK;
}

static double relative(const double *a, const double *b, int64_t n)
{
    double d = 0, s = 0;
    for (int64_t i = 0; i < n; i++) {
        d += (a[i] - b[i]) * (a[i] - b[i]);
        s += b[i] * b[i];
    }
    return s > 0 ? sqrt(d / s) : sqrt(d);
}

/* Compares a mesh with one rank. Sums of up to S terms in different orders differ by about 2^-24 * sqrt(S): for gradients
 * relative to their norm, for log-sum-exps relative to their size, log S. */
static int compare(const struct outcome *mesh, const struct outcome *alone, int ulysses, int ring)
{
    struct model *m;
    double worst = 0, lse = 0, tolerance = 1e-5;
    if (make_model(&m) != OK)
        return 1;
    for (int64_t i = 0; i < HEADS * S; i++)
        lse = fmax(lse, fabs((double)mesh->lse[i] - (double)alone->lse[i]));
    printf("%lld tokens, one layer, %d heads of %d; ulysses=%d ring=%d against one rank\n", (long long)S, HEADS, HEAD_DIM,
           ulysses, ring);
    printf("loss            %.9f  %.9f  relative %.2e\n", mesh->loss, alone->loss, fabs(mesh->loss / alone->loss - 1));
    printf("gradient norm   %.9f  %.9f  relative %.2e\n", mesh->norm, alone->norm, fabs(mesh->norm / alone->norm - 1));
    printf("log-sum-exp     largest difference %.2e (of values up to %.2f)\n", lse, log((double)S));
    for (int i = 0; i < m->n_params; i++) {
        const struct model_param *p = &m->params[i];
        int64_t at = unit_start(m, p->unit) + p->offset;
        double e = relative(mesh->gradient + at, alone->gradient + at, p->elements);
        printf("gradient of %-44s relative %.2e\n", p->name, e);
        worst = fmax(worst, e);
    }
    printf("%.0f s on the mesh, %.0f s alone\n", mesh->seconds, alone->seconds);
    model_destroy(m);
    return !(worst <= tolerance && lse <= tolerance * log((double)S) && fabs(mesh->loss / alone->loss - 1) <= 1e-6);
}

int main(int argc, char **argv)
{
    struct launch launch;
    struct outcome mesh = {0}, alone = {0};
    if (argc < 4)
        return 2;
    S = atoll(argv[1]);
    int ulysses = atoi(argv[2]), ring = atoi(argv[3]);
    enum status st = launch_detect(NULL, &launch);
    if (st == OK)
        st = comm_create(&launch, 3000, &comm);
    if (st == OK)
        st = comm_set_mesh(comm, &(struct mesh){{1, ulysses, ring}});
    if (st == OK)
        st = compute(comm, ulysses, ring, &mesh);
    int bad = 0;
    if (st == OK && comm_rank(comm) == 0)
        st = compute(NULL, 1, 1, &alone);
    if (st == OK && comm_rank(comm) == 0)
        bad = compare(&mesh, &alone, ulysses, ring);
    if (st != OK) {
        fprintf(stderr, "%s\n", status_message());
        comm_fail(comm, st, status_message());
        return 1;
    }
    st = comm_barrier(comm);
    comm_destroy(comm);
    free(mesh.lse), free(mesh.gradient);
    free(alone.lse), free(alone.gradient);
    return bad || st != OK;
}
