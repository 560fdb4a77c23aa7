/* Interpolation between lengths: whether anything fits is asked of the leanest placements only, on the usual mesh and grid or,
 * where the device is too small for those, on what is reckoned to need the least of it. */
#include "plan/max_seq.h"

#include "plan/lower/fixed.h"
#include "plan/lower/grid.h"
#include "plan/lower/mesh.h"
#include "plan/search/probe.h"

#include <math.h>
#include <string.h>

enum { SHORTEST = 1024, STEPS = 64, FIRST = 131072 };
#define MOST_TOKENS ((int64_t)1 << 30) /* token numbers are 32 bits */

/* A mesh (0: the rule's, i: the i-th other one) and a grid so many times finer than the usual one. */
struct way {
    int degrees, finer;
};

struct range {
    const struct model *any_length;
    struct model *m; /* of the length that was asked about last (settings_at) */
    const struct plan_request *s;
    int ranks, per_host;
    int64_t limit[TIERS];  /* for trials */
    struct longest *found; /* of the last length that did not fit */
    struct candidate fits; /* of the last one that did, if any */
    int any;
    struct way way;         /* in which it did */
    struct candidate fails; /* the leanest of the last one that did not, unless in another way */
    int alike;              /* no other placement than that which fitted last is looked at */
};

static int64_t step_at(int64_t tokens)
{
    int64_t power = SHORTEST;
    while (2 * power <= tokens)
        power *= 2;
    return max_i64(SHORTEST, power / STEPS);
}

static int64_t most_tokens(const struct model *m)
{
    int64_t most = m->config.family == FAMILY_GPT2 ? m->config.max_positions : MOST_TOKENS;
    return most / SHORTEST * SHORTEST;
}

/* x->m for a length: learned positions are sized by it. */
static enum status model_at(struct range *x, int64_t tokens)
{
    model_destroy(x->m);
    x->m = NULL;
    return model_create_for(x->any_length, tokens, (const char *const *)x->s->freeze.item, x->s->freeze.n, &x->m);
}

/* The model and the settings for a length, their mesh included. *there: whether there is such a way. */
static enum status settings_at(struct range *x, int64_t tokens, const struct way *w, struct plan_request *out, int *there)
{
    struct strategy grid;
    *out = *x->s;
    out->seq_len = tokens;
    TRY(model_at(x, tokens));
    TRY(plan_mesh(x->m, out, x->ranks, x->per_host));
    *there = w->degrees == 0 || plan_other_degrees(x->m, out, w->degrees - 1, &out->ulysses, &out->ring);
    if (w->degrees > 0 || w->finer > 0)
        out->together = 0; /* they are decided */
    if (!*there || w->finer == 0)
        return OK;
    TRY(plan_fixed(x->m, out, &grid));
    for (int i = 0; i < w->finer && *there; i++)
        *there = plan_finer_tiles(x->m, out, &grid);
    out->row_chunk = grid.row_chunk;
    out->head_tile = grid.head_tile;
    out->loss_tile = grid.loss_tile;
    return OK;
}

/* What a way is reckoned to need of the device, and by how much that may be wrong. */
#define UNCERTAIN 0.1

/* Bytes that `lean` needs too much: of the device, and of all else, which the device may hold. */
static double missing(const struct range *x, const struct candidate *lean)
{
    double elsewhere = 0;
    for (int t = TIER_HOST; t < TIERS; t++)
        elsewhere += (double)(lean->bytes[t] - x->limit[t]);
    return (double)(lean->bytes[TIER_DEVICE] - x->limit[TIER_DEVICE]) + fmax(0, elsewhere);
}

/* Of the ways other than `from` the one that ought to need the least of the device. *helps: whether that saves as much as what
 * `lean` needs too much. */
static enum status find_way(struct range *x, int64_t tokens, const struct way *from, const struct candidate *lean,
                            struct way *out, int *helps)
{
    struct plan_request s;
    struct candidate c;
    double least = INFINITY, here;
    TRY(settings_at(x, tokens, from, &s, helps));
    TRY(glance_reckon(x->m, &s, x->limit, &c));
    here = (double)c.bytes[TIER_DEVICE];
    for (struct way w = {0, 0};; w.degrees++) {
        int there = 1;
        for (w.finer = 0; w.finer <= PLAN_FINER && there; w.finer++) {
            TRY(settings_at(x, tokens, &w, &s, &there));
            if (!there || (w.degrees == from->degrees && w.finer == from->finer))
                continue;
            TRY(glance_reckon(x->m, &s, x->limit, &c));
            if ((double)c.bytes[TIER_DEVICE] < least) {
                least = (double)c.bytes[TIER_DEVICE];
                *out = w;
            }
        }
        if (!there && w.finer == 1)
            break;
    }
    *helps = missing(x, lean) <= here - (1 - UNCERTAIN) * least;
    return OK;
}

