/* The longest sequence that fits, as an advice: first by estimate, then by trials. */
#include "plan/report/advise_length.h"

#include "plan/search/probe.h"

#include <math.h>
#include <string.h>

/* Whole multiples of 1024 tokens, or of 64 for short ones. */
static int64_t round_length(double tokens)
{
    int64_t unit = tokens >= 16384 ? 1024 : 64;
    return (int64_t)(tokens / (double)unit) * unit;
}

enum { LENGTHS = 12, SHORTEST = 64, BEYOND_FITS = 2 };
#define CLOSE 24         /* the length that fits and the one that does not differ by such a part of it */
#define SURELY_FITS 0.99 /* of the budgets, for trials: a whole plan may need a percent more */

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

enum status advise_estimate(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
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

/* Looks at lengths from `at` on, until two are close or, of models that are not small, looks beyond what fits have been as many
 * as `beyond`: they take some seconds. */
static enum status narrow(struct advisor *x, look_at *look, int64_t at, int beyond, struct lengths *l)
{
    struct proposal_setup t;
    struct candidate c;
    for (int i = 0; i < LENGTHS && is_between(at, l) && !is_close(l); i++) {
        if (look == look_by_trial && l->low > 0 && !glance_is_small(&l->fits, x->m) && beyond-- == 0)
            return OK;
        proposal_start(x, proposals_n - 1, at, &t);
        TRY(look(x->m, &t.s, t.limit, &c));
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
static enum status lengthen(struct advisor *x, struct lengths *l)
{
    struct proposal_setup t;
    struct candidate c;
    struct lengths like = *l;
    int64_t less[TIERS], at = next_alike(&like, 0);
    int known = 0;
    for (int i = 0; i < LENGTHS && is_between(at, &like) && !is_close(&like); i++) {
        proposal_start(x, proposals_n - 1, at, &t);
        limits_of_trials(t.limit, less);
        TRY(glance_like(x->m, &t.s, less, &like.fits.strategy, &c));
        x->out->tried++;
        take(&like, at, &c);
        known |= c.excess > 1;
        at = next_alike(&like, known);
    }
    if (like.low == l->low)
        return OK;
    proposal_start(x, proposals_n - 1, like.low, &t);
    TRY(look_by_trial(x->m, &t.s, t.limit, &c));
    if (c.excess <= 1)
        TRY(glance_whole(x->m, &t.s, t.limit, &c));
    take(l, like.low, &c);
    return OK;
}

enum status advise_shorter(struct advisor *x, double excess, struct proposal_setup *t, struct candidate *fits, int64_t *tokens)
{
    struct lengths reckoned = {.high = x->s->seq_len, .high_excess = excess}, tried = reckoned;
    TRY(narrow(x, advise_estimate, next_length(&reckoned), 0, &reckoned));
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
