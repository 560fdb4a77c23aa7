/* Smaller plans for a fastest one that does not fit: other placements, meshes and grids. */
#include "plan/passes/passes.h"

#include "plan/lower/fixed.h"
#include "plan/lower/grid.h"
#include "plan/lower/mesh.h"
#include "plan/program_set.h"
#include "plan/schedule/prefetch.h"
#include "plan/search/probe.h"
#include "plan/search/tuning.h"

#include <math.h>

/* Tells whether, by estimate, all placements of a grid need far too much of the host or the drives: more than keeping fewer layer
 * inputs could save (INPUTS_HELP). Finer grids, which save device memory, do not help then. */
static int is_beyond_device(const struct search *search, const int64_t limit[TIERS])
{
    for (int i = 0; i < search->n; i++) {
        const int64_t *bytes = search->candidates[i].bytes, elsewhere[TIERS] = {0, bytes[TIER_HOST], bytes[TIER_NVME]};
        if (budget_excess(elsewhere, limit) <= INPUTS_HELP)
            return 0;
    }
    return 1;
}

/* Estimates the device bytes of the emptiest placement on a grid. */
static enum status device_on_grid(const struct problem *p, const struct strategy *grid, double *bytes)
{
    struct plan_request s = p->request;
    struct candidate c;
    plan_fix_grid(&s, grid);
    TRY(probe_estimate(p->model, &s, p->limit, &c));
    *bytes = (double)c.bytes[TIER_DEVICE];
    return OK;
}

/* Finds the number of finer grids that may help a plan that does not fit. Finer grids save device memory; if another tier is
 * short, the device may hold the excess, provided that quick grids are estimated to save as much. */
static enum status finer_help(const struct searched *v, const struct plan *plan, int *grids)
{
    const struct problem *p = &v->problem;
    struct strategy next = v->default_grid, finest = next;
    double missing = (double)(plan->arena[TIER_DEVICE] - p->limit[TIER_DEVICE]), here, least;
    *grids = plan->misfit == TIER_DEVICE && !is_beyond_device(&v->search, p->limit) ? PLAN_FINER : 0;
    if (plan->misfit == TIER_DEVICE)
        return OK;
    for (; *grids < PLAN_FINER && plan_finer_tiles(p->model, &p->request, &next) && plan_pieces(p->model, &next) <= PLAN_QUICK;
         ++*grids)
        finest = next;
    if (*grids == 0)
        return OK;
    for (int tier = TIER_HOST; tier < TIERS; tier++)
        missing += fmax(0, (double)(plan->arena[tier] - p->limit[tier]));
    TRY(device_on_grid(p, &v->default_grid, &here));
    TRY(device_on_grid(p, &finest, &least));
    if (here - least < missing)
        *grids = 0;
    return OK;
}

/* Probes the smallest placement of a grid; a placement whose trial fits is tried again with all layers. */
static enum status smallest_all_layers(const struct problem *p, const struct strategy *fixed, struct candidate *out)
{
    TRY(probe_smallest(p, fixed, out));
    return out->excess <= 1 ? probe_all_layers(p->model, &p->request, p->limit, out) : OK;
}

/* Plans the smallest placement, which often fits if trials of fast ones do not. Its plan replaces *out if it fits. c: the
 * placement, which fits without prefetches or overlap. */
static enum status plan_smallest(const struct problem *p, const struct candidate *c, struct plan **out)
{
    struct candidate overlapped = *c;
    struct plan *next;
    double excess;
    overlapped.level = 0;
    TRY(plan_candidate(p, &overlapped, 0, &excess, &next));
    struct plan *worse = next->fits ? *out : next;
    *out = next->fits ? next : *out;
    plan_destroy(worse);
    return OK;
}

/* Replaces *out by the smallest placement on the default grid if that fits. */
static enum status try_smallest(const struct problem *p, struct plan **out)
{
    struct strategy fixed;
    struct candidate smallest;
    TRY(plan_fixed(p->model, &p->request, &fixed));
    TRY(probe_fits_long(p->model, &p->request, p->limit, &smallest));
    if (smallest.strategy.key.row_chunk != fixed.key.row_chunk || smallest.strategy.key.head_tile != fixed.key.head_tile)
        return OK; /* a later step tries finer grids */
    if (smallest.excess <= 1)
        TRY(probe_all_layers(p->model, &p->request, p->limit, &smallest));
    return smallest.excess <= 1 ? plan_smallest(p, &smallest, out) : OK;
}

