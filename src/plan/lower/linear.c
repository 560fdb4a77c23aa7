/* Linear maps with their adapters, and the cuts of their gradients. */
#include "plan/lower/linear.h"

#include "plan/lower/adapter.h"
#include "plan/lower/param.h"

void lower_linear(struct lowering *L, const struct linear_call *c)
{
    linear_product(L, c);
    adapter_forward(L, c);
}

void lower_linear_dx(struct lowering *L, const struct linear_call *c)
{
    linear_product_dx(L, c);
    adapter_dx(L, c);
}

void lower_linear_dw(struct lowering *L, const struct linear_call *c)
{
    linear_product_dw(L, c);
    adapter_dw(L, c);
}

/* Cuts an adapter's gradients: slices of outputs write only B's in parts, slices of inputs only A's. */
static int adapter_cuts(const struct lowering *L, const struct model_linear *w, int parts, enum linear_slices slices,
                        int64_t *cuts, int n, int max)
{
    const struct model_param *p = param_of(L, slices == OF_INPUTS ? w->down : w->up);
    int64_t step = slices == OF_INPUTS ? w->in / parts : w->out / parts * w->rank,
            first = slices == OF_INPUTS ? 0 : w->first_out * w->rank;
    for (int i = 0; i < parts && n + 1 <= max; i++)
        cuts[n++] = p->offset + first + i * step;
    return n;
}

int linear_cuts(const struct lowering *L, const struct model_linear *w, int parts, enum linear_slices slices, int64_t *cuts,
                int n, int max)
{
    const struct model_param *p = param_of(L, w->weight);
    if (w->rank > 0)
        n = adapter_cuts(L, w, parts, slices, cuts, n, max);
    for (int i = 0; i < parts && n + 2 <= max; i++) {
        struct model_linear s = slices == OF_INPUTS ? *w : linear_outputs(w, i * (w->out / parts), w->out / parts);
        int64_t in = slices == OF_INPUTS ? w->in / parts : w->in;
        cuts[n++] = p->offset + linear_begins(&s, slices == OF_INPUTS ? i * in : 0);
        if (w->bias >= 0 && slices == OF_OUTPUTS)
            cuts[n++] = param_of(L, w->bias)->offset + s.first_out;
    }
    return n;
}
