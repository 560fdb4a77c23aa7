/* Finding the longest sequence that fits, by interpolation between lengths.
 *
 * Only the smallest placements are tested for fit: on the default mesh and grid or, if the device is too small for these, on the
 * mesh and grid that are estimated to need the least device memory. */
#include "plan/max_seq.h"

#include "base/hurry.h"
#include "base/progress.h"
#include "model/part.h"
#include "plan/lower/fixed.h"
#include "plan/lower/grid.h"
#include "plan/lower/mesh.h"
#include "plan/schedule/prefetch.h"
#include "plan/search/memo.h"
#include "plan/search/probe.h"
#include "plan/search/tuning.h"

#include <math.h>
#include <string.h>

#define MOST_TOKENS ((int64_t)1 << 30) /* token numbers are 32 bits */

/* Mesh and grid of a length. degrees: 0 is the rule's mesh, i the i-th other one; finer: how many times the grid is finer than
 * the default one. */
struct variant {
    int degrees, finer;
};

struct range {
    const struct model *any_length;
    struct model *m; /* owned: any_length adapted to the length of the last call of settings_at */
    const struct plan_request *s;
    int ranks, per_host;
    int64_t limit[TIERS];  /* limits for trials */
    struct longest *found; /* result: the last length that did not fit, with its need */
    struct candidate fits; /* candidate of the last length that fitted, if any */
    int any;
    struct variant variant; /* variant in which that length fitted */
    struct candidate fails; /* smallest candidate of the last length that did not fit, other variants excluded */
    int alike;              /* 1: only the placement that fitted last is tried */
};

int64_t length_step(int64_t tokens)
{
    int64_t power = LENGTH_SHORTEST;
    while (2 * power <= tokens)
        power *= 2;
    return max_i64(LENGTH_SHORTEST, power / LENGTH_STEPS);
}

static int64_t most_tokens(const struct model *m)
{
    int64_t most = model_learns_positions(&m->config) ? m->config.max_positions : MOST_TOKENS;
    return most / LENGTH_SHORTEST * LENGTH_SHORTEST;
}

/* Sets x->m for a length: learned positions are sized by it. */
static enum status model_at(struct range *x, int64_t tokens)
{
    model_destroy(x->m);
    x->m = NULL;
    return model_create_for(x->any_length, tokens, (const char *const *)x->s->freeze.item, x->s->freeze.n, &x->m);
}

/* Sets the model and the settings for a length, their mesh included. *there: 0 if there is no such variant. */
static enum status settings_at(struct range *x, int64_t tokens, const struct variant *v, struct plan_request *out, int *there)
{
    struct strategy grid;
    *out = *x->s;
    out->seq_len = tokens;
    TRY(model_at(x, tokens));
    TRY(plan_mesh(x->m, out, x->ranks, x->per_host));
    out->open_degrees &= ~(1u << MESH_DP); /* the longest sequence is shared by as many ranks as there are */
    *there = v->degrees == 0 ||
             plan_other_degrees(x->m, out, v->degrees - 1, &out->mesh.degree[MESH_ULYSSES], &out->mesh.degree[MESH_RING]);
    if (v->degrees > 0 || v->finer > 0)
        out->open_degrees = 0; /* the variant decides the degrees */
    if (!*there || v->finer == 0)
        return OK;
    TRY(plan_fixed(x->m, out, &grid));
    for (int i = 0; i < v->finer && *there; i++)
        *there = plan_finer_tiles(x->m, out, &grid);
    plan_fix_grid(out, &grid);
    return OK;
}

/* Returns the bytes by which `smallest` exceeds the limits: the device's excess plus the other tiers', which the device may hold. */
static double missing(const struct range *x, const struct candidate *smallest)
{
    double elsewhere = 0;
    for (int t = TIER_HOST; t < TIERS; t++)
        elsewhere += (double)(smallest->bytes[t] - x->limit[t]);
    return (double)(smallest->bytes[TIER_DEVICE] - x->limit[TIER_DEVICE]) + fmax(0, elsewhere);
}

