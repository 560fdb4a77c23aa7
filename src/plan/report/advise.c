/* Changes to the settings that make a plan fit, or faster. */
#include "plan/report/advise.h"

#include "base/hurry.h"
#include "base/units.h"
#include "plan/report/advise_length.h"
#include "plan/report/advise_proposals.h"
#include "plan/report/describe.h"
#include "plan/report/figures.h"
#include "plan/search/memo.h"
#include "plan/search/probe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int cheaper(const struct change *a, const struct change *b)
{
    if (a->shortens != b->shortens)
        return b->shortens;
    if (a->gives_more != b->gives_more)
        return a->gives_more < b->gives_more;
    return a->shortens ? a->per_second > b->per_second : a->seconds < b->seconds;
}

static void keep(struct advice *advice, const struct change *change)
{
    int at = advice->n++;
    for (; at > 0 && cheaper(change, &advice->by_cost[at - 1]); at--)
        advice->by_cost[at] = advice->by_cost[at - 1];
    advice->by_cost[at] = *change;
}

static int helps(const struct advisor *x, int fits, const struct change *c)
{
    return fits && (!x->p->fits || c->per_second > (1 + ADVICE_HELPS) * (double)x->p->tokens / x->p->seconds);
}

static void measure(const struct proposal_setup *t, double seconds, const int64_t bytes[TIERS], const struct strategy *strategy,
                    struct change *c)
{
    int64_t sequences = t->s.batch > 0 ? t->s.batch : t->s.grad_accum * t->s.micro_batch;
    c->seconds = seconds;
    c->per_second = (double)(t->s.seq_len * sequences) / seconds;
    memcpy(c->arena, bytes, sizeof c->arena);
    strategy_describe(strategy, c->strategy, sizeof c->strategy);
}

/* Returns the proposed settings, to be probed on the default grid. Sets the plan's grid in them if that grid was chosen for speed
 * and the proposal changes neither the sequences nor the mesh nor the grid's settings: a tile that divides packed sequences may
 * not divide one. */
static struct plan_request on_chosen_grid(const struct advisor *x, const struct proposal_setup *t)
{
    struct plan_request s = t->s;
    const struct strategy *chosen = &x->p->strategy;
    int same = s.seq_len == x->s->seq_len && s.batch == x->s->batch && s.grad_accum == x->s->grad_accum &&
               s.micro_batch == x->s->micro_batch && mesh_equal(&s.mesh, &x->s->mesh) && s.row_chunk == x->s->row_chunk &&
               s.head_tile == x->s->head_tile && s.loss_tile == x->s->loss_tile;
    if (x->p->default_grid.head_tile == 0 || !same)
        return s;
    s.row_chunk = s.row_chunk > 0 ? s.row_chunk : chosen->key.row_chunk;
    s.head_tile = s.head_tile > 0 ? s.head_tile : chosen->key.head_tile;
    s.loss_tile = s.loss_tile > 0 ? s.loss_tile : chosen->key.loss_tile;
    return s;
}

/* Returns the placement that fits beside more resources if nothing better does: the plan's; NULL: there is none. */
static const struct strategy *placed_now(const struct advisor *x, const struct proposal_setup *t)
{
    return x->p->fits && proposals[t->change.proposal].stage == PROPOSAL_MORE ? &x->p->strategy : NULL;
}

/* Probes a proposal and keeps it if it helps. *helped: 1 if it does; may be NULL. */
static enum status try(struct advisor *x, struct proposal_setup *t, int *helped)
{
    struct candidate c;
    struct plan_request s = on_chosen_grid(x, t);
    TRY(probe_seconds(x->m, &s, t->limit, x->stalls, placed_now(x, t), &c));
    x->out->tried++;
    measure(t, c.seconds, c.bytes, &c.strategy, &t->change);
    int good = helps(x, c.excess <= 1, &t->change);
    if (good)
        keep(x->out, &t->change);
    if (helped)
        *helped = good;
    return OK;
}

/* Drops the proposal that leaves all settings to the planner if a proposal that leaves one of them is as good, since that one
 * takes fewer flags. */
