/* The explanation of where experts are: in which tier, and whether rows travel to them or they are gathered where the rows are. */
#include "plan/report/explain_experts.h"

#include "base/units.h"
#include "machine/rank_cost.h"
#include "plan/report/describe.h"
#include "program/mesh.h"

#include <stdio.h>

/* Returns the bytes that a rank sends for rows to other ranks' experts and back, in a step: two messages of the forward pass, three of
 * the backward pass, of equally busy experts. */
static double bytes_of_rows(const struct explainer *x, double ep)
{
    const struct strategy *s = &x->p->strategy;
    const struct model_config *c = &x->m->config;
    const double forth = x->s->evaluation ? 2 : 5;
    return forth * model_expert_layers(x->m) * (double)s->rows * (double)c->experts_used * (double)model_expert_dim(c) *
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

/* Returns the seconds of the messages of rows and of the experts' state, with a degree of ep. Compute hides a part of them. */
static double seconds_of(const struct explainer *x, int ep)
{
    const int ranks = x->p->strategy.ranks;
    struct plan_request r = *x->s;
    struct cost_model cost;
    r.mesh = x->p->strategy.key.mesh;
    r.mesh.degree[MESH_EP] = ep;
    plan_cost_model(&r, &cost);
    if (ep == 1)
        return bytes_of_state(x, 1, ranks) / cost.lane_bytes[LANE_WORLD];
    return bytes_of_rows(x, ep) / cost.lane_bytes[LANE_EP] +
           bytes_of_state(x, ep, (double)ranks / ep) / cost.lane_bytes[LANE_EXPERTS];
}

/* Says what ranks would send if experts read and gave whole rows: the stacks and what travels are as many times as wide. */
static void explain_narrow_rows(struct explainer *x, int ep)
{
    const int ranks = x->p->strategy.ranks;
    const int64_t dim = x->m->config.dim, narrow = x->m->config.expert_dim;
    const double wide = narrow > 0 ? (double)dim / (double)narrow : 1;
    const double sent[] = {bytes_of_rows(x, ep), bytes_of_state(x, ep, (double)ranks / ep), bytes_of_state(x, 1, ranks)};
    char say[64], now[3][32], whole[3][32];
    if (narrow == 0)
        return;
    for (int i = 0; i < 3; i++) {
        units_format_bytes((int64_t)sent[i], now[i]);
        units_format_bytes((int64_t)(wide * sent[i]), whole[i]);
    }
    snprintf(say, sizeof say, "%lld of %lld columns", (long long)narrow, (long long)dim);
    struct decision *d = explainer_decide(x, "rows that experts read and give", "moe_latent_size of config.json", say, 0);
    snprintf(d->note, sizeof d->note,
             "a rank sends, and without them: rows %s, %s with ep=%d; experts' state %s, %s; their state with ep=1 %s, %s",
             now[0], whole[0], ep, now[1], whole[1], now[2], whole[2]);
}

void explain_shared_experts(struct explainer *x)
{
    const int ranks = x->p->strategy.ranks, chosen = mesh_degree(&x->p->strategy.key.mesh, MESH_EP), ep = degree_of(x);
    char say[16], rows[32], rest[32], all[32], with[32], without[32];
    if (ep == 1 || (chosen == 1 && !(x->s->open_degrees & 1u << MESH_EP)))
        return;
    snprintf(say, sizeof say, "ep=%d", chosen);
    struct decision *d = explainer_decide(x, "ranks that share experts out", "--mesh", say, 0);
    snprintf(
        d->note, sizeof d->note,
        "with ep=%d a rank sends %s of rows a step and %s of its experts' state, with ep=1 %s of state; without what compute "
        "hides that is %s against %s",
        ep, units_format_bytes((int64_t)bytes_of_rows(x, ep), rows),
        units_format_bytes((int64_t)bytes_of_state(x, ep, (double)ranks / ep), rest),
        units_format_bytes((int64_t)bytes_of_state(x, 1, ranks), all), report_duration(seconds_of(x, ep), with),
        report_duration(seconds_of(x, 1), without));
    explain_narrow_rows(x, ep);
}

enum status explain_experts(struct explainer *x)
{
    const int chosen = x->p->strategy.placement.experts_at;
    const double waits = x->report.experts.exposed / x->p->seconds;
    char moved[32], wait[64] = "hidden behind compute";
    if (x->m->config.experts == 0)
        return OK;
    struct decision *d =
        explainer_decide(x, "experts' parameters, gradients and optimizer state", "--offload experts",
                         chosen > 0 ? tier_name((enum tier)(chosen - 1)) : "where others are", x->s->experts != OFFLOAD_AUTO);
    if (waits >= 0.005)
        snprintf(wait, sizeof wait, "compute waits %.0f%% of the step for that", 100 * waits);
    if (x->report.experts.moved > 0)
        snprintf(d->note, sizeof d->note, "a step moves %s of them, all of a layer's right before their products, %s",
                 units_format_bytes(x->report.experts.moved, moved), wait);
    else
        snprintf(d->note, sizeof d->note, "nothing of them moves");
    for (int at = 0; at <= 1 + (int)RES_NVME; at++) {
        struct strategy other = x->p->strategy;
        other.placement.experts_at = at;
        if (at != chosen)
            TRY(explainer_try(x, d, x->s, &other, at > 0 ? tier_name((enum tier)(at - 1)) : "where others are"));
    }
    return OK;
}
