/* The program set of one placement. */
#include "plan/program_set.h"

#include "base/parallel.h"
#include "base/sys.h"
#include "model/part.h"
#include "plan/lower/fixed.h"
#include "plan/schedule/order.h"
#include "plan/schedule/prefetch.h"
#include "plan/search/shelf.h"
#include "plan/search/tuning.h"
#include "plan/ticks.h"
#include "verify/verify.h"

#include <stdlib.h>
#include <string.h>

#define CAUSAL_SHARE 0.9 /* part of all pairs from which on a mask counts as one without a window */

/* Sets the duties of three programs: of the first piece, further ones, and the last one. */
static void set_three(const struct plan_request *s, int *duties, int common)
{
    const int64_t pieces = plan_pieces_of(s);
    duties[0] = common | DUTY_FIRST | (pieces == 1 ? DUTY_LAST : 0);
    duties[1] = pieces > 2 ? common : 0;
    duties[2] = pieces > 1 ? common | DUTY_LAST : 0;
}

/* Tells whether a run that trains evaluates, too. */
static int evaluates(const struct plan_request *s)
{
    return s->eval_every > 0 || s->eval_before || s->scores;
}

/* Sets the duties of the programs by which stages train. */
static void training_duties(const struct plan_request *s, int duties[PLAN_PROGRAMS])
{
    const int both = DUTY_FORWARD | DUTY_BACKWARD;
    duties[PLAN_FORWARD] = both | DUTY_FIRST | DUTY_HALF_FORWARD;
    set_three(s, &duties[PLAN_HEAD_FIRST], DUTY_HEAD);
    set_three(s, &duties[PLAN_BACKWARD_FIRST], both | DUTY_HALF_BACKWARD);
    if (s->grad_accum > 1 && mesh_degree(&s->mesh, MESH_SLICES) > 1)
        duties[PLAN_BACKWARD_NEXT] = both | DUTY_HALF_BACKWARD | DUTY_NEXT;
    set_three(s, &duties[PLAN_EMBED_GRAD_FIRST], DUTY_EMBED_GRAD);
}

/* Sets the duties of a pipeline's programs. */
static void pipeline_duties(const struct model *m, const struct plan_request *s, int duties[PLAN_PROGRAMS])
{
    memset(duties, 0, sizeof(int) * PLAN_PROGRAMS);
    duties[PLAN_UPDATE_STEP] = plan_first_duties(s);
    duties[PLAN_FLUSH] = DUTY_UPDATE;
    duties[PLAN_EMBED] = DUTY_EMBED;
    duties[PLAN_PASS_FORWARD] = DUTY_PASS_FORWARD;
    duties[PLAN_PASS_BACKWARD] = DUTY_PASS_BACKWARD;
    if (s->evaluation)
        duties[PLAN_FORWARD] = DUTY_FORWARD;
    else
        training_duties(s, duties);
    if (s->evaluation || evaluates(s))
        duties[PLAN_EVAL] = DUTY_HEAD | DUTY_EVALUATE;
    for (int i = PLAN_EMBED; model_first_embeds(m) && i <= PLAN_EMBED_GRAD_LAST; i++) /* only the norm is left of them */
        if ((duties[i] & (DUTY_EMBED | DUTY_EMBED_GRAD)) && !(duties[i] & DUTY_LAST))
            duties[i] = 0;
}

/* Sets the duties of the programs that a run needs; 0: not needed. */
static void program_duties(const struct model *m, const struct plan_request *s, int duties[PLAN_PROGRAMS])
{
    if (mesh_degree(&s->mesh, MESH_PP) > 1) {
        pipeline_duties(m, s, duties);
        return;
    }
    int first = DUTY_FORWARD | DUTY_BACKWARD | DUTY_FIRST | (s->grad_accum == 1 ? DUTY_LAST : 0);
    memset(duties, 0, sizeof(int) * PLAN_PROGRAMS);
    duties[PLAN_FLUSH] = DUTY_UPDATE;
    if (s->evaluation) { /* the evaluation stands for the program by whose time plans are compared */
        duties[PLAN_UPDATE_STEP] = plan_first_duties(s);
        return;
    }
    duties[PLAN_STEP] = first;
    duties[PLAN_UPDATE_STEP] = first | DUTY_UPDATE;
    if (s->grad_accum > 2)
        duties[PLAN_MORE] = DUTY_FORWARD | DUTY_BACKWARD;
    if (s->grad_accum > 1)
        duties[PLAN_LAST] = DUTY_FORWARD | DUTY_BACKWARD | DUTY_LAST;
    if (evaluates(s))
        duties[PLAN_EVAL] = DUTY_FORWARD;
}

