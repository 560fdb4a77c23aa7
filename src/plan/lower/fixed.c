/* What settings fix before a placement is searched. */
#include "plan/lower/fixed.h"

#include "plan/lower/grid.h"
#include "seqpar/seqpar.h"

#include <assert.h>

static int degree(int given)
{
    return given > 0 ? given : 1;
}

enum status plan_fixed(const struct model *m, const struct plan_request *s, struct strategy *out)
{
    assert(s->target);
    struct strategy fixed = {.dp = degree(s->dp),
                             .ulysses = degree(s->ulysses),
                             .ring = degree(s->ring),
                             .wire = s->grad_dtype,
                             .dtype = s->dtype,
                             .moments = s->optim_dtype,
                             .prefetch = s->prefetch,
                             .input_every = (int)max_i64(1, s->keep_inputs),
                             .target = s->target,
                             .discrete = s->device == DEVICE_CPU_DISCRETE || s->device == DEVICE_CUDA};
    struct seq_shape shape;
    TRY(seq_shape_create(s->seq_len, fixed.ulysses, fixed.ring, SEQ_AUTO, &shape));
    fixed.seq_len = shape.padded;
    fixed.rows = seq_rank_rows(&shape);
    fixed.ranks = fixed.dp * fixed.ulysses * fixed.ring;
    fixed.zero = fixed.ranks == 1 ? 0 : s->zero == AUTO ? 3 : s->zero;
    TRY(plan_tiles(m, s, &fixed));
    *out = fixed;
    return OK;
}
