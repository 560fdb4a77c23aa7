/* Planning as a list of passes. */
#include "plan/plan.h"

#include "base/clock.h"
#include "base/hurry.h"
#include "base/progress.h"
#include "model/part.h"
#include "plan/lower/grid.h"
#include "plan/lower/mesh.h"
#include "plan/lower/program.h"
#include "plan/passes/passes.h"
#include "plan/schedule/prefetch.h"
#include "plan/search/memo.h"
#include "plan/search/tuning.h"

#include <assert.h>
#include <string.h>

struct planning;

/* A pass: its name and the unit of its count, what it looks for, its function, and the condition that holds after it. Passes that
 * only improve a plan are left out in a hurry. */
struct pass {
    const char *name, *unit, *looks_for;
    int improves;
    enum effort most; /* least effort that still runs the pass */
    enum status (*run)(struct planning *x);
    int (*holds)(const struct planning *x);
};

/* State of planning. */
struct planning {
    const struct model *model;
    const struct plan_request *given;
    const int64_t *limit;
    int finer; /* number of the finer grid (below 0: of the coarser grid) that replaces the default one; 0: none */
    struct key_search *search; /* NULL: before the first pass */
    struct choice choice;
    int64_t lowered[TIERS]; /* limits of trials once plans have needed more than these (search_again) */
};

static void planning_end(struct planning *x)
{
    key_search_end(x->search);
    plan_destroy(x->choice.plan);
}

static enum status pass_start(struct planning *x)
{
    return key_search_start(x->model, x->given, x->limit, x->finer, &x->search);
}

static enum status pass_grid(struct planning *x)
{
    return key_search_grid(x->search);
}

static enum status pass_stage(struct planning *x)
{
    return key_search_stage(x->search);
}

static enum status pass_tiles(struct planning *x)
{
    return key_search_tiles(x->search);
}

static enum status pass_local(struct planning *x)
{
    return key_search_local(x->search);
}

static enum status search_again(struct planning *x);

/* Plans the placements that the search has found. */
static enum status plan_found(struct planning *x, struct plan **out)
{
    const struct searched *v = key_search_best(x->search);
    x->choice.problem = v->problem;
    memcpy(x->choice.problem.limit, x->limit, sizeof x->choice.problem.limit);
    return plan_searched(v, x->limit, out);
}

/* Lowers the limits of trials by what a plan needs beyond its own. Returns 0 if that is not little, or no trial has fitted. */
static int lower_limits(struct planning *x)
{
    const struct candidate *first = &key_search_best(x->search)->search.candidates[0];
    const struct plan *p = x->choice.plan;
    if (p->fits || !first->tried || first->excess > 1 || budget_excess(p->arena, x->limit) > PLANS_EXCEED)
        return 0;
    for (int t = 0; t < TIERS; t++)
        x->lowered[t] -= (int64_t)(PLANS_LOWER * (double)max_i64(0, p->arena[t] - x->limit[t]));
    return 1;
}

/* Plans what was found. Where all of it needs a little more than its trials, searches again for what leaves as much free. */
static enum status pass_programs(struct planning *x)
{
    memcpy(x->lowered, x->limit, sizeof x->lowered);
    TRY(plan_found(x, &x->choice.plan));
    for (int i = 0; i < PLANS_AGAIN && lower_limits(x) && !hurry_asked(); i++) {
        struct plan *next;
        TRY(search_again(x));
        TRY(plan_found(x, &next));
        struct plan *worse = next->fits || budget_excess(next->arena, x->limit) < budget_excess(x->choice.plan->arena, x->limit)
                                 ? x->choice.plan
                                 : next;
        x->choice.plan = worse == next ? x->choice.plan : next;
        plan_destroy(worse);
    }
    return OK;
}

static enum status pass_memory(struct planning *x);
static enum status pass_experts(struct planning *x);
static enum status pass_slow_links(struct planning *x);
static enum status pass_layer_kinds(struct planning *x);
static enum status pass_groups(struct planning *x);

/* Tells whether there are placements, for the chosen mesh. */
static int has_placements(const struct planning *x)
{
    const struct searched *v = key_search_best(x->search);
    return v->search.n > 0 && v->search.candidates[0].strategy.rows == v->fixed.rows &&
           v->search.candidates[0].strategy.ranks == v->fixed.ranks;
}

