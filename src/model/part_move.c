/* Indices of parameters in a part, in place of those in the whole model. */
#include "model/part_pieces.h"

#include "model/block_rows.h"

/* Returns a parameter's new index; -1 (none) stays. to: new indices. */
static int moved(const int *to, int param)
{
    return param < 0 ? param : to[param];
}

static void move_linear(const int *to, struct model_linear *w)
{
    w->weight = moved(to, w->weight);
    w->bias = moved(to, w->bias);
    if (w->rank > 0) {
        w->down = moved(to, w->down);
        w->up = moved(to, w->up);
    }
}

static void move_norm(const int *to, struct model_norm *n)
{
    n->weight = moved(to, n->weight);
    n->bias = moved(to, n->bias);
}

/* ---- maps that slices do not cut ---- */

static void move_latents(const int *to, struct attention_block *a)
{
    move_linear(to, &a->q_a);
    move_linear(to, &a->kv_a);
    move_norm(to, &a->q_a_norm);
    move_norm(to, &a->kv_a_norm);
}

static void move_experts(const int *to, struct experts_block *e)
{
    move_linear(to, &e->router);
    move_linear(to, &e->gate_up);
    move_linear(to, &e->down);
    move_norm(to, &e->router_norm);
    e->router_bias = moved(to, e->router_bias);
    e->factors = moved(to, e->factors);
}

static void move_recurrence(const int *to, struct recurrent_block *r)
{
    struct model_linear *const maps[] = {&r->qkv, &r->second, &r->third, &r->z, &r->a, &r->z_low, &r->a_low, &r->b, &r->out};
    int *const vectors[] = {&r->conv, &r->conv_bias, &r->a_log, &r->dt_bias, &r->skip};
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
        move_linear(to, maps[i]);
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        *vectors[i] = moved(to, *vectors[i]);
    move_norm(to, &r->heads_norm);
}

static void move_conv(const int *to, struct conv_block *c)
{
    move_linear(to, &c->before);
    move_linear(to, &c->after);
    move_linear(to, &c->x);
    move_linear(to, &c->out);
    c->conv = moved(to, c->conv);
    c->bias = moved(to, c->bias);
}

static void move_others(const int *to, struct model_block *b)
{
    if (b->kind == BLOCK_ATTENTION)
        move_latents(to, &b->attention);
    if (b->kind == BLOCK_MLP)
        move_linear(to, &b->mlp.scalar);
    if (b->kind == BLOCK_EXPERTS)
        move_experts(to, &b->experts);
    if (b->kind == BLOCK_RECURRENT)
        move_recurrence(to, &b->recurrent);
    if (b->kind == BLOCK_CONV)
        move_conv(to, &b->conv);
}

static void move_layer(const int *to, struct model_layer *l)
{
    l->scalar = moved(to, l->scalar);
    for (int i = 0; i < l->n_blocks; i++) {
        struct model_block *b = &l->blocks[i];
        struct fields f;
        block_fields(b, &f);
        move_norm(to, &b->norm);
        move_norm(to, &b->inner);
        move_norm(to, &b->after);
        for (int k = 0; k < MOST_MAPS && f.into[k]; k++)
            move_linear(to, f.into[k]);
        if (f.out_of)
            move_linear(to, f.out_of);
        for (int k = 0; k < MOST_NORMS && f.norm[k]; k++)
            move_norm(to, f.norm[k]);
        if (f.by_head)
            *f.by_head = moved(to, *f.by_head);
        move_others(to, b);
    }
}

void part_renumber(const int *to, struct model *m)
{
    for (int64_t l = 0; l < m->part.layers; l++)
        move_layer(to, &m->layers[l]);
    m->embed = moved(to, m->embed);
    m->pos_embed = moved(to, m->pos_embed);
    m->embed_rows = moved(to, m->embed_rows);
    m->head_rows = moved(to, m->head_rows);
    move_norm(to, &m->final_norm);
    move_linear(to, &m->embedding);
    move_linear(to, &m->head);
}
