#include "engine/expert_stages.h"

#include "base/sys.h"
#include "engine/expert_load.h"

#include <stdlib.h>
#include <string.h>

struct expert_stages {
    int open;       /* micro-batches in flight at most */
    int slices;     /* slices of each */
    int64_t layers; /* layers with experts of this stage */
    int64_t experts, members, stages;
    int32_t *own;   /* [open, experts]: tokens of this stage's layers by the softmax alone */
    int32_t *plain; /* [open, members, experts]: those of all stages, of each rank that shares the sequence */
    float *sums;    /* [open, experts]: sums of the softmax in this stage's layers */
};

void expert_stages_destroy(struct expert_stages *x)
{
    if (!x)
        return;
    free(x->own);
    free(x->plain);
    free(x->sums);
    free(x);
}

enum status expert_stages_create(const struct session *s, struct expert_stages **out)
{
    const struct strategy *st = &s->plan->strategy;
    *out = NULL;
    if (s->plan->io.plain_stages < 0)
        return OK;
    struct expert_stages *x = sys_calloc(1, sizeof *x);
    if (!x)
        return status_fail(ERR_NOMEM, "out of memory for the counts of experts' tokens");
    *x = (struct expert_stages){.open = strategy_open_micro_batches(st),
                                .slices = strategy_slices(st),
                                .layers = model_expert_layers(s->model),
                                .experts = s->model->config.experts,
                                .members = mesh_sharing(&st->key.mesh),
                                .stages = strategy_stages(st)};
    const size_t n = (size_t)(x->open * x->experts);
    x->own = sys_calloc(n, sizeof *x->own);
    x->plain = sys_calloc(n * (size_t)x->members, sizeof *x->plain);
    x->sums = sys_calloc(n, sizeof *x->sums);
    if (!x->own || !x->plain || !x->sums) {
        expert_stages_destroy(x);
        return status_fail(ERR_NOMEM, "out of memory for the counts of experts' tokens");
    }
    *out = x;
    return OK;
}

static int is_head(enum plan_program which)
{
    return which >= PLAN_HEAD_FIRST && which <= PLAN_HEAD_LAST;
}

/* Returns the number of the place that keeps a piece's micro-batch. */
static int64_t place_of(const struct expert_stages *x, int64_t piece)
{
    return piece / x->slices % x->open;
}

void expert_stages_fill(struct expert_stages *x, struct session *s, enum plan_program which, int64_t piece)
{
    if (!x || piece < 0)
        return;
    const int64_t at = place_of(x, piece), each = x->members * x->experts;
    if (is_head(which))
        memcpy(session_io(s, s->plan->io.plain_own), x->own + at * x->experts, (size_t)x->experts * sizeof *x->own);
    if (which >= PLAN_BACKWARD_FIRST && which <= PLAN_BACKWARD_NEXT)
        memcpy(session_io(s, s->plan->io.plain), x->plain + at * each, (size_t)each * sizeof *x->plain);
}

/* Adds what a forward half has counted to its micro-batch's counts, which the first slice begins. */
static void add_slice(struct expert_stages *x, struct session *s, int64_t piece)
{
    int32_t *own = x->own + place_of(x, piece) * x->experts;
    float *sums = x->sums + place_of(x, piece) * x->experts;
    if (piece % x->slices == 0) {
        memset(own, 0, (size_t)x->experts * sizeof *own);
        memset(sums, 0, (size_t)x->experts * sizeof *sums);
    }
    if (x->layers == 0)
        return;
    const int32_t *counted = (const int32_t *)session_io(s, s->plan->io.load) + x->layers * x->experts;
    const float *softmax = (const float *)(counted + x->experts);
    for (int64_t e = 0; e < x->experts; e++) {
        own[e] += counted[e];
        sums[e] += softmax[e];
    }
}

/* Adds up the counts that all stages have of a micro-batch. */
static void add_stages(struct expert_stages *x, struct session *s, int64_t piece)
{
    const int64_t each = x->members * x->experts;
    const int32_t *all = session_io(s, s->plan->io.plain_stages);
    int32_t *plain = x->plain + place_of(x, piece) * each;
    memset(plain, 0, (size_t)each * sizeof *plain);
    for (int64_t i = 0; i < x->stages * each; i++)
        plain[i % each] += all[i];
}

double expert_stages_take(struct expert_stages *x, struct session *s, enum plan_program which, int64_t piece)
{
    if (!x || piece < 0)
        return 0;
    if (which == PLAN_FORWARD)
        add_slice(x, s, piece);
    if (!is_head(which) || piece % x->slices != x->slices - 1)
        return 0;
    add_stages(x, s, piece);
    return expert_balance_of(s->model, x->plain + place_of(x, piece) * x->members * x->experts, (int)x->members,
                             x->sums + place_of(x, piece) * x->experts);
}
