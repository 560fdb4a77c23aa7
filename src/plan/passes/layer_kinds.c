/* Number of row chunks that layers of each kind save: a climb from the plan's own number. */
#include "plan/passes/passes.h"

#include "plan/lower/fixed.h"
#include "plan/program_set.h"
#include "plan/schedule/prefetch.h"
#include "plan/search/tuning.h"

#include <math.h>

/* Numbers of kept chunks: of layers that are not light, and of light ones (little compute, for example under a window). */
struct kept {
    int full, window;
};

struct climb {
    const struct problem *p;
    int chunks, first_level, last_level;
    struct kept at, tried[KINDS_TRIES];
    int n;
    double spent;          /* instructions scheduled so far */
    struct candidate best; /* costs of the first program with the chunks of `at` */
};

static int was_tried(const struct climb *c, struct kept s)
{
    for (int i = 0; i < c->n; i++)
        if (c->tried[i].full == s.full && c->tried[i].window == s.window)
            return 1;
    return 0;
}

/* Schedules the first program of the set and returns it as a candidate; its seconds are INFINITY if it does not fit. */
static enum status schedule_first(struct climb *c, const struct strategy *s, struct candidate *out)
{
    const struct problem *p = c->p;
    struct plan step = {.strategy = *s, .cost = p->cost};
    struct program *program;
    enum tier which;
    int level = c->first_level;
    TRY(fit_program(p->model, s, &p->cost, plan_first_duties(&p->request), p->limit, 0, c->last_level, &level, &step.io,
                    &program));
    step.programs[PLAN_UPDATE_STEP] = program;
    step.seconds = program->seconds;
    c->spent += program->n_instrs;
    const int fits = isfinite(program->seconds) && fit_within(program->arena, p->limit, &which);
    enum status st = fits ? plan_as_candidate(&step, out) : OK;
    if (!fits)
        *out = (struct candidate){.seconds = INFINITY};
    out->strategy = *s;
    out->level = level;
    program_destroy(program);
    return st;
}

static int is_better(const struct candidate *c, const struct candidate *best)
{
    return c->seconds < best->seconds && candidate_cost(c) < KINDS_BELOW * candidate_cost(best);
}

/* Tries the best numbers plus `steps` times `way`. *better: 1 if these numbers became the best. */
static enum status try_step(struct climb *c, struct kept way, int steps, int *better)
{
    struct kept s = {c->at.full + steps * way.full, c->at.window + steps * way.window};
    struct candidate next;
    struct strategy strategy = c->best.strategy;
    s.full = (int)max_i64(0, min_i64(s.full, c->chunks));
    s.window = (int)max_i64(0, min_i64(s.window, c->chunks));
    *better = 0;
    if (was_tried(c, s) || c->n == KINDS_TRIES || c->spent >= KINDS_INSTRS)
        return OK;
    c->tried[c->n++] = s;
    strategy_keep_by_kind(&strategy, c->p->model, s.full, s.window);
    TRY(schedule_first(c, &strategy, &next));
    *better = is_better(&next, &c->best);
    if (*better) {
        c->best = next;
        c->at = s;
    }
    return OK;
}

/* Climbs in one direction: steps double as long as they gain, then halve. */
static enum status go(struct climb *c, struct kept way)
{
    int better = 1, steps = 1;
    for (; better; steps *= 2)
        TRY(try_step(c, way, steps, &better));
    for (steps /= 4; steps > 0; steps /= 2)
        TRY(try_step(c, way, steps, &better));
    return OK;
}

/* Climbs in all directions: more chunks for one kind of layer, more for the other, and more for either at the other's expense. */
static enum status go_all_ways(struct climb *c)
{
    const struct model *m = c->p->model;
    const int with_window = model_light_layers(m), full = (int)m->config.layers - with_window;
    /* chunks more in each full layer, paid for by one fewer in each windowed layer */
    const int for_one = (int)max_i64(1, (with_window + full / 2) / full);
    const struct kept ways[] = {{1, 0}, {0, 1}, {for_one, -1}, {-for_one, 1}, {-1, 0}, {0, -1}};
    for (int i = 0; i < (int)(sizeof ways / sizeof *ways); i++)
        TRY(go(c, ways[i]));
    return OK;
}

/* Tells whether nothing is computed again and compute hardly waits: then no other numbers gain anything. */
static int has_all(const struct plan *plan, int chunks)
{
    const struct program *p = plan->programs[PLAN_UPDATE_STEP];
    double compute = 0;
    for (int i = 0; i < p->n_instrs; i++)
        compute += p->instrs[i].lane == LANE_COMPUTE ? p->instrs[i].end - p->instrs[i].start : 0;
    return plan->strategy.placement.kept_chunks >= chunks && p->seconds < KINDS_WAITS * compute;
}

enum status plan_for_layer_kinds(const struct problem *p, struct plan **out)
{
    struct plan *now = *out, *next;
    const struct strategy *s = &now->strategy;
    struct climb c = {.p = p,
                      .chunks = (int)ceil_div(s->rows, s->key.row_chunk),
                      .first_level = now->level > 1 ? now->level - 1 : 0,
                      .last_level = now->level + KINDS_LATER,
                      .at = {s->placement.kept_chunks, s->placement.kept_chunks},
                      .tried = {{s->placement.kept_chunks, s->placement.kept_chunks}},
                      .n = 1};
    double excess;
    if (!model_has_light(p->model) || p->request.alpha >= 0 || p->request.evaluation || now->level > FIT_NOT_AHEAD ||
        has_all(now, c.chunks))
        return OK;
    TRY(plan_as_candidate(now, &c.best));
    /* `seconds` below is the first program's: turns `slow` from the plan's into the first program's, too */
    c.best.slow += now->programs[PLAN_UPDATE_STEP]->seconds - now->seconds;
    c.best.seconds = now->programs[PLAN_UPDATE_STEP]->seconds;
    TRY(go_all_ways(&c));
    if (c.best.strategy.placement.full_more == 0 && c.best.strategy.placement.light_fewer == 0 &&
        c.best.strategy.placement.kept_chunks == s->placement.kept_chunks)
        return OK;
    TRY(plan_candidate(p, &c.best, 0, &excess, &next));
    next->default_grid = now->default_grid;
    next->finer = now->finer;
    const int better = next->fits && next->seconds < now->seconds;
    *out = better ? next : now;
    plan_destroy(better ? now : next);
    return OK;
}
