#include "plan/lower/blocks/attend.h"

#include "plan/lower/emit.h"
#include "plan/lower/param.h"
#include "plan/lower/pieces.h"
#include "plan/lower/visit.h"

#include <math.h>

#define DEV TIER_DEVICE

/* Returns the number of a mask's i-th predicate. Predicates of one mask are numbered consecutively; predicate 0, which always
 * holds, belongs to all masks. */
static int predicate(const struct lowering *L, const struct attention_block *w, int i)
{
    return w->mask * (2 * L->ring - 2) + i;
}

int ring_attends(const struct lowering *L, const struct attention_block *w, int s)
{
    return s == 0 ? 0 : predicate(L, w, 2 * s - 1);
}

int ring_is_attended(const struct lowering *L, const struct attention_block *w, int s)
{
    return predicate(L, w, 2 * s);
}

void under_predicate(struct lowering *L, int predicate)
{
    L->p->instrs[L->p->n_instrs - 1].predicate = (int16_t)predicate;
}

static void attention_attrs(const struct lowering *L, const struct attention_block *w, struct op_attrs *a)
{
    const struct head_tiles *h = &attention_work(L, w)->attended;
    a->attn.sq = L->attn_rows;
    a->attn.hq = h->q;
    a->attn.hk = h->kv;
    a->attn.head_dim = (int32_t)h->dim;
    a->attn.value_dim = h->value != h->dim ? (int32_t)h->value : 0;
    a->attn.dtype = (int32_t)L->s.key.dtype;
    a->attn.scale = w->scale;
    a->attn.cap = w->cap;
}

/* Estimates the query-key pairs of one ring step, or of a slice: an equal share of each sequence as one long document. Several documents have fewer
 * pairs. */
static double planned_pairs(const struct lowering *L, const struct attention_block *b)
{
    int64_t window = L->m->mask_window[b->mask];
    const double all = (double)L->s.seq_len, n = all / (double)L->s.key.packed, w = window > 0 ? fmin((double)window, n) : n;
    return (all * w - (double)L->s.key.packed * w * (w - 1) / 2) / ((double)L->ring * L->ring * strategy_slices(&L->s));
}

static void arg_mask(struct lowering *L, const struct attention_block *w, int arg, int s)
{
    int64_t first = s * L->mask_rows;
    arg_read(L, arg, &L->lo[w->mask], first, first + L->attn_rows, DEV);
    arg_read(L, arg + 1, &L->hi[w->mask], first, first + L->attn_rows, DEV);
}

/* Fetches the mask of ring step s. It is dropped after each use (drop_mask), unless the ring has a single member. */
static void get_mask(struct lowering *L, const struct attention_block *w, int s)
{
    int tile = value_tile_at(&L->lo[w->mask], s * L->mask_rows);
    value_get(L, &L->lo[w->mask], tile);
    value_get(L, &L->hi[w->mask], tile);
}

static void drop_mask(struct lowering *L, const struct attention_block *w, int s)
{
    if (L->ring == 1)
        return;
    value_drop(L, &L->lo[w->mask], s);
    value_drop(L, &L->hi[w->mask], s);
}

void emit_attention_forward(struct lowering *L, int s, const struct forward_tile *f)
{
    const struct attention_block *w = f->weights;
    int64_t n = L->attn_rows, keys = f->keys > 0 ? f->keys : f->k->rows;
    get_mask(L, w, s);
    struct op_attrs *a = emit(L, OP_ATTN_FWD, LANE_COMPUTE);
    attention_attrs(L, w, a);
    a->attn.sk = keys;
    a->attn.o_fp32 = f->o_fp32 && L->s.key.dtype != F32;
    if (L->ring > 1)
        under_predicate(L, ring_attends(L, w, s));
    arg_write(L, 0, f->o, 0, n, DEV);
    arg_write(L, 1, f->lse, 0, f->lse->rows, DEV);
    arg_read(L, 2, f->q, 0, n, DEV);
    arg_read(L, 3, f->k, f->first_key, f->first_key + keys, DEV);
    arg_read(L, 4, f->v, f->first_value, f->first_value + keys, DEV);
    arg_mask(L, w, 5, s);
    emit_done(L, f->keys > 0 ? (double)n * (double)keys : planned_pairs(L, w));
    drop_mask(L, w, s);
}

void emit_attention_backward(struct lowering *L, int s, const struct backward_tile *b, int accumulate)
{
    const struct attention_block *w = b->weights;
    const int64_t n = L->attn_rows, keys = b->k->rows;
    get_mask(L, w, s);
    struct op_attrs *a = emit(L, OP_ATTN_BWD, LANE_COMPUTE);
    attention_attrs(L, w, a);
    a->attn.sk = keys;
    a->attn.accumulate = accumulate;
    under_predicate(L, ring_attends(L, w, s));
    arg_write(L, 0, b->dq, 0, n, DEV);
    (accumulate ? arg_update : arg_write)(L, 1, b->dk, 0, keys, DEV);
    (accumulate ? arg_update : arg_write)(L, 2, b->dv, 0, keys, DEV);
    arg_read(L, 3, b->q, 0, n, DEV);
    arg_read(L, 4, b->k, 0, keys, DEV);
    arg_read(L, 5, b->v, 0, keys, DEV);
    arg_read(L, 6, b->delta, 0, n, DEV);
    arg_read(L, 7, b->lse, 0, b->lse->rows, DEV);
    arg_read(L, 8, b->d_o, 0, n, DEV);
    arg_mask(L, w, 9, s);
    emit_done(L, planned_pairs(L, w));
    drop_mask(L, w, s);
}

