/* Program sets: the placement that is fastest on the virtual clock among those that fit. */
#include "plan/plan.h"

#include "base/clock.h"
#include "machine/rank_cost.h"
#include "plan/lower/fixed.h"
#include "plan/lower/grid.h"
#include "plan/lower/mesh.h"
#include "plan/program_set.h"
#include "plan/search/numerics.h"
#include "plan/search/probe.h"
#include "plan/search/price.h"
#include "plan/search/search.h"
#include "plan/search/trial.h"

#include <math.h>
#include <string.h>

/* Candidates that are planned before a refusal, or where plans take longer than trials: one that fitted as a trial mostly does
 * whole, with all programs of the set. */
enum { MOST_PLANS = 4 };

/* What is planned for: model, settings, costs, budgets. */
struct task {
    const struct model *m;
    const struct plan_request *s;
    const struct cost_model *cost;
    const int64_t *limit;
};

/* A whole step may take so many times what its trial said before the next candidate is planned, too: a trial of all layers
 * differs by how tightly it is packed alone, one of few layers by more. */
#define WHOLE_TRIAL_HOLDS 1.001
#define TRIAL_HOLDS 1.03

/* c planned, as loosely packed as its trial of all layers was if it takes longer otherwise: tightly packed, addresses are used
 * again sooner. */
static enum status plan_as_tried(const struct task *t, const struct candidate *c, double *excess, struct plan **out)
{
    struct plan *loose;
    double of_loose;
    TRY(plan_candidate(t->m, t->s, c, t->cost, t->limit, 0, excess, out));
    if (!(*out)->fits || !c->whole || (*out)->seconds <= WHOLE_TRIAL_HOLDS * c->seconds)
        return OK;
    enum status st = plan_candidate(t->m, t->s, c, t->cost, t->limit, TRIAL_SLACK, &of_loose, &loose);
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
    int whole = c->whole || (i + 1 < search->n && c[1].tried && c[1].whole);
    return !c->tried || plan->seconds <= (whole ? WHOLE_TRIAL_HOLDS : TRIAL_HOLDS) * c->seconds;
}

/* The first candidate that fits and takes what its trial said, or the fastest of those that fit until then (of large programs
 * there are two); else the one that exceeds by the least. *usual: seconds of what was planned on the usual grid and fits,
 * INFINITY: nothing was. */
static enum status plan_first(const struct task *t, const struct search *search, const struct strategy *fixed, struct plan **out,
                              double *usual)
{
    struct plan *best = NULL;
    double least = INFINITY; /* excess of the best */
    *usual = INFINITY;
    for (int i = 0; i < search->n && i < MOST_PLANS; i++) {
        const struct candidate *c = &search->candidates[i];
        struct plan *next = NULL;
        double excess = INFINITY;
        if (i > 0 && (!c->tried || c->excess > 1 || (best->fits && c->seconds >= best->seconds)))
            break;
        enum status st = plan_as_tried(t, c, &excess, &next);
        if (st != OK) {
            plan_destroy(best);
            return st;
        }
        int second = best && best->fits, done = next->fits && (trial_holds(search, i, next) || (second && !c->whole)),
            better = second ? next->fits && next->seconds < best->seconds : next->fits || excess < least;
        if (next->fits && strategy_same_grid(&next->strategy, fixed))
            *usual = fmin(*usual, next->seconds);
        least = better ? excess : least;
        plan_destroy(better ? best : next);
        best = better ? next : best;
        if (done)
            break;
    }
    *out = best;
    return OK;
}

static enum status plan_on_grid(const struct task *t, const struct strategy *fixed, struct plan **out)
{
    struct search search;
    TRY(search_create(t->m, t->s, fixed, t->cost, t->limit, &search));
    enum status st = plan_first(t, &search, fixed, out, &(double){0});
    search_destroy(&search);
    return st;
}

/* Whether all placements of a grid are reckoned to need so much of the host or of the drives, whatever the device has, that fewer
 * inputs do not help: then finer grids, which save device memory, do not either. */
static int is_beyond_device(const struct search *search, const int64_t limit[TIERS])
{
    for (int i = 0; i < search->n; i++) {
        const int64_t *bytes = search->candidates[i].bytes, elsewhere[TIERS] = {0, bytes[TIER_HOST], bytes[TIER_NVME]};
        if (budget_excess(elsewhere, limit) <= SEARCH_TURNS_HELP)
            return 0;
    }
    return 1;
}

