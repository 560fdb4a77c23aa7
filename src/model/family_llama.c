/* Llama, Mistral and Qwen2: RMS norms, rotary positions, grouped heads, SwiGLU; Qwen2 with biases on q, k and v. */
#include "model/family.h"

static enum status check(const struct model_config *c)
{
    if (c->head_dim % 2)
        return status_fail(ERR_INVALID, "model: head size is %lld, must be even for rotary positions", (long long)c->head_dim);
    return OK;
}

static void embedding(struct builder *b)
{
    const struct model_config *c = &b->m->config;
    build_prefix(b, "model.");
    b->m->embed = build_matrix(b, "embed_tokens", c->vocab, c->dim, c->init_std);
}

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    int64_t dim = c->dim, q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    unsigned qkv_form = LINEAR_OUT_IN | (c->variant == VARIANT_QWEN2 ? LINEAR_BIAS : 0);
    double std = c->init_std;
    struct model_block *attention = build_block(b, l, BLOCK_ATTENTION), *mlp = build_block(b, l, BLOCK_MLP);
    build_prefix(b, "model.layers.%d.", l);
    attention->norm = build_norm(b, "input_layernorm", NORM_RMS);
    mlp->norm = build_norm(b, "post_attention_layernorm", NORM_RMS);
    attention->attention.q = build_linear(b, "self_attn.q_proj", dim, q, qkv_form, std);
    attention->attention.k = build_linear(b, "self_attn.k_proj", dim, kv, qkv_form, std);
    attention->attention.v = build_linear(b, "self_attn.v_proj", dim, kv, qkv_form, std);
    attention->attention.o = build_linear(b, "self_attn.o_proj", q, dim, LINEAR_OUT_IN, std);
    mlp->mlp.gate = build_linear(b, "mlp.gate_proj", dim, c->ffn, LINEAR_OUT_IN, std);
    mlp->mlp.up = build_linear(b, "mlp.up_proj", dim, c->ffn, LINEAR_OUT_IN, std);
    mlp->mlp.down = build_linear(b, "mlp.down_proj", c->ffn, dim, LINEAR_OUT_IN, std);
}

static void head(struct builder *b)
{
    build_head(b);
    b->m->final_norm = build_norm(b, "model.norm", NORM_RMS);
}

const struct family family_llama = {.check = check, .embedding = embedding, .layer = layer, .head = head};