static void sink_attrs(const struct lowering *L, const struct attention_block *w, struct op_attrs *a, int tile)
{
    const struct head_tiles *heads = heads_of(L, w);
    a->sink.rows = L->attn_rows;
    a->sink.heads = heads->q;
    a->sink.head_dim = (int32_t)heads->value;
    a->sink.dtype = (int32_t)L->s.key.dtype;
    a->sink.first = tile * heads->q;
    a->sink.share = heads->heads;
    a->sink.group = lane_in_record(LANE_ULYSSES);
}

/* Merges the attention sinks of the tile's heads into its o and lse. */
static void emit_sink(struct lowering *L, const struct forward_tile *f)
{
    if (f->weights->sinks < 0)
        return;
    struct op_attrs *a = emit(L, OP_ATTN_SINK, LANE_COMPUTE);
    sink_attrs(L, f->weights, a, f->tile);
    arg_update(L, 0, f->o, 0, f->o->rows, DEV);
    arg_update(L, 1, f->lse, 0, f->lse->rows, DEV);
    arg_param(L, 2, f->weights->sinks);
    arg_read(L, 3, &L->record, 0, 1, DEV);
    emit_done(L, 0);
}

struct forward_tile sum_begin(struct lowering *L, const struct forward_tile *f)
{
    struct forward_tile sum = *f;
    sum.o_fp32 = 1;
    if (L->s.key.dtype != F32) {
        sum.o = &attention_work(L, f->weights)->o_sum;
        value_new(L, sum.o, 0);
    }
    return sum;
}

void sum_end(struct lowering *L, const struct forward_tile *f, const struct forward_tile *sum)
{
    emit_sink(L, sum);
    if (sum->o == f->o)
        return;
    lower_cast(L, f->o, L->s.key.dtype, sum->o, F32);
    value_drop(L, sum->o, 0);
}

void sum_create(struct lowering *L, struct attention_work *W)
{
    heads_value(L, W, &W->o_sum, "o_sum", W->attended.q * W->attended.value * 4);
}

void emit_sink_gradient(struct lowering *L, const struct backward_tile *b)
{
    int sinks = b->weights->sinks;
    if (!trained(L, sinks))
        return;
    zero_gradient(L, sinks);
    struct op_attrs *a = emit(L, OP_ATTN_SINK_GRAD, LANE_COMPUTE);
    sink_attrs(L, b->weights, a, b->tile);
    arg_grad(L, 0, sinks, 0, param_of(L, sinks)->elements);
    arg_param(L, 1, sinks);
    arg_read(L, 2, b->lse, 0, b->lse->rows, DEV);
    arg_read(L, 3, b->delta, 0, b->delta->rows, DEV);
    arg_read(L, 4, &L->record, 0, 1, DEV);
    emit_done(L, 0);
}

void emit_attention_merge(struct lowering *L, const struct forward_tile *sum)
{
    const struct attention_block *w = sum->weights;
    struct attention_work *W = attention_work(L, w);
    struct op_attrs *a = emit(L, OP_ATTN_MERGE, LANE_COMPUTE);
    a->heads.rows = L->attn_rows;
    a->heads.heads = W->attended.q;
    a->heads.head_dim = (int32_t)W->attended.value;
    arg_update(L, 0, sum->o, 0, sum->o->rows, DEV);
    arg_update(L, 1, sum->lse, 0, sum->lse->rows, DEV);
    arg_read(L, 2, &W->o_part, 0, W->o_part.rows, DEV);
    arg_read(L, 3, &W->lse_part, 0, W->lse_part.rows, DEV);
    emit_done(L, 0);
    value_drop(L, &W->o_part, 0);
    value_drop(L, &W->lse_part, 0);
}

const char *work_name(const struct attention_work *W, const char *name, char text[WORK_NAME])
{
    snprintf(text, WORK_NAME, "%s%s", name, W->suffix);
    return text;
}

void heads_value(struct lowering *L, const struct attention_work *W, struct value *v, const char *name, int64_t row_bytes)
{
    char text[WORK_NAME];
    value_create(L, v, work_name(W, name, text), CLASS_WORK, L->attn_rows, row_bytes, L->attn_rows, RES_NONE);
}

void lse_part_value(struct lowering *L, struct attention_work *W, const char *name)
{
    char text[WORK_NAME];
    value_create(L, &W->lse_part, work_name(W, name, text), CLASS_WORK, W->heads->q, L->attn_rows * 4, W->heads->q, RES_NONE);
}

enum dtype dq_type(const struct lowering *L)
{
    return L->ulysses > 1 ? L->s.key.dtype : F32;
}