/* Bytes of the device that the emptiest placement is reckoned to need on a grid. */
static enum status device_on_grid(const struct task *t, const struct strategy *grid, double *bytes)
{
    struct plan_request s = *t->s;
    struct candidate c;
    s.row_chunk = grid->row_chunk;
    s.head_tile = grid->head_tile;
    s.loss_tile = grid->loss_tile;
    TRY(glance_reckon(t->m, &s, t->limit, &c));
    *bytes = (double)c.bytes[TIER_DEVICE];
    return OK;
}

/* The emptiest placement is not always the leanest: looked at where it is reckoned to need so many times what the device has. */
#define RECKONED_HELPS 1.1

/* How many finer grids may help p, which does not fit: they save device memory. Where that is not what is missing, it may hold
 * what is too much elsewhere: looked at if what quick ones are reckoned to save is as much. */
static enum status finer_help(const struct task *t, const struct variant *v, const struct plan *p, int *grids)
{
    struct strategy next = v->usual, finest = next;
    double missing = (double)(p->arena[TIER_DEVICE] - t->limit[TIER_DEVICE]), here, least;
    *grids = p->misfit == TIER_DEVICE && !is_beyond_device(&v->search, t->limit) ? PLAN_FINER : 0;
    if (p->misfit == TIER_DEVICE)
        return OK;
    for (; *grids < PLAN_FINER && plan_finer_tiles(t->m, t->s, &next) && plan_pieces(t->m, &next) <= PLAN_QUICK; ++*grids)
        finest = next;
    if (*grids == 0)
        return OK;
    for (int tier = TIER_HOST; tier < TIERS; tier++)
        missing += fmax(0, (double)(p->arena[tier] - t->limit[tier]));
    TRY(device_on_grid(t, &v->usual, &here));
    TRY(device_on_grid(t, &finest, &least));
    if (here - least < missing)
        *grids = 0;
    return OK;
}

/* The leanest placement of a grid, whole if its trial fits. */
static enum status leanest_whole(const struct task *t, const struct strategy *fixed, struct candidate *out)
{
    TRY(glance_leanest(t->m, t->s, fixed, t->limit, out));
    return out->excess <= 1 ? glance_whole(t->m, t->s, t->limit, out) : OK;
}

/* Where trials of what ought to be fast do not fit, or not whole, the leanest placement mostly does still: its plan takes the
 * place of *out. c: fits in the serial order. */
static enum status plan_leanest(const struct task *t, const struct candidate *c, struct plan **out)
{
    struct candidate overlapped = *c;
    struct plan *next;
    double excess;
    overlapped.pace = 0;
    TRY(plan_candidate(t->m, t->s, &overlapped, t->cost, t->limit, 0, &excess, &next));
    struct plan *worse = next->fits ? *out : next;
    *out = next->fits ? next : *out;
    plan_destroy(worse);
    return OK;
}

/* What was tried on another grid than the usual one mostly fits there whole, and takes what its trial said; if not, or if it
 * takes as long as the usual one's trial, that one's plan is compared. */
static enum status plan_variant(const struct task *t, const struct variant *v, struct plan **out)
{
    struct plan *usual;
    double on_usual;
    TRY(plan_first(t, &v->search, &v->usual, out, &on_usual));
    if (strategy_same_grid(&(*out)->strategy, &v->usual))
        return OK;
    double slower = isfinite(on_usual) ? on_usual / (*out)->seconds - 1 : v->usual_slower;
    (*out)->usual = (struct usual_grid){v->usual.row_chunk, v->usual.loss_tile, v->usual.head_tile, fmax(0, slower)};
    if (isfinite(on_usual))
        return OK;
    const struct candidate *best = &v->search.candidates[0];
    if ((*out)->fits && v->usual_slower > 0 &&
        (!best->tried || (*out)->seconds <= fmin(TRIAL_HOLDS, 1 + v->usual_slower) * best->seconds))
        return OK;
    TRY(plan_on_grid(t, &v->usual, &usual));
    int better = !(*out)->fits || (usual->fits && usual->seconds < (*out)->seconds);
    if (!better && usual->fits)
        (*out)->usual.slower = usual->seconds / (*out)->seconds - 1;
    plan_destroy(better ? *out : usual);
    *out = better ? usual : *out;
    return OK;
}

