/* MiniMax-Text-01 and M1: lightning attention, whose decays are constants, in most layers, experts in all. What blocks give is added to
 * the norm that they read: alpha norm(x) + beta f(norm(x)). Since a norm reads each sum, sums are divided by alpha here, and so are
 * beta and, twice, the next norm's epsilon. */
#include "model/family/experts.h"
#include "model/family/recurrent.h"

/* ---- parameters ---- */

/* Returns a factor of a sum, 1 where config.json gives none. */
static double factor(double given)
{
    return given > 0.0 ? given : 1.0;
}

static int is_lightning(const struct model_config *c, int64_t l)
{
    return recurrent_mixer(c, l) == LIST_RECURRENT;
}

static double mixer_alpha(const struct model_config *c, int64_t l)
{
    return factor(is_lightning(c, l) ? c->lightning_alpha : c->attention_alpha);
}

/* Returns the epsilon of a norm whose input is divided by alpha. */
static float eps_behind(const struct model_config *c, double alpha)
{
    return (float)((double)c->norm_eps / (alpha * alpha));
}

/* Declares queries, keys and values, which files have head by head. Products of a quantised matrix read heads of one map. */
static void head_maps(struct builder *b, struct recurrent_block *r)
{
    const struct model_config *c = &b->m->config;
    const int64_t rows[] = {r->key_dim, r->key_dim, r->value_dim}, columns = r->heads * r->key_dim;
    const struct model_linear all = build_interleaved(b, "self_attn.qkv_proj", c->dim, r->channels, 3, rows, 0, c->init_std);
    r->qkv = all;
    if (c->base == BASE_STORED)
        return;
    r->qkv = build_slice(&all, 0, columns);
    r->second = build_slice(&all, columns, columns);
    r->third = build_slice(&all, 2 * columns, columns);
}

static struct model_linear *lightning(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    struct model_block *block = build_block(b, l, BLOCK_RECURRENT);
    struct recurrent_block *r = &block->recurrent;
    const int64_t values = c->scan_heads * c->scan_value;
    r->kind = RECURRENT_LIGHTNING;
    r->heads = r->groups = c->scan_heads;
    r->key_dim = r->value_dim = c->scan_value;
    r->channels = 3 * values;
    r->width = 1;
    r->rate = (float)(1.0 - (double)l / ((double)(c->layers - 1) + 1e-5) + 1e-5);
    r->gate = GATE_SIGMOID;
    build_layer_prefix(b, "model.layers.", l);
    block->norm = build_norm(b, "input_layernorm", NORM_RMS);
    head_maps(b, r);
    r->z = build_linear(b, "self_attn.output_gate", c->dim, values, 0, c->init_std);
    r->out = build_linear(b, "self_attn.out_proj", values, c->dim, 0, c->init_std);
    r->heads_norm = build_norm_of(b, "self_attn.norm", NORM_RMS, values);
    r->heads_norm.eps = 1e-6f;
    r->heads_norm.parts = 1;
    return &r->out;
}

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    struct model_block *blocks = b->m->layers[l].blocks;
    const double alpha = mixer_alpha(c, l), beta = factor(is_lightning(c, l) ? c->lightning_beta : c->attention_beta);
    struct model_linear *out = is_lightning(c, l) ? lightning(b, l) : &llama_attention(b, l, &(struct llama_layer){0, 0, 0})->o;
    experts_mlp(b, l, "post_attention_layernorm");
    blocks[0].on_norm = blocks[1].on_norm = 1;
    blocks[0].norm.eps = eps_behind(c, l > 0 ? factor(c->mlp_alpha) : 1.0);
    blocks[1].norm.eps = eps_behind(c, alpha);
    out->factor = (float)(beta / alpha);
    blocks[1].experts.scale = (float)(factor(c->mlp_beta) / factor(c->mlp_alpha));
}

static void head(struct builder *b)
{
    common_head(b);
    b->m->final_norm.eps = eps_behind(&b->m->config, factor(b->m->config.mlp_alpha));
}

/* Tables of decays that transformers saves, rounded to the model's type. */
static const char *const tables[] = {"*rotary_emb.inv_freq", "*.slope_rate",     "*.query_decay",
                                     "*.key_decay",          "*.diagonal_decay", NULL};

/* ---- config.json ---- */

static const struct recurrent_words words = {"full_attention", "linear_attention"};

/* Reads layer_types. Without the key every other layer, from the first on, has attention. */
static enum status read_types(struct config_reader *r, struct model_config *c)
{
    TRY(recurrent_read_types(r, c, &words, 2));
    for (int64_t l = 0; l < min_i64(c->layers, LAYERS_MOST) && !config_get(r, "layer_types"); l++)
        c->blocks_of[l] = l % 2 ? LIST_RECURRENT : LIST_ATTENTION;
    return OK;
}

static json_t *list_types(const struct model_config *c)
{
    return recurrent_list_types(c, &words);
}