/* Finds the variant, other than `from`, that is estimated to need the least device memory. *helps: 1 if it saves as many bytes as
 * `smallest` is above the limits. */
static enum status find_variant(struct range *x, int64_t tokens, const struct variant *from, const struct candidate *smallest,
                                struct variant *out, int *helps)
{
    struct plan_request s;
    struct candidate c;
    double least = INFINITY, here;
    TRY(settings_at(x, tokens, from, &s, helps));
    TRY(probe_estimate(x->m, &s, x->limit, &c));
    here = (double)c.bytes[TIER_DEVICE];
    for (struct variant v = {0, 0};; v.degrees++) {
        int there = 1;
        for (v.finer = 0; v.finer <= PLAN_FINER && there; v.finer++) {
            TRY(settings_at(x, tokens, &v, &s, &there));
            if (!there || (v.degrees == from->degrees && v.finer == from->finer))
                continue;
            TRY(probe_estimate(x->m, &s, x->limit, &c));
            if ((double)c.bytes[TIER_DEVICE] < least) {
                least = (double)c.bytes[TIER_DEVICE];
                *out = v;
            }
        }
        if (!there && v.finer == 1)
            break;
    }
    *helps = missing(x, smallest) <= here - (1 - BYTES_UNCERTAIN) * least;
    return OK;
}

/* Probes another variant. For a large model it looks only at the placement that fitted last, if any did. */
static enum status probe_variant(const struct range *x, const struct plan_request *s, const struct candidate *smallest,
                                 struct candidate *out)
{
    if (!x->any)
        return probe_fits(x->m, s, x->limit, out);
    return (probe_is_small(smallest, x->m) ? probe_fits_like : probe_like)(x->m, s, x->limit, &x->fits.strategy, out);
}

/* Describes a length that does not fit, with its need of the tier. */
static struct longest too_long(int64_t tokens, const int64_t bytes[TIERS], enum tier tier)
{
    if (bytes[TIER_DEVICE] == FIT_NOWHERE)
        return (struct longest){.longer = tokens, .beyond = 1};
    return (struct longest){.longer = tokens, .tier = tier, .bytes = bytes[tier]};
}

static void note(struct range *x, int64_t tokens, const struct variant *v, const struct candidate *c)
{
    if (c->excess <= 1) {
        x->fits = *c;
        x->variant = *v;
        x->any = 1;
        progress_fits(tokens);
        return;
    }
    *x->found = too_long(tokens, c->bytes, budget_scarce_tier(c->bytes, x->limit));
}

/* Tries the variant that may help, if it has at most most_pieces pieces of attention. If it fits, it becomes *v; its smallest
 * placement becomes *smallest if that needs less. */
static enum status try_variant(struct range *x, int64_t tokens, int64_t most_pieces, struct variant *v,
                               struct candidate *smallest)
{
    struct plan_request s;
    struct strategy grid;
    struct candidate other;
    struct variant next;
    int there, helps;
    TRY(find_variant(x, tokens, v, smallest, &next, &helps));
    if (!helps)
        return OK;
    TRY(settings_at(x, tokens, &next, &s, &there));
    TRY(plan_fixed(x->m, &s, &grid));
    if (plan_pieces(x->m, &grid) > most_pieces)
        return OK;
    TRY(probe_variant(x, &s, smallest, &other));
    if (other.excess <= 1)
        *v = next;
    if (other.excess < smallest->excess)
        *smallest = other;
    return OK;
}

/* Probes a length. out: its smallest placement. */
static enum status probe(struct range *x, int64_t tokens, struct candidate *out)
{
    struct plan_request s;
    struct variant v = x->variant;
    int there;
    TRY(settings_at(x, tokens, &v, &s, &there));
    if (!there) {
        v = (struct variant){0, 0};
        TRY(settings_at(x, tokens, &v, &s, &there));
    }
    if (x->any)
        TRY((x->alike ? probe_like : probe_fits_like)(x->m, &s, x->limit, &x->fits.strategy, out));
    else
        TRY(probe_fits(x->m, &s, x->limit, out));
    if (isinf(out->excess)) /* infinite if a program exceeds its tables: then nobody knows by how much */
        out->excess = 2;
    if (out->excess > 1)
        x->fails = *out;
    if (out->excess > 1 && out->bytes[TIER_DEVICE] > x->limit[TIER_DEVICE] && !x->alike && x->s->effort <= EFFORT_NORMAL)
        TRY(try_variant(x, tokens, INT64_MAX, &v, out));
    note(x, tokens, &v, out);
    return OK;
}

