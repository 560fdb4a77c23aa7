/* Which placements there are, and which of them come first. */
#include "plan/search_trials.h"

#include "base/sys.h"

#include <stdlib.h>

static void remove_redundant(struct search *s)
{
    int n = 0;
    for (int i = 0; i < s->n; i++)
        if (!s->candidates[i].redundant)
            s->candidates[n++] = s->candidates[i];
    s->n = n;
}

/* All that the settings leave open, estimated if there is a choice or if it is asked for. */
static enum status list_all(const struct model *m, const struct settings *s, const struct strategy *fixed,
                            const struct cost_model *cost, const int64_t limit[TIERS], int always, struct search *out)
{
    struct options o;
    options_of(s, fixed, (int)m->config.layers, &o);
    *out = (struct search){.n = options_count(&o)};
    out->candidates = sys_calloc((size_t)out->n + SEARCH_FINER, sizeof *out->candidates);
    enum status st = out->candidates ? OK : status_fail(ERR_NOMEM, "out of memory while planning");
    if (st == OK && (out->n > 1 || always))
        st = estimator_create(m, s, &o, fixed, cost, limit, &out->estimator);
    if (st != OK) {
        search_destroy(out);
        return st;
    }
    for (int i = 0; i < out->n; i++) {
        struct candidate *c = &out->candidates[i];
        c->strategy = *fixed;
        c->place = i;
        options_place(&o, i, &c->strategy);
        if (out->estimator)
            estimator_judge(out->estimator, c);
    }
    remove_redundant(out);
    return OK;
}

enum status search_create(const struct model *m, const struct settings *s, const struct strategy *fixed,
                          const struct cost_model *cost, const int64_t limit[TIERS], struct search *out)
{
    TRY(list_all(m, s, fixed, cost, limit, 0, out));
    if (out->n == 1)
        return OK;
    struct trials t = {m, s, cost, limit, out};
    qsort(out->candidates, (size_t)out->n, sizeof *out->candidates, search_order);
    enum status st = search_try(m, s, cost, limit, out);
    if (st == OK)
        st = search_refine(&t, out);
    if (st != OK)
        search_destroy(out);
    return st;
}

enum status search_leanest(const struct model *m, const struct settings *s, const struct strategy *fixed,
                           const struct cost_model *cost, const int64_t limit[TIERS], struct candidate *out)
{
    struct search x;
    TRY(list_all(m, s, fixed, cost, limit, 1, &x));
    enum status st = search_try_leanest(m, s, cost, limit, &x);
    if (st == OK)
        *out = x.candidates[0];
    search_destroy(&x);
    return st;
}

enum status search_price(const struct model *m, const struct settings *s, const struct strategy *strategy,
                         const struct cost_model *cost, const int64_t limit[TIERS], struct candidate *out)
{
    int n = strategy->device_layers, two = n > 0; /* what stays on the device is reckoned from the activations there */
    struct options o = {.params = {strategy->params},
                        .grads = {strategy->grads},
                        .optim = {strategy->optim},
                        .acts = {two ? RES_DEVICE : strategy->acts, strategy->acts},
                        .n_params = 1,
                        .n_grads = 1,
                        .n_optim = 1,
                        .n_acts = 1 + two,
                        .update = {strategy->update_on_host},
                        .n_update = 1,
                        .device_layers = {n},
                        .n_device_layers = 1,
                        .kept = {strategy->kept_chunks},
                        .n_kept = 1};
    struct strategy fixed = *strategy;
    struct search x = {.candidates = out, .n = 1};
    fixed.device_layers = 0;
    TRY(estimator_create(m, s, &o, &fixed, cost, limit, &x.estimator));
    *out = (struct candidate){.strategy = *strategy};
    estimator_judge(x.estimator, out);
    enum status st = search_try(m, s, cost, limit, &x);
    estimator_destroy(x.estimator);
    return st;
}

void search_destroy(struct search *s)
{
    free(s->candidates);
    estimator_destroy(s->estimator);
    s->candidates = NULL;
    s->estimator = NULL;
    s->n = 0;
}
