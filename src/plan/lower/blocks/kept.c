#include "plan/lower/blocks/kept.h"

#include "plan/lower/blocks/block.h"
#include "plan/lower/emit.h"
#include "plan/lower/visit.h"

#define DEV TIER_DEVICE

/* --- Creation --- */

static void create(struct lowering *L, struct value *v, const char *what, int layer, int tile, int64_t row_bytes)
{
    char name[48];
    snprintf(name, sizeof name, "layer%d.kept_%s%d", layer, what, tile);
    value_create(L, v, name, CLASS_ACT, L->s.seq_len, row_bytes, L->s.seq_len, RES_DEVICE);
    home_create(L, v, -1, RES_DEVICE);
}

static void create_keys(struct lowering *L, int layer, const struct head_tiles *h)
{
    struct kept_layer *kept = &L->kept[layer];
    const int64_t size = dtype_size(L->s.key.dtype);
    kept->n = h->n_kv;
    kept->k = memory_new(L, h->n_kv, sizeof(struct value));
    kept->v = memory_new(L, h->n_kv, sizeof(struct value));
    for (int t = 0; t < h->n_kv && L->st == OK; t++) {
        create(L, &kept->k[t], "k", layer, t, h->kv * h->dim * size);
        create(L, &kept->v[t], "v", layer, t, h->kv * h->value * size);
    }
}

static void create_gradients(struct lowering *L, int layer, const struct head_tiles *h)
{
    struct kept_layer *kept = &L->kept[layer];
    kept->dk = memory_new(L, h->n_kv, sizeof(struct value));
    kept->dv = memory_new(L, h->n_kv, sizeof(struct value));
    for (int t = 0; t < h->n_kv && L->st == OK; t++) {
        create(L, &kept->dk[t], "dk", layer, t, h->kv * h->dim * dtype_size(F32));
        create(L, &kept->dv[t], "dv", layer, t, h->kv * h->value * dtype_size(F32));
    }
}

/* Calls create_of for each layer with attention. */
static void of_layers(struct lowering *L, void (*create_of)(struct lowering *L, int layer, const struct head_tiles *h))
{
    for (int l = 0; l < (int)L->m->config.layers && L->st == OK; l++) {
        const struct attention_block *a = model_attention(L->m, l);
        if (a)
            create_of(L, l, heads_of(L, a));
    }
}

/* Creates what passes from slice to slice in blocks without keys. */
static void create_carried(struct lowering *L, int gradients)
{
    for (int l = 0; l < (int)L->m->config.layers; l++)
        for (int i = 0; L->st == OK && i < L->layers[l].n_blocks; i++)
            if (L->layers[l].blocks[i].lowering->carry_create)
                L->layers[l].blocks[i].lowering->carry_create(L, &L->layers[l].blocks[i], gradients);
}

static void bind_carried(struct lowering *L, int l, int end)
{
    for (int i = 0; i < L->layers[l].n_blocks; i++)
        if (L->layers[l].blocks[i].lowering->carry_bind)
            L->layers[l].blocks[i].lowering->carry_bind(L, &L->layers[l].blocks[i], end);
}

void kept_create(struct lowering *L)
{
    const int first = L->p->n_buffers;
    if (!kept_keys(L))
        return;
    L->kept = memory_new(L, (int)L->m->config.layers, sizeof *L->kept);
    if (L->st == OK)
        of_layers(L, create_keys);
    create_carried(L, 0);
    program_add_copies(L->p, COPIES_KEYS, first, strategy_open_micro_batches(&L->s));
    if (L->st == OK)
        of_layers(L, create_gradients);
    create_carried(L, 1);
}

void kept_bind(struct lowering *L, int end)
{
    for (int l = 0; L->kept && (L->duties & DUTY_FORWARD) && l < (int)L->m->config.layers; l++) {
        for (int t = 0; t < L->kept[l].n; t++) {
            struct value *const all[] = {&L->kept[l].k[t], &L->kept[l].v[t], &L->kept[l].dk[t], &L->kept[l].dv[t]};
            for (int i = 0; i < 4; i++)
                value_bind(L, all[i], end);
        }
        bind_carried(L, l, end);
    }
}

/* --- Passes --- */

static struct op_attrs *emit_rows(struct lowering *L, enum op_kind op, const struct value *table, enum dtype type)
{
    struct op_attrs *a = emit(L, op, LANE_COMPUTE);
    a->embed.rows = L->attn_rows;
    a->embed.dim = table->row_bytes / dtype_size(type);
    a->embed.vocab = table->rows;
    a->embed.dtype = (int32_t)type;
    return a;
}

/* Copies the slice's rows into the sequence's kept ones, and frees `own`. */
static void keep(struct lowering *L, struct value *kept, struct value *own)
{
    emit_rows(L, OP_SCATTER, kept, L->s.key.dtype);
    arg_update(L, 0, kept, 0, kept->rows, DEV);
    arg_read(L, 1, own, 0, L->attn_rows, DEV);
    arg_read(L, 2, &L->index, 0, L->attn_rows, DEV);
    emit_done(L, 0);
    value_close_full(L, own);
}

void kept_attend(struct lowering *L, const struct block *b, int tile, int is_first, struct forward_tile *f)
{
    struct kept_layer *kept = &L->kept[b->layer];
    if (is_first) {
        keep(L, &kept->k[tile], f->k);
        keep(L, &kept->v[tile], f->v);
    }
    f->k = &kept->k[tile];
    f->v = &kept->v[tile];
}

int kept_attend_backward(struct lowering *L, const struct block *b, int tile, int is_first, struct backward_tile *g)
{
    struct kept_layer *kept = &L->kept[b->layer];
    const int begins = is_first && (L->duties & (DUTY_FIRST | DUTY_NEXT));
    g->k = &kept->k[tile];
    g->v = &kept->v[tile];
    g->dk = &kept->dk[tile];
    g->dv = &kept->dv[tile];
    return !begins;
}

/* Copies the slice's rows out of the sequence's kept ones. */
static void take(struct lowering *L, struct value *own, struct value *kept)
{
    emit_rows(L, OP_EMBED, kept, F32);
    arg_write(L, 0, own, 0, L->attn_rows, DEV);
    arg_read(L, 1, kept, 0, kept->rows, DEV);
    arg_read(L, 2, &L->index, 0, L->attn_rows, DEV);
    emit_done(L, 0);
}

void kept_gradients(struct lowering *L, const struct block *b, int tile, const struct backward_tile *g)
{
    struct kept_layer *kept = &L->kept[b->layer];
    take(L, g->dk, &kept->dk[tile]);
    take(L, g->dv, &kept->dv[tile]);
}
