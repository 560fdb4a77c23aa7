/* Kimi Linear: Kimi delta attention, a gated delta rule with a decay of each channel of a key, in most layers, latent attention without
 * positions in the others; experts behind some dense layers. */
#include "model/family/latent.h"
#include "model/family/recurrent.h"

#include <string.h>

static void delta(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    struct model_block *block = recurrent_delta(b, l);
    struct recurrent_block *r = &block->recurrent;
    const int64_t wide = r->heads * r->key_dim;
    r->kind = RECURRENT_CHANNELS;
    r->gate = GATE_SIGMOID;
    block->norm = build_norm(b, "input_layernorm", NORM_RMS);
    r->qkv = build_linear(b, "self_attn.q_proj", c->dim, wide, 0, c->init_std);
    r->second = build_linear(b, "self_attn.k_proj", c->dim, wide, 0, c->init_std);
    r->third = build_linear(b, "self_attn.v_proj", c->dim, wide, 0, c->init_std);
    r->a_low = build_linear(b, "self_attn.forget_gate.f_a_proj", c->dim, r->key_dim, 0, c->init_std);
    r->a = build_linear(b, "self_attn.forget_gate.f_b_proj", r->key_dim, wide, 0, c->init_std);
    r->b = build_linear(b, "self_attn.b_proj", c->dim, r->heads, 0, c->init_std);
    r->z_low = build_linear(b, "self_attn.g_a_proj", c->dim, r->key_dim, 0, c->init_std);
    r->z = build_linear(b, "self_attn.g_b_proj", r->key_dim, wide, 0, c->init_std);
    r->out = build_linear(b, "self_attn.o_proj", wide, c->dim, 0, c->init_std);
    r->conv = build_conv(b, "self_attn.q_conv1d", wide, r->width, c->init_std);
    build_conv(b, "self_attn.k_conv1d", wide, r->width, c->init_std);
    build_conv(b, "self_attn.v_conv1d", wide, r->width, c->init_std);
    r->convs = 3;
    r->a_log = build_vector_of_heads(b, "self_attn.forget_gate.A_log", r->heads, INIT_DECAY);
    r->dt_bias = build_vector_of(b, "self_attn.forget_gate.dt_bias", wide, INIT_STEP);
    r->heads_norm = build_norm_of(b, "self_attn.o_norm", NORM_RMS, r->value_dim);
}

static void layer(struct builder *b, int l)
{
    build_layer_prefix(b, "model.layers.", l);
    (recurrent_mixer(&b->m->config, l) == LIST_RECURRENT ? delta : latent_attention)(b, l);
    experts_mlp(b, l, "post_attention_layernorm");
}

/* ---- config.json ---- */

static const struct recurrent_words words = {"full_attention", "linear_attention"};

/* Marks the layers of a list, which are numbered from 1, as of one kind. */
static enum status read_list(struct config_reader *r, struct model_config *c, const char *key, enum recurrent_list kind,
                             int *found)
{
    const json_t *list = config_get(r, key), *number;
    size_t i;
    if (list && !json_is_array(list))
        return config_refuse(r, key, "must be a list of numbers of layers");
    json_array_foreach((json_t *)list, i, number)
    {
        const json_int_t l = json_is_integer(number) ? json_integer_value(number) - 1 : -1;
        if (l < 0 || l >= c->layers)
            return config_refuse(r, key, "its entries must be numbers of layers, from 1 on");
        c->blocks_of[l] = (uint8_t)((c->blocks_of[l] & ~LIST_MIXER) | kind);
        *found += 1;
    }
    return OK;
}

/* Reads linear_attn_config, in which published files have a recurrence's sizes and its layers. */
static enum status read_section(struct config_reader *parent, struct model_config *c)
{
    const json_t *object = config_get(parent, "linear_attn_config");
    struct config_reader r = {.path = parent->path, .family = parent->family, .section = "linear_attn_config.", .object = object};
    int found = 0;
    if (!object)
        return OK;
    if (!json_is_object(object))
        return config_refuse(parent, "linear_attn_config", "must be an object or null");
    TRY(config_read_count(&r, "num_heads", OPTIONAL, 1, &c->scan_heads));
    TRY(config_read_count(&r, "head_dim", OPTIONAL, 1, &c->scan_key));
    TRY(config_read_count(&r, "short_conv_kernel_size", OPTIONAL, 1, &c->conv_width));
    TRY(read_list(&r, c, "full_attn_layers", LIST_ATTENTION, &found));
    TRY(read_list(&r, c, "kda_layers", LIST_RECURRENT, &found));
    if (found > 0 && found != c->layers)
        return config_refuse(parent, "linear_attn_config", "full_attn_layers and kda_layers must list each layer once");
    return config_check_understood(&r);
}