void plan_account(struct plan *plan)
{
    for (int k = 0; k < PLAN_PROGRAMS; k++) {
        const struct program *p = plan->programs[k];
        if (!p)
            continue;
        memset(plan->persistent, 0, sizeof plan->persistent);
        for (int b = 0; b < p->n_persistent; b++)
            plan->persistent[p->buffers[b].tier][p->buffers[b].class] += round_up(p->buffers[b].bytes, BUFFER_ALIGN);
        for (int t = 0; t < TIERS; t++) {
            plan->arena[t] = max_i64(plan->arena[t], p->arena[t]);
            for (int c = 0; c < CLASSES; c++)
                plan->peak[t][c] = max_i64(plan->peak[t][c], p->peak[t][c]);
        }
    }
}

enum { TRAINING_PROGRAMS = PLAN_PASS_BACKWARD + 1 };
static const enum plan_program order_of_planning[TRAINING_PROGRAMS] = {PLAN_UPDATE_STEP,
                                                                       PLAN_STEP,
                                                                       PLAN_MORE,
                                                                       PLAN_LAST,
                                                                       PLAN_FLUSH,
                                                                       PLAN_EVAL,
                                                                       PLAN_BACKWARD_FIRST,
                                                                       PLAN_BACKWARD_MORE,
                                                                       PLAN_BACKWARD_LAST,
                                                                       PLAN_BACKWARD_NEXT,
                                                                       PLAN_HEAD_FIRST,
                                                                       PLAN_HEAD_MORE,
                                                                       PLAN_HEAD_LAST,
                                                                       PLAN_EMBED,
                                                                       PLAN_FORWARD,
                                                                       PLAN_EMBED_GRAD_FIRST,
                                                                       PLAN_EMBED_GRAD_MORE,
                                                                       PLAN_EMBED_GRAD_LAST,
                                                                       PLAN_PASS_FORWARD,
                                                                       PLAN_PASS_BACKWARD};

/* One program of the set, to be planned. */
struct program_job {
    const struct plan *plan;
    const struct model *m;
    enum plan_program which;
    int duties, level;
    int nowhere; /* 1: known to exceed its tables */
    double slack;
    struct io_buffers io;
    struct program *program; /* NULL: not planned yet */
};

static enum status plan_one(void *job)
{
    struct program_job *x = job;
    return x->nowhere ? fit_nothing(&x->program)
                      : fit_program(x->m, &x->plan->strategy, &x->plan->cost, x->duties, x->plan->limit, x->slack, FIT_SERIAL,
                                    &x->level, &x->io, &x->program);
}

/* Returns the number of programs to plan at once. If the placement's trial did not fit, the set mostly does not fit either, and
 * the first program alone is enough to show it. */
static int programs_at_once(const struct candidate *c)
{
    return c->tried && c->excess > 1 ? 1 : PROGRAMS_AT_ONCE;
}

/* Returns the seconds of a program's attention without a window, of which later slices of a sequence have more. */
static double causal_seconds(const struct plan *plan, const struct program *p)
{
    const double n = (double)plan->strategy.seq_len, pairs = n * (n + 1) / 2 / strategy_slices(&plan->strategy);
    double seconds = 0;
    for (int i = 0; i < p->n_instrs && strategy_slices(&plan->strategy) > 1; i++) {
        const struct op_call *c = program_call(p, &p->instrs[i]);
        const enum op_kind op = p->instrs[i].op;
        if ((op == OP_ATTN_FWD || op == OP_ATTN_BWD) && c->flops > CAUSAL_SHARE * op_flops(op, &c->attrs, pairs))
            seconds += cost_seconds(&plan->cost, &p->instrs[i], c);
    }
    return seconds;
}

static void take_program(struct plan *plan, const struct plan_request *s, const struct program_job *x)
{
    struct program *p = plan->programs[x->which] = x->program;
    plan->io = x->io;
    if (x->which == PLAN_UPDATE_STEP)
        plan->level = x->level;
    plan->causal_seconds[x->which] = causal_seconds(plan, p);
    for (int t = 0; t < TIERS && x->which == PLAN_UPDATE_STEP; t++)
        plan->strategy.saved[t] = p->copies[COPIES_SAVED].count * p->copies[COPIES_SAVED].bytes[t];
    if (plan->fits)
        plan->fits = fit_within(p->arena, plan->limit, &plan->misfit);
    plan->seconds += x->which == PLAN_UPDATE_STEP || x->which == PLAN_LAST ? p->seconds
                     : x->which == PLAN_MORE                               ? p->seconds * (double)(s->grad_accum - 2)
                                                                           : 0;
}