/* The leanest placement on the usual grid takes the place of *out if it fits. */
static enum status try_leanest(const struct task *t, struct plan **out)
{
    struct strategy usual;
    struct candidate leanest;
    TRY(plan_fixed(t->m, t->s, &usual));
    TRY(glance_fits_long(t->m, t->s, t->limit, &leanest));
    if (leanest.strategy.row_chunk != usual.row_chunk || leanest.strategy.head_tile != usual.head_tile)
        return OK; /* finer ones have their turn */
    if (leanest.excess <= 1)
        TRY(glance_whole(t->m, t->s, t->limit, &leanest));
    return leanest.excess <= 1 ? plan_leanest(t, &leanest, out) : OK;
}

/* Settings with a mesh of their own, and what that costs. */
struct mesh {
    struct plan_request s;
    struct cost_model cost;
};

/* The i-th mesh that may be planned for: t's own, that of the settings given, and the others that these leave open. Returns 0 if
 * there is none. */
static int mesh_at(const struct task *t, const struct plan_request *given, int i, struct mesh *out)
{
    out->s = *t->s;
    if (i > 0) {
        out->s.ulysses = given->ulysses;
        out->s.ring = given->ring;
    }
    if (i > 1 && !plan_other_degrees(t->m, given, i - 2, &out->s.ulysses, &out->s.ring))
        return 0;
    plan_cost_model(&out->s, &out->cost);
    return 1;
}

/* The leanest placement on a mesh's `finer`-th grid, whole if its trial fits; out->excess is INFINITY where there is no such grid
 * or far more than the device has is reckoned to be needed. */
static enum status leanest_on_finer(const struct task *t, int finer, struct candidate *out)
{
    struct strategy grid;
    double needed;
    out->excess = INFINITY;
    TRY(plan_fixed(t->m, t->s, &grid));
    for (int i = 0; i < finer; i++)
        if (!plan_finer_tiles(t->m, t->s, &grid))
            return OK;
    TRY(device_on_grid(t, &grid, &needed));
    return needed > RECKONED_HELPS * (double)t->limit[TIER_DEVICE] ? OK : leanest_whole(t, &grid, out);
}

static int is_on_usual_tiles(const struct task *t, const struct strategy *s)
{
    struct strategy usual;
    return plan_fixed(t->m, t->s, &usual) == OK && strategy_same_grid(s, &usual);
}

/* Where the leanest placement of some mesh fits on the `finer`-th grid, everything that is left open is chosen again with that
 * one in place of the usual one; or if that does not fit, the leanest it is. What fits takes the place of *out; *t, *v and *mesh:
 * what it is of. */
static enum status plan_on_finer(struct task *t, const struct plan_request *given, int finer, struct variant **v,
                                 struct mesh *mesh, struct plan **out)
{
    struct candidate leanest = {.excess = INFINITY};
    struct mesh at;
    struct variant *w;
    struct plan *next = NULL;
    for (int i = 0; leanest.excess > 1 && mesh_at(t, given, i, &at); i++)
        if (i == 0 || at.s.ulysses != t->s->ulysses)
            TRY(leanest_on_finer(&(struct task){t->m, &at.s, &at.cost, t->limit}, finer, &leanest));
    if (leanest.excess > 1)
        return OK;
    TRY(variant_choose(t->m, given, t->limit, finer, &w));
    struct task there = {t->m, &w->s, &w->cost, t->limit};
    enum status st = plan_variant(&there, w, &next);
    if (st == OK && !next->fits) {
        *mesh = at;
        there = (struct task){t->m, &mesh->s, &mesh->cost, t->limit};
        st = plan_leanest(&there, &leanest, &next);
    }
    if (st == OK && next->fits) {
        struct variant *worse = *v;
        next->usual = (struct usual_grid){0};
        next->finer = !is_on_usual_tiles(&there, &next->strategy);
        plan_destroy(*out);
        *out = next;
        next = NULL;
        *t = there;
        *v = w;
        w = worse;
    }
    plan_destroy(next);
    variant_destroy(w);
    return st;
}

/* The fastest; where it does not fit, the leanest on its mesh, on that of the settings, or on finer grids. *t: what the plan is
 * of; it points into *v or *mesh. */
