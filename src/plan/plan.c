/* Program sets: the placement that is fastest on the virtual clock among those that fit. */
#include "plan/plan.h"

#include "base/clock.h"
#include "plan/lower/fixed.h"
#include "plan/lower/grid.h"
#include "plan/lower/mesh.h"
#include "plan/program_set.h"
#include "plan/schedule/prefetch.h"
#include "plan/search/numerics.h"
#include "plan/search/probe.h"
#include "plan/search/price.h"
#include "plan/search/search.h"
#include "plan/search/trial.h"
#include "plan/search/tuning.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Plans c as tightly as may be; if that takes longer than its trial of all layers, also as loosely as the trial was packed:
 * tightly packed, addresses are used again sooner. */
static enum status plan_as_tried(const struct problem *p, const struct candidate *c, double *excess, struct plan **out)
{
    struct plan *loose;
    double of_loose;
    TRY(plan_candidate(p, c, 0, excess, out));
    if (!(*out)->fits || !c->all_layers || (*out)->seconds <= PLAN_HOLDS_WHOLE * c->seconds)
        return OK;
    enum status st = plan_candidate(p, c, TRIAL_SLACK, &of_loose, &loose);
    if (st != OK) {
        plan_destroy(*out);
        return st;
    }
    int better = loose->fits && loose->seconds < (*out)->seconds;
    plan_destroy(better ? *out : loose);
    *out = better ? loose : *out;
    *excess = better ? of_loose : *excess;
    return OK;
}

/* Whether the plan of the i-th candidate takes what its trial said; where the next one was tried on all layers, it is known to be
 * worth planning as soon as this one takes longer. */
static int trial_holds(const struct search *search, int i, const struct plan *plan)
{
    const struct candidate *c = &search->candidates[i];
    int all_layers = c->all_layers || (i + 1 < search->n && c[1].tried && c[1].all_layers);
    return !c->tried || plan->seconds <= (all_layers ? PLAN_HOLDS_WHOLE : PLAN_HOLDS_FEW_LAYERS) * c->seconds;
}

/* Plans candidates in order: takes the first that fits and takes what its trial said, or of large programs the faster of two
 * that fit; else the one that exceeds by the least. *on_default: seconds of what was planned on the default grid and fits,
 * INFINITY: nothing was. */
static enum status plan_first(const struct problem *p, const struct search *search, const struct strategy *fixed,
                              struct plan **out, double *on_default)
{
    struct plan *best = NULL;
    double least = INFINITY; /* excess of the best */
    *on_default = INFINITY;
    for (int i = 0; i < search->n && i < PLANS_MOST; i++) {
        const struct candidate *c = &search->candidates[i];
        struct plan *next = NULL;
        double excess = INFINITY;
        if (i > 0 && (!c->tried || c->excess > 1 || (best->fits && c->seconds >= best->seconds)))
            break;
        enum status st = plan_as_tried(p, c, &excess, &next);
        if (st != OK) {
            plan_destroy(best);
            return st;
        }
        int second = best && best->fits, done = next->fits && (trial_holds(search, i, next) || (second && !c->all_layers)),
            better = second ? next->fits && next->seconds < best->seconds : next->fits || excess < least;
        if (next->fits && strategy_same_grid(&next->strategy, fixed))
            *on_default = fmin(*on_default, next->seconds);
        least = better ? excess : least;
        plan_destroy(better ? best : next);
        best = better ? next : best;
        if (done)
            break;
    }
    *out = best;
    return OK;
}

static enum status plan_on_grid(const struct problem *p, const struct strategy *fixed, struct plan **out)
{
    struct search search;
    TRY(search_create(p, fixed, &search));
    enum status st = plan_first(p, &search, fixed, out, &(double){0});
    search_destroy(&search);
    return st;
}

/* Whether all placements of a grid are estimated to need so much of the host or of the drives, whatever the device has, that
 * fewer inputs do not help (INPUTS_HELP): finer grids, which save device memory, do not help either then. */
