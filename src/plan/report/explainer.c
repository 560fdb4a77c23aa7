/* One alternative: tried, and kept in order. */
#include "plan/report/explainer.h"

#include "machine/rank_cost.h"

#include <stdio.h>
#include <string.h>

struct decision *explainer_decide(struct explainer *x, const char *what, const char *chosen, int given)
{
    struct decision *d = &x->out->decision[x->out->n++];
    *d = (struct decision){.what = what, .given = given};
    snprintf(d->chosen, sizeof d->chosen, "%s", chosen);
    return d;
}

/* An alternative that fits comes before one that does not, which has no seconds; of two that fit, the faster one comes first. */
static int is_cheaper(const struct alternative *a, const struct alternative *b)
{
    return a->fits && (!b->fits || a->seconds < b->seconds);
}

void explainer_add(struct decision *d, const struct candidate *c, double seconds, const char *say)
{
    struct alternative a = {.seconds = seconds, .fits = c->excess <= 1};
    memcpy(a.bytes, c->bytes, sizeof a.bytes);
    snprintf(a.say, sizeof a.say, "%s", say);
    int at = d->n++;
    for (; at > 0 && is_cheaper(&a, &d->by_cost[at - 1]); at--)
        d->by_cost[at] = d->by_cost[at - 1];
    d->by_cost[at] = a;
}

enum status explainer_try(struct explainer *x, struct decision *d, const struct plan_request *s, const struct strategy *strategy,
                          const char *say)
{
    struct candidate c;
    struct cost_model cost;
    plan_cost_model(s, &cost);
    TRY(search_price(x->m, s, strategy, &cost, x->p->limit, &c));
    explainer_add(d, &c, c.seconds, say);
    return OK;
}
