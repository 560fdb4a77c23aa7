/* All placements that settings leave open on one grid of tiles. */
#include "plan/search/space.h"

#include "base/sys.h"
#include "plan/search/tuning.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void remove_redundant(struct search *s)
{
    int n = 0;
    for (int i = 0; i < s->n; i++)
        if (!s->candidates[i].redundant)
            s->candidates[n++] = s->candidates[i];
    s->n = n;
}

/* Tells whether programs are small enough to be tried with all layers. */
int search_is_small(const struct estimator *e)
{
    double all, layer;
    estimator_instrs(e, &all, &layer);
    return all <= TRIAL_WHOLE_INSTRS;
}

/* Lists all placements that the settings leave open; estimates them if there are several or if `always`. */
enum status search_list(const struct problem *p, const struct strategy *fixed, int always, struct search *out)
{
    struct options o;
    options_of(p->model, &p->request, fixed, &o);
    *out = (struct search){.n = options_count(&o), .beat = INFINITY};
    out->candidates = sys_calloc((size_t)out->n + 2 + SEARCH_PUT + PROMOTE_MOST + REFINE_MOST, sizeof *out->candidates);
    enum status st = out->candidates ? OK : status_no_memory("while planning");
    if (st == OK && (out->n > 1 || always))
        st = estimator_create(p, &o, fixed, &out->estimator);
    if (st != OK) {
        search_destroy(out);
        return st;
    }
    const struct options *open = out->estimator ? estimator_options(out->estimator) : &o;
    out->n = options_count(open);
    out->all_layers = out->estimator && search_is_small(out->estimator);
    for (int i = 0; i < out->n; i++) {
        struct candidate *c = &out->candidates[i];
        c->strategy = *fixed;
        c->place = i;
        options_place(open, i, &c->strategy);
        if (out->estimator)
            estimator_judge(out->estimator, c);
    }
    remove_redundant(out);
    return OK;
}

/* Choices for keep_inputs: one of this many layers keeps its input. */
static const int turns[] = {2, 4, 8};
enum { TURNS = sizeof turns / sizeof *turns };
/* Lowers the number of kept layer inputs by one step, if the settings leave it open and the model has enough layers. Returns 0 if
 * there is no such step. */
int search_fewer_inputs(const struct problem *p, struct strategy *out)
{
    int i = 0;
    while (i < TURNS && turns[i] <= out->placement.keep_inputs)
        i++;
    if (p->request.keep_inputs > 0 || i == TURNS || turns[i] >= (int)p->model->config.layers)
        return 0;
    out->placement.keep_inputs = turns[i];
    return 1;
}

/* Tells whether no number of kept inputs will fit: each further step gains half of the last one, so all together gain at most as
 * much. */
int search_is_hopeless(double excess, double gained)
{
    return excess - gained > 1;
}

void search_keep_most(const struct search *x, int high, struct candidate *c)
{
    struct candidate more = *c;
    int low = c->strategy.placement.kept_chunks;
    while (low < high) {
        more.strategy.placement.kept_chunks = (low + high + 1) / 2;
        estimator_judge(x->estimator, &more);
        if (more.excess <= 1) {
            low = more.strategy.placement.kept_chunks;
            *c = more;
        } else {
            high = more.strategy.placement.kept_chunks - 1;
        }
    }
}

int search_decided(const struct search *x, const struct strategy *s)
{
    for (int i = 0; i < x->n_tried; i++)
        if (candidate_decides(&x->candidates[i], s))
            return 1;
    return 0;
}

void search_put(struct search *x, int at, const struct candidate *c)
{
    memmove(&x->candidates[at + 1], &x->candidates[at], (size_t)(x->n - at) * sizeof *c);
    x->candidates[at] = *c;
    x->n++;
    x->n_tried++;
}

void search_destroy(struct search *s)
{
    free(s->candidates);
    estimator_destroy(s->estimator);
    s->candidates = NULL;
    s->estimator = NULL;
    s->n = 0;
}
