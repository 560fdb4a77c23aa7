/* Qwen3.5 (text), without linear attention: norms multiply by 1 + w, those of queries and keys of each head, too; a part of each
 * head is rotated. A head's output is multiplied by the sigmoid of its gate, whose map lies beside the queries' in q_proj. */
#include "model/family/common.h"

#include <string.h>

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    unsigned form = c->attention_bias ? LINEAR_BIAS : 0;
    struct model_block *block = build_block(b, l, BLOCK_ATTENTION), *mlp = build_block(b, l, BLOCK_MLP);
    struct attention_block *a = &block->attention;
    const struct attention_shape *s = build_shape(b, a);
    int64_t dim = c->dim, q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    build_prefix(b, "model.layers.%d.", l);
    block->norm = build_norm(b, "input_layernorm", NORM_RMS_ONE);
    mlp->norm = build_norm(b, "post_attention_layernorm", NORM_RMS_ONE);
    struct model_linear gated = build_interleaved(b, "self_attn.q_proj", dim, 2 * q, 2, 1, s->head_dim, form, c->init_std);
    a->q = build_slice(&gated, 0, q);
    a->gate = build_slice(&gated, q, q);
    a->k = build_linear(b, "self_attn.k_proj", dim, kv, form, c->init_std);
    a->v = build_linear(b, "self_attn.v_proj", dim, kv, form, c->init_std);
    a->o = build_linear(b, "self_attn.o_proj", q, dim, form, c->init_std);
    a->q_norm = build_norm_of(b, "self_attn.q_norm", NORM_RMS_ONE, s->head_dim);
    a->k_norm = build_norm_of(b, "self_attn.k_norm", NORM_RMS_ONE, s->head_dim);
    common_mlp(b, &mlp->mlp, 0);
}

static void head(struct builder *b)
{
    build_head(b);
    b->m->final_norm = build_norm(b, "model.norm", NORM_RMS_ONE);
}

/* ---- config.json ---- */

#define NOT_LINEAR "linear attention is not supported yet: only models all of whose layers have full_attention are"

/* Refuses layers with linear attention. Without layer_types every full_attention_interval-th layer has full attention, the others
 * linear. */
static enum status read_layers(struct config_reader *r, struct model_config *c)
{
    const json_t *types = config_get(r, "layer_types"), *type;
    int64_t interval = 4;
    size_t i;
    TRY(config_read_count(r, "full_attention_interval", OPTIONAL, 1, &interval));
    if (!types)
        return interval > 1 ? config_refuse(r, "full_attention_interval", NOT_LINEAR) : OK;
    if (!json_is_array(types) || json_array_size(types) != (size_t)c->layers)
        return config_refuse(r, "layer_types", "must be a list with an entry for each of num_hidden_layers");
    json_array_foreach((json_t *)types, i, type)
    {
        if (!json_is_string(type) || strcmp(json_string_value(type), "full_attention") != 0)
            return config_refuse(r, "layer_types", NOT_LINEAR);
    }
    return OK;
}

static enum status derive(struct config_reader *r, struct model_config *c)
{
    if (!c->kv_heads)
        c->kv_heads = 4;
    if (!c->head_dim)
        c->head_dim = 256;
    if (!c->max_positions)
        c->max_positions = 32768;
    return common_derive(r, c);
}

static const struct config_key keys[] = {
    {"hidden_act", KEY_WORD, AT_gate, GATE_SILU, common_silu},
    {"rms_norm_eps", KEY_FIELD, AT_norm_eps, 1e-6},
    {"tie_word_embeddings", KEY_FIELD, AT_tied, 0},
    {"attention_bias", KEY_FIELD, AT_attention_bias, 0},
    {"layer_types", KEY_SPECIAL, .read = read_layers, .write = config_list_layer_types},
    {"attn_output_gate", KEY_ONLY_TRUE},
    SHARE_KEY,
    {"linear_conv_kernel_dim", KEY_SPECIAL}, /* two keys of linear attention, of which there is none */
    {"linear_key_head_dim", KEY_SPECIAL},
    {"linear_value_head_dim", KEY_SPECIAL},
    {"linear_num_key_heads", KEY_SPECIAL},
    {"linear_num_value_heads", KEY_SPECIAL},
    {"mamba_ssm_dtype", KEY_SPECIAL},
    {"mlp_only_layers", KEY_SPECIAL}, /* about experts, of which there are none */
    {NULL},
};

const struct family family_qwen3_5 = {.name = "qwen3_5_text",
                                      .class = "Qwen3_5ForCausalLM",
                                      .theta = 10000,
                                      .partial = 1,
                                      .share = 0.25,
                                      .keys = {common_keys, keys},
                                      COMMON,
                                      .derive = derive,
                                      .layer = layer,
                                      .head = head};
