/* What candidates cost, and how they compare. */
#include "plan/search/candidate.h"

#include "machine/hardware.h"
#include "plan/search/decisions.h"

#include <math.h>

/* What the search gives for less traffic on data sheets' machines, as a share of the step, to settle what is about the same. */
#define MARGIN 5e-4
/* What links slower by FIT_SLOW may add to the step before that counts like the step, up to a share of it: where a step waits
 * for links anyway, a much longer one that does not is no gain. And what a second of drive writes counts: a twentieth cost up to
 * 1.2% of the step, nothing led to placements that only just wait for drives (row 2 of plan_random at 0.30). */
#define SLOW_MAY 1.03
#define SLOW_COUNTS 0.01
#define WRITES_COUNT 0.02
/* What a second of traffic is worth in seconds of the step, as others use the links, too; and what one of drive writes is: at 20
 * GB/s it wears drives of one write a day for five years by about what a second of a rented GPU costs. */
#define TRAFFIC_WORTH 0.1
#define WRITES_WORTH 1.0
/* What a second of messages costs compute: they take memory bandwidth and multiprocessors (as in seqpar/degrees.c). */
#define CONTENTION 0.25

double budget_excess(const int64_t bytes[TIERS], const int64_t limit[TIERS])
{
    double most = 0;
    for (int t = 0; t < TIERS; t++)
        most = fmax(most, (double)bytes[t] / (double)max_i64(limit[t], 1));
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
    return s->hardware && !s->hardware->cpu ? MARGIN : MARGIN_NOISY;
}

int tiles_are_coarse(const struct strategy *s)
{
    return s->acts != RES_DEVICE && ceil_div(s->rows, s->row_chunk) < SEARCH_FEW_CHUNKS;
}

int tiles_are_bulky(const struct problem *p, const struct strategy *s)
{
    return 32 * s->rows * p->model->config.dim * (int64_t)dtype_size(s->dtype) > p->limit[TIER_DEVICE];
}

int candidate_decides(const struct candidate *tried, const struct strategy *s)
{
    const int kept = tried->strategy.kept_chunks;
    return decisions_same_classes(&tried->strategy, s) &&
           (kept == s->kept_chunks || (tried->excess > 1 && kept < s->kept_chunks));
}

int candidate_suffers(const struct candidate *c)
{
    return c->slow > SLOW_MAY * c->seconds;
}

static double slow_cost(const struct candidate *c)
{
    return c->seconds + fmax(0, c->slow - SLOW_MAY * c->seconds);
}

double candidate_cost(const struct candidate *c)
{
    return fmin(slow_cost(c), (1 + SLOW_COUNTS) * c->seconds) + WRITES_COUNT * c->written;
}

double candidate_price(const struct candidate *c)
{
    return candidate_cost(c) + CONTENTION * c->messages;
}

double candidate_score(const struct candidate *c)
{
    return (c->seconds + c->slow) / 2 + TRAFFIC_WORTH * c->traffic + WRITES_WORTH * c->written;
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