/* Reads attn_type_list: 1 for each layer with attention, 0 for each with lightning attention. */
static enum status read_numbers(struct config_reader *r, struct model_config *c)
{
    const json_t *list = config_get(r, "attn_type_list"), *type;
    size_t l;
    if (!json_is_array(list) || json_array_size(list) != (size_t)c->layers || c->layers > LAYERS_MOST)
        return config_refuse(r, "attn_type_list", "must be a list with an entry for each of num_hidden_layers");
    json_array_foreach((json_t *)list, l, type)
    {
        const json_int_t number = json_is_integer(type) ? json_integer_value(type) : -1;
        if (number != 0 && number != 1)
            return config_refuse(r, "attn_type_list", "supported: 0, lightning attention, and 1, attention");
        c->blocks_of[l] = number ? LIST_ATTENTION : LIST_RECURRENT;
    }
    return OK;
}

static json_t *list_numbers(const struct model_config *c)
{
    json_t *list = json_array();
    for (int64_t l = 0; l < c->layers; l++)
        json_array_append_new(list, json_integer(!is_lightning(c, l)));
    return list;
}

/* Refuses factors that are not positive: sums are divided by them. */
static enum status check(const struct model_config *c)
{
    const double factors[] = {c->attention_alpha, c->attention_beta, c->lightning_alpha,
                              c->lightning_beta,  c->mlp_alpha,      c->mlp_beta};
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++)
        if (!(factors[i] > 0.0))
            return status_fail(ERR_INVALID, "model: a factor of norms or of what is added to them is %g, must be greater than 0",
                               factors[i]);
    return common_check(c);
}

static enum status derive(struct config_reader *r, struct model_config *c)
{
    c->router_normalises = 1;
    TRY(experts_derive(r, c));
    for (int64_t l = 0; l < min_i64(c->layers, LAYERS_MOST); l++)
        if (is_lightning(c, l)) {
            c->scan_heads = c->scan_groups = c->heads;
            c->scan_key = c->scan_value = c->head_dim;
        }
    return OK;
}

/* Refuses experts that all tokens share: published models have none. */
static enum status read_no_shared(struct config_reader *r, struct model_config *c)
{
    (void)c;
    return config_only_number(r, "shared_intermediate_size", 0.0);
}

/* clang-format off */
#define ALIKE                                                                                                           \
    LLAMA_KEYS_BUT(0, 1e-5), EXPERTS_KEY("num_local_experts"), {"num_experts_per_tok", KEY_FIELD, AT_experts_used, 2}, \
        EXPERTS_NO_JITTER, EXPERTS_AUX, EXPERTS_ROTATED, EXPERTS_NULL_WINDOW, {"postnorm", KEY_ONLY_TRUE},             \
        {"block_size", KEY_SPECIAL} /* tokens that others take at a time */
/* clang-format on */
static const struct config_key minimax_keys[] = {
    ALIKE,
    {"layer_types", KEY_SPECIAL, .read = read_types, .write = list_types},
    {"full_attn_alpha_factor", KEY_FIELD, AT_attention_alpha, 1.0},
    {"full_attn_beta_factor", KEY_FIELD, AT_attention_beta, 1.0},
    {"linear_attn_alpha_factor", KEY_FIELD, AT_lightning_alpha, 1.0},
    {"linear_attn_beta_factor", KEY_FIELD, AT_lightning_beta, 1.0},
    {"mlp_alpha_factor", KEY_FIELD, AT_mlp_alpha, 1.0},
    {"mlp_beta_factor", KEY_FIELD, AT_mlp_beta, 1.0},
    {NULL},
};
/* Keys of files for the makers' own code. */
static const struct config_key minimax_m1_keys[] = {
    ALIKE,
    {"attn_type_list", KEY_SPECIAL, .read = read_numbers, .write = list_numbers},
    {"layernorm_full_attention_alpha", KEY_FIELD, AT_attention_alpha, 1.0},
    {"layernorm_full_attention_beta", KEY_FIELD, AT_attention_beta, 1.0},
    {"layernorm_linear_attention_alpha", KEY_FIELD, AT_lightning_alpha, 1.0},
    {"layernorm_linear_attention_beta", KEY_FIELD, AT_lightning_beta, 1.0},
    {"layernorm_mlp_alpha", KEY_FIELD, AT_mlp_alpha, 1.0},
    {"layernorm_mlp_beta", KEY_FIELD, AT_mlp_beta, 1.0},
    {"shared_intermediate_size", KEY_SPECIAL, .read = read_no_shared},
    {"shared_moe_mode", KEY_SPECIAL},
    {NULL},
};

static const struct experts_form form = {.router = ROUTER_SOFTMAX, EXPERTS_SPARSE_STACKS};
#define FAMILY(variable, model_type, architecture)                                   \
    const struct family family_##variable = {.name = model_type,                     \
                                             .class = architecture,                  \
                                             .keys = {common_keys, variable##_keys}, \
                                             .buffers = tables,                      \
                                             .check = check,                         \
                                             .embedding = common_embedding,          \
                                             .derive = derive,                       \
                                             .layer = layer,                         \
                                             .head = head,                           \
                                             .theta = 1000000,                       \
                                             .positions = 131072,                    \
                                             .partial = 1,                           \
                                             .experts = &form}
FAMILY(minimax, "minimax", "MiniMaxForCausalLM");
FAMILY(minimax_m1, "minimax_m1", "MiniMaxM1ForCausalLM");
