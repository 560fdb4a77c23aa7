/* Decisions that change rounding or the mesh: the chosen placement on another grid. */
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
    snprintf(d->note, sizeof d->note, "they change rounding, so the default is left only to fit, or for enough speed");
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
    return OK;
}

/* Tries the mesh with twice or half as many ranks that share heads, and the other degree of a sequence adapted. */
static enum status explain_degrees(struct explainer *x)
{
    const struct strategy *p = &x->p->strategy;
    struct plan_request s = *x->s;
    char say[64];
    if (p->mesh.degree[MESH_ULYSSES] * p->mesh.degree[MESH_RING] == 1)
        return OK;
    snprintf(say, sizeof say, "ulysses=%d,ring=%d", p->mesh.degree[MESH_ULYSSES], p->mesh.degree[MESH_RING]);
    struct decision *d = explainer_decide(x, "ranks that share a sequence", "--mesh", say, 0);
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

/* Returns the entry of the chosen mesh among those weighed; NULL: there is none. */
static const struct mesh_weighed *chosen_mesh(const struct plan *p)
{
    for (int i = 0; i < p->meshes.n; i++)
        if (mesh_equal(&p->meshes.of[i].mesh, &p->strategy.mesh))
            return &p->meshes.of[i];
    return NULL;
}

/* Adds a mesh that was tried. Its seconds are on the grid that its search starts from, relative to those of the chosen mesh. */
static void add_mesh(struct explainer *x, struct decision *d, const struct mesh_weighed *w, const struct mesh_weighed *chosen)
{
    struct alternative a = {.fits = w->fits, .seconds = x->out->seconds * w->seconds / chosen->seconds};
    char mesh[MESH_TEXT];
    snprintf(a.say, sizeof a.say, "%s", mesh_format(&w->mesh, mesh));
    explainer_keep(d, &a);
}

/* Lists the most promising meshes: those that were tried, and those that were not, since estimates promised less of them. */
static void explain_open_mesh(struct explainer *x)
{
    const struct meshes *all = &x->p->meshes;
    const struct mesh_weighed *chosen = chosen_mesh(x->p);
    char mesh[MESH_TEXT];
    int untried = 0;
    struct decision *d = explainer_decide(x, "mesh", "--mesh", mesh_format(&x->p->strategy.mesh, mesh), 0);
    size_t n = (size_t)snprintf(d->note, sizeof d->note, "of the %d that suit a step of %lld sequence%s", all->legal,
                                (long long)x->p->sequences, x->p->sequences == 1 ? "" : "s");
    for (int i = 0; i < all->n; i++) {
        const struct mesh_weighed *w = &all->of[i];
        if (w == chosen)
            continue;
        if (chosen && chosen->seconds > 0 && w->seconds > 0)
            add_mesh(x, d, w, chosen);
        else if (n < sizeof d->note)
            n += (size_t)snprintf(d->note + n, sizeof d->note - n, "%s%s", untried++ ? "; " : ", by estimate also ",
                                  mesh_format(&w->mesh, mesh));
    }
    if (untried && n < sizeof d->note)
        snprintf(d->note + n, sizeof d->note - n, " were weighed, which promise less");
}

enum status explain_grid(struct explainer *x)
{
    TRY(explain_tiles(x));
    if (x->p->strategy.ranks == 1)
        return OK;
    TRY(explain_ranks(x));
    if (x->p->meshes.n < 2)
        return explain_degrees(x);
    explain_open_mesh(x);
    return OK;
}