/* Reads layers of recurrences, whose sizes are read. Without a list the fifth layer, and every fourth behind it, has attention. */
static enum status read_layers(struct config_reader *r, struct model_config *c)
{
    TRY(recurrent_read_types(r, c, &words, 4));
    for (int64_t l = 0; l < min_i64(c->layers, LAYERS_MOST) && !config_get(r, "layer_types"); l++)
        c->blocks_of[l] = l > 0 && l % 4 == 0 ? LIST_ATTENTION : LIST_RECURRENT;
    TRY(read_section(r, c));
    c->scan_groups = c->scan_heads;
    c->scan_value = c->scan_key;
    memset(c->unrotated, 0xff, sizeof c->unrotated);
    return OK;
}

static json_t *list_layers(const struct model_config *c)
{
    return recurrent_list_types(c, &words);
}

static json_t *write_positions(const struct model_config *c)
{
    return json_integer((json_int_t)c->max_positions);
}

static enum status read_positions(struct config_reader *r, struct model_config *c)
{
    return config_read_count(r, "model_max_length", OPTIONAL, 1, &c->max_positions);
}

static enum status check(const struct model_config *c)
{
    TRY(common_check(c));
    return recurrent_check(c);
}

static const struct config_key kimi_linear_keys[] = {
    {"hidden_act", KEY_WORD, AT_gate, GATE_SILU, common_silu},
    {"rms_norm_eps", KEY_FIELD, AT_norm_eps, 1e-5},
    {"tie_word_embeddings", KEY_FIELD, AT_tied, 0},
    {"model_max_length", KEY_SPECIAL, .read = read_positions, .write = write_positions},
    EXPERTS_KEY("num_experts"),
    {"num_experts_per_token", KEY_FIELD, AT_experts_used, 8},
    {"moe_intermediate_size", KEY_FIELD, AT_expert_ffn, 1024},
    EXPERTS_SHARED("num_shared_experts"),
    {"num_expert_group", KEY_FIELD, AT_expert_groups, 1},
    {"topk_group", KEY_FIELD, AT_groups_used, 1},
    {"routed_scaling_factor", KEY_FIELD, AT_router_scale, 2.446},
    {"moe_renormalize", KEY_FIELD, AT_router_normalises, 1},
    {"moe_router_activation_func", KEY_WORD, NO_FIELD, .words = experts_sigmoid},
    {"use_grouped_topk", KEY_ONLY_TRUE},
    {"topk_method", KEY_WORD, NO_FIELD, .words = experts_noaux},
    {"moe_layer_freq", KEY_ONLY_ONE},
    {"output_router_logits", KEY_FIELD, AT_router_aux_used, 0},
    {"linear_num_heads", KEY_FIELD, AT_scan_heads, 32},
    {"linear_head_dim", KEY_FIELD, AT_scan_key, 128},
    {"linear_conv_kernel_dim", KEY_FIELD, AT_conv_width, 4},
    {"layer_types", KEY_SPECIAL, .read = read_layers, .write = list_layers},
    {"linear_attn_config", KEY_SPECIAL},
    EXPERTS_FIRST("first_k_dense_replace"),
    {"mlp_layer_types", KEY_SPECIAL, .write = experts_list_layers},
    {"mla_use_nope", KEY_ONLY_TRUE},
    EXPERTS_FURTHER("num_nextn_predict_layers"),
    {NULL},
};

static const struct experts_form experts = {.router = ROUTER_SIGMOID,
                                            .bias = "mlp.gate.e_score_correction_bias",
                                            .gate = "mlp.gate",
                                            .gate_up = "mlp.experts.gate_up_proj",
                                            .down = "mlp.experts.down_proj",
                                            .gate_up_parts = experts_w13,
                                            .down_parts = experts_w2,
                                            .shared = "mlp.shared_experts",
                                            .count = {"num_experts"},
                                            .shared_key = "num_shared_experts",
                                            .first_key = "first_k_dense_replace",
                                            .shared_count = 1,
                                            .first_count = 1,
                                            .listed = 1};

/* Published files have modules by names of their own. A dense MLP is called mlp there, too. */
static const struct param_renaming renamings[] = {{"mlp.gate.", "block_sparse_moe.gate."},
                                                  {"mlp.experts.", "block_sparse_moe.experts."},
                                                  {"mlp.shared_experts.", "block_sparse_moe.shared_experts."},
                                                  {"self_attn.forget_gate.", "self_attn."},
                                                  {NULL, NULL}};

const struct family family_kimi_linear = {.name = "kimi_linear",
                                          .class = "KimiLinearForCausalLM",
                                          .theta = 10000,
                                          .positions = 1048576,
                                          .all_heads = 1,
                                          .renamings = renamings,
                                          .experts = &experts,
                                          .keys = {latent_keys, kimi_linear_keys},
                                          .buffers = common_buffers,
                                          .embedding = common_embedding,
                                          .check = check,
                                          .derive = experts_derive,
                                          .layer = layer,
                                          .head = common_head};