/* Tells whether there is a plan whose `fits` is true to its arenas and limits. */
static int has_plan(const struct planning *x)
{
    enum tier which;
    const struct plan *p = x->choice.plan;
    return p->programs[PLAN_UPDATE_STEP] && p->fits == fit_within(p->arena, x->limit, &which);
}

/* Passes of plan_create, in this order. */
static const struct pass passes[] = {
    {"mesh", "trials", "a mesh", 0, EFFORT_QUICK, pass_start, NULL},
    {"default grid", "trials", "placements", 0, EFFORT_QUICK, pass_grid, has_placements},
    {"ZeRO stage", "trials", "ZeRO stages", 1, EFFORT_NORMAL, pass_stage, has_placements},
    {"tiles", "trials", "tiles", 1, EFFORT_NORMAL, pass_tiles, has_placements},
    {"local search", "trials", "placements near the best", 1, EFFORT_NORMAL, pass_local, has_placements},
    {"program sets", "instructions", "addresses and waits", 0, EFFORT_QUICK, pass_programs, has_plan},
    {"memory", "instructions", "placements that fit", 0, EFFORT_QUICK, pass_memory, has_plan},
    {"experts", "instructions", "a place for experts", 1, EFFORT_QUICK, pass_experts, has_plan},
    {"slow links", "instructions", "less traffic", 1, EFFORT_NORMAL, pass_slow_links, has_plan},
    {"layer kinds", "instructions", "chunks by kind of layer", 1, EFFORT_NORMAL, pass_layer_kinds, has_plan},
    {"groups", "instructions", "groups of updates", 1, EFFORT_NORMAL, pass_groups, has_plan},
};
enum { PASS_PROGRAMS = 5, PASS_MEMORY = 6, PASSES = sizeof passes / sizeof *passes };
static_assert((int)PASSES == (int)PLAN_PASSES, "struct plan has room for all of them");

/* Counts the trials until now or, once there is a plan, the instructions of its programs. */
static int64_t count(const struct planning *x)
{
    int64_t instrs = 0;
    for (int i = 0; x->choice.plan && i < PLAN_PROGRAMS; i++)
        instrs += x->choice.plan->programs[i] ? x->choice.plan->programs[i]->n_instrs : 0;
    return x->choice.plan ? instrs : key_search_trials(x->search);
}

/* Runs the first n passes. took: NULL, or their times and counts. */
static enum status run_passes(struct planning *x, int n, struct pass_time *took)
{
    for (int i = 0, done = 0; i < n; i++) {
        double began = clock_seconds();
        if (i > PASS_MEMORY && x->choice.plan && strategy_stages(&x->choice.plan->strategy) > 1)
            break; /* later passes change one program of a set */
        if (x->given->effort > passes[i].most || (passes[i].improves && hurry_asked()))
            continue;
        progress_planning(passes[i].looks_for);
        TRY(passes[i].run(x));
        assert(!passes[i].holds || passes[i].holds(x));
        if (took)
            took[done++] = (struct pass_time){passes[i].name, passes[i].unit, clock_seconds() - began, count(x)};
    }
    return OK;
}

/* Runs the passes before pass_programs anew, within the lowered limits. */
static enum status search_again(struct planning *x)
{
    const int64_t *whole = x->limit;
    key_search_end(x->search);
    x->search = NULL;
    x->limit = x->lowered;
    enum status st = OK;
    for (int i = 0; st == OK && i < PASS_PROGRAMS; i++)
        if (x->given->effort <= passes[i].most && !(passes[i].improves && hurry_asked()))
            st = passes[i].run(x);
    x->limit = whole;
    return st;
}

/* Plans with the passes that come before plan_for_memory's. `finer`: as in plan_anew, the type of this function. */
static enum status plan_before_memory(const struct model *m, const struct plan_request *given, const int64_t limit[TIERS],
                                      int finer, struct choice *out)
{
    struct planning x = {.model = m, .given = given, .limit = limit, .finer = finer};
    enum status st = run_passes(&x, PASS_MEMORY, NULL);
    if (st == OK) {
        *out = x.choice;
        x.choice.plan = NULL;
    }
    planning_end(&x);
    return st;
}

static enum status pass_memory(struct planning *x)
{
    return plan_for_memory(key_search_best(x->search), x->given, plan_before_memory, &x->choice);
}

