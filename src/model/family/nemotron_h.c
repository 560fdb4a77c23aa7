/* Nemotron-H: a Mamba-2 mixer, attention without positions, an MLP of two maps with a squared ReLU between, or such experts in each
 * layer. */
#include "model/family/experts.h"
#include "model/family/mamba.h"

#include <string.h>

static void attention(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    struct model_block *block = build_block(b, l, BLOCK_ATTENTION);
    struct attention_block *a = &block->attention;
    const int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    block->norm = build_norm(b, "norm", NORM_RMS);
    a->q = build_linear(b, "mixer.q_proj", c->dim, q, 0, c->init_std);
    a->k = build_linear(b, "mixer.k_proj", c->dim, kv, 0, c->init_std);
    a->v = build_linear(b, "mixer.v_proj", c->dim, kv, 0, c->init_std);
    a->o = build_linear(b, "mixer.o_proj", q, c->dim, 0, c->init_std);
}

static void mlp(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    const unsigned form = c->mlp_bias ? LINEAR_BIAS : 0;
    struct model_block *block = build_block(b, l, BLOCK_MLP);
    block->norm = build_norm(b, "norm", NORM_RMS);
    block->mlp.gate = build_no_linear();
    block->mlp.up = build_linear(b, "mixer.up_proj", c->dim, c->ffn, form, c->init_std);
    block->mlp.down = build_linear(b, "mixer.down_proj", c->ffn, c->dim, form, c->init_std);
}

static void layer(struct builder *b, int l)
{
    build_layer_prefix(b, "model.layers.", l);
    switch (recurrent_mixer(&b->m->config, l)) {
    case LIST_RECURRENT: {
        struct model_block *block = mamba_mixer(b, l, "mixer", SCAN_NORM_LAST);
        block->norm = build_norm(b, "norm", NORM_RMS);
        return;
    }
    case LIST_MLP:
        if (experts_has(&b->m->config, l))
            experts_mlp(b, l, "norm");
        else
            mlp(b, l);
        return;
    default:
        attention(b, l);
    }
}

static void embedding(struct builder *b)
{
    const struct model_config *c = &b->m->config;
    build_prefix(b, "model.");
    b->m->embed = build_embedding(b, "embeddings", c->vocab, c->dim, c->init_std);
}

static void head(struct builder *b)
{
    build_head(b);
    b->m->final_norm = build_norm(b, "model.norm_f", NORM_RMS);
}

/* ---- config.json ---- */

static const char supported[] = "supported: linear_attention, full_attention, mlp, moe (M, *, -, E)";

static int is_word(const char *word, const char *now, const char *old, char letter)
{
    return strcmp(word, now) == 0 || strcmp(word, old) == 0 || (word[0] == letter && word[1] == 0);
}

/* Sets the block of layer l by its word or letter. Returns 0 if there is no such block. */
static int set_block(struct model_config *c, int64_t l, const char *word)
{
    if (is_word(word, mamba_words.recurrent, mamba_words.old_recurrent, 'M'))
        c->blocks_of[l] = LIST_RECURRENT;
    else if (is_word(word, mamba_words.attention, mamba_words.old_attention, '*'))
        c->blocks_of[l] = LIST_ATTENTION;
    else if (is_word(word, "mlp", "mlp", '-') || is_word(word, "moe", "moe", 'E'))
        c->blocks_of[l] = LIST_MLP;
    else
        return 0;
    experts_set(c, l, is_word(word, "moe", "moe", 'E'));
    return 1;
}

/* Reads the layers' blocks from hybrid_override_pattern, a letter each. */
static enum status read_pattern(struct config_reader *r, struct model_config *c)
{
    const json_t *pattern = config_get(r, "hybrid_override_pattern");
    const char *letters = json_string_value(pattern);
    if (!letters || strlen(letters) > LAYERS_MOST)
        return config_missing(r, pattern ? "hybrid_override_pattern" : "layers_block_type");
    c->layers = (int64_t)strlen(letters);
    for (int64_t l = 0; l < c->layers; l++)
        if (!set_block(c, l, (const char[]){letters[l], 0}))
            return config_refuse(r, "hybrid_override_pattern", supported);
    return OK;
}

