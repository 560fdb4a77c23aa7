/* Costs of candidates, and their order. */
#include "plan/search/candidate.h"

#include "machine/hardware.h"
#include "plan/schedule/prefetch.h"
#include "plan/search/decisions.h"
#include "plan/search/tuning.h"

#include <math.h>

double budget_excess(const int64_t bytes[TIERS], const int64_t limit[TIERS])
{
    double most = 0;
    for (int t = 0; t < TIERS; t++)
        most = fmax(most, bytes[t] == FIT_NOWHERE ? INFINITY : (double)bytes[t] / (double)max_i64(limit[t], 1));
    return most;
}

enum tier budget_scarce_tier(const int64_t bytes[TIERS], const int64_t limit[TIERS])
{
    int t = 0;
    while (t < TIER_NVME && (double)bytes[t] / (double)max_i64(limit[t], 1) < budget_excess(bytes, limit))
        t++;
    return (enum tier)t;
}

double price_margin(const struct plan_request *s)
{
    return s->hardware && !s->hardware->cpu ? PRICE_MARGIN_SHEET : PRICE_MARGIN_NOISY;
}

int tiles_are_coarse(const struct strategy *s)
{
    return s->placement.acts != RES_DEVICE && ceil_div(s->rows, s->key.row_chunk) < TILES_FEW_CHUNKS;
}

int tiles_are_bulky(const struct problem *p, const struct strategy *s)
{
    return TILES_BULKY_PART * s->rows * p->model->config.dim * (int64_t)dtype_size(s->key.dtype) > p->limit[TIER_DEVICE];
}

int candidate_decides(const struct candidate *tried, const struct strategy *s)
{
    const int kept = tried->strategy.placement.kept_chunks;
    return decisions_same_classes(&tried->strategy, s) &&
           (kept == s->placement.kept_chunks || (tried->excess > 1 && kept < s->placement.kept_chunks));
}

int candidate_suffers(const struct candidate *c)
{
    return c->slow > PRICE_SLOW_FREE * c->seconds;
}

static double slow_cost(const struct candidate *c)
{
    return c->seconds + fmax(0, c->slow - PRICE_SLOW_FREE * c->seconds);
}

double candidate_cost(const struct candidate *c)
{
    return fmin(slow_cost(c), (1 + PRICE_SLOW_MOST) * c->seconds) + PRICE_WRITES * c->written;
}

double candidate_price(const struct candidate *c)
{
    return candidate_cost(c) + PRICE_MESSAGES * c->messages;
}

double candidate_score(const struct candidate *c)
{
    return (c->seconds + c->slow) / 2 + SCORE_TRAFFIC * c->traffic + SCORE_WRITES * c->written;
}

int candidate_order(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    int fx = x->excess <= 1, fy = y->excess <= 1;
    if (fx != fy)
        return fy - fx;
    double kx = fx ? floor(1000 * log(x->seconds)) : x->excess, ky = fx ? floor(1000 * log(y->seconds)) : y->excess;
    if (kx == ky) {
        kx = x->traffic;
        ky = y->traffic;
    }
    return kx != ky ? (kx < ky ? -1 : 1) : x->place - y->place;
}
