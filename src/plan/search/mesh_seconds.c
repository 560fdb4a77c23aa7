/* Closed-form seconds of a step on a mesh. */
#include "plan/search/mesh_seconds.h"

#include "machine/rank_cost.h"
#include "model/part.h"
#include "plan/lower/fixed.h"
#include "plan/lower/heads.h"
#include "plan/search/tuning.h"
#include "seqpar/seqpar.h"

#include <math.h>
#include <string.h>

void mesh_products_of(const struct model *m, struct mesh_products *out)
{
    double all = 0, kept = 0;
    memset(out, 0, sizeof *out);
    for (int i = 0; i < m->n_params; i++) {
        const struct model_param *p = &m->params[i];
        int k = 0;
        if (!model_multiplies_tokens(m, i))
            continue;
        all += (double)p->shape[0] * (double)p->shape[1];
        const int ends = !model_unit_in_layer(m, p->unit), by_rows = model_unit_has_experts(m, p->unit);
        while (k < out->n && (out->of[k].in != p->shape[1] || out->of[k].out != p->shape[0] || out->of[k].trained != p->trained ||
                              out->of[k].ends != ends || out->of[k].by_rows != by_rows))
            k++;
        if (k == MESH_PRODUCTS)
            continue;
        out->of[k].in = p->shape[1];
        out->of[k].out = p->shape[0];
        out->of[k].trained = p->trained;
        out->of[k].ends = ends;
        out->of[k].by_rows = by_rows;
        out->of[k].times++;
        out->n = k == out->n ? k + 1 : out->n;
        kept += (double)p->shape[0] * (double)p->shape[1];
    }
    out->scale = kept > 0 ? all / kept : 1;
}

/* Volumes and seconds of one rank's part of a micro-batch. */
struct part {
    const struct model *m;
    const struct plan_request *s;
    struct strategy fixed;
    struct seq_shape shape;
    struct cost_model cost;
    double forward, products, attention, rest; /* seconds of compute; forward: part of products */
    double world, ulysses, ring;               /* seconds of messages */
    double ep, experts; /* seconds of messages of rows to experts of other ranks, and of the experts' state */
    double tp;          /* seconds of messages of rows between slices of layers */
    double layers;      /* part of the model's layers that a rank has */
    /* Parts of layers only: seconds of messages of a step's state, of ZeRO 1, else of a micro-batch's, in place of `world`: parameters,
     * gradients, and all of the ends'. */
    double gathers, sums, ends;
    double least, all; /* bytes of activations: `least` is saved in any case, `all` is the most that may be saved */
    /* bytes of a rank's shares of state; bytes of the layers whose parameters are gathered at one time */
    double state, gathered;
    double kept; /* bytes of keys, values and their gradients that stay on the device */
};

/* Adds the seconds of products: forward, for gradients of inputs, and for gradients of trained weights. */
static void add_products(struct part *x, const struct mesh_products *p)
{
    const struct gemm_rates *r = &x->cost.device.gemm[x->s->dtype];
    const double evaluates = x->s->evaluation, tp = mesh_degree(&x->s->mesh, MESH_TP),
                 parts = tp * mesh_degree(&x->s->mesh, MESH_PP);
    for (int i = 0; i < p->n; i++) {
        const double n = (double)x->fixed.rows / (p->of[i].ends      ? parts
                                                  : p->of[i].by_rows ? tp
                                                                     : 1),
                     in = (double)p->of[i].in, out = (double)p->of[i].out,
                     flops = 2 * n * in * out * (double)p->of[i].times * p->scale * (p->of[i].ends ? 1 : x->layers),
                     forward = flops / gemm_rate(r, GEMM_NT, n, out, in);
        x->forward += forward;
        x->products += forward;
        if (!evaluates)
            x->products +=
                flops / gemm_rate(r, GEMM_NN, n, in, out) + (p->of[i].trained ? flops / gemm_rate(r, GEMM_TN, out, in, n) : 0);
    }
}

