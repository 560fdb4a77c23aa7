/* Simulates all ranks of a mesh in one process, in fp64, in the order of work of a rank's program; makes and counts every
 * exchange. */
#ifndef TESTS_SEQPAR_MESH_H
#define TESTS_SEQPAR_MESH_H

#include "problem.h"
#include "seqpar/seqpar.h"

#include <stddef.h>

enum { MAX_RING = 4, MAX_RANKS = 16, STORAGE = 2 /* bytes of an element in counts of bytes sent; data here is fp64 */ };

/* One rank's data: token-sharded arrays [n][heads][D], and head-sharded arrays [rows][local heads][D] (names with h). */
struct rank {
    int32_t *token; /* [n] global numbers */
    double *q, *k, *v, *g, *o, *lse, *delta, *dq, *dk, *dv;
    double *hq, *hk, *hv, *hg, *ho, *hlse, *hdelta, *hdq, *hdk, *hdv;
    double *part_k[MAX_RING],
        *part_v[MAX_RING]; /* [s]: gradients of the keys and values of member i - s from this rank's queries */
    int64_t sent[4];       /* bytes sent to other ranks, by enum counter */
};

struct mesh {
    const struct problem *x;
    const struct seq_shape *shape;
    const struct seq_layout *layout;
    int U, R, h, kv; /* degrees of ulysses and ring; query and KV heads of a rank */
    int64_t n, rows;
    int32_t *from[MAX_RING], *to[MAX_RING]; /* [member]: [R][rows] first and end of the tokens that a row attends, by ring step */
    uint8_t bits[MAX_RING][2 * MAX_RING];   /* [member]: predicates of seqpar.h */
    struct rank rank[MAX_RANKS];
};

enum counter { A2A_FORWARD, A2A_BACKWARD, RING_FORWARD, RING_BACKWARD };

static inline struct rank *rank_of(struct mesh *m, int i, int j)
{
    return &m->rank[i * m->U + j];
}

/* Returns the first of the `local` heads that rank j gets out of `heads`; if there are fewer heads than ranks, heads are
 * replicated. */
static inline int64_t first_head(const struct mesh *m, int heads, int local, int j)
{
    return heads >= m->U ? (int64_t)j * local : (int64_t)j * heads / m->U;
}

/* ---- all-to-all within the ranks of member i ---- */

/* Gives each rank of member i `local` of the `heads` heads for all of the member's tokens. w: elements of a head; bytes: counted
 * bytes per head. */
static inline void to_heads(struct mesh *m, int i, size_t src, size_t dst, int heads, int local, int w, int64_t bytes,
                            enum counter c)
{
    for (int j = 0; j < m->U; j++)
        for (int from = 0; from < m->U; from++) {
            double *s = *(double **)((char *)rank_of(m, i, from) + src), *d = *(double **)((char *)rank_of(m, i, j) + dst);
            int64_t first = first_head(m, heads, local, j);
            for (int64_t r = 0; r < m->n; r++)
                memcpy(d + (from * m->n + r) * local * w, s + (r * heads + first) * w, sizeof *d * (size_t)(local * w));
            rank_of(m, i, from)->sent[c] += from == j ? 0 : m->n * local * bytes;
        }
}

/* Reverses to_heads: each rank gets all heads for its own tokens; replicas of a KV head are added in rank order. */
static inline void to_tokens(struct mesh *m, int i, size_t src, size_t dst, int heads, int local, int w, int64_t bytes,
                             enum counter c)
{
    for (int to = 0; to < m->U; to++) {
        double *d = *(double **)((char *)rank_of(m, i, to) + dst);
        memset(d, 0, sizeof *d * (size_t)(m->n * heads * w));
        for (int j = 0; j < m->U; j++) {
            double *s = *(double **)((char *)rank_of(m, i, j) + src);
            int64_t first = first_head(m, heads, local, j);
            for (int64_t r = 0; r < m->n; r++)
                axpy(d + (r * heads + first) * w, 1, s + (to * m->n + r) * local * w, local * w);
            rank_of(m, i, j)->sent[c] += to == j ? 0 : m->n * local * bytes;
        }
    }
}

#define FIELD(f) offsetof(struct rank, f)

/* ---- ring ---- */

static inline void block_forward(const struct mesh *m, const struct rank *me, const struct rank *other, int i, int s, double *o,
                                 double *lse)
{
    const struct problem *x = m->x;
    int64_t wq = (int64_t)m->h * x->D, wk = (int64_t)m->kv * x->D;
    const int32_t *from = m->from[i] + s * m->rows, *to = m->to[i] + s * m->rows;
    for (int64_t r = 0; r < m->rows; r++)
        for (int h = 0; h < m->h; h++) {
            int64_t at = r * wq + h * x->D, kv = h / (m->h / m->kv) * x->D;
            lse[r * m->h + h] = attend(o + at, me->hq + at, other->hk + kv, other->hv + kv, from[r], to[r], wk, x->D, x->scale);
        }
}