static int is_beyond_device(const struct search *search, const int64_t limit[TIERS])
{
    for (int i = 0; i < search->n; i++) {
        const int64_t *bytes = search->candidates[i].bytes, elsewhere[TIERS] = {0, bytes[TIER_HOST], bytes[TIER_NVME]};
        if (budget_excess(elsewhere, limit) <= INPUTS_HELP)
            return 0;
    }
    return 1;
}

/* Bytes of the device that the emptiest placement on a grid is estimated to need. */
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

/* The number of finer grids that may help a plan that does not fit: they save device memory. Where something else is missing,
 * the device may hold what is too much there, if quick grids are estimated to save as much. */
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

/* The smallest placement of a grid, whole if its trial fits. */
static enum status smallest_all_layers(const struct problem *p, const struct strategy *fixed, struct candidate *out)
{
    TRY(probe_smallest(p, fixed, out));
    return out->excess <= 1 ? probe_all_layers(p->model, &p->request, p->limit, out) : OK;
}

/* Plans the smallest placement, which mostly fits where trials of fast ones do not: its plan takes the place of *out if it
 * fits. c: fits in the serial order. */
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

/* Plans the best placements. One on another grid than the default one mostly fits, and takes what its trial said; if not, or if
 * it takes as long as the trial on the default grid, the best plan there is compared with it. */
static enum status plan_numerics(const struct numerics *v, struct plan **out)
{
    struct plan *on_default;
    double seconds; /* on the default grid */
    TRY(plan_first(&v->problem, &v->search, &v->default_grid, out, &seconds));
    if (strategy_same_grid(&(*out)->strategy, &v->default_grid))
        return OK;
    double slower = isfinite(seconds) ? seconds / (*out)->seconds - 1 : v->default_slower;
    (*out)->default_grid =
        (struct default_grid){v->default_grid.row_chunk, v->default_grid.loss_tile, v->default_grid.head_tile, fmax(0, slower)};
    if (isfinite(seconds))
        return OK;
    const struct candidate *best = &v->search.candidates[0];
    if ((*out)->fits && v->default_slower > 0 &&
        (!best->tried || (*out)->seconds <= fmin(PLAN_HOLDS_FEW_LAYERS, 1 + v->default_slower) * best->seconds))
        return OK;
    TRY(plan_on_grid(&v->problem, &v->default_grid, &on_default));
    int better = !(*out)->fits || (on_default->fits && on_default->seconds < (*out)->seconds);
    if (!better && on_default->fits)
        (*out)->default_grid.slower = on_default->seconds / (*out)->seconds - 1;
    plan_destroy(better ? *out : on_default);
    *out = better ? on_default : *out;
    return OK;
}

/* The smallest placement on the default grid takes the place of *out if it fits. */
static enum status try_smallest(const struct problem *p, struct plan **out)
{
    struct strategy fixed;
    struct candidate smallest;
    TRY(plan_fixed(p->model, &p->request, &fixed));
    TRY(probe_fits_long(p->model, &p->request, p->limit, &smallest));
    if (smallest.strategy.row_chunk != fixed.row_chunk || smallest.strategy.head_tile != fixed.head_tile)
        return OK; /* finer ones have their turn */
    if (smallest.excess <= 1)
        TRY(probe_all_layers(p->model, &p->request, p->limit, &smallest));
    return smallest.excess <= 1 ? plan_smallest(p, &smallest, out) : OK;
}

/* A plan, and the problem that it solves: request and costs are those of its mesh. Owns both. */
struct choice {
    struct problem problem;
    struct plan *plan;
};

/* The problem on the i-th mesh that may be planned for: p's own, that of the request given, and the others that this leaves open.
 * Returns 0 if there is none. */