static int64_t round_to_step(double tokens)
{
    int64_t step = length_step((int64_t)tokens);
    return (int64_t)tokens / step * step;
}

/* Returns the length times `times`, or one step longer if that is more. */
static int64_t farther(int64_t tokens, double times)
{
    return max_i64(tokens + length_step(tokens), round_to_step(times * (double)tokens));
}

/* A length that fits and a longer length that does not. Needs, as shares of the available memory, grow about in proportion to the
 * length. */
struct bracket {
    int64_t low, high;
    double low_excess, high_excess;
};

/* Brackets the longest length, searching from `at` up to b->high. Afterwards `low` fits, or is the shortest length; `high` does
 * not fit, or is beyond the longest possible length (high_excess 0). */
static enum status bracket(struct range *x, int64_t at, struct bracket *b)
{
    int64_t most = most_tokens(x->any_length);
    struct candidate c;
    for (;;) {
        TRY(probe(x, at, &c));
        if (c.excess > 1) {
            b->high = at;
            b->high_excess = c.excess;
            if (b->low > 0 || at <= LENGTH_SHORTEST)
                break;
            at = max_i64(LENGTH_SHORTEST, round_to_step((double)at * fmin(x->any ? 1 : 0.5, 0.95 / c.excess)));
        } else {
            b->low = at;
            b->low_excess = c.excess;
            if (b->high_excess > 0 || at >= most || hurry_asked())
                break;
            at = min_i64(most, farther(at, fmin(16, fmax(1.125, 0.98 / c.excess))));
        }
    }
    b->low = max_i64(b->low, LENGTH_SHORTEST);
    return OK;
}

