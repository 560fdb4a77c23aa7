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
    p->packed_bytes /= ep;
    p->packed_offset /= ep;
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
        unit->packed_bytes /= ep;
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

/* Place of a stack in its unit: elements, or bytes of a quantised one. */
struct place_of_stack {
    int64_t first, n;
};

static struct place_of_stack place_of(const struct model_param *p, int packed)
{
    return packed ? (struct place_of_stack){p->packed_offset, p->packed_bytes} : (struct place_of_stack){p->offset, p->elements};
}

/* Finds elements, or (packed) bytes, of a member's share in the whole unit. */
static int64_t find_piece(const struct model *m, const struct model_share *s, int packed, int unit, int64_t first, int64_t n,
                          int64_t *there)
{
    const int of = model_share_of(m, s->ep, unit);
    const struct model_unit *u = &m->units[unit];
    *there = first;
    for (int i = u->first_param; of > 1 && i < u->first_param + u->n_params; i++) {
        const struct place_of_stack whole = place_of(&m->params[i], packed);
        const int64_t share = whole.n / of, within = first - whole.first / of;
        if (within < 0 || within >= share)
            continue;
        *there = whole.first + s->member * share + within;
        return min_i64(n, share - within);
    }
    return n;
}

int64_t model_share_piece(const struct model *m, const struct model_share *s, int unit, int64_t first, int64_t n, int64_t *there)
{
    return find_piece(m, s, 0, unit, first, n, there);
}

int64_t model_share_bytes(const struct model *m, const struct model_share *s, int unit, int64_t first, int64_t n, int64_t *there)
{
    return find_piece(m, s, 1, unit, first, n, there);
}
