/* Placements that need the least memory, or ought to be fast, from few trials. */
#include "plan/search/smallest.h"

#include "plan/search/select.h"
#include "plan/search/trial.h"
#include "plan/search/tuning.h"

#include <math.h>

void search_empty_device(struct problem *p)
{
    struct plan_request *s = &p->request;
    for (int d = 0; d < DECISIONS; d++) {
        enum offload *tier = decision_request(s, d);
        if (tier && *tier == OFFLOAD_AUTO)
            *tier = p->limit[TIER_NVME] > 0 ? OFFLOAD_NVME : OFFLOAD_CPU;
    }
    if (s->alpha < 0)
        s->alpha = 0;
    if (s->update == UPDATE_AUTO)
        s->update = UPDATE_HOST;
}

/* Finds the smallest placement with the layer inputs of the fixed strategy, with as few kept chunks as the request allows. */
static enum status smallest_inputs(const struct problem *p, const struct strategy *fixed, struct candidate *out)
{
    struct problem emptied = *p;
    struct search x;
    emptied.request.alpha = p->request.alpha < 0 ? 0 : p->request.alpha;
    TRY(search_list(&emptied, fixed, 1, &x));
    enum status st = select_smallest(&emptied, &x);
    if (st == OK)
        *out = x.candidates[0];
    search_destroy(&x);
    return st;
}

enum status search_smallest(const struct problem *p, const struct strategy *fixed, struct candidate *out)
{
    struct strategy fewer = *fixed;
    struct candidate next;
    TRY(smallest_inputs(p, fixed, out));
    while (out->excess > 1 && out->excess <= INPUTS_HELP && search_fewer_inputs(p, &fewer)) {
        TRY(smallest_inputs(p, &fewer, &next));
        double gained = out->excess - next.excess;
        if (gained > 0)
            *out = next;
        if (search_is_hopeless(out->excess, gained))
            return OK;
    }
    return OK;
}

/* Moves the candidate that ought to fit and to be the fastest to index n. Returns 0 if none ought to fit. */
static int bring_promising(struct search *x, int n, double rate)
{
    int at = -1;
    double least = INFINITY;
    for (int i = n; i < x->n; i++) {
        const struct candidate *c = &x->candidates[i];
        double seconds = c->estimate + rate * c->traffic;
        if (c->excess <= 1 && seconds < least) {
            least = seconds;
            at = i;
        }
    }
    if (at < 0)
        return 0;
    struct candidate next = x->candidates[at];
    x->candidates[at] = x->candidates[n];
    x->candidates[n] = next;
    return 1;
}

enum status search_least(const struct problem *p, const struct strategy *fixed, struct candidate *out)
{
    struct search x;
    TRY(search_list(p, fixed, 1, &x));
    *out = x.candidates[0];
    for (int i = 1; i < x.n; i++)
        if (x.candidates[i].excess < out->excess)
            *out = x.candidates[i];
    search_destroy(&x);
    return OK;
}

enum status search_emptied(const struct problem *p, const struct strategy *fixed, struct candidate *out)
{
    struct problem emptied = *p;
    search_empty_device(&emptied);
    return search_least(&emptied, fixed, out);
}

enum status search_promising(const struct problem *p, const struct strategy *fixed, double rate, struct candidate *out)
{
    struct search x;
    TRY(search_list(p, fixed, 1, &x));
    struct trials t = {p, &x, TRIAL_SLACK};
    enum status st = OK;
    double spent = 0;
    *out = x.candidates[0];
    for (int i = 0; i < x.n && spent < PROMISING_INSTRS && bring_promising(&x, i, rate); i++) {
        struct candidate *c = &x.candidates[i];
        spent += trial_instrs(&t, c);
        TRY_GOTO(trial_run(&t, c, 0), done);
        if (!out->tried || candidate_order(c, out) < 0)
            *out = *c;
    }
done:
    search_destroy(&x);
    return st;
}