static void add_attention(struct part *x)
{
    const struct model *m = x->m;
    const double sharing = (double)x->shape.ulysses * x->shape.ring, keys = (double)seq_member_rows(&x->shape),
                 queries = keys / strategy_slices(&x->fixed);
    double pairs[MODEL_MASKS];
    model_causal_pairs(m, x->s->seq_len, pairs);
    for (int i = 0; i < m->n_kinds; i++) {
        const struct attention_block *a = model_attention(m, m->kinds[i].first);
        if (!a)
            continue;
        const struct attention_shape *h = &m->shapes[a->shape];
        const double dim = (double)max_i64(h->head_dim, h->value_dim),
                     flops = 2 * (double)x->s->micro_batch * pairs[a->mask] * (double)h->heads *
                             (double)(h->head_dim + h->value_dim) * m->kinds[i].layers / sharing;
        const struct attention_rates *r = x->cost.device.attention[x->s->dtype];
        const double length = attention_length((enum attention_length)x->cost.device.attention_by, queries, keys,
                                               pairs[a->mask] * queries * keys / ((double)x->s->seq_len * (double)x->s->seq_len));
        x->attention += flops / attention_rate(r, OP_ATTN_FWD, dim, length);
        if (!x->s->evaluation)
            x->attention += 2.5 * flops / attention_rate(r, OP_ATTN_BWD, dim, length);
    }
    x->attention *= x->layers * (x->shape.ring > 1 ? MESH_RING_UNEVEN : 1);
}

/* Adds the products of a ring's latents: keys and values of other members' rows, made again backward, and their gradients. */
static void add_expansion(struct part *x)
{
    const struct model *m = x->m;
    const struct gemm_rates *r = &x->cost.device.gemm[x->s->dtype];
    for (int i = 0; i < m->n_kinds; i++) {
        const struct attention_block *a = model_attention(m, m->kinds[i].first);
        if (!a || !heads_send_latents(a, &x->s->mesh))
            continue;
        const struct attention_shape *h = &m->shapes[a->shape];
        const double rows = (double)x->fixed.rows, in = (double)h->kv_latent,
                     out = (double)h->heads * (double)(h->head_dim - h->rotated + h->value_dim), others = x->shape.ring - 1,
                     flops = 2 * others * rows * in * out * m->kinds[i].layers * x->layers,
                     forward = flops / gemm_rate(r, GEMM_NT, rows, out, in);
        x->products += forward;
        if (!x->s->evaluation)
            x->products += forward + flops / gemm_rate(r, GEMM_NN, rows, in, out) +
                           (m->params[a->k.weight].trained ? flops / gemm_rate(r, GEMM_TN, out, in, rows) : 0);
    }
}

/* Returns half of the saved columns of a layer's blocks without attention, the mean of all layers: the width of a gated MLP, for the rows of
 * one of tp slices. */
static double mean_width(const struct model *m, double tp)
{
    double columns = 0;
    for (int64_t l = 0; l < m->config.layers; l++)
        for (int i = 0; i < m->layers[l].n_blocks; i++)
            columns += block_mask(&m->layers[l].blocks[i]) < 0
                           ? (double)block_saved(m, &m->layers[l].blocks[i]) /
                                 (block_slicing(m->layers[l].blocks[i].kind) == BLOCK_BY_ROWS ? 2 * tp : 2)
                           : 0;
    return columns / (double)m->config.layers;
}

/* Adds the passes over rows of the stream and of the MLP, and the fixed part of instructions. */
static void add_elements(struct part *x)
{
    const struct model_config *c = &x->m->config;
    const double rows = (double)x->fixed.rows, size = (double)dtype_size(x->s->dtype), layers = x->layers * (double)c->layers,
                 tp = mesh_degree(&x->s->mesh, MESH_TP),
                 bytes =
                     rows * size * (MESH_STREAM_PASSES * (double)c->dim / tp + MESH_MLP_PASSES * mean_width(x->m, tp)) * layers;
    const double chunks = (double)ceil_div(x->fixed.rows, x->fixed.key.row_chunk);
    x->rest = bytes / curve_at(&x->cost.device.ops.memory, (double)x->fixed.key.row_chunk * (double)c->dim * size) +
              (MESH_INSTRS_CHUNK * chunks + MESH_INSTRS_RING * x->shape.ring) * layers * x->cost.overhead;
}