static void drop_wordy(struct advice *advice)
{
    int all = -1, n = 0;
    double best = INFINITY;
    for (int i = 0; i < advice->n; i++) {
        const struct proposal *p = &proposals[advice->by_cost[i].proposal];
        if (p->kind == PROPOSAL_FREES_ALL)
            all = i;
        else if (p->kind == PROPOSAL_FREES)
            best = fmin(best, advice->by_cost[i].seconds);
    }
    if (all < 0 || best > 1.01 * advice->by_cost[all].seconds)
        return;
    for (int i = 0; i < advice->n; i++)
        if (i != all)
            advice->by_cost[n++] = advice->by_cost[i];
    advice->n = n;
}

/* Most instructions of the first program with which the cheapest change is planned whole, so that its figures are exact. */
#define EXACT_INSTRS 100e3

static int is_small(const struct advisor *x)
{
    return x->p->programs[PLAN_UPDATE_STEP]->n_instrs <= EXACT_INSTRS;
}

static enum status try_all(struct advisor *x)
{
    struct proposal_setup t;
    int free_ones = 0; /* number of proposals without further resources that help */
    for (int i = 0, helped = 0; i < proposals_n - 1 && !hurry_asked(); i++) {
        const struct proposal *p = &proposals[i];
        if (p->kind == PROPOSAL_TIMES &&
            (helped || x->p->fits)) /* four times a resource is proposed only if twice does not fit */
            continue;
        if (p->kind == PROPOSAL_FREES && !is_small(x)) /* for large models only the proposal that frees all settings at once */
            continue;
        helped = 0;
        if ((p->stage == PROPOSAL_NUMERICS && !x->p->fits && free_ones > 0) || !proposal_start(x, i, x->s->seq_len, &t))
            continue;
        TRY(try(x, &t, &helped));
        free_ones += p->stage < PROPOSAL_MORE && helped;
    }
    drop_wordy(x->out);
    return OK;
}

#define JUST_TOO_MUCH 1.05 /* least excess assumed of a length that does not fit */

static enum status try_shorter(struct advisor *x)
{
    struct proposal_setup t;
    struct candidate c, priced;
    const struct model *m;
    int64_t tokens;
    proposal_shorten(x, x->s->seq_len, &t);
    TRY(advise_estimate(x->m, &t.s, t.limit, &c));
    TRY(advise_shorter(x, fmax(c.excess, JUST_TOO_MUCH), &t, &c, &tokens));
    if (tokens == 0)
        return OK;
    TRY(advisor_model(x, &t, &m));
    TRY(probe_seconds_of(m, &t.s, t.limit, x->stalls, &c, &priced));
    x->out->tried++;
    measure(&t, priced.seconds, priced.bytes, &priced.strategy, &t.change);
    keep(x->out, &t.change);
    return OK;
}

/* Plans the cheapest change whole. A change that then does not help is dropped, and the next one is planned. */
static enum status make_exact(struct advisor *x)
{
    struct advice *advice = x->out;
    while (advice->n > 0) {
        struct proposal_setup t;
        struct plan *p;
        const struct model *m;
        struct change *k = &advice->by_cost[0];
        proposal_start(x, k->proposal, k->tokens, &t);
        TRY(advisor_model(x, &t, &m));
        enum status st = plan_create(m, &t.s, t.limit, &p);
        if (st != OK && st != ERR_NOFIT)
            return st;
        int good = 0;
        if (st == OK) {
            k->exact = 1;
            measure(&t, p->seconds, p->arena, &p->strategy, k);
            good = helps(x, p->fits, k);
            plan_destroy(p);
        }
        if (good)
            return OK;
        memmove(k, k + 1, (size_t)--advice->n * sizeof *k);
    }
    return OK;
}

/* Least ratio of compute's waiting seconds to seconds of traffic, which the search assumes before any trial. */
#define FEWEST_STALLS 0.1

static double stalls_per_traffic(const struct advisor *x)
{
    double traffic = 0;
    for (int l = LANE_COMPUTE + 1; l < LANES; l++)
        traffic += x->report.lane[l].busy;
    return fmax(FEWEST_STALLS, (x->p->seconds - x->report.lane[LANE_COMPUTE].busy) / fmax(traffic, 1e-9));
}

