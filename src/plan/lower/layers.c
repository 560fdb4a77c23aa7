/* The layers of a model as instructions: the blocks of each, one after another, and the passes over all. */
#include "plan/lower/layers.h"

#include "plan/lower/activation.h"
#include "plan/lower/blocks/rows.h"
#include "plan/lower/ends.h"
#include "plan/lower/linear.h"
#include "plan/lower/load.h"
#include "plan/lower/param.h"
#include "plan/lower/program.h"
#include "plan/lower/slots.h"
#include "plan/lower/stage.h"
#include "plan/lower/update.h"
#include "plan/lower/visit.h"

static const struct block_lowering *const lowerings[BLOCK_KINDS] = {
#define BLOCK(KIND, name, ...) [BLOCK_##KIND] = &name##_lowering,
#include "model/blocks.h"
};

/* --- Creation --- */

static void create_blocks(struct lowering *L, int l)
{
    const struct model_layer *from = &L->m->layers[l];
    struct layer *layer = &L->layers[l];
    layer->n_blocks = from->n_blocks;
    layer->n_own = model_expert_units(L->m, l, layer->own);
    layer->blocks = memory_new(L, layer->n_blocks, sizeof *layer->blocks);
    for (int i = 0; L->st == OK && i < layer->n_blocks; i++) {
        const struct model_block *b = &from->blocks[i];
        layer->blocks[i] =
            (struct block){.lowering = lowerings[b->kind], .layer = l, .weights = b, .norm = &b->norm, .first = layer->blocks};
        layer->blocks[i].by_rows = L->tp > 1 && block_slicing(b->kind) == BLOCK_BY_ROWS;
        layer->blocks[i].acc = layer->blocks[i].by_rows ? &L->own_acc : &L->acc;
    }
}

void layers_create(struct lowering *L)
{
    L->layers = memory_new(L, (int)L->m->config.layers, sizeof *L->layers);
    for (int l = 0; L->st == OK && l < (int)L->m->config.layers; l++)
        create_blocks(L, l);
}

int layers_grad_cuts(const struct lowering *L, int unit, int64_t *cuts, int n, int max)
{
    const int l = L->m->units[unit].layer;
    if (!model_unit_in_layer(L->m, unit) || unit != model_unit_of_layer(l))
        return n;
    const struct layer *layer = &L->layers[l];
    for (int i = 0; i < layer->n_blocks; i++) {
        const struct block *b = &layer->blocks[i];
        if (b->lowering->grad_cuts)
            n = b->lowering->grad_cuts(L, b, cuts, n, max);
    }
    return n;
}

static struct block *last_block(const struct layer *layer)
{
    return &layer->blocks[layer->n_blocks - 1];
}

/* Creates the stream at the layers' inputs and after the last layer. */
static void create_stream(struct lowering *L)
{
    int layers = (int)L->m->config.layers;
    L->x = memory_new(L, layers + 1, sizeof *L->x);
    for (int l = 0; L->st == OK && l <= layers; l++) {
        struct block *before = l > 0 ? last_block(&L->layers[l - 1]) : NULL;
        activation_of_stream(L, &L->x[l], l, before);
        if (before)
            before->out = &L->x[l];
        if (l < layers)
            L->layers[l].blocks[0].in = &L->x[l];
    }
}

/* Marks a value so that none of its chunks are kept, as the backward pass does not read it. */
static void keep_nothing(struct value *v)
{
    for (int i = 0; i < v->n_tiles; i++)
        v->tiles[i].residency = RES_NONE;
}

/* Tells whether the layer's block i exists and is joined to the one before it, which then has no output of its own. */
static int is_joined(const struct layer *layer, int i)
{
    return i < layer->n_blocks && layer->blocks[i].weights->joined;
}

/* Returns the norm that block i of a layer reads. */
static struct value *normed_of(struct lowering *L, const struct layer *layer, int i)
{
    const struct block *b = &layer->blocks[i];
    if (b->by_rows)
        return &L->rows_normed;
    return b->weights->joined && b->weights->inner.kind == NORM_NONE && !b[-1].by_rows ? b[-1].normed : &L->normed[i];
}

/* Creates the values of a layer's blocks, and the stream between the blocks. */
static void create_layer_values(struct lowering *L, const struct layer *layer)
{
    int n = layer->n_blocks;
    struct value *between = memory_new(L, n - 1, sizeof *between);
    for (int i = 0; L->st == OK && i < n; i++) {
        struct block *b = &layer->blocks[i];
        b->source = b->weights->parallel ? b[-1].source : b->in;
        b->normed = normed_of(L, layer, i);
        b->lowering->layer_values(L, b);
        if (i == n - 1)
            break;
        if (is_joined(layer, i + 1)) {
            b[1].in = b->in;
            continue;
        }
        b->out = b[1].in = &between[i];
        activation_of_layer(L, b, i > 0 ? i : -1,
                            &(struct activation){b->out, "xmid", L->m->config.dim, L->s.key.dtype, STREAM, b->lowering->produce});
        if (b[1].weights->parallel)
            keep_nothing(b->out);
    }
}

