/* Planning as a list of passes. */
#include "plan/plan.h"

#include "base/clock.h"
#include "plan/lower/fixed.h"
#include "plan/lower/grid.h"
#include "plan/lower/mesh.h"
#include "plan/program_set.h"
#include "plan/schedule/prefetch.h"
#include "plan/search/numerics.h"
#include "plan/search/probe.h"
#include "plan/search/tuning.h"
#include "plan/passes/passes.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Tells whether all placements of a grid are estimated to need far too much of the host or of the drives: more than fewer inputs
 * could save (INPUTS_HELP). Finer grids, which save device memory, do not help then either. */
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
    s.row_chunk = grid->row_chunk;
    s.head_tile = grid->head_tile;
    s.loss_tile = grid->loss_tile;
    TRY(probe_estimate(p->model, &s, p->limit, &c));
    *bytes = (double)c.bytes[TIER_DEVICE];
    return OK;
}

/* Finds the number of finer grids that may help a plan that does not fit: they save device memory. If another tier is short, the
 * device may hold the excess, provided that quick grids are estimated to save as much. */
static enum status finer_help(const struct numerics *v, const struct plan *plan, int *grids)
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

/* Probes the smallest placement of a grid; if its trial fits, with all layers. */
static enum status smallest_all_layers(const struct problem *p, const struct strategy *fixed, struct candidate *out)
{
    TRY(probe_smallest(p, fixed, out));
    return out->excess <= 1 ? probe_all_layers(p->model, &p->request, p->limit, out) : OK;
}

/* Plans the smallest placement, which often fits if trials of fast ones do not. Its plan replaces *out if it fits. c: fits in the
 * serial order. */
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
    if (smallest.strategy.row_chunk != fixed.row_chunk || smallest.strategy.head_tile != fixed.head_tile)
        return OK; /* finer ones have their turn later */
    if (smallest.excess <= 1)
        TRY(probe_all_layers(p->model, &p->request, p->limit, &smallest));
    return smallest.excess <= 1 ? plan_smallest(p, &smallest, out) : OK;
}

/* A plan, owned, and the problem that it solves: request and costs are those of its mesh. */
struct choice {
    struct problem problem;
    struct plan *plan;
};

/* Sets the problem on the i-th mesh that may be planned for: p's own, that of the given request, and the others that this request
 * leaves open. Returns 0 if there is none. */
static int mesh_at(const struct problem *p, const struct plan_request *given, int i, struct problem *out)
{
    struct plan_request s = p->request;
    struct mesh mesh = given->mesh;
    if (i > 1 && !plan_other_degrees(p->model, given, i - 2, &mesh.degree[MESH_ULYSSES], &mesh.degree[MESH_RING]))
        return 0;
    if (i > 0)
        plan_take_mesh(&s, &mesh);
    problem_set(out, p->model, &s, p->limit);
    return 1;
}

/* Probes the smallest placement on a mesh's `finer`-th grid; if its trial fits, with all layers. out->excess is INFINITY if there
 * is no such grid, or if it is estimated to need far more than the device has. */
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

struct planning;

/* A pass: its name and the unit of its count, its function, and the condition that holds after it. */
struct pass {
    const char *name, *unit;
    enum effort most; /* least effort that still runs it */
    enum status (*run)(struct planning *x);
    int (*holds)(const struct planning *x);
};

/* State of planning. */
struct planning {
    const struct model *model;
    const struct plan_request *given;
    const int64_t *limit;
    int finer; /* number of the finer grid that stands for the default one; 0: none; below 0: of the coarser one */
    struct numerics_search *numerics; /* NULL: before the first pass */
    struct choice choice;
};

static void planning_end(struct planning *x)
{
    numerics_end(x->numerics);
    plan_destroy(x->choice.plan);
}

static enum status pass_start(struct planning *x)
{
    return numerics_start(x->model, x->given, x->limit, x->finer, &x->numerics);
}

static enum status pass_grid(struct planning *x)
{
    return numerics_grid(x->numerics);
}

static enum status pass_stage(struct planning *x)
{
    return numerics_stage(x->numerics);
}

static enum status pass_tiles(struct planning *x)
{
    return numerics_tiles(x->numerics);
}

static enum status pass_local(struct planning *x)
{
    return numerics_local(x->numerics);
}