/* Finds the states of a layer that pass between ranks, or (heads 0) only rows before a convolution. Returns 0 if none do. */
static int find_states(const struct part *x, const struct model_layer *layer, struct seq_states *out)
{
    const struct model_block *scan = model_find_block(layer, BLOCK_RECURRENT), *conv = model_find_block(layer, BLOCK_CONV);
    *out = (struct seq_states){.storage_bytes = (int64_t)dtype_size(x->s->dtype)};
    if (scan) {
        out->heads = scan->recurrent.heads;
        out->key_dim = scan->recurrent.key_dim;
        out->value_dim = scan->recurrent.value_dim;
        out->tail = (scan->recurrent.width - 1) * scan->recurrent.channels;
    } else if (conv) {
        out->tail = (conv->conv.width - 1) * conv->conv.x.out;
    }
    return scan || conv;
}

/* Adds the messages of states between the ranks that share a sequence, on the lane that carries them (blocks/recurrent_ranks.c,
 * conv_ranks.c). */
static void add_states(struct part *x)
{
    const int around = x->shape.ring > 1, trains = !x->s->evaluation;
    const enum lane lane = around ? LANE_RING : LANE_ULYSSES;
    for (int i = 0; i < x->m->n_kinds && x->fixed.piece > 0; i++) {
        struct seq_states states;
        if (!find_states(x, &x->m->layers[x->m->kinds[i].first], &states))
            continue;
        const struct seq_state_volume v = seq_state_volume(&x->shape, &states);
        const double pieces = states.heads > 0 ? (double)x->fixed.rows / (double)x->fixed.piece : 0,
                     messages = pieces * (3 + 2 * trains) + 1 + trains;
        *(around ? &x->ring : &x->ulysses) +=
            (double)x->m->kinds[i].layers *
            ((double)(v.forward + trains * v.backward) / x->cost.lane_bytes[lane] + messages * x->cost.lane_seconds[lane]);
    }
}

/* Adds all layers' messages between the ranks that share a sequence. */
static void add_sharing(struct part *x)
{
    const struct model *m = x->m;
    const int ring = x->shape.ring;
    for (int i = 0; i < m->n_kinds; i++) {
        const struct attention_block *a = model_attention(m, m->kinds[i].first);
        if (!a)
            continue;
        const struct attention_shape *h = &m->shapes[a->shape];
        const double layers = x->layers * m->kinds[i].layers;
        const struct seq_heads heads = {.heads = h->heads,
                                        .kv_heads = h->kv_heads,
                                        .head_dim = h->head_dim,
                                        .value_dim = h->value_dim,
                                        .latent = heads_send_latents(a, &x->s->mesh) ? heads_latent(m, a) : 0,
                                        .storage_bytes = (int64_t)dtype_size(x->s->dtype)};
        const struct seq_volume v = seq_volume(&x->shape, &heads, SEQ_RESEND_QKV);
        const int trains = !x->s->evaluation;
        if (x->shape.ulysses > 1)
            x->ulysses +=
                layers * (double)(v.all_to_all_forward + trains * v.all_to_all_backward) / x->cost.lane_bytes[LANE_ULYSSES];
        if (ring > 1)
            x->ring += layers * ((double)(v.ring_forward + trains * v.ring_backward) / x->cost.lane_bytes[LANE_RING] +
                                 (ring - 1) * 3 * x->cost.lane_seconds[LANE_RING]);
    }
}

/* State of some units: stored bytes of all parameters, elements that are trained. */
struct weight {
    double stored, trained;
};

enum units { UNITS_LAYERS, UNITS_EXPERTS, UNITS_ENDS, UNITS_OF_FIRST };

/* Weighs the units of experts, those of the embedding and the head, or all others. A pipeline's first stage may have the embedding for
 * itself. */
static struct weight weigh(const struct model *m, const struct plan_request *s, enum units which)
{
    const int stages = mesh_degree(&s->mesh, MESH_PP);
    const enum dtype dtype = s->dtype;
    struct weight w = {0};
    for (int u = 0; u < m->n_units; u++) {
        const enum units of = model_unit_has_experts(m, u)                                       ? UNITS_EXPERTS
                              : model_unit_in_layer(m, u)                                        ? UNITS_LAYERS
                              : stages > 1 && u == MODEL_EMBEDDING_UNIT && model_first_embeds(m) ? UNITS_OF_FIRST
                                                                                                 : UNITS_ENDS;
        if (of != which)
            continue;
        w.stored += (double)m->units[u].elements * (double)dtype_size(dtype) + (double)m->units[u].packed_bytes;
        w.trained += (double)m->units[u].trained_elements;
    }
    return w;
}

