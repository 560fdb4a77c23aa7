/* The decisions that change rounding or the mesh: the chosen placement on another grid. */
#include "plan/report/explain_grid.h"

#include "machine/hardware.h"
#include "plan/lower/fixed.h"
#include "plan/lower/mesh.h"

#include <stdio.h>

/* Tries the chosen placement on the grid and mesh that other settings fix; adds nothing if they are not legal. */
static enum status try_fixed(struct explainer *x, struct decision *d, const struct plan_request *s, const char *say)
{
    const struct strategy *p = &x->p->strategy;
    struct strategy t;
    if (plan_fixed(x->m, s, &t) != OK)
        return OK;
    strategy_place(&t, p);
    double alpha = (double)p->saved_chunks / (double)ceil_div(p->rows, p->row_chunk);
    t.saved_chunks = (int)(alpha * (double)ceil_div(t.rows, t.row_chunk) + 0.5);
    return explainer_try(x, d, s, &t, say);
}

static enum status explain_tiles(struct explainer *x)
{
    const struct strategy *p = &x->p->strategy;
    char say[64];
    snprintf(say, sizeof say, "%lld rows, %d heads, %lld rows of the loss", (long long)p->row_chunk, p->head_tile,
             (long long)p->loss_tile);
    struct decision *d = explainer_decide(x, "tiles", "--tiles", say, 0);
    snprintf(d->note, sizeof d->note,
             "they change rounding, so the default is left only to fit, or for enough speed");
    for (int twice = 0; twice < 2; twice++) {
        struct plan_request s = *x->s;
        s.row_chunk = twice ? 2 * p->row_chunk : p->row_chunk / 2;
        s.loss_tile = min_i64(p->loss_tile, s.row_chunk);
        if (s.row_chunk > p->rows || s.row_chunk < 1)
            continue;
        snprintf(say, sizeof say, "%lld rows", (long long)s.row_chunk);
        TRY(try_fixed(x, d, &s, say));
    }
    for (int twice = 0; twice < 2; twice++) {
        struct plan_request s = *x->s;
        s.head_tile = twice ? 2 * p->head_tile : p->head_tile / 2;
        if (s.head_tile < 1)
            continue;
        snprintf(say, sizeof say, "%lld heads", (long long)s.head_tile);
        TRY(try_fixed(x, d, &s, say));
    }
    return OK;
}

static enum status explain_ranks(struct explainer *x)
{
    const struct strategy *p = &x->p->strategy;
    struct plan_request s = *x->s;
    char say[64];
    snprintf(say, sizeof say, "%d", p->zero);
    struct decision *d = explainer_decide(x, "ZeRO stage", "--zero", say, 0);
    for (int stage = 1; stage <= 3; stage++) {
        if (stage == p->zero)
            continue;
        s.zero = stage;
        snprintf(say, sizeof say, "%d", stage);
        TRY(try_fixed(x, d, &s, say));
    }
    if (p->mesh.degree[MESH_ULYSSES] * p->mesh.degree[MESH_RING] == 1)
        return OK;
    snprintf(say, sizeof say, "ulysses=%d,ring=%d", p->mesh.degree[MESH_ULYSSES], p->mesh.degree[MESH_RING]);
    d = explainer_decide(x, "ranks that share a sequence", "--mesh", say, 0);
    for (int up = 0; up < 2; up++) {
        s = *x->s;
        s.mesh.degree[MESH_DP] = p->mesh.degree[MESH_DP];
        s.mesh.degree[MESH_ULYSSES] = up ? 2 * p->mesh.degree[MESH_ULYSSES] : p->mesh.degree[MESH_ULYSSES] / 2;
        s.mesh.degree[MESH_RING] = up ? p->mesh.degree[MESH_RING] / 2 : 2 * p->mesh.degree[MESH_RING];
        s.row_chunk = s.loss_tile = s.head_tile = AUTO; /* this mesh's tiles may not divide that one's heads */
        if (s.mesh.degree[MESH_ULYSSES] * s.mesh.degree[MESH_RING] != p->mesh.degree[MESH_ULYSSES] * p->mesh.degree[MESH_RING] ||
            plan_mesh(x->m, &s, p->ranks, s.hardware ? s.hardware->devices : p->ranks) != OK)
            continue;
        snprintf(say, sizeof say, "ulysses=%d,ring=%d", s.mesh.degree[MESH_ULYSSES], s.mesh.degree[MESH_RING]);
        TRY(try_fixed(x, d, &s, say));
    }
    return OK;
}

enum status explain_grid(struct explainer *x)
{
    TRY(explain_tiles(x));
    return x->p->strategy.ranks > 1 ? explain_ranks(x) : OK;
}