/* Merges the results (o, lse) of attention over two disjoint sets of keys, either of which may be empty. */
static inline void merge(double *o, double *lse, const double *o2, double lse2, int D)
{
    double max = fmax(*lse, lse2);
    if (max == -INFINITY)
        return;
    double a = exp(*lse - max), b = exp(lse2 - max);
    for (int d = 0; d < D; d++)
        o[d] = (a * o[d] + b * o2[d]) / (a + b);
    *lse = max + log(a + b);
}

/* Computes a rank's attention, first with its own keys, then with the other members' keys in the order of their arrival. */
static inline void ring_forward(struct mesh *m, int i, int j)
{
    const struct problem *x = m->x;
    struct rank *me = rank_of(m, i, j);
    double *o = doubles(m->rows * m->h * x->D), *lse = doubles(m->rows * m->h);
    block_forward(m, me, me, i, 0, me->ho, me->hlse);
    for (int s = 1; s < m->R; s++) {
        me->sent[RING_FORWARD] += m->bits[i][2 * s] ? m->rows * 2 * m->kv * x->D * STORAGE : 0;
        if (!m->bits[i][2 * s - 1])
            continue;
        block_forward(m, me, rank_of(m, (i - s + m->R) % m->R, j), i, s, o, lse);
        for (int64_t r = 0; r < m->rows * m->h; r++)
            merge(me->ho + r * x->D, me->hlse + r, o + r * x->D, lse[r], x->D);
    }
    free(o), free(lse);
}

static inline void block_backward(const struct mesh *m, struct rank *me, const struct rank *other, int i, int s, double *dk,
                                  double *dv)
{
    const struct problem *x = m->x;
    int64_t wq = (int64_t)m->h * x->D, wk = (int64_t)m->kv * x->D;
    const int32_t *from = m->from[i] + s * m->rows, *to = m->to[i] + s * m->rows;
    for (int64_t r = 0; r < m->rows; r++)
        for (int h = 0; h < m->h; h++) {
            int64_t at = r * wq + h * x->D, kv = h / (m->h / m->kv) * x->D;
            attend_grad(me->hdq + at, dk + kv, dv + kv, me->hq + at, other->hk + kv, other->hv + kv, me->hg + at,
                        me->hlse[r * m->h + h], me->hdelta[r * m->h + h], from[r], to[r], wk, x->D, x->scale);
        }
}

/* Computes gradients of the other members' keys, which are then sent to their owners, and of the rank's own keys. */
static inline void ring_backward(struct mesh *m, int i, int j)
{
    struct rank *me = rank_of(m, i, j);
    int64_t block = m->rows * 2 * m->kv * m->x->D;
    for (int s = 1; s < m->R; s++) {
        me->sent[RING_BACKWARD] += m->bits[i][2 * s] ? block * STORAGE : 0;
        if (!m->bits[i][2 * s - 1])
            continue;
        me->sent[RING_BACKWARD] += block * 4;
        block_backward(m, me, rank_of(m, (i - s + m->R) % m->R, j), i, s, me->part_k[s], me->part_v[s]);
    }
    block_backward(m, me, me, i, 0, me->hdk, me->hdv); /* local block last */
}

static inline void ring_collect(struct mesh *m, int i, int j)
{
    struct rank *me = rank_of(m, i, j);
    for (int s = 1; s < m->R; s++)
        if (m->bits[i][2 * s]) {
            struct rank *user = rank_of(m, (i + s) % m->R, j);
            axpy(me->hdk, 1, user->part_k[s], (int)(m->rows * m->kv * m->x->D));
            axpy(me->hdv, 1, user->part_v[s], (int)(m->rows * m->kv * m->x->D));
        }
}

/* ---- a step of all ranks ---- */

static inline void rank_create(struct mesh *m, int i, int j, const int32_t *identity)
{
    const struct problem *x = m->x;
    struct rank *me = rank_of(m, i, j);
    int64_t q = m->n * x->H * x->D, k = m->n * x->K * x->D, hq = m->rows * m->h * x->D, hk = m->rows * m->kv * x->D;
    me->token = calloc((size_t)m->n, sizeof *me->token);
    seq_gather(m->layout, i, j, identity, me->token);
    me->q = doubles(q), me->g = doubles(q), me->o = doubles(q), me->dq = doubles(q);
    me->k = doubles(k), me->v = doubles(k), me->dk = doubles(k), me->dv = doubles(k);
    me->lse = doubles(m->n * x->H), me->delta = doubles(m->n * x->H);
    me->hq = doubles(hq), me->hg = doubles(hq), me->ho = doubles(hq), me->hdq = doubles(hq);
    me->hk = doubles(hk), me->hv = doubles(hk), me->hdk = doubles(hk), me->hdv = doubles(hk);
    me->hlse = doubles(m->rows * m->h), me->hdelta = doubles(m->rows * m->h);
    for (int s = 1; s < m->R; s++)
        me->part_k[s] = doubles(hk), me->part_v[s] = doubles(hk);
    for (int64_t r = 0; r < m->n; r++) {
        int64_t t = me->token[r], wq = (int64_t)x->H * x->D, wk = (int64_t)x->K * x->D;
        memcpy(me->q + r * wq, x->q + t * wq, sizeof *x->q * (size_t)wq);
        memcpy(me->g + r * wq, x->g + t * wq, sizeof *x->g * (size_t)wq);
        memcpy(me->k + r * wk, x->k + t * wk, sizeof *x->k * (size_t)wk);
        memcpy(me->v + r * wk, x->v + t * wk, sizeof *x->v * (size_t)wk);
    }
}

