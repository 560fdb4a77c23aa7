/* Changes to the settings that make a plan fit, or faster. */
#include "plan/report/advise.h"

#include "plan/report/advise_text.h"
#include "plan/report/figures.h"
#include "plan/report/proposals.h"
#include "plan/report/text.h"
#include "plan/search/probe.h"

#include <math.h>
#include <string.h>

static int cheaper(const struct change *a, const struct change *b)
{
    if (a->shortens != b->shortens)
        return b->shortens;
    if (a->gives_more != b->gives_more)
        return a->gives_more < b->gives_more;
    return a->shortens ? a->per_second > b->per_second : a->seconds < b->seconds;
}

static void keep(struct changes *c, const struct change *change)
{
    int at = c->n++;
    for (; at > 0 && cheaper(change, &c->by_cost[at - 1]); at--)
        c->by_cost[at] = c->by_cost[at - 1];
    c->by_cost[at] = *change;
}

static int helps(const struct seeker *x, int fits, const struct change *c)
{
    return fits && (!x->p->fits || c->per_second > (1 + CHANGES_HELP) * (double)x->p->tokens / x->p->seconds);
}

static void measure(const struct trial *t, double seconds, const int64_t bytes[TIERS], const struct strategy *strategy,
                    struct change *c)
{
    int64_t sequences = t->s.batch > 0 ? t->s.batch : t->s.grad_accum;
    c->seconds = seconds;
    c->per_second = (double)(t->s.seq_len * sequences) / seconds;
    memcpy(c->arena, bytes, sizeof c->arena);
    strategy_describe(strategy, c->strategy, sizeof c->strategy);
}

/* The trial's settings, on the grid that the plan was found to be faster on if it is open still, and length and mesh are the
 * same: a look takes the usual one. */
static struct plan_request on_chosen_grid(const struct seeker *x, const struct trial *t)
{
    struct plan_request s = t->s;
    const struct strategy *chosen = &x->p->strategy;
    int same = s.seq_len == x->s->seq_len && s.dp == x->s->dp && s.ulysses == x->s->ulysses && s.ring == x->s->ring &&
               s.row_chunk == x->s->row_chunk && s.head_tile == x->s->head_tile && s.loss_tile == x->s->loss_tile;
    if (x->p->usual.head_tile == 0 || !same)
        return s;
    s.row_chunk = s.row_chunk > 0 ? s.row_chunk : chosen->row_chunk;
    s.head_tile = s.head_tile > 0 ? s.head_tile : chosen->head_tile;
    s.loss_tile = s.loss_tile > 0 ? s.loss_tile : chosen->loss_tile;
    return s;
}

/* A look at the trial; keeps it if it helps. *helped: NULL, or whether it does. */
static enum status try(struct seeker *x, struct trial *t, int *helped)
{
    struct candidate c;
    struct plan_request s = on_chosen_grid(x, t);
    TRY(glance_seconds(x->m, &s, t->limit, x->stalls, &c));
    x->out->tried++;
    measure(t, c.seconds, c.bytes, &c.strategy, &t->change);
    int good = helps(x, c.excess <= 1, &t->change);
    if (good)
        keep(x->out, &t->change);
    if (helped)
        *helped = good;
    return OK;
}

/* One of what leaves more to the planner that is as good as all of it, is said with fewer words. */
static void drop_wordy(struct changes *c)
{
    int all = -1, n = 0;
    double best = INFINITY;
    for (int i = 0; i < c->n; i++) {
        const struct proposal *p = &proposals[c->by_cost[i].proposal];
        if (p->kind == PROPOSAL_FREES_ALL)
            all = i;
        else if (p->kind == PROPOSAL_FREES)
            best = fmin(best, c->by_cost[i].seconds);
    }
    if (all < 0 || best > 1.01 * c->by_cost[all].seconds)
        return;
    for (int i = 0; i < c->n; i++)
        if (i != all)
            c->by_cost[n++] = c->by_cost[i];
    c->n = n;
}

/* Of programs of up to so many instructions the cheapest change is planned whole, to say exactly what it takes. */
#define SMALL 100e3

static int is_small(const struct seeker *x)
{
    return x->p->programs[PLAN_UPDATE_STEP]->n_instrs <= SMALL;
}

