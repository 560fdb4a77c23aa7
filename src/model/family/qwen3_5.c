/* Qwen3.5 (text): norms multiply by 1 + w, those of queries and keys of each head, too; a part of each head is rotated. A head's
 * output is multiplied by the sigmoid of its gate, whose map lies beside the queries' in q_proj. Most layers have a gated delta rule
 * in place of attention. */
#include "model/family/recurrent.h"

static void attention(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    const unsigned form = c->attention_bias ? LINEAR_BIAS : 0;
    struct model_block *block = build_block(b, l, BLOCK_ATTENTION);
    struct attention_block *a = &block->attention;
    const struct attention_shape *s = build_shape(b, a);
    const int64_t dim = c->dim, q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    block->norm = build_norm(b, "input_layernorm", NORM_RMS_ONE);
    const struct model_linear gated = build_interleaved(b, "self_attn.q_proj", dim, 2 * q, 2, 1, s->head_dim, form, c->init_std);
    a->q = build_slice(&gated, 0, q);
    a->gate = build_slice(&gated, q, q);
    a->k = build_linear(b, "self_attn.k_proj", dim, kv, form, c->init_std);
    a->v = build_linear(b, "self_attn.v_proj", dim, kv, form, c->init_std);
    a->o = build_linear(b, "self_attn.o_proj", q, dim, form, c->init_std);
    a->q_norm = build_norm_of(b, "self_attn.q_norm", NORM_RMS_ONE, s->head_dim);
    a->k_norm = build_norm_of(b, "self_attn.k_norm", NORM_RMS_ONE, s->head_dim);
}

static void delta(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    struct model_block *block = recurrent_delta(b, l);
    struct recurrent_block *r = &block->recurrent;
    const int64_t values = r->heads * r->value_dim;
    block->norm = build_norm(b, "input_layernorm", NORM_RMS_ONE);
    r->qkv = build_linear(b, "linear_attn.in_proj_qkv", c->dim, r->channels, 0, c->init_std);
    r->z = build_linear(b, "linear_attn.in_proj_z", c->dim, values, 0, c->init_std);
    r->b = build_linear(b, "linear_attn.in_proj_b", c->dim, r->heads, 0, c->init_std);
    r->a = build_linear(b, "linear_attn.in_proj_a", c->dim, r->heads, 0, c->init_std);
    r->out = build_linear(b, "linear_attn.out_proj", values, c->dim, 0, c->init_std);
    r->conv = build_conv(b, "linear_attn.conv1d", r->channels, r->width, c->init_std);
    r->a_log = build_vector_of(b, "linear_attn.A_log", r->heads, INIT_DECAY);
    r->dt_bias = build_vector_of(b, "linear_attn.dt_bias", r->heads, INIT_ONES);
    r->heads_norm = build_norm_of(b, "linear_attn.norm", NORM_RMS, r->value_dim);
}

static void layer(struct builder *b, int l)
{
    build_prefix(b, "model.layers.%d.", l);
    if (b->m->config.blocks_of[l] == LIST_RECURRENT)
        delta(b, l);
    else
        attention(b, l);
    struct model_block *mlp = build_block(b, l, BLOCK_MLP);
    mlp->norm = build_norm(b, "post_attention_layernorm", NORM_RMS_ONE);
    common_mlp(b, &mlp->mlp, 0);
}

static void head(struct builder *b)
{
    build_head(b);
    b->m->final_norm = build_norm(b, "model.norm", NORM_RMS_ONE);
}

/* ---- config.json ---- */

static const struct recurrent_words words = {"full_attention", "linear_attention"};

static enum status read_layers(struct config_reader *r, struct model_config *c)
{
    int64_t interval = 4;
    TRY(config_read_count(r, "full_attention_interval", OPTIONAL, 1, &interval));
    return recurrent_read_types(r, c, &words, interval);
}

static json_t *list_layers(const struct model_config *c)
{
    return recurrent_list_types(c, &words);
}

/* Reads the number of layers that predict further tokens. Without the key files may have some, too. */
static enum status read_further(struct config_reader *r, struct model_config *c)
{
    c->further_layers = 1;
    return config_read_count(r, "mtp_num_hidden_layers", OPTIONAL, 0, &c->further_layers);
}

static json_t *write_further(const struct model_config *c)
{
    return json_integer(c->further_layers);
}

static const struct config_word swish[] = {{"swish", 0}, {"silu", 0}, {NULL, 0}};

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
    {"layer_types", KEY_SPECIAL, .read = read_layers, .write = list_layers},
    {"attn_output_gate", KEY_ONLY_TRUE},
    {"output_gate_type", KEY_WORD, NO_FIELD, 0, swish},
    SHARE_KEY,
    RECURRENT_KEYS(4, 128, 128, 16, 32),
    {"mamba_ssm_dtype", KEY_WORD, NO_FIELD, 0, recurrent_float32},
    {"mtp_num_hidden_layers", KEY_SPECIAL, .read = read_further, .write = write_further},
    {"mtp_use_dedicated_embeddings", KEY_SPECIAL}, /* about layers that are not part of the model */
    {"mlp_only_layers", KEY_SPECIAL},              /* about experts, of which there are none */
    {NULL},
};

const struct family family_qwen3_5 = {.name = "qwen3_5_text",
                                      .class = "Qwen3_5ForCausalLM",
                                      .theta = 10000,
                                      .partial = 1,
                                      .share = 0.25,
                                      .keys = {common_keys, keys},
                                      .buffers = common_buffers,
                                      .embedding = common_embedding,
                                      .check = recurrent_check,
                                      .derive = derive,
                                      .layer = layer,
                                      .head = head};