/* Tells whether the model has blocks of a kind. */
static int has_kind(const struct lowering *L, const struct block_lowering *lowering)
{
    for (int l = 0; l < (int)L->m->config.layers; l++)
        for (int i = 0; i < L->layers[l].n_blocks; i++)
            if (L->layers[l].blocks[i].lowering == lowering)
                return 1;
    return 0;
}

static int most_blocks(const struct lowering *L)
{
    int most = 0;
    for (int l = 0; l < (int)L->m->config.layers; l++)
        most = L->layers[l].n_blocks > most ? L->layers[l].n_blocks : most;
    return most;
}

static void work_value(struct lowering *L, struct value *v, const char *name, int index, enum dtype type, enum shape shape)
{
    activation_of_work(L, RES_NONE, index, &(struct activation){v, name, L->m->config.dim, type, shape});
}

/* Tells whether some block normalises its branch. */
static int branches_norm(const struct lowering *L)
{
    for (int l = 0; l < (int)L->m->config.layers; l++)
        for (int i = 0; i < L->m->layers[l].n_blocks; i++)
            if (L->m->layers[l].blocks[i].after.kind != NORM_NONE)
                return 1;
    return 0;
}

/* Tells whether some block adds its branch to the norm of its input. */
static int adds_to_norms(const struct lowering *L)
{
    for (int l = 0; l < (int)L->m->config.layers; l++)
        for (int i = 0; i < L->m->layers[l].n_blocks; i++)
            if (L->m->layers[l].blocks[i].on_norm)
                return 1;
    return 0;
}

static void branch_values(struct lowering *L)
{
    work_value(L, &L->f, "f", -1, L->s.key.dtype, STREAM);
    work_value(L, &L->f_normed, "f_normed", -1, L->s.key.dtype, STREAM);
}

/* Creates the values that slices of layers gather from each other and sum. */
static void slice_values(struct lowering *L)
{
    if (L->tp == 1)
        return;
    work_value(L, &L->own_normed, "n.own", -1, L->s.key.dtype, STREAM);
    work_value(L, &L->rows_normed, "n.rows", -1, L->s.key.dtype, STREAM);
    work_value(L, &L->own_acc, "acc.own", -1, F32, STREAM);
    activation_of_work(L, L->s.placement.passing, -1,
                       &(struct activation){&L->all_dx, "dx.all", L->m->config.dim, L->s.key.dtype, CHUNKS});
}

void layers_values(struct lowering *L)
{
    int n = most_blocks(L);
    L->normed = memory_new(L, n, sizeof *L->normed);
    create_stream(L);
    for (int l = 0; L->st == OK && l < (int)L->m->config.layers; l++)
        create_layer_values(L, &L->layers[l]);
    for (int i = 0; L->st == OK && i < n; i++)
        work_value(L, &L->normed[i], "n", i + 1, L->s.key.dtype, CHUNKS);
    work_value(L, &L->final_n, "final_n", -1, L->s.key.dtype, STREAM);
    work_value(L, &L->acc, "acc", -1, F32, CHUNKS);
    slice_values(L);
    for (int k = 0; L->st == OK && k < BLOCK_KINDS; k++)
        if (lowerings[k]->chunk_values && has_kind(L, lowerings[k]))
            lowerings[k]->chunk_values(L);
    activation_of_work(L, L->s.placement.passing, -1,
                       &(struct activation){&L->dx, "dx", L->m->config.dim, L->s.key.dtype, STREAM});
    if (branches_norm(L))
        branch_values(L);
    if (adds_to_norms(L))
        work_value(L, &L->moved, "moved", -1, F32, STREAM);
    rows_values(L);
    if (branches_norm(L) || L->m->config.residual_scale > 0.0)
        activation_of_work(L, L->s.placement.passing, -1,
                           &(struct activation){&L->df, "df", L->m->config.dim, L->s.key.dtype, STREAM});
    if (L->s.cached_tokens == 0) /* decode.c creates the logits of one row instead */
        loss_values(L);
    for (int k = 0; L->st == OK && k < BLOCK_KINDS; k++)
        if (lowerings[k]->tile_values && has_kind(L, lowerings[k]))
            lowerings[k]->tile_values(L);
    adapter_values(L);
}

/* --- Caches of sampling --- */

void layers_cache_create(struct lowering *L)
{
    for (int l = 0; L->st == OK && l < (int)L->m->config.layers; l++)
        for (int i = 0; i < L->layers[l].n_blocks; i++)
            if (L->layers[l].blocks[i].lowering->cache_create)
                L->layers[l].blocks[i].lowering->cache_create(L, &L->layers[l].blocks[i]);
}

