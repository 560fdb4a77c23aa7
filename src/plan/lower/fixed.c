/* The part of a strategy that settings fix before a placement is searched. */
#include "plan/lower/fixed.h"

#include "plan/lower/grid.h"
#include "plan/lower/program.h"
#include "seqpar/seqpar.h"

#include <assert.h>
#include <math.h>

int64_t plan_pieces_of(const struct plan_request *s)
{
    return s->grad_accum * mesh_degree(&s->mesh, MESH_SLICES);
}

int plan_first_duties(const struct plan_request *s)
{
    return s->evaluation ? DUTY_FORWARD
                         : DUTY_UPDATE | DUTY_FORWARD | DUTY_BACKWARD | DUTY_FIRST | (plan_pieces_of(s) == 1 ? DUTY_LAST : 0);
}

static int chunks_of(const struct strategy *grid, double alpha)
{
    return (int)(alpha * (double)ceil_div(grid->rows, grid->key.row_chunk) + 0.5);
}

int plan_kept_chunks(const struct model *m, const struct plan_request *s, const struct strategy *grid, double alpha)
{
    const int64_t layers = m->config.layers, light = model_light_layers(m);
    if (!s->alpha_by_kind)
        return chunks_of(grid, alpha);
    return (int)ceil_div((layers - light) * chunks_of(grid, s->alpha) + light * chunks_of(grid, s->window_alpha), layers);
}

void plan_keep_as_given(const struct model *m, const struct plan_request *s, struct strategy *out)
{
    if (s->alpha_by_kind)
        strategy_keep_by_kind(out, m, chunks_of(out, s->alpha), chunks_of(out, s->window_alpha));
}

double plan_alpha_error(const struct plan_request *s, const struct strategy *grid)
{
    const double chunks = (double)ceil_div(grid->rows, grid->key.row_chunk),
                 full = fabs(chunks_of(grid, s->alpha) / chunks - s->alpha);
    if (s->alpha < 0)
        return 0;
    return s->alpha_by_kind ? fmax(full, fabs(chunks_of(grid, s->window_alpha) / chunks - s->window_alpha)) : full;
}

/* Refuses shares for two kinds of layers for a model that has only one kind. */
static enum status check_alpha(const struct model *m, const struct plan_request *s)
{
    if (s->alpha_by_kind && !model_has_light(m))
        return status_fail(ERR_INVALID,
                           "--alpha window=%g,full=%g is for models of which some layers alone have a window: all layers of this "
                           "one attend alike, give one number",
                           s->window_alpha, s->alpha);
    return OK;
}

/* Refuses a tier of experts for a model that has none. */
static enum status check_experts(const struct model *m, const struct plan_request *s)
{
    if (s->experts != OFFLOAD_AUTO && m->config.experts == 0)
        return status_fail(ERR_INVALID, "--offload experts: model %s has no experts: leave it out", m->config.name);
    return OK;
}

/* Refuses micro-batches whose tokens cannot be numbered. */
static enum status check_micro_batch(const struct plan_request *s)
{
    if (s->micro_batch <= INT32_MAX / s->seq_len)
        return OK;
    return status_fail(
        ERR_INVALID,
        "--micro-batch: %lld sequences of %lld tokens are more than the 2^31 tokens of a micro-batch: take at most %lld",
        (long long)s->micro_batch, (long long)s->seq_len, (long long)(INT32_MAX / s->seq_len));
}

enum status plan_fixed(const struct model *m, const struct plan_request *s, struct strategy *out)
{
    assert(s->target);
    TRY(check_alpha(m, s));
    TRY(check_experts(m, s));
    if (s->micro_batch > 1)
        TRY(check_micro_batch(s));
    struct strategy fixed = {.key.wire = s->grad_dtype,
                             .key.dtype = s->dtype,
                             .key.moments = s->optim_dtype,
                             .key.packed = s->micro_batch,
                             .placement.prefetch = s->prefetch,
                             .ahead = s->stage_ahead == 1 && mesh_degree(&s->mesh, MESH_PP) > 1,
                             .placement.experts_at = (int)s->experts, /* OFFLOAD_NONE is 1 */
                             .evaluates = s->evaluation || s->scores || s->eval_before || s->eval_every > 0,
                             .weighted = s->weighted,
                             .placement.keep_inputs = (int)max_i64(1, s->keep_inputs > 0 ? s->keep_inputs : s->inputs_from),
                             .target = s->target,
                             .discrete = s->device == DEVICE_CPU_DISCRETE || s->device == DEVICE_CUDA};
    struct seq_shape shape;
    for (int d = 0; d < MESH_DIMS; d++)
        fixed.key.mesh.degree[d] = (int)max_i64(1, s->mesh.degree[d]);
    fixed.key.stages = s->stage_layers;
    const int slices = strategy_slices(&fixed);
    TRY(seq_shape_create_pieces(ceil_div(s->micro_batch * s->seq_len, slices), fixed.key.mesh.degree[MESH_ULYSSES],
                                fixed.key.mesh.degree[MESH_RING], SEQ_AUTO, model_least_piece(m), fixed.key.mesh.degree[MESH_TP],
                                &shape));
    fixed.seq_len = shape.padded * slices;
    fixed.rows = seq_rank_rows(&shape);
    if (shape.ulysses * shape.ring > 1 && model_least_piece(m) > 0)
        fixed.piece = seq_piece(&shape);
    fixed.ranks = (int)mesh_ranks(&fixed.key.mesh);
    fixed.sequences = s->batch > 0 ? s->batch : s->grad_accum * s->micro_batch * fixed.key.mesh.degree[MESH_DP];
    fixed.key.zero = fixed.ranks == 1 ? 0 : s->zero == AUTO ? 3 : s->zero;
    TRY(plan_tiles(m, s, &fixed));
    *out = fixed;
    return OK;
}
