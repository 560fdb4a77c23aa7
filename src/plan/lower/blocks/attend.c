#include "plan/lower/blocks/attend.h"

#include "plan/lower/emit.h"
#include "plan/lower/visit.h"

#define DEV TIER_DEVICE

int ring_attends(int s)
{
    return s == 0 ? 0 : 2 * s - 1;
}

int ring_is_attended(int s)
{
    return 2 * s;
}

void under_predicate(struct lowering *L, int predicate)
{
    L->p->instrs[L->p->n_instrs - 1].predicate = (int16_t)predicate;
}

static void attention_attrs(const struct lowering *L, struct op_attrs *a)
{
    a->attn.sq = a->attn.sk = L->attn_rows;
    a->attn.hq = L->s.head_tile;
    a->attn.hk = L->kv_heads_tile;
    a->attn.head_dim = (int32_t)L->m->config.head_dim;
    a->attn.dtype = (int32_t)L->s.dtype;
    a->attn.scale = 1.0f / __builtin_sqrtf((float)L->m->config.head_dim);
}

/* The planner's estimate of the pairs of one ring step: balanced, of one long document. Several documents have fewer pairs. */
static double planned_pairs(const struct lowering *L)
{
    double n = (double)L->s.seq_len, w = L->m->config.window > 0 ? (double)min_i64(L->m->config.window, L->s.seq_len) : n;
    return (n * w - w * (w - 1) / 2) / ((double)L->ring * L->ring);
}

static void arg_mask(struct lowering *L, int arg, int s)
{
    int64_t first = s * L->attn_rows;
    arg_read(L, arg, &L->lo, first, first + L->attn_rows, DEV);
    arg_read(L, arg + 1, &L->hi, first, first + L->attn_rows, DEV);
}

/* The masks of a ring step are fetched for each use; a single one stays. */
static void get_mask(struct lowering *L, int s)
{
    value_get(L, &L->lo, s);
    value_get(L, &L->hi, s);
}

static void drop_mask(struct lowering *L, int s)
{
    if (L->ring == 1)
        return;
    value_drop(L, &L->lo, s);
    value_drop(L, &L->hi, s);
}

void emit_attention_forward(struct lowering *L, int s, const struct forward_tile *f)
{
    int64_t n = L->attn_rows;
    get_mask(L, s);
    struct op_attrs *a = emit(L, OP_ATTN_FWD, LANE_COMPUTE);
    attention_attrs(L, a);
    under_predicate(L, ring_attends(s));
    arg_write(L, 0, f->o, 0, n, DEV);
    arg_write(L, 1, f->lse, 0, f->lse->rows, DEV);
    arg_read(L, 2, f->q, 0, n, DEV);
    arg_read(L, 3, f->k, 0, n, DEV);
    arg_read(L, 4, f->v, 0, n, DEV);
    arg_mask(L, 5, s);
    emit_done(L, planned_pairs(L));
    drop_mask(L, s);
}

void emit_attention_backward(struct lowering *L, int s, const struct backward_tile *b, int accumulate)
{
    int64_t n = L->attn_rows;
    get_mask(L, s);
    struct op_attrs *a = emit(L, OP_ATTN_BWD, LANE_COMPUTE);
    attention_attrs(L, a);
    a->attn.accumulate = accumulate;
    under_predicate(L, ring_attends(s));
    arg_write(L, 0, b->dq, 0, n, DEV);
    (accumulate ? arg_update : arg_write)(L, 1, b->dk, 0, n, DEV);
    (accumulate ? arg_update : arg_write)(L, 2, b->dv, 0, n, DEV);
    arg_read(L, 3, b->q, 0, n, DEV);
    arg_read(L, 4, b->k, 0, n, DEV);
    arg_read(L, 5, b->v, 0, n, DEV);
    arg_read(L, 6, b->delta, 0, n, DEV);
    arg_read(L, 7, b->lse, 0, b->lse->rows, DEV);
    arg_read(L, 8, b->d_o, 0, n, DEV);
    arg_mask(L, 9, s);
    emit_done(L, planned_pairs(L));
    drop_mask(L, s);
}

void heads_value(struct lowering *L, struct value *v, const char *name, int64_t row_bytes)
{
    value_create(L, v, name, CLASS_WORK, L->attn_rows, row_bytes, L->attn_rows, RES_NONE);
}

enum dtype dq_type(const struct lowering *L)
{
    return L->ulysses > 1 ? L->s.dtype : F32;
}