void layers_cache_bind(struct lowering *L, int end)
{
    for (int l = 0; l < (int)L->m->config.layers; l++)
        for (int i = 0; i < L->layers[l].n_blocks; i++)
            if (L->layers[l].blocks[i].lowering->cache_bind)
                L->layers[l].blocks[i].lowering->cache_bind(L, &L->layers[l].blocks[i], end);
}

/* --- Units of experts --- */

/* Fetches the router and, unless slots have them, the experts of a layer, if it has some. */
static void experts_fetch(struct lowering *L, int l)
{
    for (int i = 0; i < L->layers[l].n_own; i++)
        if (!slots_serve(L, L->layers[l].own[i]))
            unit_fetch(L, L->layers[l].own[i]);
}

static void experts_drop(struct lowering *L, int l)
{
    for (int i = 0; i < L->layers[l].n_own; i++)
        if (!slots_serve(L, L->layers[l].own[i]))
            unit_drop(L, L->layers[l].own[i]);
}

/* Begins the backward pass of a layer's experts. */
static void experts_begin(struct lowering *L, int l)
{
    experts_fetch(L, l);
    for (int i = 0; i < L->layers[l].n_own; i++)
        grads_begin(L, L->layers[l].own[i]);
}

/* Ends the backward pass of a layer's experts, whose gradients leave before the layer's other blocks have theirs. */
static void experts_finish(struct lowering *L, int l)
{
    const int unit = L->unit;
    experts_drop(L, l);
    for (int i = 0; i < L->layers[l].n_own; i++) {
        L->unit = L->layers[l].own[i];
        grads_finish(L, L->unit);
    }
    L->unit = unit;
}

/* --- Forward --- */

/* Runs the steps of a layer's blocks that must be complete before its output can be computed chunk by chunk. */
static void layer_forward(struct lowering *L, int l)
{
    const struct layer *layer = &L->layers[l];
    for (int i = 0; i < layer->n_blocks; i++)
        if (layer->blocks[i].lowering->forward)
            layer->blocks[i].lowering->forward(L, &layer->blocks[i]);
}

static void layer_output(struct lowering *L, int l, int c)
{
    value_get(L, &L->x[l + 1], c);
    if (!lower_keeps_input(L, l))
        value_forget(&L->x[l], c);
    if (l + 1 < (int)L->m->config.layers) /* the loss follows the last layer chunk by chunk */
        value_pause(L, &L->x[l + 1], c);
}

static void layer_leave(struct lowering *L, int l)
{
    const struct layer *layer = &L->layers[l];
    value_leave(L, &L->x[l]);
    for (int i = 0; i < layer->n_blocks; i++)
        if (layer->blocks[i].lowering->leave)
            layer->blocks[i].lowering->leave(L, &layer->blocks[i]);
}

/* Computes the last layer's output; its chunks go straight into the loss. */
static void output_and_loss(struct lowering *L, int l, int gradient)
{
    const int last = model_head_unit(L->m), of_matrix = head_matrix_unit(L);
    unit_fetch(L, last);
    unit_fetch(L, of_matrix);
    if (gradient) {
        grads_begin(L, last);
        if (of_matrix != last)
            grads_begin(L, of_matrix);
    }
    for (int c = 0; c < L->n_chunks; c++) {
        L->phase = PHASE_FORWARD;
        L->unit = model_unit_of_layer(l);
        layer_output(L, l, c);
        L->phase = PHASE_LOSS;
        L->unit = last;
        lower_loss_chunk(L, c, gradient);
    }
}

/* Computes the last layer's output, and the logits of one row of it. */
static void output_and_logits(struct lowering *L, int l)
{
    unit_fetch(L, model_head_unit(L->m));
    unit_fetch(L, head_matrix_unit(L));
    for (int c = 0; c < L->n_chunks; c++) {
        L->unit = model_unit_of_layer(l);
        layer_output(L, l, c);
    }
    L->phase = PHASE_LOSS;
    L->unit = model_head_unit(L->m);
    lower_last_logits(L);
}

/* Computes the first layer's input, or takes it from the stage before. */
static void begin_forward(struct lowering *L)
{
    if (L->pp > 1 && !stage_embeds(L)) {
        stage_begin_forward(L);
        return;
    }
    L->phase = PHASE_FORWARD;
    L->unit = MODEL_EMBEDDING_UNIT;
    unit_fetch(L, L->unit);
    for (int c = 0; c < L->n_chunks; c++)
        lower_embed(L, c);
    unit_drop(L, L->unit);
}