/* Seconds of ZeRO's messages of a micro-batch. */
struct messages {
    double gathers, sums;
};

/* Adds the bytes of a rank's state, and of what is gathered at one time, that `ranks` ranks share. Returns the seconds of ZeRO's messages
 * of one micro-batch, by stage. */
static struct messages share_state(struct part *x, const struct weight *w, enum lane lane, double ranks)
{
    const struct plan_request *s = x->s;
    const double micro_batches = (double)s->grad_accum, others = (ranks - 1) / ranks;
    const int stage = ranks > 1 ? x->fixed.key.zero : 0;
    const double slices = mesh_degree(&s->mesh, MESH_SLICES); /* each moves what a micro-batch does */
    const double gathers = stage == 3 ? slices * (s->evaluation ? 1 : 2) : 1 / micro_batches, sums = s->evaluation ? 0
                                                                                                     : stage > 1
                                                                                                         ? slices
                                                                                                         : 1 / micro_batches;
    const double elements = w->stored / (double)dtype_size(s->dtype), group = (double)x->fixed.key.group;
    x->state += w->stored / (stage == 3 ? ranks : 1) + w->trained * (double)sizeof(float) / (stage >= 2 ? ranks : 1) +
                w->trained * (double)(sizeof(float) + 2 * dtype_size(s->optim_dtype)) / ranks;
    x->gathered += stage == 3 ? 2 * w->stored / (double)x->m->config.layers : 0;
    if (ranks == 1)
        return (struct messages){0, 0};
    return (struct messages){
        gathers * (others * w->stored / x->cost.lane_bytes[lane] + elements / group * x->cost.lane_seconds[lane]),
        sums * w->trained *
            (others * (double)dtype_size(s->grad_dtype) / x->cost.lane_bytes[lane] + x->cost.lane_seconds[lane] / group)};
}

static double sum_of(struct messages m)
{
    return m.gathers + m.sums;
}

static void add_state(struct part *x)
{
    const double ranks = x->fixed.ranks, ep = mesh_degree(&x->s->mesh, MESH_EP);
    const enum lane lane = mesh_lane_of_sliced(&x->s->mesh);
    const struct weight ends = weigh(x->m, x->s, UNITS_ENDS), first = weigh(x->m, x->s, UNITS_OF_FIRST);
    struct weight rest = weigh(x->m, x->s, UNITS_LAYERS), experts = weigh(x->m, x->s, UNITS_EXPERTS);
    if (lane != LANE_WORLD) { /* parts of the layers */
        const enum lane of_stage = mesh_lane_of_stage(&x->s->mesh);
        const double sliced = of_stage != lane;
        const struct weight own = {x->layers * (rest.stored + (1 - sliced) * experts.stored),
                                   x->layers * (rest.trained + (1 - sliced) * experts.trained)},
                            whole = {x->layers * sliced * experts.stored, x->layers * sliced * experts.trained};
        const struct messages m = share_state(x, &own, lane, mesh_members(&x->s->mesh, lane)),
                              of_experts = share_state(x, &whole, of_stage, mesh_members(&x->s->mesh, of_stage));
        x->gathers = m.gathers + of_experts.gathers;
        x->sums = m.sums + of_experts.sums;
        x->ends = sum_of(share_state(x, &ends, LANE_WORLD, ranks)) +
                  sum_of(share_state(x, &first, of_stage, mesh_members(&x->s->mesh, of_stage)));
        if (x->fixed.key.zero < 2 && x->s->grad_accum > 1 && strategy_stages(&x->fixed) == 1)
            x->rest +=
                MESH_ADD_BYTES * (own.trained + whole.trained) / curve_at(&x->cost.device.ops.memory, (double)x->fixed.key.group);
        return;
    }
    rest.stored += ends.stored;
    rest.trained += ends.trained;
    if (ep == 1) {
        const struct weight all = {rest.stored + experts.stored, rest.trained + experts.trained};
        x->world = sum_of(share_state(x, &all, LANE_WORLD, ranks));
        return;
    }
    experts.stored /= ep;
    experts.trained /= ep;
    x->world = sum_of(share_state(x, &rest, LANE_WORLD, ranks));
    x->experts = sum_of(share_state(x, &experts, LANE_EXPERTS, ranks / ep));
}

