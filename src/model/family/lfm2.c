/* LFM2, dense and with experts: short convolutions between gates in most layers, attention with norms of q and k in the others. */
#include "model/family/experts.h"
#include "model/family/recurrent.h"

static void convolution(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    const unsigned form = c->conv_bias ? LINEAR_BIAS : 0;
    struct model_block *block = build_block(b, l, BLOCK_CONV);
    struct conv_block *v = &block->conv;
    block->norm = build_norm(b, "operator_norm", NORM_RMS);
    const struct model_linear all = build_linear(b, "conv.in_proj", c->dim, 3 * c->dim, form, c->init_std);
    v->before = build_slice(&all, 0, c->dim);
    v->after = build_slice(&all, c->dim, c->dim);
    v->x = build_slice(&all, 2 * c->dim, c->dim);
    v->out = build_linear(b, "conv.out_proj", c->dim, c->dim, form, c->init_std);
    v->width = c->conv_width;
    v->conv = build_conv(b, "conv.conv", c->dim, v->width, c->init_std);
    if (form)
        v->bias = build_vector_of(b, "conv.conv.bias", c->dim, INIT_ZEROS);
}

static void attention(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    struct model_block *block = build_block(b, l, BLOCK_ATTENTION);
    struct attention_block *a = &block->attention;
    const struct attention_shape *s = build_shape(b, a);
    const int64_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    block->norm = build_norm(b, "operator_norm", NORM_RMS);
    a->q = build_linear(b, "self_attn.q_proj", c->dim, q, 0, c->init_std);
    a->k = build_linear(b, "self_attn.k_proj", c->dim, kv, 0, c->init_std);
    a->v = build_linear(b, "self_attn.v_proj", c->dim, kv, 0, c->init_std);
    a->o = build_linear(b, "self_attn.out_proj", q, c->dim, 0, c->init_std);
    a->q_norm = build_norm_of(b, "self_attn.q_layernorm", NORM_RMS, s->head_dim);
    a->k_norm = build_norm_of(b, "self_attn.k_layernorm", NORM_RMS, s->head_dim);
}

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    build_layer_prefix(b, "model.layers.", l);
    if (recurrent_mixer(c, l) == LIST_RECURRENT)
        convolution(b, l);
    else
        attention(b, l);
    if (experts_has(c, l)) {
        experts_mlp(b, l, "ffn_norm");
        return;
    }
    struct model_block *block = build_block(b, l, BLOCK_MLP);
    struct mlp_block *m = &block->mlp;
    block->norm = build_norm(b, "ffn_norm", NORM_RMS);
    m->gate = build_linear(b, "feed_forward.w1", c->dim, c->ffn, 0, c->init_std);
    m->up = build_linear(b, "feed_forward.w3", c->dim, c->ffn, 0, c->init_std);
    m->down = build_linear(b, "feed_forward.w2", c->ffn, c->dim, 0, c->init_std);
    m->kind = GATE_SILU;
}

static void head(struct builder *b)
{
    build_head(b);
    b->m->final_norm = build_norm(b, "model.embedding_norm", NORM_RMS);
}

/* ---- config.json ---- */

static const struct recurrent_words words = {.attention = "full_attention", .recurrent = "conv", .old_attention = "attention"};

/* Reads the numbers of the layers that have attention, from which layer_types follows in older files. */
static enum status read_indices(struct config_reader *r, struct model_config *c)
{
    const json_t *list = config_get(r, "full_attn_idxs"), *number;
    size_t i;
    for (int64_t l = 0; l < min_i64(c->layers, LAYERS_MOST); l++)
        c->blocks_of[l] = json_is_array(list) ? LIST_RECURRENT : LIST_ATTENTION;
    json_array_foreach((json_t *)list, i, number)
    {
        const json_int_t l = json_is_integer(number) ? json_integer_value(number) : -1;
        if (l < 0 || l >= min_i64(c->layers, LAYERS_MOST))
            return config_refuse(r, "full_attn_idxs", "its entries must be numbers of layers, from 0 on");
        c->blocks_of[l] = LIST_ATTENTION;
    }
    return OK;
}

static enum status read_types(struct config_reader *r, struct model_config *c)
{
    if (!config_get(r, "layer_types"))
        return read_indices(r, c);
    return recurrent_read_types(r, c, &words, LAYERS_MOST + 1);
}

static json_t *list_types(const struct model_config *c)
{
    return recurrent_list_types(c, &words);
}

/* Reads the MLP's width: two thirds of the one given, times a factor, rounded up to a multiple, unless that is off. */
static enum status read_width(struct config_reader *r, struct model_config *c)
{
    int64_t multiple = 256;
    double factor = 1.0;
    int adjusts = 1;
    TRY(config_read_count(r, "block_ff_dim", OPTIONAL, 1, &c->ffn));
    TRY(config_read_count(r, "block_multiple_of", OPTIONAL, 1, &multiple));
    TRY(config_read_real(r, "block_ffn_dim_multiplier", OPTIONAL, &factor));
    TRY(config_read_bool(r, "block_auto_adjust_ff_dim", &adjusts));
    if (c->ffn > 1 << 24 || multiple > 1 << 24 || !(factor > 0.0 && factor <= 1e3))
        return config_refuse(r, "block_ffn_dim_multiplier", "the MLP's width or a factor of it is out of range");
    if (adjusts)
        c->ffn = round_up((int64_t)(factor * (double)(int64_t)(2.0 * (double)c->ffn / 3.0)), multiple);
    return OK;
}

