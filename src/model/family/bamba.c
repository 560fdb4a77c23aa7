/* Bamba: attention in the layers that config.json lists, half of each head rotated, a Mamba-2 mixer in the others. */
#include "model/family/mamba.h"

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    const unsigned form = c->attention_bias ? LINEAR_BIAS : 0, mlp_form = c->mlp_bias ? LINEAR_BIAS : 0;
    build_layer_prefix(b, "model.layers.", l);
    if (recurrent_mixer(c, l) == LIST_RECURRENT) {
        struct model_block *mixer = mamba_mixer(b, l, "mamba", SCAN_NORM_LAST);
        mixer->norm = build_norm(b, "input_layernorm", NORM_RMS);
    } else {
        struct model_block *attention = build_block(b, l, BLOCK_ATTENTION);
        attention->norm = build_norm(b, "input_layernorm", NORM_RMS);
        common_attention(b, &attention->attention, form, form);
    }
    struct model_block *mlp = build_block(b, l, BLOCK_MLP);
    struct mlp_block *m = &mlp->mlp;
    mlp->norm = build_norm(b, "pre_ff_layernorm", NORM_RMS);
    m->gate = build_linear(b, "feed_forward.gate_proj", c->dim, c->ffn, mlp_form, c->init_std);
    m->up = build_linear(b, "feed_forward.up_proj", c->dim, c->ffn, mlp_form, c->init_std);
    m->down = build_linear(b, "feed_forward.down_proj", c->ffn, c->dim, mlp_form, c->init_std);
    m->kind = c->gate;
}

static void head(struct builder *b)
{
    build_head(b);
    b->m->final_norm = build_norm(b, "model.final_layernorm", NORM_RMS);
}

/* ---- config.json ---- */

/* Reads the numbers of the layers that have attention. */
static enum status read_attention(struct config_reader *r, struct model_config *c)
{
    const json_t *list = config_get(r, "attn_layer_indices"), *number;
    const int64_t layers = min_i64(c->layers, LAYERS_MOST);
    size_t i;
    if (list && !json_is_array(list))
        return config_refuse(r, "attn_layer_indices", "must be a list of numbers of layers");
    for (int64_t l = 0; l < layers; l++)
        c->blocks_of[l] = LIST_RECURRENT;
    json_array_foreach((json_t *)list, i, number)
    {
        const json_int_t l = json_is_integer(number) ? json_integer_value(number) : -1;
        if (l < 0 || l >= layers)
            return config_refuse(r, "attn_layer_indices", "its entries must be numbers of layers, from 0 on");
        c->blocks_of[l] = LIST_ATTENTION;
    }
    return OK;
}

static json_t *list_attention(const struct model_config *c)
{
    json_t *list = json_array();
    for (int64_t l = 0; l < c->layers; l++)
        if (recurrent_mixer(c, l) == LIST_ATTENTION)
            json_array_append_new(list, json_integer((json_int_t)l));
    return list;
}

/* Refuses a loss of the logits' size, with which transformers would train. */
static enum status read_z_loss(struct config_reader *r, struct model_config *c)
{
    (void)c;
    return config_only_number(r, "z_loss_coefficient", 0.0);
}

static enum status derive(struct config_reader *r, struct model_config *c)
{
    if (!c->kv_heads)
        c->kv_heads = 8;
    if (!c->max_positions)
        c->max_positions = 262144;
    return common_derive(r, c);
}

static const struct config_key keys[] = {
    {"hidden_act", KEY_WORD, AT_gate, GATE_SILU, common_silu},
    {"rms_norm_eps", KEY_FIELD, AT_norm_eps, 1e-5},
    {"tie_word_embeddings", KEY_FIELD, AT_tied, 0},
    {"attention_bias", KEY_FIELD, AT_attention_bias, 0},
    {"mlp_bias", KEY_FIELD, AT_mlp_bias, 0},
    {"attn_layer_indices", KEY_SPECIAL, .read = read_attention, .write = list_attention},
    {"attn_rotary_emb", KEY_SPECIAL}, /* another engine's number of rotated elements */
    {"z_loss_coefficient", KEY_SPECIAL, .read = read_z_loss},
    {"num_logits_to_keep", KEY_SPECIAL}, /* about sampling */
    SHARE_KEY,
    MAMBA_KEYS,
    {NULL},
};

const struct family family_bamba = {.name = "bamba",
                                    .class = "BambaForCausalLM",
                                    .theta = 10000,
                                    .partial = 1,
                                    .share = 0.5,
                                    .keys = {common_keys, keys},
                                    .buffers = common_buffers,
                                    .embedding = common_embedding,
                                    .check = recurrent_check,
                                    .derive = derive,
                                    .layer = layer,
                                    .head = head};
