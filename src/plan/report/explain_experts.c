/* The explanation of where experts are: rows that travel to them, or experts that are gathered where the rows are. */
#include "plan/report/explain_experts.h"

#include "base/units.h"
#include "program/mesh.h"

#include <stdio.h>

/* Returns the bytes that a rank sends for rows to other ranks' experts and back, in a step: two messages of the forward pass, three of
 * the backward pass, of equally busy experts. */
static double bytes_of_rows(const struct explainer *x, double ep)
{
    const struct strategy *s = &x->p->strategy;
    const struct model_config *c = &x->m->config;
    const double forth = x->s->evaluation ? 2 : 5;
    return forth * model_expert_layers(x->m) * (double)s->rows * (double)c->experts_used * (double)c->dim *
           (double)dtype_size(s->key.dtype) * (double)x->p->micro_batches * (ep - 1) / ep;
}

/* Returns the bytes that a rank sends for the state of its experts, in a step, if `ranks` ranks have the same ones: at stage 3 both
 * passes gather them, below the update does, and gradients are summed. */
static double bytes_of_state(const struct explainer *x, double ep, double ranks)
{
    const struct strategy *s = &x->p->strategy;
    const double micro = (double)x->p->micro_batches;
    double stored = 0, trained = 0;
    for (int u = 0; u < x->m->n_units; u++)
        if (model_unit_has_experts(x->m, u)) {
            stored += (double)x->m->units[u].elements * (double)dtype_size(s->key.dtype) / ep;
            trained += (double)x->m->units[u].trained_elements * (double)dtype_size(s->key.wire) / ep;
        }
    const double gathers = s->key.zero == 3 ? micro * (x->s->evaluation ? 1 : 2) : 1, sums = x->s->evaluation   ? 0
                                                                                             : s->key.zero >= 2 ? micro
                                                                                                                : 1;
    return (ranks - 1) / ranks * (gathers * stored + sums * trained);
}

/* Returns the degree that is compared: the plan's, or the largest that divides ranks and experts. */
static int degree_of(const struct explainer *x)
{
    int ep = mesh_degree(&x->p->strategy.key.mesh, MESH_EP);
    for (int d = x->p->strategy.ranks; d > 1 && ep == 1; d--)
        if (x->p->strategy.ranks % d == 0 && x->m->config.experts % d == 0)
            ep = d;
    return ep;
}

void explain_shared_experts(struct explainer *x)
{
    const int ranks = x->p->strategy.ranks, chosen = mesh_degree(&x->p->strategy.key.mesh, MESH_EP), ep = degree_of(x);
    char say[16], rows[32], rest[32], all[32];
    if (ep == 1 || (chosen == 1 && !(x->s->open_degrees & 1u << MESH_EP)))
        return;
    snprintf(say, sizeof say, "ep=%d", chosen);
    struct decision *d = explainer_decide(x, "ranks that share experts out", "--mesh", say, 0);
    snprintf(d->note, sizeof d->note,
             "with ep=%d a rank sends %s of rows a step and %s of its experts' state, with ep=1 %s of state", ep,
             units_format_bytes((int64_t)bytes_of_rows(x, ep), rows),
             units_format_bytes((int64_t)bytes_of_state(x, ep, (double)ranks / ep), rest),
             units_format_bytes((int64_t)bytes_of_state(x, 1, ranks), all));
}