/* In another way: where that of `lean` is of a large model only the placement that fitted last, if any did. */
static enum status look_otherwise(const struct range *x, const struct plan_request *s, const struct candidate *lean,
                                  struct candidate *out)
{
    if (!x->any)
        return glance_fits(x->m, s, x->limit, out);
    return (glance_is_small(lean, x->m) ? glance_fits_like : glance_like)(x->m, s, x->limit, &x->fits.strategy, out);
}

static void note(struct range *x, int64_t tokens, const struct way *w, const struct candidate *c)
{
    if (c->excess <= 1) {
        x->fits = *c;
        x->way = *w;
        x->any = 1;
        return;
    }
    enum tier tier = search_scarce(c->bytes, x->limit);
    *x->found = (struct longest){.longer = tokens, .tier = tier, .bytes = c->bytes[tier]};
}

/* Another way than *w, if one of so many pieces of attention at most may help: then that becomes *w if it fits, and *lean its
 * leanest placement if that is leaner. */
static enum status try_otherwise(struct range *x, int64_t tokens, int64_t most_pieces, struct way *w, struct candidate *lean)
{
    struct plan_request s;
    struct strategy grid;
    struct candidate other;
    struct way next;
    int there, helps;
    TRY(find_way(x, tokens, w, lean, &next, &helps));
    if (!helps)
        return OK;
    TRY(settings_at(x, tokens, &next, &s, &there));
    TRY(plan_fixed(x->m, &s, &grid));
    if (plan_pieces(x->m, &grid) > most_pieces)
        return OK;
    TRY(look_otherwise(x, &s, lean, &other));
    if (other.excess <= 1)
        *w = next;
    if (other.excess < lean->excess)
        *lean = other;
    return OK;
}

/* out: the leanest placement. */
static enum status look(struct range *x, int64_t tokens, struct candidate *out)
{
    struct plan_request s;
    struct way w = x->way;
    int there;
    TRY(settings_at(x, tokens, &w, &s, &there));
    if (!there) {
        w = (struct way){0, 0};
        TRY(settings_at(x, tokens, &w, &s, &there));
    }
    if (x->any)
        TRY((x->alike ? glance_like : glance_fits_like)(x->m, &s, x->limit, &x->fits.strategy, out));
    else
        TRY(glance_fits(x->m, &s, x->limit, out));
    if (out->excess > 1)
        x->fails = *out;
    if (out->excess > 1 && out->bytes[TIER_DEVICE] > x->limit[TIER_DEVICE] && !x->alike)
        TRY(try_otherwise(x, tokens, INT64_MAX, &w, out));
    note(x, tokens, &w, out);
    return OK;
}

static int64_t round_to_step(double tokens)
{
    int64_t step = step_at((int64_t)tokens);
    return (int64_t)tokens / step * step;
}

/* So many times as long, or a step longer. */
static int64_t farther(int64_t tokens, double times)
{
    return max_i64(tokens + step_at(tokens), round_to_step(times * (double)tokens));
}

/* One fits, the other one does not: what they need of what there is grows about as the length does. */
struct bracket {
    int64_t low, high;
    double low_excess, high_excess;
};

/* From `at` on, below b->high: then low fits, or is the shortest; high does not, or is beyond the longest there can be
 * (high_excess 0). */
static enum status bracket(struct range *x, int64_t at, struct bracket *b)
{
    int64_t most = most_tokens(x->any_length);
    struct candidate c;
    for (;;) {
        TRY(look(x, at, &c));
        if (c.excess > 1) {
            b->high = at;
            b->high_excess = c.excess;
            if (b->low > 0 || at <= SHORTEST)
                break;
            at = max_i64(SHORTEST, round_to_step((double)at * fmin(x->any ? 1 : 0.5, 0.95 / c.excess)));
        } else {
            b->low = at;
            b->low_excess = c.excess;
            if (b->high_excess > 0 || at >= most)
                break;
            at = min_i64(most, farther(at, fmin(16, fmax(1.125, 0.98 / c.excess))));
        }
    }
    b->low = max_i64(b->low, SHORTEST);
    return OK;
}

