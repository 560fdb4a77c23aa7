/* GPT-2: layer norms, learned positions, biases everywhere, GELU; matrices stored [in, out], q, k and v as columns of one. */
#include "model/family.h"

#include <math.h>

static enum status check(const struct model_config *c)
{
    if (c->heads * c->head_dim != c->dim || c->kv_heads != c->heads)
        return status_fail(
            ERR_INVALID,
            "model: GPT-2 with hidden size %lld needs heads x head size of the same, not %lld x %lld (%lld key-value heads)",
            (long long)c->dim, (long long)c->heads, (long long)c->head_dim, (long long)c->kv_heads);
    return OK;
}

static void embedding(struct builder *b)
{
    const struct model_config *c = &b->m->config;
    build_prefix(b, "transformer.");
    b->m->embed = build_matrix(b, "wte", c->vocab, c->dim, c->init_std);
    b->m->pos_embed = build_matrix(b, "wpe", c->max_positions, c->dim, c->init_std);
}

static void layer(struct builder *b, int l)
{
    enum { CONV1D = LINEAR_IN_OUT | LINEAR_BIAS };
    const struct model_config *c = &b->m->config;
    int64_t dim = c->dim;
    double std = c->init_std, residual_std = std / sqrt(2.0 * (double)c->layers); /* GPT-2's scaling of what adds to the stream */
    struct model_block *attention = build_block(b, l, BLOCK_ATTENTION), *mlp = build_block(b, l, BLOCK_MLP);
    build_prefix(b, "transformer.h.%d.", l);
    attention->norm = build_norm(b, "ln_1", NORM_LAYER);
    struct model_linear qkv = build_linear(b, "attn.c_attn", dim, 3 * dim, CONV1D, std);
    attention->attention.q = build_slice(&qkv, 0, dim);
    attention->attention.k = build_slice(&qkv, dim, dim);
    attention->attention.v = build_slice(&qkv, 2 * dim, dim);
    attention->attention.o = build_linear(b, "attn.c_proj", dim, dim, CONV1D, residual_std);
    mlp->norm = build_norm(b, "ln_2", NORM_LAYER);
    mlp->mlp.gate = build_no_linear();
    mlp->mlp.up = build_linear(b, "mlp.c_fc", dim, c->ffn, CONV1D, std);
    mlp->mlp.down = build_linear(b, "mlp.c_proj", c->ffn, dim, CONV1D, residual_std);
}

static void head(struct builder *b)
{
    build_head(b);
    b->m->final_norm = build_norm(b, "transformer.ln_f", NORM_LAYER);
}

const struct family family_gpt2 = {.learned_positions = 1, .check = check, .embedding = embedding, .layer = layer, .head = head};
