/* The short convolution between two gates, which are products with maps of the block's input, and a map back.
 *
 * Row chunks are visited in ascending order forward and in descending order backward. The convolution's last rows after each chunk
 * are kept, so that any chunk can be computed again. */
#include "plan/lower/activation.h"
#include "plan/lower/blocks/conv.h"
#include "plan/lower/emit.h"
#include "plan/lower/linear.h"
#include "plan/lower/param.h"
#include "plan/lower/pieces.h"
#include "plan/lower/visit.h"

#define DEV TIER_DEVICE

/* --- Forward --- */

static void produce(struct lowering *L, struct value *v, int c, const struct model_linear *w)
{
    const struct block *b = v->block;
    const int64_t r0 = v->tiles[c].row0, r1 = v->tiles[c].row1;
    const enum dtype T = L->s.key.dtype;
    block_norm(L, b, c);
    value_new(L, v, c);
    lower_linear(L, &(struct linear_call){w, .rows = r1 - r0, .y = {v, r0, T}, .x = {b->normed, r0, T}});
    lower_bias(L, w, v, r0, r1);
}

static void produce_before(struct lowering *L, struct value *v, int c)
{
    produce(L, v, c, &conv_of(v->block)->before);
}

static void produce_after(struct lowering *L, struct value *v, int c)
{
    produce(L, v, c, &conv_of(v->block)->after);
}

static void produce_x(struct lowering *L, struct value *v, int c)
{
    produce(L, v, c, &conv_of(v->block)->x);
}

static void forward(struct lowering *L, struct block *b)
{
    struct conv_layer *v = b->values;
    passing_enter(L, &v->tail);
    conv_ranks_forward(L, b);
}

static void produce_output(struct lowering *L, struct value *out, int c)
{
    const struct block *b = out->block;
    value_get(L, b->in, c);
    conv_fetch(L, b, c);
    value_drop(L, b->normed, c);
    conv_convolve(L, b, c);
    conv_branch(L, b, c);
    block_add(L, b, out, &conv_of(b)->out, c);
    conv_drop(L, b, c);
}

/* --- Backward --- */

static void backward_chunk(struct lowering *L, const struct block *b, int c)
{
    const struct convolution k = conv_convolution(conv_of(b));
    struct conv_layer *v = b->values;
    struct conv_work *W = conv_work(L);
    block_get_gradient(L, b, c);
    value_get(L, b->source, c);
    conv_output_backward(L, b, c);
    convolution_backward(L, &k, &W->pre, &W->o, &W->dtail, 0, &v->tail, c);
    conv_inputs_backward(L, b, &v->after, c);
    value_put(L, &L->dx, c);
    value_drop(L, &L->dx, c);
    conv_drop(L, b, c);
}

static void backward(struct lowering *L, struct block *b)
{
    struct value *dtail = &conv_work(L)->dtail;
    struct conv_layer *v = b->values;
    if (passing_is_shared(L)) {
        conv_ranks_backward(L, b);
        return;
    }
    passing_enter_gradient(L, &v->tail, dtail);
    for (int c = L->n_chunks - 1; c >= 0; c--)
        backward_chunk(L, b, c);
    passing_leave_gradient(L, &v->tail, dtail);
}

/* --- Creation --- */

static void layer_values(struct lowering *L, struct block *b)
{
    const struct convolution k = conv_convolution(conv_of(b));
    const int64_t columns = k.columns;
    const enum dtype T = L->s.key.dtype;
    struct conv_layer *v = b->values ? b->values : (b->values = memory_new(L, 1, sizeof *v));
    if (!v)
        return;
    activation_of_layer(L, b, -1, &(struct activation){&v->before, "before", columns, T, CHUNKS, produce_before});
    activation_of_layer(L, b, -1, &(struct activation){&v->after, "after", columns, T, CHUNKS, produce_after});
    activation_of_layer(L, b, -1, &(struct activation){&v->x, "conv.x", columns, T, CHUNKS, produce_x});
    passing_create(L, b, &v->tail, "tail", convolution_tail(&k, T));
    if (passing_is_shared(L))
        tails_create_before(L, b, &v->tail, &k);
}

/* Returns the first layer's convolution, whose sizes all others have. */
static const struct conv_block *first_of(const struct model *m)
{
    const struct model_block *b = NULL;
    for (int k = 0; k < m->n_kinds && !b; k++)
        b = model_find_block(&m->layers[m->kinds[k].first], BLOCK_CONV);
    return &b->conv;
}

static void chunk_values(struct lowering *L)
{
    struct conv_work *W = L->shared[BLOCK_CONV] = memory_new(L, 1, sizeof *W);
    const struct conv_block *w = first_of(L->m);
    const struct convolution k = conv_convolution(w);
    const enum dtype T = L->s.key.dtype;
    if (!W)
        return;
    const struct activation all[] = {{&W->pre, "conv.pre", w->x.out, T, CHUNKS},
                                     {&W->o, "conv.o", w->x.out, T, CHUNKS},
                                     {&W->y, "conv.y", w->x.out, T, CHUNKS}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        activation_of_work(L, RES_NONE, -1, &all[i]);
    if (k.width > 1)
        value_create(L, &W->dtail, "conv.dtail", CLASS_WORK, 1, convolution_tail(&k, passing_reads_on(L) ? T : F32), 1, RES_NONE);
    if (passing_is_shared(L))
        conv_ranks_create(L, w);
}

static void cache_create(struct lowering *L, struct block *b)
{
    const struct convolution k = conv_convolution(conv_of(b));
    struct conv_layer *v = b->values = memory_new(L, 1, sizeof *v);
    if (v)
        passing_create_home(L, b, &v->tail, "tail", convolution_tail(&k, L->s.key.dtype));
}

static void cache_bind(struct lowering *L, const struct block *b, int end)
{
    struct conv_layer *v = b->values;
    passing_bind(L, b, &v->tail, end);
}

static void carry_create(struct lowering *L, struct block *b, int gradients)
{
    const struct convolution k = conv_convolution(conv_of(b));
    struct conv_layer *v = b->values ? b->values : (b->values = memory_new(L, 1, sizeof *v));
    if (v)
        passing_create_carry(L, b, &v->tail, "tail", convolution_tail(&k, gradients ? F32 : L->s.key.dtype), gradients);
}

static void carry_bind(struct lowering *L, const struct block *b, int end)
{
    struct conv_layer *v = b->values;
    passing_bind_carry(L, &v->tail, end);
}

/* Cuts the gradient of the matrix that holds the first maps, since each map writes its own part. */
static int grad_cuts(const struct lowering *L, const struct block *b, int64_t *cuts, int n, int max)
{
    const struct model_linear *const parts[] = {&conv_of(b)->before, &conv_of(b)->after, &conv_of(b)->x};
    for (int i = 0; i < 3; i++)
        n = linear_cuts(L, parts[i], 1, OF_OUTPUTS, cuts, n, max);
    return n;
}

const struct block_lowering conv_lowering = {.grad_cuts = grad_cuts,
                                             .layer_values = layer_values,
                                             .chunk_values = chunk_values,
                                             .produce = produce_output,
                                             .forward = forward,
                                             .backward = backward,
                                             .cache_create = cache_create,
                                             .cache_bind = cache_bind,
                                             .carry_create = carry_create,
                                             .carry_bind = carry_bind};