static enum status narrow(struct range *x, struct bracket *b)
{
    struct candidate c;
    for (int i = 0; b->high - b->low > step_at(b->low); i++) {
        int64_t step = step_at(b->low);
        double share = b->high_excess > 0 ? (1 - b->low_excess) / (b->high_excess - b->low_excess) : 0.5;
        if (i % 4 == 3) /* not as expected */
            share = 0.5;
        int64_t next = b->low + (int64_t)(share * (double)(b->high - b->low)) / step * step;
        next = min_i64(max_i64(next, b->low + step), b->high - step);
        TRY(look(x, next, &c));
        if (c.excess <= 1) {
            b->low = next;
            b->low_excess = c.excess;
        } else {
            b->high = next;
            b->high_excess = c.excess;
        }
    }
    return OK;
}

/* The longest that fits in the usual way, where longer ones are to fit in another one. */
struct sure {
    int64_t tokens; /* 0: they are not */
    struct way way;
};

/* Where the shortest length that does not fit lacks host memory or drives: another way leaves more room on the device for what is
 * too much there. If that fits, what is longer is looked at in that way. */
static enum status lengthen(struct range *x, struct bracket *b, struct sure *sure)
{
    struct candidate c = x->fails;
    struct way w = x->way;
    int64_t most = most_tokens(x->any_length);
    if (!x->any || b->low < SHORTEST || b->high_excess <= 0 || c.bytes[TIER_DEVICE] > x->limit[TIER_DEVICE])
        return OK;
    TRY(try_otherwise(x, b->high, PLAN_QUICK, &w, &c));
    if (c.excess > 1)
        return OK;
    *sure = (struct sure){b->low, x->way};
    note(x, b->high, &w, &c);
    *b = (struct bracket){b->high, most + step_at(most), c.excess, 0};
    x->alike = 1;
    TRY(bracket(x, min_i64(most, farther(b->low, 1.125)), b));
    TRY(narrow(x, b));
    x->alike = 0;
    return OK;
}

/* Trials of fewer layers are a percent off where lengths are found by them: what fitted is looked at whole, in the serial order.
 * If it needs more than its trial did, the limits of further trials are reduced by as much. */
static enum status confirm(struct range *x, const int64_t limit[TIERS], struct bracket *b)
{
    while (x->any && !x->fits.whole && b->low > SHORTEST) {
        struct candidate *c = &x->fits, trial = *c;
        TRY(model_at(x, b->low));
        TRY(glance_whole(x->m, x->s, limit, c));
        if (c->excess <= 1)
            return OK;
        enum tier tier = search_scarce(c->bytes, limit);
        *x->found = (struct longest){.longer = b->low, .tier = tier, .bytes = c->bytes[tier]};
        for (int t = 0; t < TIERS; t++)
            if (c->bytes[t] > trial.bytes[t])
                x->limit[t] = (int64_t)((double)x->limit[t] * (double)trial.bytes[t] / (double)c->bytes[t]);
        int64_t next = min_i64(b->low - step_at(b->low), round_to_step((double)b->low / c->excess));
        *b = (struct bracket){0, b->low, 0, c->excess};
        TRY(bracket(x, next, b));
        TRY(narrow(x, b));
    }
    return OK;
}

/* A length whose plan did not fit, and the largest share of a tier that it needed. */
struct misfit {
    int64_t tokens;
    double excess;
};

/* Where what is needed is what there is: on the line through the last two, but it grows at most as the length does, and lines
 * through what is packed may lead anywhere. */
static int64_t shorter(int64_t tokens, double excess, struct misfit *last)
{
    double t = (double)tokens, next = t / excess;
    if (last->tokens > tokens && last->excess > excess)
        next = fmin(next, t - (excess - 1) * (double)(last->tokens - tokens) / (last->excess - excess));
    *last = (struct misfit){tokens, excess};
    next = fmax(next, 0.9 * t);
    return max_i64(SHORTEST, min_i64(tokens - step_at(tokens), round_to_step(next)));
}

/* Of so many instructions whole plans are made to find out whether lengths fit that trials do not: three of 1b. Longer ones than
 * trials fit are planned of programs of so many, of which each plan takes some seconds. */
#define REACH_INSTRS 1500e3
#define REACH_BEYOND 200e3

