/* What settings fix before a placement is searched. */
#include "plan/lower/fixed.h"

#include "plan/lower/grid.h"
#include "plan/lower/program.h"
#include "seqpar/seqpar.h"

#include <assert.h>

int plan_first_role(const struct plan_request *s)
{
    return s->evaluation ? ROLE_FORWARD
                         : ROLE_UPDATE | ROLE_FORWARD | ROLE_BACKWARD | ROLE_FIRST | (s->grad_accum == 1 ? ROLE_LAST : 0);
}

double plan_alpha(const struct model *m, const struct plan_request *s)
{
    const int last = m->n_masks - 1;
    const double with_window = m->mask_layers[last] / (double)m->config.layers;
    return s->alpha_by_kind ? (1 - with_window) * s->alpha + with_window * s->window_alpha : s->alpha;
}

/* Shares for two kinds of layers are for models that have both. */
static enum status check_alpha(const struct model *m, const struct plan_request *s)
{
    if (s->alpha_by_kind && m->n_masks < 2)
        return status_fail(ERR_INVALID,
                           "--alpha window=%g,full=%g is for models of which some layers alone have a window: all layers of this "
                           "one attend alike, give one number",
                           s->window_alpha, s->alpha);
    return OK;
}

enum status plan_fixed(const struct model *m, const struct plan_request *s, struct strategy *out)
{
    assert(s->target);
    TRY(check_alpha(m, s));
    struct strategy fixed = {.wire = s->grad_dtype,
                             .dtype = s->dtype,
                             .moments = s->optim_dtype,
                             .prefetch = s->prefetch,
                             .evaluates = s->evaluation || s->eval_before || s->eval_every > 0,
                             .keep_every = (int)max_i64(1, s->keep_inputs),
                             .target = s->target,
                             .discrete = s->device == DEVICE_CPU_DISCRETE || s->device == DEVICE_CUDA};
    struct seq_shape shape;
    for (int d = 0; d < MESH_DIMS; d++)
        fixed.mesh.degree[d] = (int)max_i64(1, s->mesh.degree[d]);
    TRY(seq_shape_create(s->seq_len, fixed.mesh.degree[MESH_ULYSSES], fixed.mesh.degree[MESH_RING], SEQ_AUTO, &shape));
    fixed.seq_len = shape.padded;
    fixed.rows = seq_rank_rows(&shape);
    fixed.ranks = (int)mesh_ranks(&fixed.mesh);
    fixed.zero = fixed.ranks == 1 ? 0 : s->zero == AUTO ? 3 : s->zero;
    TRY(plan_tiles(m, s, &fixed));
    *out = fixed;
    return OK;
}