/* Reads the layers' blocks, whose number is that of layers, whatever num_hidden_layers says. */
static enum status read_layers(struct config_reader *r, struct model_config *c)
{
    const json_t *list = config_get(r, "layers_block_type"), *type;
    size_t l;
    list = list ? list : config_get(r, "layer_types");
    if (!list)
        return read_pattern(r, c);
    if (json_array_size(list) == 0 || json_array_size(list) > LAYERS_MOST)
        return config_refuse(r, "layers_block_type", "must be a list with an entry for each layer");
    c->layers = (int64_t)json_array_size(list);
    json_array_foreach((json_t *)list, l, type)
    {
        if (!json_is_string(type) || !set_block(c, (int64_t)l, json_string_value(type)))
            return config_refuse(r, "layers_block_type", supported);
    }
    return OK;
}

static json_t *list_layers(const struct model_config *c)
{
    json_t *list = json_array();
    for (int64_t l = 0; l < c->layers; l++) {
        const enum recurrent_list block = recurrent_mixer(c, l);
        json_array_append_new(list, json_string(experts_has(c, l)         ? "moe"
                                                : block == LIST_MLP       ? "mlp"
                                                : block == LIST_RECURRENT ? mamba_words.recurrent
                                                                          : mamba_words.attention));
    }
    return list;
}

static json_t *write_count(const struct model_config *c)
{
    return json_integer(c->layers);
}

/* Reads the size of attention's heads, which older files have by another name, too. */
static enum status read_head(struct config_reader *r, struct model_config *c)
{
    c->head_dim = 128;
    TRY(config_read_count(r, "head_dim", OPTIONAL, 1, &c->head_dim));
    return config_only_number(r, "attention_head_dim", (double)c->head_dim);
}

static json_t *write_head(const struct model_config *c)
{
    return json_integer(c->head_dim);
}

static enum status read_further(struct config_reader *r, struct model_config *c)
{
    return config_read_count(r, "num_nextn_predict_layers", OPTIONAL, 0, &c->further_layers);
}

static json_t *write_further(const struct model_config *c)
{
    return json_integer(c->further_layers);
}

/* Reads the number of experts; 0 if no layer has any. */
static enum status read_experts(struct config_reader *r, struct model_config *c)
{
    int64_t experts = 8;
    int any = 0;
    TRY(config_read_count(r, "n_routed_experts", OPTIONAL, 0, &experts));
    c->experts = 1; /* for experts_has */
    for (int64_t l = 0; l < c->layers; l++)
        any |= experts_has(c, l);
    c->experts = any ? experts : 0;
    if (!any)
        return OK;
    if (experts == 0)
        return config_refuse(r, "n_routed_experts", "some layers have experts");
    TRY(config_read_count(r, "moe_latent_size", OPTIONAL, 1, &c->expert_dim));
    if (c->mlp_bias)
        return config_refuse(r, "mlp_bias", "in models with experts only false is supported");
    c->gate = GATE_ALONE;
    return OK;
}

static json_t *write_experts(const struct model_config *c)
{
    return json_integer(c->experts > 0 ? c->experts : 8);
}

static json_t *write_latent(const struct model_config *c)
{
    return c->expert_dim > 0 ? json_integer(c->expert_dim) : json_null();
}

static enum status derive(struct config_reader *r, struct model_config *c)
{
    (void)r;
    memset(c->unrotated, 0xff, sizeof c->unrotated);
    return OK;
}

static const struct config_word relu2[] = {{"relu2", RELU_SQUARED}, {NULL, 0}};

static const struct config_key first_keys[] = {
    {"vocab_size", KEY_REQUIRED, AT_vocab},
    {"hidden_size", KEY_REQUIRED, AT_dim},
    {"intermediate_size", KEY_REQUIRED, AT_ffn},
    {"layers_block_type", KEY_SPECIAL, .read = read_layers, .write = list_layers},
    {"num_hidden_layers", KEY_SPECIAL, .write = write_count},
    {"num_attention_heads", KEY_REQUIRED, AT_heads},
    {"num_key_value_heads", KEY_FIELD, AT_kv_heads, 8},
    {"head_dim", KEY_SPECIAL, .read = read_head, .write = write_head},
    {"max_position_embeddings", KEY_FIELD, AT_max_positions, 4096},
    {"initializer_range", KEY_FIELD, AT_init_std, 0.02},
    {"is_encoder_decoder", KEY_ONLY_FALSE},
    {"add_cross_attention", KEY_ONLY_FALSE},
    {"is_causal", KEY_ONLY_TRUE},
    {"use_bidirectional_attention", KEY_SPECIAL, .read = common_read_bidirectional},
    {"attention_dropout", KEY_DROPOUT},
    {NULL},
};

