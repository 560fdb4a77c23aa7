#include "plan/report/explain_stages.h"

#include "plan/roles.h"

#include <stddef.h>
#include <stdio.h>

/* Plans all stages briefly as a request says. *legal: 0: other settings rule that out, and there are no numbers. */
static enum status plan_as(const struct explainer *x, const struct plan_request *s, struct alternative *out, int *legal)
{
    struct plan_request brief = *s;
    struct plan *p;
    brief.effort = EFFORT_QUICK;
    const enum status st = plan_stages_create(x->m, &brief, 0, x->p->limit, &p);
    *legal = st == OK;
    if (st != OK)
        return st == ERR_NOMEM ? st : OK;
    plan_show_misfit(&p);
    out->seconds = plan_step_seconds(p);
    out->fits = p->fits;
    for (int t = 0; t < TIERS; t++)
        out->bytes[t] = p->arena[t];
    plan_destroy(p);
    return OK;
}

static enum status try_stages(struct explainer *x, struct decision *d, const struct plan_request *s, const char *say)
{
    struct alternative a = {.fits = 0};
    int legal;
    TRY(plan_as(x, s, &a, &legal));
    snprintf(a.say, sizeof a.say, "%s", say);
    if (legal)
        explainer_keep(d, &a);
    return OK;
}

/* Tries twice and half as many slices of a sequence. */
static enum status explain_slices(struct explainer *x, const struct plan_request *chosen)
{
    const int slices = strategy_slices(&x->p->strategy), other[] = {2 * slices, slices / 2};
    char say[64];
    snprintf(say, sizeof say, "%d", slices);
    struct decision *d = explainer_decide(x, "slices of each sequence", "--mesh", say, 0);
    for (int i = 0; i < 2; i++) {
        struct plan_request s = *chosen;
        s.mesh.degree[MESH_SLICES] = other[i];
        s.row_chunk = s.loss_tile = s.head_tile = AUTO; /* the plan's tiles may be longer than the other slices */
        snprintf(say, sizeof say, "%d", other[i]);
        if (other[i] > 0)
            TRY(try_stages(x, d, &s, say));
    }
    return OK;
}

static enum status explain_ahead(struct explainer *x, const struct plan_request *chosen)
{
    static const char *const when[] = {"at once", "a tick later"};
    struct plan_request s = *chosen;
    struct decision *d = explainer_decide(x, "messages between stages", "--stage-ahead", when[x->p->strategy.ahead != 0],
                                          x->s->stage_ahead != AUTO);
    s.stage_ahead = !x->p->strategy.ahead;
    return try_stages(x, d, &s, when[s.stage_ahead]);
}

static enum status explain_zero(struct explainer *x, const struct plan_request *chosen)
{
    char say[64];
    snprintf(say, sizeof say, "%d", x->p->strategy.key.zero);
    struct decision *d = explainer_decide(x, "ZeRO stage", "--zero", say, !x->s->zero_is_unsaid);
    for (int stage = 1; stage <= 3; stage++) {
        struct plan_request s = *chosen;
        s.zero = stage;
        snprintf(say, sizeof say, "%d", stage);
        if (stage != x->p->strategy.key.zero)
            TRY(try_stages(x, d, &s, say));
    }
    return OK;
}

/* Tries the other tiers of each class. */
static enum status explain_tiers(struct explainer *x, const struct plan_request *chosen)
{
    static const struct {
        const char *what, *flag;
        size_t given, placed; /* offsets in struct plan_request and struct strategy */
    } classes[] = {
        {"parameters", "--offload params", offsetof(struct plan_request, params), offsetof(struct strategy, placement.params)},
        {"gradients", "--offload grads", offsetof(struct plan_request, grads), offsetof(struct strategy, placement.grads)},
        {"optimizer state", "--offload optim", offsetof(struct plan_request, optim), offsetof(struct strategy, placement.optim)},
        {"activations", "--offload acts", offsetof(struct plan_request, acts), offsetof(struct strategy, placement.acts)}};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        const enum residency at = *(const enum residency *)((const char *)&x->p->strategy + classes[i].placed);
        const enum offload given = *(const enum offload *)((const char *)x->s + classes[i].given);
        struct decision *d =
            explainer_decide(x, classes[i].what, classes[i].flag, tier_name((enum tier)at), given != OFFLOAD_AUTO);
        for (int t = 0; t < TIERS; t++) {
            struct plan_request s = *chosen;
            *(enum offload *)((char *)&s + classes[i].given) = (enum offload)(OFFLOAD_NONE + t);
            if (t != (int)at)
                TRY(try_stages(x, d, &s, tier_name((enum tier)t)));
        }
    }
    return OK;
}

enum status explain_stages(struct explainer *x)
{
    struct plan_request chosen = *x->s;
    struct alternative own = {.fits = 0};
    int legal;
    chosen.mesh = x->p->strategy.key.mesh;
    chosen.zero = x->p->strategy.key.zero;
    chosen.stage_ahead = x->p->strategy.ahead;
    chosen.stage_layers = x->p->strategy.key.stages;
    chosen.open_degrees = chosen.open_parts = 0;
    TRY(plan_as(x, &chosen, &own, &legal));
    x->out->seconds = own.fits ? own.seconds : plan_step_seconds(x->p);
    TRY(explain_tiers(x, &chosen));
    TRY(explain_zero(x, &chosen));
    TRY(explain_slices(x, &chosen));
    return explain_ahead(x, &chosen);
}