static enum status pass_experts(struct planning *x)
{
    return x->choice.plan->fits ? plan_for_experts(&x->choice.problem, &x->choice.plan) : OK;
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
    const struct problem *p = &key_search_best(x->search)->problem;
    struct strategy grid = key_search_best(x->search)->default_grid;
    return x->choice.plan->programs[PLAN_UPDATE_STEP]->excess > EXCESS_BYTES && x->finer > -PLAN_COARSER &&
           plan_coarser_tiles(p->model, &p->request, &grid);
}

/* Runs all passes. While all programs exceed their tables, runs them again with the next coarser grid in place of the default
 * one. */
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

static enum status plan_once(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], struct plan **out)
{
    struct planning x = {.model = m, .given = s, .limit = limit};
    struct pass_time took[PASSES] = {{0}};
    double began = clock_seconds();
    memo_hold();
    progress_forget();
    enum status st = run_all(&x, took);
    const struct plan_request more = request_at(s, EFFORT_NORMAL);
    if (st == OK && s->effort == EFFORT_QUICK &&
        !x.choice.plan->fits) { /* effort `quick` refuses nothing that effort `normal` finds a plan for */
        planning_end(&x);
        x = (struct planning){.model = m, .given = &more, .limit = limit};
        st = run_all(&x, took);
    }
    if (st == OK) {
        x.choice.plan->effort = x.given->effort;
        x.choice.plan->meshes = *key_search_meshes(x.search);
        *out = x.choice.plan;
        x.choice.plan = NULL;
        memcpy((*out)->passes, took, sizeof took);
        (*out)->took = clock_seconds() - began;
    }
    progress_planning(NULL);
    planning_end(&x);
    memo_release();
    return st;
}

/* Returns the trials' seconds of the plan's mesh with `packed` sequences in a micro-batch; 0: it was not tried. */
static double tried_seconds(const struct plan *p, int64_t packed)
{
    for (int i = 0; i < p->meshes.n; i++)
        if (p->meshes.of[i].packed == packed && mesh_equal(&p->meshes.of[i].mesh, &p->strategy.key.mesh))
            return p->meshes.of[i].seconds;
    return 0;
}

/* Plans a sequence alone, too, where trials of the number that was chosen gained less than PACKED_SURELY. Keeps the faster plan. */
static enum status compare_alone(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                                 struct plan **plan)
{
    const double together = tried_seconds(*plan, (*plan)->strategy.key.packed), one = tried_seconds(*plan, 1);
    struct plan_request r = *s;
    struct plan *alone;
    if (!s->packing_is_open || (*plan)->strategy.key.packed == 1 || s->effort == EFFORT_QUICK || hurry_asked() || together <= 0 ||
        one <= 0 || one > (1 + PACKED_SURELY) * together)
        return OK;
    plan_take_mesh(&r, &(*plan)->strategy.key.mesh, 1);
    r.open_degrees = 0;
    r.packing_is_open = 0;
    TRY(plan_once(m, &r, limit, &alone));
    if (alone->fits && alone->seconds <= (*plan)->seconds) {
        struct plan *other = *plan;
        alone->meshes = other->meshes;
        alone->took += other->took;
        *plan = alone;
        alone = other;
    }
    plan_destroy(alone);
    return OK;
}

static enum status create_plan(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], struct plan **out)
{
    TRY(plan_once(m, s, limit, out));
    const enum status st = compare_alone(m, s, limit, out);
    if (st != OK) {
        plan_destroy(*out);
        *out = NULL;
    }
    return st;
}

enum status plan_slice_create(const struct model *m, const struct plan_request *s, struct model **out)
{
    const struct model_part part = {m->part.first_layer, m->part.layers, 0, mesh_degree(&s->mesh, MESH_TP)};
    *out = NULL;
    return part.slices > m->part.slices ? model_part_create(m->whole, &part, out) : OK;
}

enum status plan_create(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], struct plan **out)
{
    struct model *slice;
    TRY(plan_slice_create(m, s, &slice));
    enum status st = create_plan(slice ? slice : m, s, limit, out);
    if (st == OK)
        (*out)->slice = slice;
    else
        model_destroy(slice);
    return st;
}

void plan_print_passes(const struct plan *p, FILE *f)
{
    for (int i = 0; i < PLAN_PASSES && p->passes[i].name; i++)
        fprintf(f, "%-14s %8.3f s %10lld %s\n", p->passes[i].name, p->passes[i].seconds, (long long)p->passes[i].count,
                p->passes[i].unit);
}
