/* Phi-3, Phi-3.5 and Phi-4: Llama with q, k, v in one matrix, and gate and up in another. */
#include "model/family/common.h"

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    struct model_block *attention = build_block(b, l, BLOCK_ATTENTION), *mlp = build_block(b, l, BLOCK_MLP);
    struct attention_block *a = &attention->attention;
    const struct attention_shape *s = build_shape(b, a);
    int64_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    build_layer_prefix(b, "model.layers.", l);
    attention->norm = build_norm(b, "input_layernorm", NORM_RMS);
    mlp->norm = build_norm(b, "post_attention_layernorm", NORM_RMS);
    struct model_linear qkv = build_linear(b, "self_attn.qkv_proj", c->dim, q + 2 * kv, 0, c->init_std);
    a->q = build_slice(&qkv, 0, q);
    a->k = build_slice(&qkv, q, kv);
    a->v = build_slice(&qkv, q + kv, kv);
    a->o = build_linear(b, "self_attn.o_proj", q, c->dim, 0, c->init_std);
    common_fused_mlp(b, &mlp->mlp);
}

static enum status derive(struct config_reader *r, struct model_config *c)
{
    if (!c->max_positions)
        c->max_positions = 4096;
    return common_derive(r, c);
}

static json_t *write_original(const struct model_config *c)
{
    return json_integer(c->rope_original_positions > 0.0 ? (json_int_t)c->rope_original_positions : c->max_positions);
}

static const struct config_key keys[] = {
    {"hidden_act", KEY_WORD, AT_gate, GATE_SILU, common_silu},
    {"rms_norm_eps", KEY_FIELD, AT_norm_eps, 1e-5},
    {"tie_word_embeddings", KEY_FIELD, AT_tied, 0},
    {"original_max_position_embeddings", KEY_SPECIAL, .write = write_original},
    SHARE_KEY,
    WINDOW_KEY(common_read_window),
    {"attention_bias", KEY_ONLY_FALSE},
    {"mlp_bias", KEY_ONLY_FALSE},
    {"lm_head_bias", KEY_ONLY_FALSE},
    {"resid_pdrop", KEY_DROPOUT},
    {"embd_pdrop", KEY_DROPOUT},
    {NULL},
};

const struct family family_phi3 = {.name = "phi3",
                                   .class = "Phi3ForCausalLM",
                                   .keys = {common_keys, keys},
                                   .partial = 1,
                                   COMMON,
                                   .derive = derive,
                                   .layer = layer,
                                   .head = common_head};