static inline void rank_destroy(struct rank *me)
{
    double *all[] = {me->q,  me->k,  me->v,  me->g,  me->o,  me->lse,  me->delta,  me->dq,  me->dk,  me->dv,
                     me->hq, me->hk, me->hv, me->hg, me->ho, me->hlse, me->hdelta, me->hdq, me->hdk, me->hdv};
    for (size_t f = 0; f < sizeof all / sizeof *all; f++)
        free(all[f]);
    for (int s = 0; s < MAX_RING; s++)
        free(me->part_k[s]), free(me->part_v[s]);
    free(me->token);
}

static inline void mesh_create(struct mesh *m, const struct problem *x, const struct seq_shape *s,
                               const struct seq_layout *layout, const uint8_t *needs)
{
    memset(m, 0, sizeof *m);
    m->x = x, m->shape = s, m->layout = layout, m->U = s->ulysses, m->R = s->ring;
    m->h = x->H / m->U, m->kv = x->K >= m->U ? x->K / m->U : 1;
    m->n = seq_rank_rows(s), m->rows = seq_member_rows(s);
    int32_t *identity = calloc((size_t)s->padded, sizeof *identity);
    for (int64_t q = 0; q < s->padded; q++)
        identity[q] = (int32_t)q;
    for (int i = 0; i < m->R; i++) {
        m->from[i] = calloc((size_t)s->padded, sizeof **m->from);
        m->to[i] = calloc((size_t)s->padded, sizeof **m->to);
        seq_member_masks(layout, x->lo, i, m->from[i], m->to[i]);
        seq_predicates(m->R, needs, i, m->bits[i]);
        for (int j = 0; j < m->U; j++)
            rank_create(m, i, j, identity);
    }
    free(identity);
}

static inline void mesh_destroy(struct mesh *m)
{
    for (int r = 0; r < m->U * m->R; r++)
        rank_destroy(&m->rank[r]);
    for (int i = 0; i < m->R; i++)
        free(m->from[i]), free(m->to[i]);
}

static inline void mesh_run(struct mesh *m)
{
    int H = m->x->H, K = m->x->K, D = m->x->D, b = STORAGE;
    for (int i = 0; i < m->R; i++) {
        to_heads(m, i, FIELD(q), FIELD(hq), H, m->h, D, D * b, A2A_FORWARD);
        to_heads(m, i, FIELD(k), FIELD(hk), K, m->kv, D, D * b, A2A_FORWARD);
        to_heads(m, i, FIELD(v), FIELD(hv), K, m->kv, D, D * b, A2A_FORWARD);
    }
    for (int r = 0; r < m->R * m->U; r++)
        ring_forward(m, r / m->U, r % m->U);
    for (int i = 0; i < m->R; i++) {
        to_tokens(m, i, FIELD(ho), FIELD(o), H, m->h, D, D * b, A2A_FORWARD);
        to_tokens(m, i, FIELD(hlse), FIELD(lse), H, m->h, 1, 0,
                  A2A_FORWARD); /* not counted: only this test needs it, for comparison */
        for (int j = 0; j < m->U; j++) {
            struct rank *me = rank_of(m, i, j);
            for (int64_t r = 0; r < m->n * H; r++)
                me->delta[r] = dot(me->g + r * D, me->o + r * D, D);
        }
        to_heads(m, i, FIELD(q), FIELD(hq), H, m->h, D, D * b,
                 A2A_BACKWARD); /* q, k and v were not kept, so they are sent again */
        to_heads(m, i, FIELD(k), FIELD(hk), K, m->kv, D, D * b, A2A_BACKWARD);
        to_heads(m, i, FIELD(v), FIELD(hv), K, m->kv, D, D * b, A2A_BACKWARD);
        to_heads(m, i, FIELD(g), FIELD(hg), H, m->h, D, D * b, A2A_BACKWARD);
        to_heads(m, i, FIELD(delta), FIELD(hdelta), H, m->h, 1, 4, A2A_BACKWARD);
    }
    for (int r = 0; r < m->R * m->U; r++)
        ring_backward(m, r / m->U, r % m->U);
    for (int r = 0; r < m->R * m->U; r++)
        ring_collect(m, r / m->U, r % m->U);
    for (int i = 0; i < m->R; i++) {
        to_tokens(m, i, FIELD(hdq), FIELD(dq), H, m->h, D, D * b, A2A_BACKWARD);
        to_tokens(m, i, FIELD(hdk), FIELD(dk), K, m->kv, D, D * 4, A2A_BACKWARD);
        to_tokens(m, i, FIELD(hdv), FIELD(dv), K, m->kv, D, D * 4, A2A_BACKWARD);
    }
}

#endif