static enum status try_all(struct seeker *x)
{
    struct trial t;
    int free_ones = 0; /* that helped */
    for (int i = 0, helped = 0; i < proposals_n - 1; i++) {
        const struct proposal *p = &proposals[i];
        if (p->kind == PROPOSAL_TIMES && (helped || x->p->fits)) /* four times is looked at where twice is not enough to fit */
            continue;
        if (p->kind == PROPOSAL_FREES && !is_small(x)) /* all at once is enough */
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

/* Whole multiples of 1024 tokens, or of 64 for short ones. */
static int64_t round_length(double tokens)
{
    int64_t unit = tokens >= 16384 ? 1024 : 64;
    return (int64_t)(tokens / (double)unit) * unit;
}

enum { LENGTHS = 12, SHORTEST = 64, BEYOND_FITS = 2 };
#define CLOSE 24           /* the length that fits and the one that does not differ by such a part of it */
#define JUST_TOO_MUCH 1.05 /* at least, of a length that does not fit */
#define SURELY_FITS 0.99   /* of the budgets, for trials: a whole plan may need a percent more */

/* A way to find out what settings need. */
typedef enum status look_at(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                            struct candidate *out);

/* Of the budgets what trials may need. */
static void limits_of_trials(const int64_t limit[TIERS], int64_t out[TIERS])
{
    for (int t = 0; t < TIERS; t++)
        out[t] = (int64_t)(SURELY_FITS * (double)limit[t]);
}

static enum status look_by_trial(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                                 struct candidate *out)
{
    int64_t less[TIERS];
    limits_of_trials(limit, less);
    return glance_fits_long(m, s, less, out);
}

#define ESTIMATED_HIGH (4.0 / 3) /* times the emptiest device's length: a fuller one leaves room for more */
#define MOST_PARTS 1024          /* of a length: a billion tokens in parts of a million */

/* By estimate: of a length whose programs have no room for the bytes as many times as much as of a part of it that they have room
 * for. */
static enum status look_by_estimate(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                                    struct candidate *out)
{
    struct plan_request part = *s;
    int64_t times = 1;
    enum status st = glance_reckon(m, s, limit, out);
    while (st == ERR_INVALID && times < MOST_PARTS) {
        times *= 2;
        part.seq_len = s->seq_len / times;
        st = glance_reckon(m, &part, limit, out);
    }
    for (int t = 0; t < TIERS; t++)
        out->bytes[t] = st == OK ? times * out->bytes[t] : 0;
    out->excess = search_excess(out->bytes, limit);
    return st;
}

/* A length that fits (0: none is known) and one that does not, with what they need of what there is; before it, another one that
 * does not (0: none). */
struct lengths {
    int64_t low, high, before;
    double low_excess, high_excess, before_excess;
    struct candidate fits;
};

/* On the line through what two lengths need, but well between those known. */
static int64_t next_length(const struct lengths *l)
{
    double low = (double)l->low, high = (double)l->high, margin = (high - low) / (l->low > 0 ? 8 : 16), next;
    if (l->low == SHORTEST) /* says that the model's state fits, not what tokens need */
        return round_length(fmin(0.99 * high / l->high_excess, high / 2));
    if (l->low > 0 && high > 1.5 * low)
        return round_length(fmin(low * fmax(l->fits.whole ? 1.125 : 1.25, 0.98 / l->low_excess), high - margin));
    if (l->low > 0)
        next = low + (1 - l->low_excess) / (l->high_excess - l->low_excess) * (high - low);
    else if (l->before > 0)
        next = 0.99 * (high + (1 - l->high_excess) * (high - (double)l->before) / (l->high_excess - l->before_excess));
    else
        next = 0.99 * high / l->high_excess;
    return max_i64(SHORTEST, round_length(fmin(fmax(next, low + margin), high - margin)));
}

static void take(struct lengths *l, int64_t at, const struct candidate *c)
{
    if (c->excess <= 1) {
        l->low = at;
        l->low_excess = c->excess;
        l->fits = *c;
        return;
    }
    l->before = l->high;
    l->before_excess = l->high_excess;
    l->high = at;
    l->high_excess = c->excess;
}

static int is_close(const struct lengths *l)
{
    return l->low > 0 && l->high - l->low <= l->low / CLOSE;
}

static int is_between(int64_t at, const struct lengths *l)
{
    return at > l->low && at < l->high;
}

/* The model for a trial's length: learned positions are sized by it. Valid until the next one of another length. */
static enum status model_of(struct seeker *x, const struct trial *t, const struct model **out)
{
    *out = x->m;
    if (x->m->pos_embed < 0 || t->s.seq_len == x->s->seq_len)
        return OK;
    model_destroy(x->sized);
    x->sized = NULL;
    TRY(model_create_for(x->m, t->s.seq_len, (const char *const *)t->s.freeze.item, t->s.freeze.n, &x->sized));
    *out = x->sized;
    return OK;
}

/* Looks at lengths from `at` on, until two are close or, of models that are not small, looks beyond what fits have been as many
 * as `beyond`: they take some seconds. */
static enum status narrow(struct seeker *x, look_at *look, int64_t at, int beyond, struct lengths *l)
{
    struct trial t;
    struct candidate c;
    const struct model *m;
    for (int i = 0; i < LENGTHS && is_between(at, l) && !is_close(l); i++) {
        if (look == look_by_trial && l->low > 0 && !glance_is_small(&l->fits, x->m) && beyond-- == 0)
            return OK;
        proposal_start(x, proposals_n - 1, at, &t);
        TRY(model_of(x, &t, &m));
        TRY(look(m, &t.s, t.limit, &c));
        x->out->tried++;
        x->out->shortest = at;
        memcpy(x->out->least, c.bytes, sizeof c.bytes);
        take(l, at, &c);
        at = next_length(l);
    }
    return OK;
}

/* Where one placement fits up to, as far as is known: on the line through two lengths, before it does not fit in proportion. */
static int64_t next_alike(const struct lengths *l, int known)
{
    double low = (double)l->low, high = (double)l->high, margin = (high - low) / 8,
           next = known ? low + (1 - l->low_excess) / (l->high_excess - l->low_excess) * (high - low) : low / l->low_excess;
    return round_length(fmin(fmax(next, low + margin), high - margin));
}

/* The longest that the placement of l->fits fits, between those of l, if a whole program of its length does, with what planning
 * takes for the leanest placement. */
static enum status lengthen(struct seeker *x, struct lengths *l)
{
    struct trial t;
    struct candidate c;
    const struct model *m;
    struct lengths like = *l;
    int64_t less[TIERS], at = next_alike(&like, 0);
    int known = 0;
    for (int i = 0; i < LENGTHS && is_between(at, &like) && !is_close(&like); i++) {
        proposal_start(x, proposals_n - 1, at, &t);
        limits_of_trials(t.limit, less);
        TRY(model_of(x, &t, &m));
        TRY(glance_like(m, &t.s, less, &like.fits.strategy, &c));
        x->out->tried++;
        take(&like, at, &c);
        known |= c.excess > 1;
        at = next_alike(&like, known);
    }
    if (like.low == l->low)
        return OK;
    proposal_start(x, proposals_n - 1, like.low, &t);
    TRY(model_of(x, &t, &m));
    TRY(look_by_trial(m, &t.s, t.limit, &c));
    if (c.excess <= 1)
        TRY(glance_whole(m, &t.s, t.limit, &c));
    take(l, like.low, &c);
    return OK;
}

/* About the longest sequence that fits: found by estimate, from where on it is looked for by trials. excess: what the length of
 * the settings needs. *t: its trial, *fits: its leanest placement; *tokens: 0: there is none. */
static enum status find_shorter(struct seeker *x, double excess, struct trial *t, struct candidate *fits, int64_t *tokens)
{
    struct lengths reckoned = {.high = x->s->seq_len, .high_excess = excess}, tried = reckoned;
    TRY(narrow(x, look_by_estimate, next_length(&reckoned), 0, &reckoned));
    double at = reckoned.low > 0 ? ESTIMATED_HIGH * (double)reckoned.low : (double)reckoned.high;
    TRY(narrow(x, look_by_trial, round_length(fmin(at, 0.99 * (double)x->s->seq_len)), BEYOND_FITS, &tried));
    if (tried.low > 0 && !glance_is_small(&tried.fits, x->m))
        TRY(lengthen(x, &tried));
    *tokens = tried.low;
    *fits = tried.fits;
    if (tried.low > 0)
        proposal_start(x, proposals_n - 1, tried.low, t);
    return OK;
}

static enum status try_shorter(struct seeker *x)
{
    struct trial t;
    struct candidate c, priced;
    const struct model *m;
    int64_t tokens;
    proposal_start(x, proposals_n - 1, x->s->seq_len, &t);
    TRY(look_by_estimate(x->m, &t.s, t.limit, &c));
    TRY(find_shorter(x, fmax(c.excess, JUST_TOO_MUCH), &t, &c, &tokens));
    if (tokens == 0)
        return OK;
    TRY(model_of(x, &t, &m));
    TRY(glance_seconds_of(m, &t.s, t.limit, x->stalls, &c, &priced));
    x->out->tried++;
    measure(&t, priced.seconds, priced.bytes, &priced.strategy, &t.change);
    keep(x->out, &t.change);
    return OK;
}

/* Plans the cheapest whole, and drops those that look as if they helped and do not. */
static enum status make_exact(struct seeker *x)
{
    struct changes *c = x->out;
    while (c->n > 0) {
        struct trial t;
        struct plan *p;
        const struct model *m;
        struct change *k = &c->by_cost[0];
        proposal_start(x, k->proposal, k->tokens, &t);
        TRY(model_of(x, &t, &m));
        TRY(plan_create(m, &t.s, t.limit, &p));
        k->exact = 1;
        measure(&t, p->seconds, p->arena, &p->strategy, k);
        int good = helps(x, p->fits, k);
        plan_destroy(p);
        if (good)
            return OK;
        memmove(k, k + 1, (size_t)--c->n * sizeof *k);
    }
    return OK;
}

/* What others may do better is not known: at least what the search takes a second of traffic to be worth. */
#define FEWEST_STALLS 0.1

static double stalls_per_traffic(const struct seeker *x)
{
    double traffic = 0;
    for (int l = LANE_COMPUTE + 1; l < LANES; l++)
        traffic += x->report.lane[l].busy;
    return fmax(FEWEST_STALLS, (x->p->seconds - x->report.lane[LANE_COMPUTE].busy) / fmax(traffic, 1e-9));
}

static enum status seek(struct seeker *x)
{
    TRY(report_make(x->p, x->m, &x->report));
    x->stalls = stalls_per_traffic(x);
    if (x->p->fits && !proposals_waits(x) && !proposals_computes_twice(x) && !proposals_computes_faster_in_bf16(x))
        return OK;
    TRY(try_all(x));
    if (!x->p->fits && (x->out->n == 0 || x->out->by_cost[0].gives_more))
        TRY(try_shorter(x));
    return is_small(x) ? make_exact(x) : OK;
}

enum status changes_find(const struct plan *p, const struct model *m, const struct plan_request *s, struct changes *out)
{
    struct seeker x = {.p = p, .m = m, .s = s, .out = out};
    memset(out, 0, sizeof *out);
    enum status st = seek(&x);
    model_destroy(x.sized);
    return st;
}

/* Times what there is, beyond which nothing is planned: four times the devices, of whose layers every eighth one keeps its input,
 * hold eight times as much. */
#define BEYOND 8.0

/* Whatever goes where: on the device itself, or altogether. */
static int is_beyond(const struct candidate *c, const int64_t limit[TIERS])
{
    double need = 0, there = 0;
    for (int t = 0; t < TIERS; t++) {
        need += (double)c->bytes[t];
        there += (double)limit[t];
    }
    return need > BEYOND * there || (double)c->bytes[TIER_DEVICE] > BEYOND * (double)limit[TIER_DEVICE];
}

enum status changes_refuse_early(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS])
{
    struct changes found = {0};
    struct plan p = {.fits = 0};
    struct seeker x = {.p = &p, .m = m, .s = s, .out = &found};
    struct trial t;
    struct candidate c;
    int64_t tokens;
    memcpy(p.limit, limit, sizeof p.limit);
    proposal_start(&x, proposals_n - 1, s->seq_len, &t);
    TRY(look_by_estimate(m, &t.s, limit, &c));
    if (!is_beyond(&c, limit))
        return OK;
    memcpy(p.arena, c.bytes, sizeof p.arena);
    p.misfit = search_scarce(c.bytes, limit);
    enum status st = find_shorter(&x, c.excess, &t, &c, &tokens);
    model_destroy(x.sized);
    TRY(st);
    if (tokens > 0) {
        measure(&t, c.seconds, c.bytes, &c.strategy, &t.change);
        keep(&found, &t.change);
    }
    return changes_refuse(&p, s, &found);
}