static enum status seek(struct advisor *x)
{
    if (hurry_asked())
        return OK;
    TRY(report_make(x->p, x->m, &x->report));
    x->stalls = stalls_per_traffic(x);
    if (x->p->fits && x->s->effort == EFFORT_QUICK)
        return OK;
    if (x->p->fits && !advisor_waits(x) && !advisor_computes_twice(x) && !advisor_gains_in_bf16(x))
        return OK;
    TRY(try_all(x));
    if (!x->p->fits && (x->out->n == 0 || x->out->by_cost[0].gives_more))
        TRY(try_shorter(x));
    return is_small(x) && (!x->p->fits || x->s->effort == EFFORT_BEST) ? make_exact(x) : OK;
}

enum status advise_find(const struct plan *p, const struct model *m, const struct plan_request *s, struct advice *out)
{
    struct advisor x = {.p = p, .m = m, .s = s, .out = out};
    memset(out, 0, sizeof *out);
    memo_hold();
    enum status st = seek(&x);
    memo_release();
    model_destroy(x.sized);
    return st;
}

/* Ratio of a need to the available memory above which nothing is planned. The largest proposal, four times the devices with the
 * inputs of one layer in eight, holds eight times as much. */
#define BEYOND 8.0

/* Tells whether no placement can help, since the device or all tiers together would need too much. */
static int is_beyond(const struct candidate *c, const int64_t limit[TIERS])
{
    double need = 0, there = 0;
    for (int t = 0; t < TIERS; t++) {
        need += (double)c->bytes[t];
        there += (double)limit[t];
    }
    return need > BEYOND * there || (double)c->bytes[TIER_DEVICE] > BEYOND * (double)limit[TIER_DEVICE];
}

enum status advise_early(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], struct plan *estimated,
                         struct advice *out, int *beyond)
{
    struct advisor x = {.p = estimated, .m = m, .s = s, .out = out};
    struct proposal_setup t;
    struct candidate c;
    int64_t tokens;
    memset(estimated, 0, sizeof *estimated);
    memset(out, 0, sizeof *out);
    memcpy(estimated->limit, limit, sizeof estimated->limit);
    proposal_shorten(&x, s->seq_len, &t);
    TRY(advise_estimate(m, &t.s, limit, &c));
    *beyond = !isinf(c.excess) &&
              is_beyond(&c, limit); /* infinite excess: a program exceeds its tables, which with other tiles it may not */
    if (!*beyond)
        return OK;
    memcpy(estimated->arena, c.bytes, sizeof estimated->arena);
    estimated->misfit = budget_scarce_tier(c.bytes, limit);
    enum status st = advise_shorter(&x, c.excess, &t, &c, &tokens);
    model_destroy(x.sized);
    TRY(st);
    if (tokens > 0) {
        measure(&t, c.seconds, c.bytes, &c.strategy, &t.change);
        keep(out, &t.change);
    }
    return OK;
}

#define AS_FAST 0.005 /* share by which steps may differ and still count as equally fast */

void advise_print(const struct plan *p, const struct advice *advice, FILE *f)
{
    double now = (double)p->tokens / p->seconds;
    if (advice->n > 0)
        fprintf(f, "\nWhat would %s:\n", p->fits ? "be faster" : "fit");
    for (int i = 0; i < advice->n && i < ADVICE_PRINTED; i++) {
        const struct change *x = &advice->by_cost[i];
        char a[32], b[32], d[32], e[32], g[32], beside[64] = "";
        if (p->fits && x->shortens)
            snprintf(beside, sizeof beside, ", %.2g times the tokens/s", x->per_second / now);
        else if (p->fits) /* only fitting plans have a time to compare with */
            snprintf(beside, sizeof beside, ", %s", report_compared(x->per_second / now, AS_FAST, g));
        fprintf(f, "  %s\n", x->say);
        fprintf(f, "    %s%s a step%s; device %s, host %s, nvme %s\n", x->exact ? "" : "about ", report_duration(x->seconds, e),
                beside, units_format_bytes(x->arena[TIER_DEVICE], a), units_format_bytes(x->arena[TIER_HOST], b),
                units_format_bytes(x->arena[TIER_NVME], d));
    }
    if (advice->n > 0 || !p->fits || advice->tried == 0)
        return;
    if (advice->tried == 1)
        fprintf(f, "\nThe one change tried does not help.\n");
    else
        fprintf(f, "\nNone of the %d changes tried is %.0f%% faster.\n", advice->tried, 100 * ADVICE_HELPS);
}