static enum status plan_best(struct task *t, const struct plan_request *given, struct variant **v, struct mesh *mesh,
                             struct plan **out)
{
    TRY(plan_variant(t, *v, out));
    double excess = budget_excess((*out)->arena, t->limit);
    if ((*out)->fits || excess > PLAN_FINER_HELPS)
        return OK;
    if (excess <= SEARCH_TURNS_HELP)
        TRY(try_leanest(t, out));
    if (excess <= SEARCH_TURNS_HELP && !(*out)->fits && (t->s->ulysses != given->ulysses || t->s->ring != given->ring)) {
        mesh_at(t, given, 1, mesh);
        const struct task same_mesh = {t->m, &mesh->s, &mesh->cost, t->limit};
        TRY(try_leanest(&same_mesh, out));
        if ((*out)->fits)
            *t = same_mesh;
    }
    int grids = 0;
    if (!(*out)->fits)
        TRY(finer_help(t, *v, *out, &grids));
    for (int i = 1; i <= grids && !(*out)->fits; i++)
        TRY(plan_on_finer(t, given, i, v, mesh, out));
    return OK;
}

/* Of so many row chunks one more stays on the device, or is computed again, or chunks are half as long, where slow links would
 * hold the step up; that often; and the share of the step that is given for it. */
#define SLOW_CHUNKS 8
#define SLOW_STEPS 4
#define SLOW_GIVES 0.02

/* Plans `more` in place of *out and of `now`, if it takes `most` seconds at most, and slow links less so. */
static enum status plan_instead(const struct task *t, const struct strategy *more, double most, struct candidate *now,
                                struct plan **out)
{
    struct candidate next;
    struct plan *plan;
    double excess;
    TRY(search_price(t->m, t->s, more, t->cost, t->limit, &next));
    if (next.excess > 1 || next.seconds > most || next.slow >= now->slow)
        return OK;
    TRY(plan_candidate(t->m, t->s, &next, t->cost, t->limit, 0, &excess, &plan));
    plan->usual = (*out)->usual;
    if (plan->usual.row_chunk == more->row_chunk && plan->usual.head_tile == more->head_tile &&
        plan->usual.loss_tile == more->loss_tile)
        plan->usual = (struct usual_grid){0};
    plan->finer = (*out)->finer;
    enum status st = plan->fits ? plan_as_candidate(plan, &next) : OK;
    int better = st == OK && plan->fits && next.seconds <= most && next.slow < now->slow;
    plan_destroy(better ? *out : plan);
    *out = better ? plan : *out;
    *now = better ? next : *now;
    return st;
}

/* Less is sent where links that are slower than planned for would hold the step up. */
static enum status plan_for_slow_links(const struct task *t, struct plan **out)
{
    struct candidate now;
    double most = (1 + SLOW_GIVES) * (*out)->seconds;
    TRY(plan_as_candidate(*out, &now));
    for (int i = 0; i < SLOW_STEPS && candidate_suffers(&now) && now.strategy.acts != RES_DEVICE; i++) {
        struct strategy nearer = now.strategy, fewer = now.strategy, finer = now.strategy;
        int chunks = (int)ceil_div(now.strategy.rows, now.strategy.row_chunk), part = (int)ceil_div(chunks, SLOW_CHUNKS);
        double before = now.slow;
        if (fewer.kept_chunks < chunks && nearer.device_chunks < chunks - fewer.kept_chunks)
            nearer.device_chunks = chunks - fewer.kept_chunks; /* the others have less to send */
        nearer.device_chunks += part;
        fewer.kept_chunks -= part;
        if (t->s->acts == OFFLOAD_AUTO && nearer.device_chunks < chunks)
            TRY(plan_instead(t, &nearer, most, &now, out));
        if (now.slow == before && t->s->alpha < 0 && fewer.kept_chunks >= 0)
            TRY(plan_instead(t, &fewer, most, &now, out));
        if (now.slow == before && (*out)->usual.head_tile > 0 && plan_other_tiles(t->m, t->s, TILE_ROWS, 1, &finer)) {
            finer.device_chunks = 2 * now.strategy.device_chunks;
            finer.kept_chunks = strategy_share(&finer, &now.strategy);
            TRY(plan_instead(t, &finer, most, &now, out));
        }
        if (now.slow == before)
            return OK;
    }
    return OK;
}

enum status plan_create(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], struct plan **out)
{
    struct variant *v;
    struct plan *plan = NULL;
    struct mesh mesh;
    double began = clock_seconds();
    TRY(variant_choose(m, s, limit, 0, &v));
    struct task t = {m, &v->s, &v->cost, limit};
    enum status st = plan_best(&t, s, &v, &mesh, &plan);
    if (st == OK && plan->fits)
        st = plan_for_slow_links(&t, &plan);
    variant_destroy(v);
    if (st != OK) {
        plan_destroy(plan);
        return st;
    }
    plan->took = clock_seconds() - began;
    *out = plan;
    return OK;
}
