/* Bisection over lengths: whether anything fits is asked of the leanest placements only. */
#include "plan/longest.h"

#include "plan/search.h"

#include <string.h>

enum { SHORTEST = 1024, STEPS = 64, FIRST = 131072 };
#define MOST_TOKENS ((int64_t)1 << 30) /* token numbers are 32 bits */

struct range {
    const struct model *m;
    const struct settings *s;
    int ranks, per_host;
    const int64_t *limit;
    struct longest *found; /* of the shortest that is known not to fit */
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

/* The settings for a length, their mesh included. */
static enum status settings_at(const struct range *x, int64_t tokens, struct settings *out)
{
    *out = *x->s;
    out->seq_len = tokens;
    return plan_mesh(x->m, out, x->ranks, x->per_host);
}

/* What seems not to fit by this share may: the leanest placement by estimate is not always the leanest. Looked at where that
 * takes no time. */
#define UNCERTAIN 0.1

static enum status fits_at(struct range *x, int64_t tokens, int *fits)
{
    struct settings s;
    struct strategy fixed;
    struct cost_model cost;
    struct candidate c;
    TRY(settings_at(x, tokens, &s));
    TRY(plan_fixed(x->m, &s, &fixed));
    plan_cost_model(&s, &cost);
    TRY(search_leanest(x->m, &s, &fixed, &cost, x->limit, &c));
    if (c.whole && c.excess > 1 && c.excess <= 1 + UNCERTAIN) {
        struct search all;
        TRY(search_create(x->m, &s, &fixed, &cost, x->limit, &all));
        if (all.candidates[0].tried && all.candidates[0].excess < c.excess)
            c = all.candidates[0];
        search_destroy(&all);
    }
    if (c.excess > 1 && c.excess <= PLAN_FINER_HELPS && c.bytes[TIER_DEVICE] > x->limit[TIER_DEVICE]) {
        int steps = 0;
        while (steps < PLAN_FINER && plan_finer_tiles(x->m, &s, &fixed))
            steps++;
        if (steps > 0)
            TRY(search_leanest(x->m, &s, &fixed, &cost, x->limit, &c));
    }
    *fits = c.excess <= 1;
    for (int t = 0; t < TIERS && !*fits; t++)
        if (c.bytes[t] > x->limit[t]) {
            x->found->longer = tokens;
            x->found->tier = (enum tier)t;
            x->found->bytes = c.bytes[t];
            break;
        }
    return OK;
}

/* *low fits, or is the shortest; *high does not, or is beyond the longest there can be. */
static enum status bracket(struct range *x, int64_t *low, int64_t *high)
{
    int64_t most = most_tokens(x->m), at = min_i64(most, FIRST);
    int fits;
    *high = most + step_at(most);
    TRY(fits_at(x, at, &fits));
    while (fits && at < most) {
        int64_t next = min_i64(most, 2 * at);
        *low = at;
        TRY(fits_at(x, next, &fits));
        at = next;
    }
    *low = fits ? at : *low;
    *high = fits ? *high : at;
    if (fits || *low > 0)
        return OK;
    while (!fits && at > SHORTEST) {
        *high = at;
        at = max_i64(SHORTEST, at / 2 / SHORTEST * SHORTEST);
        TRY(fits_at(x, at, &fits));
    }
    *low = at;
    return OK;
}

static enum status bisect(struct range *x, int64_t low, int64_t high, int64_t *out)
{
    for (int64_t step = step_at(low); high - low > step; step = step_at(low)) {
        int64_t middle = low + (high - low) / 2 / step * step;
        int fits;
        TRY(fits_at(x, middle, &fits));
        if (fits)
            low = middle;
        else
            high = middle;
    }
    *out = low;
    return OK;
}

enum status plan_longest(const struct model *m, struct settings *s, int ranks, int per_host, const int64_t limit[TIERS],
                         struct plan **out)
{
    struct longest found = {.step = 0};
    struct range x = {m, s, ranks, per_host, limit, &found};
    struct settings chosen;
    int64_t low = 0, high, tokens;
    if (m->config.family == FAMILY_GPT2 && m->config.max_positions < SHORTEST)
        return status_fail(ERR_INVALID,
                           "model %s has learned positions for %lld tokens, and --max-seq starts at %d: give --seq-len",
                           m->config.name, (long long)m->config.max_positions, SHORTEST);
    TRY(bracket(&x, &low, &high));
    TRY(bisect(&x, low, high, &tokens));
    for (;; tokens -= step_at(tokens)) { /* the leanest placement of a trial fitted: mostly one whole plan does */
        TRY(settings_at(&x, tokens, &chosen));
        TRY(plan_create(m, &chosen, limit, out));
        if ((*out)->fits || tokens <= SHORTEST)
            break;
        found.longer = tokens;
        found.tier = (*out)->misfit;
        found.bytes = (*out)->arena[(*out)->misfit];
        plan_destroy(*out);
    }
    found.step = step_at(tokens);
    (*out)->longest = found;
    *s = chosen;
    return OK;
}