/* Leanest placements are not all that there are: longer ones than *at are planned in the usual way, twice as many steps beyond it
 * each time, then between what fits and the shortest that does not: `high`, or 0 if none is known. What fits takes the place of
 * *plan, *at and x->way. */
static enum status reach(struct range *x, const int64_t limit[TIERS], int64_t high, int64_t *at, struct plan **plan)
{
    struct plan_request s;
    struct plan *next;
    int64_t step = step_at(*at), most = most_tokens(x->any_length), steps = 1;
    const struct way usual = {0, 0};
    int there;
    for (double spent = 0; (*plan)->fits && (high == 0 || high - *at > step); steps *= 2) {
        int64_t longer = high > 0 ? *at + (high - *at) / step / 2 * step : *at + steps * step;
        double instrs = (double)(*plan)->programs[PLAN_UPDATE_STEP]->n_instrs;
        spent += instrs;
        if (longer > most || spent > REACH_INSTRS || (high == 0 && instrs > REACH_BEYOND))
            break;
        TRY(settings_at(x, longer, &usual, &s, &there));
        TRY(plan_create(x->m, &s, limit, &next));
        struct plan *worse = next->fits ? *plan : next;
        if (next->fits) {
            *plan = next;
            *at = longer;
            x->way = usual;
        } else {
            high = longer;
            if (x->found->longer != longer) /* what a trial needs is less */
                *x->found = (struct longest){.longer = longer, .tier = next->misfit, .bytes = next->arena[next->misfit]};
        }
        plan_destroy(worse);
    }
    return OK;
}

/* *chosen: the settings of the plan. */
static enum status find_longest(struct range *x, const int64_t limit[TIERS], struct plan_request *chosen, struct plan **out)
{
    struct longest *found = x->found;
    struct plan *plan;
    struct misfit last = {0, 0};
    int64_t tokens, high = 0, most = most_tokens(x->any_length);
    struct bracket b = {0, most + step_at(most), 0, 0};
    struct sure sure = {0, {0, 0}};
    int there;
    TRY(bracket(x, min_i64(most, FIRST), &b));
    TRY(narrow(x, &b));
    TRY(lengthen(x, &b, &sure));
    TRY(confirm(x, limit, &b));
    for (tokens = b.low;;) { /* mostly the first one fits */
        TRY(settings_at(x, tokens, &x->way, chosen, &there));
        TRY(plan_create(x->m, chosen, limit, &plan));
        if (plan->fits || tokens <= SHORTEST)
            break;
        *found = (struct longest){.longer = tokens, .tier = plan->misfit, .bytes = plan->arena[plan->misfit]};
        high = tokens;
        tokens = shorter(tokens, search_excess(plan->arena, limit), &last);
        if (tokens <= sure.tokens) {
            tokens = sure.tokens;
            x->way = sure.way;
            sure.tokens = 0;
            last.tokens = 0; /* another grid needs something else */
        }
        plan_destroy(plan);
    }
    enum status st = reach(x, limit, high, &tokens, &plan);
    if (st == OK)
        st = settings_at(x, tokens, &x->way, chosen, &there);
    if (st != OK) {
        plan_destroy(plan);
        return st;
    }
    found->step = step_at(tokens);
    found->mesh = x->way.degrees > 0;
    found->tiles = x->way.finer > 0;
    plan->longest = *found;
    plan->finer |= x->way.finer > 0;
    *out = plan;
    return OK;
}

enum status plan_longest(const struct model *m, struct plan_request *s, int ranks, int per_host, const int64_t limit[TIERS],
                         struct plan **out)
{
    struct longest found = {.step = 0};
    struct range x = {.any_length = m, .s = s, .ranks = ranks, .per_host = per_host, .found = &found};
    struct plan_request chosen;
    if (m->config.family == FAMILY_GPT2 && m->config.max_positions < SHORTEST)
        return status_fail(ERR_INVALID,
                           "model %s has learned positions for %lld tokens, and --max-seq starts at %d: give --seq-len",
                           m->config.name, (long long)m->config.max_positions, SHORTEST);
    memcpy(x.limit, limit, sizeof x.limit);
    enum status st = find_longest(&x, limit, &chosen, out);
    model_destroy(x.m);
    TRY(st);
    chosen.row_chunk = s->row_chunk; /* the plan has the grid; changes to it start from what is open */
    chosen.head_tile = s->head_tile;
    chosen.loss_tile = s->loss_tile;
    *s = chosen;
    return OK;
}
