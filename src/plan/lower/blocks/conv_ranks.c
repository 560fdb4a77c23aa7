/* Short convolutions of sequences that ranks share: the last rows before each piece come from all ranks, and so do the gradients of
 * each piece's last rows. The backward pass visits the chunks twice, since the gradients of last rows need those of all
 * pieces' first rows. */
#include "plan/lower/activation.h"
#include "plan/lower/blocks/conv.h"
#include "plan/lower/emit.h"
#include "plan/lower/pieces.h"
#include "plan/lower/visit.h"

/* Values that the layers share. dout, dafter: gradients of the convolution's output and of `after`, between the passes. */
struct conv_ranks {
    struct tails tails;
    struct value dout, dafter;
};

void conv_ranks_forward(struct lowering *L, struct block *b)
{
    const struct convolution k = conv_convolution(conv_of(b));
    struct conv_layer *v = b->values;
    struct conv_work *W = conv_work(L);
    if (!passing_is_shared(L))
        return;
    tails_begin(L, &W->ranks->tails);
    for (int c = 0; c < L->n_chunks; c++) {
        if (!passing_ends_piece(L, c))
            continue;
        value_get(L, &v->before, c);
        value_get(L, &v->x, c);
        conv_input(L, b, c);
        tails_take(L, &W->ranks->tails, &k, &W->pre, c);
        value_drop(L, &W->pre, c);
        value_drop(L, &v->before, c);
        value_drop(L, &v->x, c);
        value_drop(L, b->normed, c);
        value_pause(L, b->source, c);
    }
    tails_exchange(L, &W->ranks->tails, &v->tail);
}

/* Computes the gradients of the convolution's output and of `after` for chunk c, and those of the rows before a piece. */
static void outputs_chunk(struct lowering *L, const struct block *b, int c)
{
    const struct convolution k = conv_convolution(conv_of(b));
    struct conv_layer *v = b->values;
    struct conv_work *W = conv_work(L);
    struct conv_ranks *R = W->ranks;
    block_get_gradient(L, b, c);
    value_put(L, &L->dx, c);
    value_get(L, b->source, c);
    conv_output_backward(L, b, c);
    value_drop(L, &L->dx, c);
    if (passing_begins_piece(L, c))
        tails_gradient(L, &R->tails, &k, &W->pre, &W->o, &v->tail, c);
    passing_keep_chunk(L, &R->dout, &W->o, c);
    passing_keep_chunk(L, &R->dafter, &v->after, c);
    conv_drop(L, b, c);
}

static void inputs_chunk(struct lowering *L, const struct block *b, int c)
{
    const struct convolution k = conv_convolution(conv_of(b));
    struct conv_layer *v = b->values;
    struct conv_work *W = conv_work(L);
    struct conv_ranks *R = W->ranks;
    value_get(L, &L->dx, c);
    value_get(L, b->source, c);
    value_get(L, &v->before, c);
    value_get(L, &v->x, c);
    value_get(L, &R->dout, c);
    value_get(L, &R->dafter, c);
    conv_input(L, b, c);
    passing_get_before(L, &v->tail, c);
    convolution_backward(L, &k, &W->pre, &R->dout, &R->tails.dtails_after, passing_piece(L, c), &v->tail, c);
    conv_inputs_backward(L, b, &R->dafter, c);
    value_put(L, &L->dx, c);
    value_drop(L, &L->dx, c);
    value_drop(L, &R->dout, c);
    value_drop(L, &R->dafter, c);
    conv_drop(L, b, c);
}

void conv_ranks_backward(struct lowering *L, struct block *b)
{
    struct conv_ranks *R = conv_work(L)->ranks;
    tails_begin_backward(L, &R->tails);
    for (int c = L->n_chunks - 1; c >= 0; c--)
        outputs_chunk(L, b, c);
    tails_exchange_backward(L, &R->tails);
    for (int c = L->n_chunks - 1; c >= 0; c--)
        inputs_chunk(L, b, c);
    tails_end_backward(L, &R->tails);
}

void conv_ranks_create(struct lowering *L, const struct conv_block *w)
{
    struct conv_ranks *R = conv_work(L)->ranks = memory_new(L, 1, sizeof *R);
    const struct convolution k = conv_convolution(w);
    const enum residency passing = L->s.placement.passing;
    if (!R)
        return;
    tails_create(L, &R->tails, &k);
    activation_of_work(L, passing, -1, &(struct activation){&R->dout, "conv.dout", w->x.out, L->s.key.dtype, CHUNKS});
    activation_of_work(L, passing, -1, &(struct activation){&R->dafter, "conv.dafter", w->x.out, L->s.key.dtype, CHUNKS});
}