static json_t *write_unadjusted(const struct model_config *c)
{
    (void)c;
    return json_false();
}

/* Reads tie_word_embeddings, which older files have by another name. */
static enum status read_tied(struct config_reader *r, struct model_config *c)
{
    c->tied = 1;
    TRY(config_read_bool(r, "tie_word_embeddings", &c->tied));
    return config_read_bool(r, "tie_embedding", &c->tied);
}

static json_t *write_tied(const struct model_config *c)
{
    return json_boolean(c->tied);
}

static enum status derive(struct config_reader *r, struct model_config *c)
{
    if (!c->kv_heads)
        c->kv_heads = 8;
    if (!c->max_positions)
        c->max_positions = 128000;
    return common_derive(r, c);
}

/* Keys without a reader concern initial values, or say what the family computes anyway. */
static const struct config_key keys[] = {
    {"norm_eps", KEY_FIELD, AT_norm_eps, 1e-5},
    {"tie_word_embeddings", KEY_SPECIAL, .read = read_tied, .write = write_tied},
    {"layer_types", KEY_SPECIAL, .read = read_types, .write = list_types},
    {"conv_L_cache", KEY_FIELD, AT_conv_width, 3},
    {"conv_bias", KEY_FIELD, AT_conv_bias, 0},
    {"block_auto_adjust_ff_dim", KEY_SPECIAL, .read = read_width, .write = write_unadjusted},
    {"block_ff_dim", KEY_SPECIAL},
    {"block_ffn_dim_multiplier", KEY_SPECIAL},
    {"block_multiple_of", KEY_SPECIAL},
    {"block_dim", KEY_SPECIAL},
    {"conv_dim", KEY_SPECIAL},
    {"conv_dim_out", KEY_SPECIAL},
    {"conv_use_xavier_init", KEY_SPECIAL},
    {"block_mlp_init_scale", KEY_SPECIAL},
    {"block_out_init_scale", KEY_SPECIAL},
    {"block_norm_eps", KEY_SPECIAL},
    {"block_use_swiglu", KEY_ONLY_TRUE},
    {"block_use_xavier_init", KEY_SPECIAL},
    {"full_attn_idxs", KEY_SPECIAL},
    {"num_heads", KEY_SPECIAL},
    {"use_pos_enc", KEY_ONLY_TRUE},
    {"tie_embedding", KEY_SPECIAL},
    {NULL},
};

static const struct config_key moe_keys[] = {
    {"norm_eps", KEY_FIELD, AT_norm_eps, 1e-5},
    {"tie_word_embeddings", KEY_SPECIAL, .read = read_tied, .write = write_tied},
    {"layer_types", KEY_SPECIAL, .read = read_types, .write = list_types},
    {"full_attn_idxs", KEY_SPECIAL},
    {"conv_L_cache", KEY_FIELD, AT_conv_width, 3},
    {"conv_bias", KEY_FIELD, AT_conv_bias, 0},
    EXPERTS_KEY("num_experts"),
    EXPERTS_FIRST("num_dense_layers"),
    {"num_experts_per_tok", KEY_FIELD, AT_experts_used, 4},
    {"moe_intermediate_size", KEY_FIELD, AT_expert_ffn, 1792},
    {"use_expert_bias", KEY_ONLY_TRUE},
    {"norm_topk_prob", KEY_FIELD, AT_router_normalises, 1},
    {"routed_scaling_factor", KEY_FIELD, AT_router_scale, 1.0},
    {"output_router_logits", KEY_SPECIAL}, /* transformers has no loss of it here */
    {"tie_embedding", KEY_SPECIAL},
    {NULL},
};

static const struct experts_form experts = {.router = ROUTER_SIGMOID,
                                            .gate = "feed_forward.gate",
                                            .added = 1e-6f,
                                            .bias = "feed_forward.expert_bias",
                                            .gate_up = "feed_forward.experts.gate_up_proj",
                                            .down = "feed_forward.experts.down_proj",
                                            .gate_up_parts = experts_w13,
                                            .down_parts = experts_w2,
                                            .module = "feed_forward.experts",
                                            .count = {"num_experts"},
                                            .first_key = "num_dense_layers",
                                            .first_count = 2};

const struct family family_lfm2 = {.name = "lfm2",
                                   .class = "Lfm2ForCausalLM",
                                   .theta = 1000000,
                                   .keys = {common_keys, keys},
                                   .buffers = common_buffers,
                                   .embedding = common_embedding,
                                   .check = common_check,
                                   .derive = derive,
                                   .layer = layer,
                                   .head = head};

const struct family family_lfm2_moe = {.name = "lfm2_moe",
                                       .class = "Lfm2MoeForCausalLM",
                                       .theta = 1000000,
                                       .experts = &experts,
                                       .keys = {common_keys, moe_keys},
                                       .buffers = common_buffers,
                                       .embedding = common_embedding,
                                       .check = common_check,
                                       .derive = derive,
                                       .layer = layer,
                                       .head = head};