enum {
    STACK_ADAPTER_VALUES = 4
}; /* fp32 values of a pair's rank that adapters of stacks need (lower/blocks/expert_adapters.h) */

/* Adds the costs of sending rows to experts of other ranks: messages (experts being equally busy), first maps and their adapters
 * that are computed again, and room for the most rows that can arrive. */
static void add_travel(struct part *x)
{
    const struct model_config *c = &x->m->config;
    const double ep = mesh_degree(&x->s->mesh, MESH_EP), size = (double)dtype_size(x->s->dtype), rows = (double)x->fixed.rows,
                 layers = model_expert_layers(x->m), used = (double)c->experts_used, dim = (double)model_expert_dim(c),
                 ffn = (double)c->expert_ffn, rank = (double)x->m->most_stack_rank;
    if (ep == 1)
        return;
    const double chunks = (double)ceil_div(x->fixed.rows, x->fixed.key.row_chunk), forth = x->s->evaluation ? 2 : 5,
                 messages = x->s->evaluation ? 4 : 9, first = 2 * rows * used * (2 * dim * ffn + rank * (dim + 2 * ffn));
    x->ep = layers * (forth * rows * used * dim * size * (ep - 1) / ep / x->cost.lane_bytes[LANE_EP] +
                      messages * chunks * x->cost.lane_seconds[LANE_EP]);
    x->products +=
        x->s->evaluation ? 0 : layers * first / gemm_rate(&x->cost.device.gemm[x->s->dtype], GEMM_NT, rows, 2 * ffn, dim);
    x->gathered += (double)x->fixed.key.row_chunk * ep * fmin(used, (double)c->experts / ep) *
                   (size * 4 * (dim + ffn) + STACK_ADAPTER_VALUES * (double)sizeof(float) * rank);
}

/* Returns the layers' blocks that slices cut, in pairs of attention and an MLP. */
static double cut_pairs(const struct model *m)
{
    double blocks = 0;
    for (int64_t l = 0; l < m->config.layers; l++)
        for (int i = 0; i < m->layers[l].n_blocks; i++)
            blocks += block_slicing(m->layers[l].blocks[i].kind) == BLOCK_CUT;
    return blocks / 2;
}

/* Adds the messages of rows between slices of layers: stream rows are gathered before each block's maps, sums are shared out behind
 * them. */
static void add_slices_rows(struct part *x)
{
    const double tp = mesh_degree(&x->s->mesh, MESH_TP), trains = !x->s->evaluation, slices = strategy_slices(&x->fixed),
                 rows = slices * (double)x->fixed.rows,
                 bytes =
                     (2 + 4 * trains) * (double)dtype_size(x->s->dtype) + (2 + 2 * trains) * (double)dtype_size(x->s->grad_dtype),
                 chunks = slices * (double)ceil_div(x->fixed.rows, x->fixed.key.row_chunk), layers = x->layers * cut_pairs(x->m);
    if (tp > 1)
        x->tp = layers * (rows * (double)x->m->config.dim * bytes * (tp - 1) / tp / x->cost.lane_bytes[LANE_TP] +
                          (4 + 6 * trains) * chunks * x->cost.lane_seconds[LANE_TP]);
}

/* Adds the bytes of keys, values and their gradients that slices of a sequence leave on the device for each other. */
static void add_kept_keys(struct part *x)
{
    const struct model *m = x->m;
    const double rows = (double)x->fixed.rows * strategy_slices(&x->fixed);
    if (strategy_slices(&x->fixed) == 1)
        return;
    for (int k = 0; k < m->n_kinds; k++) {
        const struct attention_block *a = model_attention(m, m->kinds[k].first);
        if (!a)
            continue;
        const struct attention_shape *h = &m->shapes[a->shape];
        const double kv = (double)max_i64(h->kv_heads, x->shape.ulysses) * (double)(h->head_dim + h->value_dim);
        x->kept += x->layers * m->kinds[k].layers * rows * kv * (double)(dtype_size(x->s->dtype) + (int64_t)sizeof(float)) *
                   strategy_open_micro_batches(&x->fixed);
    }
}