static enum status narrow(struct range *x, struct bracket *b)
{
    struct candidate c;
    for (int i = 0; b->high - b->low > length_step(b->low) && !(x->any && hurry_asked()); i++) {
        int64_t step = length_step(b->low);
        double share = b->high_excess > 0 ? (1 - b->low_excess) / (b->high_excess - b->low_excess) : 0.5;
        if (i % 4 == 3) /* the interpolation missed: bisect */
            share = 0.5;
        int64_t next = b->low + (int64_t)(share * (double)(b->high - b->low)) / step * step;
        next = min_i64(max_i64(next, b->low + step), b->high - step);
        TRY(probe(x, next, &c));
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

/* The longest length that fits in the first variant, if longer ones seem to fit in another one. */
struct sure {
    int64_t tokens; /* 0: there is no such length */
    struct variant variant;
};

/* Looks for longer lengths in another variant, if the shortest length that does not fit lacks host memory or drives. Another
 * variant may leave the device room for the excess; if it does, longer lengths are tried in that variant. */
static enum status lengthen(struct range *x, struct bracket *b, struct sure *sure)
{
    struct candidate c = x->fails;
    struct variant v = x->variant;
    int64_t most = most_tokens(x->any_length);
    if (!x->any || b->low < LENGTH_SHORTEST || b->high_excess <= 0 || c.bytes[TIER_DEVICE] > x->limit[TIER_DEVICE])
        return OK;
    TRY(try_variant(x, b->high, PLAN_QUICK, &v, &c));
    if (c.excess > 1)
        return OK;
    *sure = (struct sure){b->low, x->variant};
    note(x, b->high, &v, &c);
    *b = (struct bracket){b->high, most + length_step(most), c.excess, 0};
    x->alike = 1;
    TRY(bracket(x, min_i64(most, farther(b->low, 1.125)), b));
    TRY(narrow(x, b));
    x->alike = 0;
    return OK;
}

/* Confirms a length found by trials of fewer layers, which may be a percent off, by a trial of all layers without overlap. If
 * this trial needs more than the first one, the limits of further trials are lowered in proportion. */
static enum status confirm(struct range *x, const int64_t limit[TIERS], struct bracket *b)
{
    while (x->any && !x->fits.all_layers && b->low > LENGTH_SHORTEST) {
        struct candidate *c = &x->fits, trial = *c;
        TRY(model_at(x, b->low));
        TRY(probe_all_layers(x->m, x->s, limit, c));
        if (c->excess <= 1)
            return OK;
        *x->found = too_long(b->low, c->bytes, budget_scarce_tier(c->bytes, limit));
        for (int t = 0; t < TIERS; t++)
            if (c->bytes[t] > trial.bytes[t])
                x->limit[t] = (int64_t)((double)x->limit[t] * (double)trial.bytes[t] / (double)c->bytes[t]);
        int64_t next = min_i64(b->low - length_step(b->low), round_to_step((double)b->low / c->excess));
        *b = (struct bracket){0, b->low, 0, c->excess};
        TRY(bracket(x, next, b));
        TRY(narrow(x, b));
    }
    return OK;
}

/* A length whose plan did not fit, and the largest share of a tier's limit that it needed. */
struct misfit {
    int64_t tokens;
    double excess;
};

/* Returns the next shorter length: there the need meets the limit on a line through the last two lengths. The step is at most a
 * tenth, since needs grow at most in proportion and two packed programs may make any line. */
static int64_t shorter(int64_t tokens, double excess, struct misfit *last)
{
    double t = (double)tokens, next = t / excess;
    if (last->tokens > tokens && last->excess > excess)
        next = fmin(next, t - (excess - 1) * (double)(last->tokens - tokens) / (last->excess - excess));
    *last = (struct misfit){tokens, excess};
    next = fmax(next, 0.9 * t);
    return max_i64(LENGTH_SHORTEST, min_i64(tokens - length_step(tokens), round_to_step(next)));
}

/* Lets planning start at the fewest kept inputs with which the length may fit, up to those of the placement that does. */
static enum status skip_inputs(const struct range *x, const int64_t limit[TIERS], struct plan_request *s)
{
    return x->any ? probe_inputs(x->m, s, limit, x->fits.strategy.placement.keep_inputs, &s->inputs_from) : OK;
}

/* Plans x's length. *out is NULL if all programs exceed their tables. */
static enum status plan_at(const struct range *x, const struct plan_request *s, const int64_t limit[TIERS], struct plan **out)
{
    enum status st = plan_create(x->m, s, limit, out);
    if (st != ERR_NOFIT)
        return st;
    *out = NULL;
    return OK;
}

/* Plans longer lengths than *at in the first variant, since plans may fit though the smallest placements' trials do not. A length
 * that fits replaces *plan, *at and x->variant.
 *
 * Steps beyond *at double; then the gap below the shortest length that does not fit (`high`, or 0 if none is known) is halved. */
static enum status reach(struct range *x, const int64_t limit[TIERS], int64_t high, int64_t *at, struct plan **plan)
{
    struct plan_request s;
    struct plan *next;
    int64_t step = length_step(*at), most = most_tokens(x->any_length), steps = 1;
    const struct variant first = {0, 0};
    int there;
    for (double spent = 0; (*plan)->fits && (high == 0 || high - *at > step) && !hurry_asked(); steps *= 2) {
        int64_t longer = high > 0 ? *at + (high - *at) / step / 2 * step : *at + steps * step;
        double instrs = (double)(*plan)->programs[PLAN_UPDATE_STEP]->n_instrs;
        spent += instrs;
        if (longer > most || spent > LENGTH_INSTRS || (high == 0 && instrs > LENGTH_BEYOND_INSTRS))
            break;
        TRY(settings_at(x, longer, &first, &s, &there));
        TRY(plan_at(x, &s, limit, &next));
        if (!next) {
            high = longer;
            *x->found = (struct longest){.longer = longer, .beyond = 1};
            continue;
        }
        struct plan *worse = next->fits ? *plan : next;
        if (next->fits) {
            *plan = next;
            *at = longer;
            x->variant = first;
        } else {
            high = longer;
            if (x->found->longer != longer) /* if a trial recorded this length, its need, which is smaller, stays */
                *x->found = too_long(longer, next->arena, next->misfit);
        }
        plan_destroy(worse);
    }
    return OK;
}

/* Plans the longest length. *chosen: the settings of the plan. */
static enum status find_longest(struct range *x, const int64_t limit[TIERS], struct plan_request *chosen, struct plan **out)
{
    struct longest *found = x->found;
    struct plan *plan;
    struct misfit last = {0, 0};
    int64_t tokens, high = 0, most = most_tokens(x->any_length);
    struct bracket b = {0, most + length_step(most), 0, 0};
    struct sure sure = {0, {0, 0}};
    int there;
    TRY(bracket(x, min_i64(most, LENGTH_FIRST), &b));
    TRY(narrow(x, &b));
    if (x->s->effort <= EFFORT_NORMAL)
        TRY(lengthen(x, &b, &sure));
    TRY(confirm(x, limit, &b));
    for (tokens = b.low;;) { /* mostly the first one fits */
        TRY(settings_at(x, tokens, &x->variant, chosen, &there));
        TRY(skip_inputs(x, limit, chosen));
        TRY(plan_at(x, chosen, limit, &plan));
        if (!plan && tokens <= LENGTH_SHORTEST)
            return ERR_NOFIT;
        if (!plan) {
            high = tokens;
            *found = (struct longest){.longer = tokens, .beyond = 1};
            tokens = max_i64(LENGTH_SHORTEST, round_to_step((double)tokens / 2));
            continue;
        }
        if (plan->fits || tokens <= LENGTH_SHORTEST)
            break;
        *found = too_long(tokens, plan->arena, plan->misfit);
        high = tokens;
        tokens = shorter(tokens, budget_excess(plan->arena, limit), &last);
        if (tokens <= sure.tokens) {
            tokens = sure.tokens;
            x->variant = sure.variant;
            sure.tokens = 0;
            last.tokens = 0; /* needs on different grids are not compared */
        }
        plan_destroy(plan);
    }
    enum status st = x->s->effort <= EFFORT_NORMAL ? reach(x, limit, high, &tokens, &plan) : OK;
    if (st == OK)
        st = settings_at(x, tokens, &x->variant, chosen, &there);
    if (st != OK) {
        plan_destroy(plan);
        return st;
    }
    found->step = length_step(tokens);
    found->mesh = x->variant.degrees > 0;
    found->tiles = x->variant.finer > 0;
    plan->longest = *found;
    plan->finer |= x->variant.finer > 0;
    *out = plan;
    return OK;
}

enum status plan_longest(const struct model *m, struct plan_request *s, int ranks, int per_host, const int64_t limit[TIERS],
                         struct plan **out)
{
    struct longest found = {.step = 0};
    struct model *slice; /* a rank's part of the model, if the mesh has slices */
    struct range x = {.any_length = m, .s = s, .ranks = ranks, .per_host = per_host, .found = &found};
    struct plan_request chosen;
    if (model_learns_positions(&m->config) && m->config.max_positions < LENGTH_SHORTEST)
        return status_fail(ERR_INVALID,
                           "model %s has learned positions for %lld tokens, and --max-seq starts at %d: give --seq-len",
                           m->config.name, (long long)m->config.max_positions, LENGTH_SHORTEST);
    TRY(plan_slice_create(m, s, &slice));
    x.any_length = slice ? slice : m;
    memcpy(x.limit, limit, sizeof x.limit);
    memo_hold();
    enum status st = find_longest(&x, limit, &chosen, out);
    memo_release();
    progress_fits(0);
    model_destroy(x.m);
    model_destroy(slice);
    TRY(st);
    chosen.row_chunk =
        s->row_chunk; /* the plan knows its grid; later changes start from the settings, with open sizes left open */
    chosen.head_tile = s->head_tile;
    chosen.loss_tile = s->loss_tile;
    *s = chosen;
    return OK;
}