static enum status pass_programs(struct planning *x)
{
    const struct numerics *v = numerics_best(x->numerics);
    x->choice.problem = v->problem;
    return plan_numerics(v, &x->choice.plan);
}

static enum status pass_memory(struct planning *x);
static enum status pass_slow_links(struct planning *x);
static enum status pass_layer_kinds(struct planning *x);
static enum status pass_groups(struct planning *x);

/* Tells whether there are placements, for the chosen mesh. */
static int has_placements(const struct planning *x)
{
    const struct numerics *v = numerics_best(x->numerics);
    return v->search.n > 0 && v->search.candidates[0].strategy.rows == v->fixed.rows &&
           v->search.candidates[0].strategy.ranks == v->fixed.ranks;
}

/* Tells whether there is a plan that says rightly whether its arenas are within the limits. */
static int has_plan(const struct planning *x)
{
    enum tier which;
    const struct plan *p = x->choice.plan;
    return p->programs[PLAN_UPDATE_STEP] && p->fits == fit_within(p->arena, x->limit, &which);
}

/* Passes of plan_create, in this order. */
static const struct pass passes[] = {
    {"mesh", "trials", EFFORT_QUICK, pass_start, NULL},
    {"default grid", "trials", EFFORT_QUICK, pass_grid, has_placements},
    {"ZeRO stage", "trials", EFFORT_NORMAL, pass_stage, has_placements},
    {"tiles", "trials", EFFORT_NORMAL, pass_tiles, has_placements},
    {"local search", "trials", EFFORT_NORMAL, pass_local, has_placements},
    {"program sets", "instructions", EFFORT_QUICK, pass_programs, has_plan},
    {"memory", "instructions", EFFORT_QUICK, pass_memory, has_plan},
    {"slow links", "instructions", EFFORT_NORMAL, pass_slow_links, has_plan},
    {"layer kinds", "instructions", EFFORT_NORMAL, pass_layer_kinds, has_plan},
    {"groups", "instructions", EFFORT_NORMAL, pass_groups, has_plan},
};
enum { PASS_MEMORY = 6, PASSES = sizeof passes / sizeof *passes };
static_assert((int)PASSES == (int)PLAN_PASSES, "struct plan has room for all of them");

/* Counts the trials until now or, once there is a plan, the instructions of its programs. */
static int64_t count(const struct planning *x)
{
    int64_t instrs = 0;
    for (int i = 0; x->choice.plan && i < PLAN_PROGRAMS; i++)
        instrs += x->choice.plan->programs[i] ? x->choice.plan->programs[i]->n_instrs : 0;
    return x->choice.plan ? instrs : numerics_trials(x->numerics);
}

/* Runs the first n passes. took: NULL, or their times and counts. */
static enum status run_passes(struct planning *x, int n, struct pass_time *took)
{
    for (int i = 0, done = 0; i < n; i++) {
        double began = clock_seconds();
        if (x->given->effort > passes[i].most)
            continue;
        TRY(passes[i].run(x));
        assert(!passes[i].holds || passes[i].holds(x));
        if (took)
            took[done++] = (struct pass_time){passes[i].name, passes[i].unit, clock_seconds() - began, count(x)};
    }
    return OK;
}

/* Plans anew with the `finer`-th grid in place of the default one, if the smallest placement of some mesh fits on it. Everything
 * that is left open is chosen again; if the result does not fit, that smallest placement is planned. A plan that fits replaces
 * *c. */
static enum status plan_on_finer(const struct plan_request *given, int finer, struct choice *c)
{
    struct candidate smallest = {.excess = INFINITY};
    struct problem at;
    for (int i = 0; smallest.excess > 1 && mesh_at(&c->problem, given, i, &at); i++)
        if (i == 0 || !mesh_equal(&at.request.mesh, &c->problem.request.mesh))
            TRY(smallest_on_finer(&at, finer, &smallest));
    if (smallest.excess > 1)
        return OK;
    struct planning again = {.model = at.model, .given = given, .limit = at.limit, .finer = finer};
    struct choice *next = &again.choice;
    enum status st = run_passes(&again, PASS_MEMORY, NULL);
    if (st == OK && !next->plan->fits) {
        next->problem = at;
        st = plan_smallest(&at, &smallest, &next->plan);
    }
    if (st == OK && next->plan->fits) {
        const struct choice worse = *c;
        next->plan->default_grid = (struct default_grid){0};
        next->plan->finer = !is_on_default_tiles(&next->problem, &next->plan->strategy);
        *c = *next;
        *next = worse;
    }
    planning_end(&again);
    return st;
}