/* Keys without a reader concern positions, of which there are none, initial values, sampling, or what transformers leaves out. */
static const struct config_key keys[] = {
    {"mlp_hidden_act", KEY_WORD, AT_activation, RELU_SQUARED, relu2},
    {"layer_norm_epsilon", KEY_FIELD, AT_norm_eps, 1e-5},
    {"tie_word_embeddings", KEY_ONLY_FALSE},
    {"mlp_bias", KEY_FIELD, AT_mlp_bias, 0},
    {"attention_bias", KEY_ONLY_FALSE},
    {"mamba_num_heads", KEY_FIELD, AT_scan_heads, 128},
    {"mamba_head_dim", KEY_FIELD, AT_scan_value, 64},
    {"n_groups", KEY_FIELD, AT_scan_groups, 8},
    {"ssm_state_size", KEY_FIELD, AT_scan_key, 128},
    {"conv_kernel", KEY_FIELD, AT_conv_width, 4},
    {"use_conv_bias", KEY_FIELD, AT_conv_bias, 1},
    {"use_bias", KEY_FIELD, AT_scan_bias, 0},
    {"mamba_proj_bias", KEY_ONLY_FALSE},
    {"mamba_hidden_act", KEY_WORD, NO_FIELD, 0, common_silu},
    {"time_step_min", KEY_FIELD, AT_scan_least, 0.001},
    {"num_nextn_predict_layers", KEY_SPECIAL, .read = read_further, .write = write_further},
    {"hidden_dropout", KEY_DROPOUT},
    {"sliding_window", KEY_SPECIAL},
    {"hybrid_override_pattern", KEY_SPECIAL},
    {"layer_types", KEY_SPECIAL},
    {"rms_norm_eps", KEY_SPECIAL},
    {"norm_eps", KEY_SPECIAL},
    {"chunk_size", KEY_SPECIAL},
    {"expand", KEY_SPECIAL},
    {"time_step_max", KEY_SPECIAL},
    {"time_step_limit", KEY_SPECIAL},
    {"time_step_floor", KEY_SPECIAL},
    {"time_step_rank", KEY_SPECIAL},
    {"mamba_ssm_cache_dtype", KEY_SPECIAL},
    {"use_mamba_kernels", KEY_SPECIAL},
    {"num_logits_to_keep", KEY_SPECIAL},
    {"rescale_prenorm_residual", KEY_SPECIAL},
    {"residual_in_fp32", KEY_SPECIAL},
    {"rope_theta", KEY_SPECIAL},
    {"rope_parameters", KEY_SPECIAL},
    {"partial_rotary_factor", KEY_SPECIAL},
    {"n_routed_experts", KEY_SPECIAL, .read = read_experts, .write = write_experts},
    {"num_experts_per_tok", KEY_FIELD, AT_experts_used, 2},
    {"moe_intermediate_size", KEY_FIELD, AT_expert_ffn, 7688},
    {"moe_shared_expert_intermediate_size", KEY_FIELD, AT_shared_ffn, 7688},
    EXPERTS_GROUPS,
    {"norm_topk_prob", KEY_FIELD, AT_router_normalises, 1},
    {"n_shared_experts", KEY_SPECIAL},
    {"moe_shared_expert_overlap", KEY_SPECIAL},
    {"moe_latent_size", KEY_SPECIAL, .write = write_latent},
    {"output_router_logits", KEY_SPECIAL},
    {"mtp_layers_block_type", KEY_SPECIAL},
    {"mtp_hybrid_override_pattern", KEY_SPECIAL},
    {NULL},
};

static const char *const up[] = {"up_proj.weight", NULL};
static const struct experts_form experts = {.router = ROUTER_SIGMOID,
                                            .gate = "mixer.gate",
                                            .bias = "mixer.gate.e_score_correction_bias",
                                            .gate_up = "mixer.experts.up_proj",
                                            .down = "mixer.experts.down_proj",
                                            .gate_up_parts = up,
                                            .down_parts = experts_down,
                                            .module = "mixer.experts",
                                            .first = "up_proj",
                                            .descend = "mixer.fc1_latent_proj",
                                            .ascend = "mixer.fc2_latent_proj",
                                            .shared = "mixer.shared_experts",
                                            .count = {"n_routed_experts"}};

const struct family family_nemotron_h = {.name = "nemotron_h",
                                         .class = "NemotronHForCausalLM",
                                         .root = "backbone",
                                         .unadapted = "out_proj",
                                         .theta = 10000,
                                         .experts = &experts,
                                         .keys = {first_keys, keys},
                                         .buffers = common_buffers,
                                         .embedding = embedding,
                                         .check = recurrent_check,
                                         .derive = derive,
                                         .layer = layer,
                                         .head = head};
