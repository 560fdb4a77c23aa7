/* Trials of one alternative, and their order. */
#include "plan/report/explainer.h"

#include <stdio.h>
#include <string.h>

struct problem explainer_problem(const struct plan *p, const struct model *m, const struct plan_request *s)
{
    struct problem out = {.model = m, .request = *s, .cost = p->cost};
    memcpy(out.limit, p->limit, sizeof out.limit);
    return out;
}

struct decision *explainer_decide(struct explainer *x, const char *what, const char *flag, const char *chosen, int given)
{
    struct decision *d = &x->out->decision[x->out->n++];
    *d = (struct decision){.what = what, .flag = flag, .given = given};
    snprintf(d->chosen, sizeof d->chosen, "%s", chosen);
    return d;
}

/* Tells whether a comes before b. An alternative that fits comes before one that does not, which has no seconds; of two that fit,
 * the faster one comes first. */
static int is_cheaper(const struct alternative *a, const struct alternative *b)
{
    return a->fits && (!b->fits || a->seconds < b->seconds);
}

void explainer_keep(struct decision *d, const struct alternative *a)
{
    int at = d->n++;
    for (; at > 0 && is_cheaper(a, &d->by_cost[at - 1]); at--)
        d->by_cost[at] = d->by_cost[at - 1];
    d->by_cost[at] = *a;
}

void explainer_add(struct decision *d, const struct candidate *c, double seconds, const char *say)
{
    struct alternative a = {.seconds = seconds, .fits = c->excess <= 1};
    memcpy(a.bytes, c->bytes, sizeof a.bytes);
    snprintf(a.say, sizeof a.say, "%s", say);
    explainer_keep(d, &a);
}

enum status explainer_try(struct explainer *x, struct decision *d, const struct plan_request *s, const struct strategy *strategy,
                          const char *say)
{
    struct candidate c;
    struct problem problem;
    problem_set(&problem, x->m, s, x->p->limit);
    TRY(search_price(&problem, strategy, &c));
    explainer_add(d, &c, c.seconds, say);
    return OK;
}