/* Looks for a smaller plan if the fastest one does not fit: the smallest on its mesh, on that of the request, or on finer grids. */
static enum status pass_memory(struct planning *x)
{
    struct choice *c = &x->choice;
    const struct plan_request *s = &c->problem.request, *given = x->given;
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
        TRY(finer_help(numerics_best(x->numerics), c->plan, &grids));
    for (int i = 1; i <= grids && !c->plan->fits; i++)
        TRY(plan_on_finer(given, i, c));
    return OK;
}

static enum status pass_slow_links(struct planning *x)
{
    return x->choice.plan->fits ? plan_for_slow_links(&x->choice.problem, &x->choice.plan) : OK;
}

static enum status pass_layer_kinds(struct planning *x)
{
    return x->choice.plan->fits ? plan_for_layer_kinds(&x->choice.problem, &x->choice.plan) : OK;
}

static enum status pass_groups(struct planning *x)
{
    struct choice *c = &x->choice;
    if (c->plan->fits)
        TRY(plan_for_resident_groups(&c->problem, &c->plan));
    return c->plan->fits ? plan_for_messages(&c->problem, &c->plan) : OK;
}

static struct plan_request request_at(const struct plan_request *s, enum effort effort)
{
    struct plan_request r = *s;
    r.effort = effort;
    return r;
}

/* Returns the error of a plan whose first program exceeds its tables, else OK. */
static enum status check_tables(const struct planning *x)
{
    return program_built(x->choice.plan->programs[PLAN_UPDATE_STEP]);
}

/* Tells whether a coarser grid may help. Coarser tiles make programs smaller, but not buffers. */
static int has_coarser(const struct planning *x)
{
    const struct problem *p = &numerics_best(x->numerics)->problem;
    struct strategy grid = numerics_best(x->numerics)->default_grid;
    return x->choice.plan->programs[PLAN_UPDATE_STEP]->excess > EXCESS_BYTES && x->finer > -PLAN_COARSER &&
           plan_coarser_tiles(p->model, &p->request, &grid);
}

/* Runs all passes; while all programs exceed their tables, again with the next coarser grid in place of the default one. */
static enum status run_all(struct planning *x, struct pass_time took[PASSES])
{
    for (;;) {
        TRY(run_passes(x, PASSES, took));
        if (check_tables(x) == OK)
            return OK;
        if (!has_coarser(x))
            return check_tables(x);
        struct planning next = {.model = x->model, .given = x->given, .limit = x->limit, .finer = x->finer - 1};
        planning_end(x);
        *x = next;
    }
}

enum status plan_create(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], struct plan **out)
{
    struct planning x = {.model = m, .given = s, .limit = limit};
    struct pass_time took[PASSES] = {{0}};
    double began = clock_seconds();
    enum status st = run_all(&x, took);
    const struct plan_request more = request_at(s, EFFORT_NORMAL);
    if (st == OK && s->effort == EFFORT_QUICK &&
        !x.choice.plan->fits) { /* never refuses a plan that effort `normal` finds room for */
        planning_end(&x);
        x = (struct planning){.model = m, .given = &more, .limit = limit};
        st = run_all(&x, took);
    }
    if (st == OK) {
        x.choice.plan->effort = x.given->effort;
        x.choice.plan->meshes = *numerics_meshes(x.numerics);
        *out = x.choice.plan;
        x.choice.plan = NULL;
        memcpy((*out)->passes, took, sizeof took);
        (*out)->took = clock_seconds() - began;
    }
    planning_end(&x);
    return st;
}

void plan_print_passes(const struct plan *p, FILE *f)
{
    for (int i = 0; i < PLAN_PASSES && p->passes[i].name; i++)
        fprintf(f, "%-14s %8.3f s %10lld %s\n", p->passes[i].name, p->passes[i].seconds, (long long)p->passes[i].count,
                p->passes[i].unit);
}