static int mesh_at(const struct problem *p, const struct plan_request *given, int i, struct problem *out)
{
    struct plan_request s = p->request;
    if (i > 0) {
        s.mesh = given->mesh;
    }
    if (i > 1 && !plan_other_degrees(p->model, given, i - 2, &s.mesh.degree[MESH_ULYSSES], &s.mesh.degree[MESH_RING]))
        return 0;
    problem_set(out, p->model, &s, p->limit);
    return 1;
}

/* The smallest placement on a mesh's `finer`-th grid, whole if its trial fits; out->excess is INFINITY where there is no such
 * grid or far more than the device has is estimated to be needed. */
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

/* A pass: what it is called and counts, what it does, and what holds after it. */
struct pass {
    const char *name, *unit;
    enum status (*run)(struct planning *x);
    int (*holds)(const struct planning *x);
};

/* What planning has come to. */
struct planning {
    const struct model *model;
    const struct plan_request *given;
    const int64_t *limit;
    int finer;                        /* which finer grid stands for the default one; 0: none */
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

static enum status pass_mesh(struct planning *x)
{
    return numerics_mesh(x->numerics);
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

/* The best placement is of the mesh that was chosen and rows. */
static int has_placements(const struct planning *x)
{
    const struct numerics *v = numerics_best(x->numerics);
    return v->search.n > 0 && v->search.candidates[0].strategy.rows == v->fixed.rows &&
           v->search.candidates[0].strategy.ranks == v->fixed.ranks;
}

/* The plan says of itself whether its arenas are within the limits. */
static int has_plan(const struct planning *x)
{
    enum tier which;
    const struct plan *p = x->choice.plan;
    return p->programs[PLAN_UPDATE_STEP] && p->fits == fit_within(p->arena, x->limit, &which);
}

/* What plan_create does, in this order. */
static const struct pass passes[] = {
    {"default grid", "trials", pass_start, has_placements}, {"mesh", "trials", pass_mesh, has_placements},
    {"ZeRO stage", "trials", pass_stage, has_placements},   {"tiles", "trials", pass_tiles, has_placements},
    {"local search", "trials", pass_local, has_placements}, {"program sets", "instructions", pass_programs, has_plan},
    {"memory", "instructions", pass_memory, has_plan},      {"slow links", "instructions", pass_slow_links, has_plan},
};
enum { PASS_MEMORY = 6, PASSES = sizeof passes / sizeof *passes };
static_assert((int)PASSES == (int)PLAN_PASSES, "struct plan has room for all of them");

/* Trials until now, or instructions of the plan's programs. */
static int64_t count(const struct planning *x)
{
    int64_t instrs = 0;
    for (int i = 0; x->choice.plan && i < PLAN_PROGRAMS; i++)
        instrs += x->choice.plan->programs[i] ? x->choice.plan->programs[i]->n_instrs : 0;
    return x->choice.plan ? instrs : numerics_trials(x->numerics);
}

/* The first n passes. took: NULL, or what they took. */
static enum status run_passes(struct planning *x, int n, struct pass_time *took)
{
    for (int i = 0; i < n; i++) {
        double began = clock_seconds();
        TRY(passes[i].run(x));
        assert(!passes[i].holds || passes[i].holds(x));
        if (took)
            took[i] = (struct pass_time){passes[i].name, passes[i].unit, clock_seconds() - began, count(x)};
    }
    return OK;
}

/* Where the smallest placement of some mesh fits on the `finer`-th grid, everything that is left open is chosen again with that
 * one in place of the default one; or if that does not fit, the smallest it is. What fits takes the place of *c. */
static enum status plan_on_finer(const struct plan_request *given, int finer, struct choice *c)
{
    struct candidate smallest = {.excess = INFINITY};
    struct problem at;
    for (int i = 0; smallest.excess > 1 && mesh_at(&c->problem, given, i, &at); i++)
        if (i == 0 || at.request.mesh.degree[MESH_ULYSSES] != c->problem.request.mesh.degree[MESH_ULYSSES])
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

/* Where the fastest plan does not fit: the smallest on its mesh, on that of the request, or on finer grids. */
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
    if (!c->plan->fits)
        TRY(finer_help(numerics_best(x->numerics), c->plan, &grids));
    for (int i = 1; i <= grids && !c->plan->fits; i++)
        TRY(plan_on_finer(given, i, c));
    return OK;
}

/* `more` takes the place of *out and of `now`, if its plan takes `most` seconds at most and slow links delay it less. */
static enum status plan_instead(const struct problem *p, const struct strategy *more, double most, struct candidate *now,
                                struct plan **out)
{
    struct candidate next;
    struct plan *plan;
    double excess;
    TRY(search_price(p, more, &next));
    if (next.excess > 1 || next.seconds > most || next.slow >= now->slow)
        return OK;
    TRY(plan_candidate(p, &next, 0, &excess, &plan));
    plan->default_grid = (*out)->default_grid;
    if (plan->default_grid.row_chunk == more->row_chunk && plan->default_grid.head_tile == more->head_tile &&
        plan->default_grid.loss_tile == more->loss_tile)
        plan->default_grid = (struct default_grid){0};
    plan->finer = (*out)->finer;
    enum status st = plan->fits ? plan_as_candidate(plan, &next) : OK;
    int better = st == OK && plan->fits && next.seconds <= most && next.slow < now->slow;
    plan_destroy(better ? *out : plan);
    *out = better ? plan : *out;
    *now = better ? next : *now;
    return st;
}

/* Where slow links would hold the step up, less is sent: one more of SLOW_LINKS_CHUNKS row chunks stays on the device, or is
 * computed again, or chunks are half as long. */
static enum status plan_for_slow_links(const struct problem *p, struct plan **out)
{
    struct candidate now;
    double most = (1 + SLOW_LINKS_GIVE) * (*out)->seconds;
    TRY(plan_as_candidate(*out, &now));
    for (int i = 0; i < SLOW_LINKS_STEPS && candidate_suffers(&now) && now.strategy.acts != RES_DEVICE; i++) {
        struct strategy nearer = now.strategy, fewer = now.strategy, finer = now.strategy;
        int chunks = (int)ceil_div(now.strategy.rows, now.strategy.row_chunk), part = (int)ceil_div(chunks, SLOW_LINKS_CHUNKS);
        double before = now.slow;
        if (fewer.kept_chunks < chunks && nearer.device_chunks < chunks - fewer.kept_chunks)
            nearer.device_chunks = chunks - fewer.kept_chunks; /* the others have less to send */
        nearer.device_chunks += part;
        fewer.kept_chunks -= part;
        if (p->request.acts == OFFLOAD_AUTO && nearer.device_chunks < chunks)
            TRY(plan_instead(p, &nearer, most, &now, out));
        if (now.slow == before && p->request.alpha < 0 && fewer.kept_chunks >= 0)
            TRY(plan_instead(p, &fewer, most, &now, out));
        if (now.slow == before && (*out)->default_grid.head_tile > 0 &&
            plan_other_tiles(p->model, &p->request, TILE_ROWS, 1, &finer)) {
            finer.device_chunks = 2 * now.strategy.device_chunks;
            finer.kept_chunks = strategy_share(&finer, &now.strategy);
            TRY(plan_instead(p, &finer, most, &now, out));
        }
        if (now.slow == before)
            return OK;
    }
    return OK;
}

static enum status pass_slow_links(struct planning *x)
{
    return x->choice.plan->fits ? plan_for_slow_links(&x->choice.problem, &x->choice.plan) : OK;
}

enum status plan_create(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], struct plan **out)
{
    struct planning x = {.model = m, .given = s, .limit = limit};
    struct pass_time took[PASSES];
    double began = clock_seconds();
    enum status st = run_passes(&x, PASSES, took);
    if (st == OK) {
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