/* Computes the last layer's output for the next stage. */
static void output_for_next(struct lowering *L, int l)
{
    for (int c = 0; c < L->n_chunks; c++) {
        layer_output(L, l, c);
        stage_leave_output(L, c);
    }
}

void lower_forward(struct lowering *L)
{
    int layers = (int)L->m->config.layers, last = model_head_unit(L->m), gradient = (L->duties & DUTY_BACKWARD) != 0;
    begin_forward(L);
    for (int l = 0; l < layers; l++) {
        L->unit = model_unit_of_layer(l);
        unit_fetch(L, L->unit);
        layer_forward(L, l);
        stage_pass(L, l);
        experts_fetch(L, l);
        if (l == layers - 1 && L->pp > 1)
            output_for_next(L, l);
        else if (l == layers - 1 && L->s.cached_tokens > 0)
            output_and_logits(L, l);
        else if (l == layers - 1)
            output_and_loss(L, l, gradient);
        for (int c = 0; l < layers - 1 && c < L->n_chunks; c++)
            layer_output(L, l, c);
        unit_drop(L, model_unit_of_layer(l));
        experts_drop(L, l);
        layer_leave(L, l);
    }
    if (L->pp > 1)
        return;
    unit_drop(L, last);
    unit_drop(L, head_matrix_unit(L));
    if (gradient)
        grads_finish(L, last);
}

/* --- Backward --- */

/* Computes the layer inputs that were not kept, from the last kept one up to layer l's. This goes layer by layer, so that each
 * layer's parameters are fetched once. A computed input lives at the home of kept inputs until its layer has used it, or on the
 * host if inputs are staged there. */
static void restore_inputs(struct lowering *L, int l)
{
    int first = l;
    while (!lower_keeps_input(L, first))
        first--;
    for (int j = first; j < l; j++) {
        L->unit = model_unit_of_layer(j);
        unit_fetch(L, L->unit);
        experts_fetch(L, j);
        for (int c = 0; c < L->n_chunks; c++) {
            value_get(L, &L->x[j + 1], c);
            value_drop(L, &L->x[j + 1], c);
        }
        unit_drop(L, L->unit);
        experts_drop(L, j);
    }
}

/* Runs the backward pass of a layer's blocks from the last one on; parallel blocks run together with the one before them, and the
 * last of joined blocks runs for all. */
static void layer_backward(struct lowering *L, int l)
{
    const struct layer *layer = &L->layers[l];
    experts_begin(L, l);
    for (int last = layer->n_blocks - 1, first; last >= 0; last = first - 1) {
        first = last;
        while (layer->blocks[first].weights->parallel)
            first--;
        for (int i = last; i >= first; i--)
            if (layer->blocks[i].lowering->gradient)
                layer->blocks[i].lowering->gradient(L, &layer->blocks[i]);
        int experts = 0;
        for (int i = last; i >= first; i--) {
            if (!is_joined(layer, i + 1))
                layer->blocks[i].lowering->backward(L, &layer->blocks[i]);
            experts |= layer->blocks[i].weights->kind == BLOCK_EXPERTS;
        }
        if (experts)
            experts_finish(L, l);
    }
}

void lower_backward(struct lowering *L)
{
    if (L->pp > 1) {
        L->cut = L->p->n_instrs;
        stage_begin_backward(L);
        load_take(L);
    }
    int lowest = (int)L->m->config.layers; /* layer up to which gradients are wanted; -1: the embedding */
    for (int u = 0; u < L->m->n_units; u++)
        if (L->m->units[u].trained_elements > 0 && L->m->units[u].layer < lowest)
            lowest = L->m->units[u].layer;
    if (L->pp > 1) /* stages before this one may want gradients */
        lowest = -1;
    for (int l = (int)L->m->config.layers - 1; l >= 0 && l >= lowest; l--) {
        L->phase = PHASE_BACKWARD;
        if (value_where(&L->x[l], 0) < 0)
            restore_inputs(L, l);
        L->unit = model_unit_of_layer(l);
        unit_fetch(L, L->unit);
        grads_begin(L, L->unit);
        layer_backward(L, l);
        stage_pass(L, l);
        unit_drop(L, L->unit);
        grads_finish(L, L->unit);
    }
    if (L->pp > 1 && !stage_embeds(L)) {
        for (int c = 0; c < L->n_chunks; c++)
            stage_leave_gradient(L, c);
    } else if (lowest < 0) {
        L->unit = MODEL_EMBEDDING_UNIT;
        if (head_matrix_unit(L) != L->unit)
            grads_begin(L, L->unit);
        if (L->m->embedding.rank > 0)
            unit_fetch(L, L->unit);
        for (int c = 0; c < L->n_chunks; c++)
            lower_embed_backward(L, c);
        if (L->m->embedding.rank > 0)
            unit_drop(L, L->unit);
        grads_finish(L, L->unit);
    }
}
