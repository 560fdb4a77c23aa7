#include "model/share.h"

#include "base/sys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writes the numbers of ranks that divide the experts, as "2, 4, 8". */
static void list_legal(int64_t experts, char *text, size_t room)
{
    text[0] = 0;
    for (int64_t d = 2; d <= experts; d++)
        if (experts % d == 0 && strlen(text) + 16 < room)
            snprintf(text + strlen(text), room - strlen(text), "%s%lld", text[0] ? ", " : "", (long long)d);
}

enum status model_share_check(const struct model *m, int ep)
{
    char legal[128];
    if (ep <= 1)
        return OK;
    if (m->config.experts == 0)
        return status_fail(ERR_INVALID, "--mesh: ep=%d shares experts out, but model %s has none: leave ep out", ep,
                           m->config.name);
    list_legal(m->config.experts, legal, sizeof legal);
    if (m->config.experts % ep)
        return status_fail(ERR_INVALID, "--mesh: ep=%d does not divide the model's %lld experts: take ep=%s", ep,
                           (long long)m->config.experts, legal);
    for (int i = 0; i < m->n_params; i++) {
        const struct model_param *p = &m->params[i];
        if (!model_unit_has_experts(m, p->unit))
            continue;
        if (p->adapter)
            return status_fail(ERR_INVALID,
                               "--mesh: ep=%d: experts with adapters are not shared out to ranks: leave ep out, or adapt other "
                               "maps (--lora targets=...)",
                               ep);
        if (p->packed_bytes > 0)
            return status_fail(ERR_INVALID,
                               "--mesh: ep=%d: experts of a quantised base are not shared out to ranks: leave ep out", ep);
        if (p->shape[1] == 0)
            return status_fail(ERR_INVALID, "--mesh: ep=%d: experts with biases are not shared out to ranks: leave ep out", ep);
    }
    return OK;
}

int model_share_of(const struct model *m, int ep, int unit)
{
    return ep > 1 && m->experts_shared <= 1 && model_unit_has_experts(m, unit) ? ep : 1;
}

/* Reduces a stack, whose matrices lie one below the other, to one rank's share. */
static void divide_param(struct model_param *p, int ep)
{
    p->experts /= ep;
    p->shape[0] /= ep;
    p->elements /= ep;
    p->offset /= ep;
}

enum status model_share_create(const struct model *m, int ep, struct model *out)
{
    *out = *m;
    out->units = sys_malloc((size_t)m->n_units * sizeof *out->units);
    out->params = sys_malloc((size_t)m->n_params * sizeof *out->params);
    if (!out->units || !out->params) {
        model_share_free(out);
        return status_fail(ERR_NOMEM, "out of memory: a rank's share of the experts of %d parameters", m->n_params);
    }
    memcpy(out->units, m->units, (size_t)m->n_units * sizeof *out->units);
    memcpy(out->params, m->params, (size_t)m->n_params * sizeof *out->params);
    for (int u = 0; u < m->n_units; u++) {
        struct model_unit *unit = &out->units[u];
        if (model_share_of(m, ep, u) == 1)
            continue;
        unit->elements /= ep;
        unit->trained_elements /= ep;
        unit->decay_elements /= ep;
        for (int i = unit->first_param; i < unit->first_param + unit->n_params; i++)
            divide_param(&out->params[i], ep);
    }
    out->experts_shared = ep;
    return OK;
}

void model_share_free(struct model *shared)
{
    free(shared->units);
    free(shared->params);
}

int64_t model_share_piece(const struct model *m, int ep, int member, int unit, int64_t first, int64_t n, int64_t *there)
{
    const int of = model_share_of(m, ep, unit);
    const struct model_unit *u = &m->units[unit];
    *there = first;
    if (of == 1)
        return n;
    int i = u->first_param;
    while (i + 1 < u->first_param + u->n_params && first >= m->params[i + 1].offset / of)
        i++;
    const struct model_param *p = &m->params[i];
    const int64_t share = p->elements / of, within = first - p->offset / of;
    *there = p->offset + member * share + within;
    return min_i64(n, share - within);
}
