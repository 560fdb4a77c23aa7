/* Search for the longest sequence that fits, as an advice: first by estimate, then by trials. */
#include "plan/report/advise_length.h"

#include "plan/search/probe.h"

#include <math.h>
#include <string.h>

/* Rounds a length down to a multiple of 1024 tokens, or of 64 if it is short. */
static int64_t round_length(double tokens)
{
    int64_t unit = tokens >= 16384 ? 1024 : 64;
    return (int64_t)(tokens / (double)unit) * unit;
}

enum {
    MOST_PROBES = 12, /* probes of one search */
    SHORTEST = 64,    /* tokens */
    FEW_BEYOND = 2    /* most probes of a large model after the first length that fits */
};
#define CLOSE_PART 24    /* ratio of a length to the remaining interval at which the search ends */
#define SURELY_FITS 0.99 /* share of the budgets that trials may need: a whole plan may need a percent more */

/* A way to find the needs of settings: by estimate, or by trial. */
typedef enum status probe_by(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                             struct candidate *out);

static void limits_of_trials(const int64_t limit[TIERS], int64_t out[TIERS])
{
    for (int t = 0; t < TIERS; t++)
        out[t] = (int64_t)(SURELY_FITS * (double)limit[t]);
}

static enum status probe_by_trial(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                                  struct candidate *out)
{
    int64_t less[TIERS];
    limits_of_trials(limit, less);
    return probe_fits_long(m, s, less, out);
}

/* Ratio of the first length tried to the estimated one. The estimate has as little as possible on the device, and so needs more
 * of the other tiers than other placements do. */
#define ESTIMATED_HIGH (4.0 / 3)
#define MOST_PARTS 1024 /* most parts of a length: a billion tokens in parts of a million */

enum status advise_estimate(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                            struct candidate *out)
{
    struct plan_request part = *s;
    int64_t times = 1;
    enum status st = probe_estimate(m, s, limit, out);
    while (st == OK && isinf(out->excess) && times < MOST_PARTS && s->seq_len / (2 * times) >= SHORTEST) {
        times *= 2;
        part.seq_len = s->seq_len / times;
        st = probe_estimate(m, &part, limit, out);
    }
    if (st == OK && isinf(out->excess))
        return OK;
    for (int t = 0; t < TIERS; t++)
        out->bytes[t] = st == OK ? times * out->bytes[t] : 0;
    out->excess = budget_excess(out->bytes, limit);
    return st;
}

/* The interval searched. An excess is a length's need divided by the available memory. */
struct lengths {
    int64_t low;    /* longest length known to fit; 0: none */
    int64_t high;   /* shortest length known not to fit */
    int64_t before; /* the shortest length known not to fit before `high` was found; 0: none */
    double low_excess, high_excess, before_excess;
    struct candidate fits; /* placement at low */
};

/* Returns the next length to probe: where the line through the excesses of two lengths reaches 1, but well inside the interval. */
static int64_t next_length(const struct lengths *l)
{
    double low = (double)l->low, high = (double)l->high, margin = (high - low) / (l->low > 0 ? 8 : 16), next;
    if (l->low == SHORTEST) /* the shortest length shows the needs of the model's state, not those of tokens */
        return round_length(fmin(0.99 * high / l->high_excess, high / 2));
    if (l->low > 0 && high > 1.5 * low)
        return round_length(fmin(low * fmax(l->fits.all_layers ? 1.125 : 1.25, 0.98 / l->low_excess), high - margin));
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
    return l->low > 0 && l->high - l->low <= l->low / CLOSE_PART;
}

static int is_between(int64_t at, const struct lengths *l)
{
    return at > l->low && at < l->high;
}

/* Probes lengths from `at` on until the interval is close. Probes of large models take some seconds each, so large models have
 * only `beyond` probes after the first length that fits. */
static enum status narrow(struct advisor *x, probe_by *probe, int64_t at, int beyond, struct lengths *l)
{
    struct proposal_setup t;
    struct candidate c;
    const struct model *m;
    for (int i = 0; i < MOST_PROBES && is_between(at, l) && !is_close(l); i++) {
        if (probe == probe_by_trial && l->low > 0 && !probe_is_small(&l->fits, x->m) && beyond-- == 0)
            return OK;
        proposal_shorten(x, at, &t);
        TRY(advisor_model(x, &t, &m));
        TRY(probe(m, &t.s, t.limit, &c));
        x->out->tried++;
        x->out->shortest = at;
        memcpy(x->out->least, c.bytes, sizeof c.bytes);
        take(l, at, &c);
        at = next_length(l);
    }
    return OK;
}

/* Returns the next length to probe with one placement: on the line through two lengths if a length that does not fit is known;
 * else in proportion to the excess at `low`. */
static int64_t next_alike(const struct lengths *l, int known)
{
    double low = (double)l->low, high = (double)l->high, margin = (high - low) / 8,
           next = known ? low + (1 - l->low_excess) / (l->high_excess - l->low_excess) * (high - low) : low / l->low_excess;
    return round_length(fmin(fmax(next, low + margin), high - margin));
}

/* Moves l->low up to the longest length in the interval at which the placement of l->fits still fits. The smallest placement must
 * fit at that length with its whole first program. */
static enum status lengthen(struct advisor *x, struct lengths *l)
{
    struct proposal_setup t;
    struct candidate c;
    const struct model *m;
    struct lengths like = *l;
    int64_t less[TIERS], at = next_alike(&like, 0);
    int known = 0;
    for (int i = 0; i < MOST_PROBES && is_between(at, &like) && !is_close(&like); i++) {
        proposal_shorten(x, at, &t);
        limits_of_trials(t.limit, less);
        TRY(advisor_model(x, &t, &m));
        TRY(probe_like(m, &t.s, less, &like.fits.strategy, &c));
        x->out->tried++;
        take(&like, at, &c);
        known |= c.excess > 1;
        at = next_alike(&like, known);
    }
    if (like.low == l->low)
        return OK;
    proposal_shorten(x, like.low, &t);
    TRY(advisor_model(x, &t, &m));
    TRY(probe_by_trial(m, &t.s, t.limit, &c));
    if (c.excess <= 1)
        TRY(probe_all_layers(m, &t.s, t.limit, &c));
    take(l, like.low, &c);
    return OK;
}

enum status advise_shorter(struct advisor *x, double excess, struct proposal_setup *t, struct candidate *fits, int64_t *tokens)
{
    struct lengths estimated = {.high = x->s->seq_len, .high_excess = excess}, tried = estimated;
    TRY(narrow(x, advise_estimate, next_length(&estimated), 0, &estimated));
    double at = estimated.low > 0 ? ESTIMATED_HIGH * (double)estimated.low : (double)estimated.high;
    TRY(narrow(x, probe_by_trial, round_length(fmin(at, 0.99 * (double)x->s->seq_len)), FEW_BEYOND, &tried));
    if (tried.low > 0 && !probe_is_small(&tried.fits, x->m))
        TRY(lengthen(x, &tried));
    *tokens = tried.low;
    *fits = tried.fits;
    if (tried.low > 0)
        proposal_shorten(x, tried.low, t);
    return OK;
}
