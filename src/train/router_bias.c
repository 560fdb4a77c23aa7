#include "train/router_bias.h"

#include "base/sys.h"
#include "engine/expert_load.h"
#include "engine/session_state.h"

#include <stdlib.h>
#include <string.h>

/* Returns the block of experts whose bias chooses, in a layer; NULL: there is none. */
static const struct experts_block *biased(const struct model *m, int64_t layer)
{
    const struct model_block *b = model_find_block(&m->layers[layer], BLOCK_EXPERTS);
    return b && b->experts.router_bias >= 0 ? &b->experts : NULL;
}

int router_bias_exists(const struct model *m)
{
    for (int64_t l = 0; l < m->config.layers; l++)
        if (biased(m, l))
            return 1;
    return 0;
}

/* Copies elements of a router's unit to their places in a copy of the unit; `give` copies them back. */
static enum status take(void *user, int unit, int64_t first, int64_t n, float *data)
{
    (void)unit;
    memcpy((float *)user + first, data, (size_t)n * sizeof *data);
    return OK;
}

static enum status give(void *user, int unit, int64_t first, int64_t n, float *data)
{
    (void)unit;
    memcpy(data, (const float *)user + first, (size_t)n * sizeof *data);
    return OK;
}

/* Moves the biases of one layer in a copy of the router's unit. */
static void move(float *bias, int64_t experts, float rate, const double *counts)
{
    double sum = 0;
    for (int64_t e = 0; e < experts; e++)
        sum += counts[e];
    for (int64_t e = 0; e < experts; e++) {
        const double fewer = sum - counts[e] * (double)experts; /* exact: counts are integers */
        bias[e] += fewer > 0 ? rate : fewer < 0 ? -rate : 0;
    }
}

static enum status move_layer(struct session *s, const struct experts_block *e, float rate, const double *counts)
{
    const struct model_param *p = &s->model->params[e->router_bias];
    const int64_t elements = s->model->units[p->unit].elements;
    float *unit = sys_calloc((size_t)elements, sizeof *unit);
    if (!unit)
        return status_fail(ERR_NOMEM, "out of memory for a router of %lld elements", (long long)elements);
    enum status st = session_visit(s, p->unit, STATE_PARAM, STATE_READ, take, unit);
    move(unit + p->offset, e->experts, rate, counts);
    if (st == OK)
        st = session_visit(s, p->unit, STATE_PARAM, STATE_WRITE, give, unit);
    free(unit);
    return st;
}

enum status router_bias_move(struct session *s, double rate, const double *counts)
{
    counts += expert_counts_first(s);
    for (int64_t l = 0; l < s->model->config.layers; l++) {
        const struct experts_block *e = biased(s->model, l);
        if (!e)
            continue;
        TRY(move_layer(s, e, (float)rate, counts));
        counts += e->experts;
    }
    return OK;
}