/* Sets the problem on the i-th mesh that may be planned for: p's own, that of the given request, and the others that this request
 * leaves open. Returns 0 if there is none. */
static int mesh_at(const struct problem *p, const struct plan_request *given, int i, struct problem *out)
{
    struct plan_request s = p->request;
    struct mesh mesh = given->mesh;
    if (i > 1 && !plan_other_degrees(p->model, given, i - 2, &mesh.degree[MESH_ULYSSES], &mesh.degree[MESH_RING]))
        return 0;
    if (i > 0)
        plan_take_mesh(&s, &mesh, s.micro_batch);
    problem_set(out, p->model, &s, p->limit);
    return 1;
}

/* Probes the smallest placement on a mesh's `finer`-th grid; a placement whose trial fits is tried again with all layers.
 * out->excess is INFINITY if there is no such grid, or if its estimate is far above the device's memory. */
static enum status smallest_on_finer(const struct problem *p, int finer, struct candidate *out)
{
    struct strategy grid;
    double needed;
    out->excess = INFINITY;
    TRY(plan_fixed(p->model, &p->request, &grid));
    for (int i = 0; i < finer; i++)
        if (!plan_finer_tiles(p->model, &p->request, &grid))
            return OK;
    TRY(device_on_grid(p, &grid, &needed));
    return needed > (1 + BYTES_UNCERTAIN) * (double)p->limit[TIER_DEVICE] ? OK : smallest_all_layers(p, &grid, out);
}

static int is_on_default_tiles(const struct problem *p, const struct strategy *s)
{
    struct strategy fixed;
    return plan_fixed(p->model, &p->request, &fixed) == OK && strategy_same_grid(s, &fixed);
}

/* Plans anew with the `finer`-th grid in place of the default one, if some mesh's smallest placement fits on that grid. All open
 * settings are chosen again; if the result does not fit, that smallest placement is planned. A plan that fits replaces *c. */
static enum status plan_on_finer(const struct plan_request *given, int finer, plan_anew *anew, struct choice *c)
{
    struct candidate smallest = {.excess = INFINITY};
    struct problem at;
    for (int i = 0; smallest.excess > 1 && mesh_at(&c->problem, given, i, &at); i++)
        if (i == 0 || !mesh_equal(&at.request.mesh, &c->problem.request.mesh))
            TRY(smallest_on_finer(&at, finer, &smallest));
    if (smallest.excess > 1)
        return OK;
    struct choice next = {.plan = NULL};
    enum status st = anew(at.model, given, at.limit, finer, &next);
    if (st == OK && !next.plan->fits) {
        next.problem = at;
        st = plan_smallest(&at, &smallest, &next.plan);
    }
    if (st == OK && next.plan->fits) {
        const struct choice worse = *c;
        next.plan->default_grid = (struct default_grid){0};
        next.plan->finer = !is_on_default_tiles(&next.problem, &next.plan->strategy);
        *c = next;
        next = worse;
    }
    plan_destroy(next.plan);
    return st;
}

enum status plan_for_memory(const struct searched *v, const struct plan_request *given, plan_anew *anew, struct choice *c)
{
    const struct plan_request *s = &c->problem.request;
    double excess = budget_excess(c->plan->arena, c->problem.limit);
    if (c->plan->fits || excess > PLAN_FINER_HELPS)
        return OK;
    if (excess <= INPUTS_HELP)
        TRY(try_smallest(&c->problem, &c->plan));
    if (excess <= INPUTS_HELP && !c->plan->fits && !mesh_equal(&s->mesh, &given->mesh)) {
        struct problem same_mesh;
        mesh_at(&c->problem, given, 1, &same_mesh);
        TRY(try_smallest(&same_mesh, &c->plan));
        if (c->plan->fits)
            c->problem = same_mesh;
    }
    int grids = 0;
    if (!c->plan->fits && given->effort <= EFFORT_NORMAL)
        TRY(finer_help(v, c->plan, &grids));
    for (int i = 1; i <= grids && !c->plan->fits; i++)
        TRY(plan_on_finer(given, i, anew, c));
    return OK;
}