static void add_activations(struct part *x)
{
    const struct model *m = x->m;
    const double rows = (double)x->fixed.rows * strategy_slots(&x->fixed), size = (double)dtype_size(x->s->dtype),
                 tp = mesh_degree(&x->s->mesh, MESH_TP), dim = (double)m->config.dim / tp;
    for (int k = 0; k < m->n_kinds; k++) {
        const struct model_layer *layer = &m->layers[m->kinds[k].first];
        const double layers = x->layers * m->kinds[k].layers;
        double kept = size * dim, saved = dim;
        for (int i = 0; i < layer->n_blocks; i++) {
            const double of = block_slicing(layer->blocks[i].kind) == BLOCK_BY_ROWS ? tp : 1;
            kept += (double)block_kept_bytes(m, &layer->blocks[i], (int64_t)size) / of;
            saved += (double)block_saved(m, &layer->blocks[i]) / of;
        }
        x->least += layers * rows * kept;
        x->all += layers * rows * size * saved;
    }
    x->all += x->least;
}

/* Returns the seconds of one micro-batch: the largest of compute (with waits for messages), messages, and transfers.
 * Activations beyond the device's room are fetched; optional ones that cannot be fetched behind compute are computed again. */
static double micro_batch_seconds(const struct part *x, const int64_t limit[TIERS])
{
    const double compute = x->products + x->attention + x->rest,
                 messages = x->world + x->ulysses + x->ring + x->ep + x->experts + x->tp,
                 room = fmax(0, MESH_ROOM * (double)limit[TIER_DEVICE] - x->state - x->gathered - x->kept),
                 rate = fmin(x->cost.lane_bytes[LANE_H2D], x->cost.lane_bytes[LANE_D2H]);
    if (x->s->evaluation)
        return fmax(compute, messages);
    const double needed = fmax(0, x->least - room) / rate, further = x->all - fmax(x->least, room),
                 kept = fmin(further, fmin(fmax(0, compute - needed) * rate, (double)limit[TIER_HOST])),
                 again = further > 0 ? x->forward * (further - kept) / (x->all - x->least) : 0,
                 beside = x->shape.ring > 1 ? (compute - x->rest) * (x->shape.ring - 1) / x->shape.ring : 0,
                 waits = MESH_WORLD_WAITS * x->world + MESH_ULYSSES_WAITS * x->ulysses + MESH_RING_WAITS * x->ring +
                         fmax(0, x->ring - beside) + MESH_EP_WAITS * x->ep + MESH_WORLD_WAITS * x->experts +
                         MESH_TP_WAITS * x->tp;
    return fmax(compute + again + waits,
                fmax(x->cost.chained ? messages : fmax(fmax(x->world, fmax(x->ep, x->tp)), fmax(x->ulysses, x->ring)), needed));
}

/* Adds the other slices of a micro-batch to what was found of one: products and passes over rows. */
static void add_slices(struct part *x)
{
    const double slices = strategy_slices(&x->fixed);
    x->products *= slices;
    x->forward *= slices;
    x->rest *= slices;
}

/* Returns the seconds of a step of a pipeline with messages that travel in their own tick (`ahead` 0) or beside the next tick's pass.
 * stage: seconds of a micro-batch's passes on a stage. Under a causal mask the last slice has up to twice the mean's attention, and the
 * pipeline fills and drains with the last slices (plan/ticks.h). */