/* Plans the programs, some at once, until some do not fit. */
static enum status plan_programs(struct plan *plan, const struct model *m, const struct plan_request *s, double slack,
                                 const struct candidate *candidate)
{
    const int stages = strategy_stages(&plan->strategy), at_once = stages > 1 ? 1 : programs_at_once(candidate),
              nowhere = candidate->bytes[TIER_DEVICE] == FIT_NOWHERE;
    int duties[PLAN_PROGRAMS];
    program_duties(m, s, duties);
    plan->fits = 1;
    plan->seconds = 0;
    for (int i = 0; i < TRAINING_PROGRAMS && plan->fits; i += at_once) {
        struct program_job x[PROGRAMS_AT_ONCE];
        int n = 0;
        for (int k = i; k < i + at_once && k < TRAINING_PROGRAMS; k++) {
            enum plan_program which = order_of_planning[k];
            if (duties[which])
                x[n++] = (struct program_job){.plan = plan,
                                              .m = m,
                                              .which = which,
                                              .duties = duties[which],
                                              .nowhere = nowhere,
                                              .level = duties[which] & DUTY_BACKWARD ? plan->level : 0,
                                              .slack = slack};
        }
        enum status st = parallel_run(plan_one, x, sizeof *x, n);
        for (int k = 0; k < n; k++)
            if (x[k].program)
                take_program(plan, s, &x[k]);
        TRY(st);
    }
    if (plan->fits && stages > 1)
        plan->seconds = ticks_seconds(plan);
    if (!plan->fits) /* the set is incomplete */
        plan->seconds = plan->programs[PLAN_UPDATE_STEP]->seconds * (double)s->grad_accum;
    return OK;
}

enum status plan_candidate(const struct problem *p, const struct candidate *c, double slack, double *excess, struct plan **out)
{
    const struct plan_request *s = &p->request;
    struct plan *plan = sys_calloc(1, sizeof *plan);
    shelf_clear();
    if (!plan)
        return status_no_memory("while planning");
    plan->strategy = c->strategy;
    memset(plan->strategy.saved, 0, sizeof plan->strategy.saved);
    plan_keep_as_given(p->model, s, &plan->strategy);
    plan->level = c->level;
    plan->cost = p->cost;
    memcpy(plan->limit, p->limit, sizeof plan->limit);
    plan->sequences = s->batch > 0 ? s->batch : s->grad_accum * s->micro_batch;
    plan->micro_batches = s->grad_accum;
    plan->tokens = s->seq_len * plan->sequences;
    enum status st = plan_programs(plan, p->model, s, slack, c);
    plan_account(plan);
    *excess = budget_excess(plan->arena, p->limit);
    if (st != OK)
        plan_destroy(plan);
    else
        *out = plan;
    return st;
}

enum status plan_as_candidate(const struct plan *plan, struct candidate *out)
{
    struct program *p = plan->programs[PLAN_UPDATE_STEP];
    struct cost_model slow;
    double seconds;
    *out = (struct candidate){.strategy = plan->strategy, .tried = 1, .all_layers = 1, .seconds = plan->seconds};
    cost_with_links(&plan->cost, FIT_SLOW, &slow);
    TRY(schedule_simulate(p, &slow, &out->slow));
    TRY(schedule_simulate(p, &plan->cost, &seconds));
    out->slow += plan->seconds - seconds;
    for (int i = 0; i < p->n_instrs; i++)
        if (p->instrs[i].lane == LANE_WRITE)
            out->written += p->instrs[i].end - p->instrs[i].start;
    return OK;
}

static enum status verify_one(void *job)
{
    const struct program *const *p = job;
    return program_verify(*p);
}

enum status plan_verify(const struct plan *p)
{
    const struct program *x[PLAN_PROGRAMS];
    int n = 0;
    for (int i = 0; i < PLAN_PROGRAMS; i++) {
        enum plan_program which = i < TRAINING_PROGRAMS ? order_of_planning[i] : (enum plan_program)i;
        if (p->programs[which])
            x[n++] = p->programs[which];
    }
    for (int i = 0; i < n; i += PROGRAMS_AT_ONCE)
        TRY(parallel_run(verify_one, &x[i], sizeof *x, n - i < PROGRAMS_AT_ONCE ? n - i : PROGRAMS_AT_ONCE));
    return OK;
}

const struct program *plan_any(const struct plan *p)
{
    int k = 0;
    while (k < PLAN_PROGRAMS - 1 && !p->programs[k])
        k++;
    return p->programs[k];
}

void plan_destroy(struct plan *p)
{
    if (!p)
        return;
    for (int k = 0; k < PLAN_PROGRAMS; k++)
        program_destroy(p->programs[k]);
    for (int i = 0; p->roles && i < p->roles->n_roles; i++) {
        if (p->roles->of[i].plan != p)
            plan_destroy(p->roles->of[i].plan);
        model_destroy(p->roles->of[i].made);
    }
    free(p->roles);
    model_destroy(p->slice);
    free(p);
}