static double pipeline_seconds(const struct part *x, double stage, int ahead)
{
    const double p = strategy_stages(&x->fixed), c = strategy_slices(&x->fixed), m = (double)x->s->grad_accum, lag = 1 + ahead,
                 piece = stage / c, late = x->attention / c * (c - 1) / c,
                 early = fmin(p - 1, c) * late * (c > p ? (c - p + 1) / c : 0),
                 shift = (double)x->fixed.rows * (double)x->m->config.dim * (double)dtype_size(x->s->dtype) /
                             x->cost.lane_bytes[LANE_PP] +
                         x->cost.lane_seconds[LANE_PP],
                 shifts = 2 * shift, deals = (model_first_embeds(x->m) ? 2 : 4) * shift * (p - 1) / p,
                 waits = ahead ? fmax(0, shifts + deals - piece) : deals + (m == 1 ? shifts : 0);
    return m * stage + lag * (p - 1) * (piece + late) + 2 * (m - 1) * early + (m * c + lag * (p - 1)) * waits;
}

/* Returns the seconds of a step on a mesh with parts of layers. With ZeRO 2 and 3 state travels beside every piece's passes. With 1
 * gradients are summed beside the last one's alone, and stages, whose last ones follow each other, wait for each other's sums. */
static double parts_seconds(struct part *x, const int64_t limit[TIERS])
{
    const double m = (double)x->s->grad_accum, stages = strategy_stages(&x->fixed),
                 over = fmax(0, x->state - MESH_ROOM * (double)limit[TIER_DEVICE]),
                 moved = 2 * over * strategy_slices(&x->fixed) / fmin(x->cost.lane_bytes[LANE_H2D], x->cost.lane_bytes[LANE_D2H]);
    const int each = x->fixed.key.zero > 1;
    double least = INFINITY;
    x->world = each ? x->gathers + x->sums + (stages > 1 ? 0 : x->ends) : 0;
    const double micro_batch = fmax(micro_batch_seconds(x, limit), moved);
    if (stages == 1) {
        const double state = m * (x->gathers + x->sums + x->ends);
        return m * micro_batch + (each ? 0 : fmax(MESH_WORLD_WAITS * state, state - MESH_STATE_BESIDE * micro_batch));
    }
    for (int ahead = 0; ahead < 2; ahead++)
        if (x->s->stage_ahead == AUTO ? ahead == 0 || strategy_slices(&x->fixed) > 1 : x->s->stage_ahead == ahead)
            least = fmin(least, pipeline_seconds(x, micro_batch, ahead));
    return least + m * (x->ends + (each ? 0 : x->gathers + stages * x->sums));
}

enum status mesh_seconds(const struct model *m, const struct mesh_products *products, const struct plan_request *s,
                         const int64_t limit[TIERS], struct mesh_figures *out)
{
    const int64_t all = m->whole->config.layers, stages = mesh_degree(&s->mesh, MESH_PP);
    struct part x = {.m = m,
                     .s = s,
                     .layers =
                         m->config.layers == all ? (double)model_most_layers(m, &s->stage_layers, (int)stages) / (double)all : 1};
    double there = 0;
    TRY(plan_fixed(m, s, &x.fixed));
    TRY(seq_shape_create_pieces(s->micro_batch * s->seq_len, s->mesh.degree[MESH_ULYSSES], s->mesh.degree[MESH_RING], SEQ_AUTO,
                                model_least_piece(m), mesh_degree(&s->mesh, MESH_TP), &x.shape));
    plan_cost_model(s, &x.cost);
    add_products(&x, products);
    add_attention(&x);
    add_expansion(&x);
    add_elements(&x);
    add_slices(&x);
    add_sharing(&x);
    add_states(&x);
    add_state(&x);
    add_travel(&x);
    add_slices_rows(&x);
    add_kept_keys(&x);
    add_activations(&x);
    for (int t = 0; t < TIERS; t++)
        there += (double)limit[t];
    out->compute = (double)s->grad_accum * (x.products + x.attention + x.rest);
    out->seconds = mesh_lane_of_sliced(&s->mesh) != LANE_WORLD ? parts_seconds(&x, limit)
                                                               : (double)s->grad_accum * micro_batch_seconds(&x, limit);
    out->excess = (x.state + x.gathered + x.kept + (s->evaluation ? 0 : x.least)) / fmax(there, 1);
    if (x.kept > (double)limit[TIER_DEVICE])
        out->excess = fmax(out->excess, x.kept / fmax((double)limit[TIER_DEVICE], 1));
    return OK;
}
