/* Latent attention, and the dense families that have it: Youtu; MiniCPM3, with factors of embeddings, additions and logits. */
#include "model/family/latent.h"

#include <math.h>

/* Norms of latents have this epsilon, whatever rms_norm_eps says. */
#define LATENT_EPS 1e-6f

static struct model_norm build_latent_norm(struct builder *b, const char *name, int64_t n)
{
    struct model_norm norm = build_norm_of(b, name, NORM_RMS, n);
    norm.eps = LATENT_EPS;
    return norm;
}

void latent_attention(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    struct model_block *block = build_block(b, l, BLOCK_ATTENTION);
    struct attention_block *a = &block->attention;
    const struct attention_shape *s = build_shape(b, a);
    const unsigned form = c->attention_bias ? LINEAR_BIAS : 0;
    const int64_t own = s->head_dim - s->rotated;
    build_layer_prefix(b, "model.layers.", l);
    block->norm = build_norm(b, "input_layernorm", NORM_RMS);
    if (s->q_latent > 0) {
        a->q_a = build_linear(b, "self_attn.q_a_proj", c->dim, s->q_latent, form, c->init_std);
        a->q = build_linear(b, "self_attn.q_b_proj", s->q_latent, s->heads * s->head_dim, 0, c->init_std);
        a->q_a_norm = build_latent_norm(b, "self_attn.q_a_layernorm", s->q_latent);
    } else {
        a->q = build_linear(b, "self_attn.q_proj", c->dim, s->heads * s->head_dim, 0, c->init_std);
    }
    a->kv_a = build_linear(b, "self_attn.kv_a_proj_with_mqa", c->dim, s->kv_latent + s->rotated, form, c->init_std);
    a->kv_a_norm = build_latent_norm(b, "self_attn.kv_a_layernorm", s->kv_latent);
    const struct model_linear both = build_interleaved(b, "self_attn.kv_b_proj", s->kv_latent, s->heads * (own + s->value_dim), 2,
                                                       (const int64_t[]){own, s->value_dim}, 0, c->init_std);
    a->k = build_slice(&both, 0, s->heads * own);
    a->v = build_slice(&both, s->heads * own, s->heads * s->value_dim);
    a->o = build_linear(b, "self_attn.o_proj", s->heads * s->value_dim, c->dim, form, c->init_std);
}

void latent_layer(struct builder *b, int l)
{
    latent_attention(b, l);
    struct model_block *mlp = build_block(b, l, BLOCK_MLP);
    mlp->norm = build_norm(b, "post_attention_layernorm", NORM_RMS);
    common_mlp(b, &mlp->mlp, 0);
}

/* ---- config.json ---- */

/* Reads the latent of queries; null: queries come from the layer's input. */
static enum status read_q_rank(struct config_reader *r, struct model_config *c)
{
    if (!json_object_get(r->object, "q_lora_rank"))
        return config_missing(r, "q_lora_rank");
    return config_read_count(r, "q_lora_rank", OPTIONAL, 1, &c->q_latent);
}

static json_t *write_q_rank(const struct model_config *c)
{
    return c->q_latent > 0 ? json_integer(c->q_latent) : json_null();
}

/* Reads the width of the part of a query or key that is not rotated, and sets the head's width: this part and the rotated one. */
static enum status read_nope(struct config_reader *r, struct model_config *c)
{
    int64_t own = 0, both = 0, rotated = c->head_rotated;
    TRY(config_read_count(r, "qk_nope_head_dim", REQUIRED, 1, &own));
    TRY(config_read_count(r, "qk_head_dim", OPTIONAL, 1, &both));
    TRY(config_read_count(r, "head_dim", OPTIONAL, 1, &rotated));
    c->head_dim = own + c->head_rotated;
    if (both > 0 && both != c->head_dim)
        return config_refuse(r, "qk_head_dim", "qk_nope_head_dim and qk_rope_head_dim say something else");
    if (rotated != c->head_rotated && rotated != c->head_dim && c->family != FAMILY_KIMI_LINEAR)
        return config_refuse(r, "head_dim", "in this family it is qk_rope_head_dim");
    return OK;
}

static json_t *write_nope(const struct model_config *c)
{
    return json_integer(c->head_dim - c->head_rotated);
}

/* Reads the width of a value; if the key is absent, the width is hidden_size / heads. */
static enum status read_value(struct config_reader *r, struct model_config *c)
{
    TRY(config_read_count(r, "v_head_dim", OPTIONAL, 1, &c->head_value));
    if (c->head_value == 0 && c->dim % c->heads)
        return config_missing(r, "v_head_dim");
    if (c->head_value == 0)
        c->head_value = c->dim / c->heads;
    return OK;
}

static json_t *write_value(const struct model_config *c)
{
    return json_integer(c->head_value);
}

/* Refuses windows. Kimi Linear's layer_types are of other kinds of layers. */
static enum status read_no_window(struct config_reader *r, struct model_config *c)
{
    return c->family == FAMILY_KIMI_LINEAR ? config_only_null(r, "sliding_window") : experts_read_no_window(r, c);
}

const struct config_key latent_keys[] = {
    {"vocab_size", KEY_REQUIRED, AT_vocab},
    {"hidden_size", KEY_REQUIRED, AT_dim},
    {"intermediate_size", KEY_REQUIRED, AT_ffn},
    {"num_hidden_layers", KEY_REQUIRED, AT_layers},
    {"num_attention_heads", KEY_REQUIRED, AT_heads},
    {"num_key_value_heads", KEY_FIELD, AT_kv_heads},
    {"kv_lora_rank", KEY_REQUIRED, AT_kv_latent},
    {"q_lora_rank", KEY_SPECIAL, .read = read_q_rank, .write = write_q_rank},
    {"qk_rope_head_dim", KEY_REQUIRED, AT_head_rotated},
    {"qk_nope_head_dim", KEY_SPECIAL, .read = read_nope, .write = write_nope},
    {"v_head_dim", KEY_SPECIAL, .read = read_value, .write = write_value},
    {"max_position_embeddings", KEY_FIELD, AT_max_positions},
    {"initializer_range", KEY_FIELD, AT_init_std, 0.02},
    {"rope_theta", KEY_SPECIAL, .read = common_read_theta, .write = common_write_theta},
    {"rope_scaling", KEY_SPECIAL, .read = config_read_rope, .write = config_write_rope},
    {"attention_bias", KEY_FIELD, AT_attention_bias, 0},
    {"mlp_bias", KEY_ONLY_FALSE},
    {"pretraining_tp", KEY_ONLY_ONE},
    {"is_encoder_decoder", KEY_ONLY_FALSE},
    {"add_cross_attention", KEY_ONLY_FALSE},
    {"is_causal", KEY_ONLY_TRUE},
    {"sliding_window", KEY_SPECIAL, .read = read_no_window},
    {"attention_dropout", KEY_DROPOUT},
    {NULL},
};

/* Sets the standard deviation of initial values that Youtu derives where config.json names none. */
static enum status derive_youtu(struct config_reader *r, struct model_config *c)
{
    if (!config_get(r, "initializer_range"))
        c->init_std = (float)(2.0 / sqrt(5.0 * (double)c->dim));
    return llama_derive(r, c);
}

static const struct config_key youtu_keys[] = {
    LLAMA_KEYS(1),
    {"rope_interleave", KEY_FIELD, AT_rope_interleaved, 1},
    {"embedding_initializer_range", KEY_SPECIAL}, /* initial values only */
    {NULL},
};
LATENT_FAMILY(youtu, "youtu", "YoutuForCausalLM", 131072, latent_layer, derive_youtu, .experts = NULL);

/* Reads MiniCPM3's factors; null: there is none. */
static enum status read_scales(struct config_reader *r, struct model_config *c)
{
    double depth = sqrt((double)c->layers), base = (double)c->dim;
    c->embedding_scale = 12.0;
    TRY(config_read_real(r, "scale_emb", OPTIONAL, &c->embedding_scale));
    if (!json_object_get(r->object, "scale_depth"))
        depth = 1.4;
    TRY(config_read_real(r, "scale_depth", OPTIONAL, &depth));
    if (!json_object_get(r->object, "dim_model_base"))
        base = 256.0;
    TRY(config_read_real(r, "dim_model_base", OPTIONAL, &base));
    c->residual_scale = depth / sqrt((double)c->layers);
    c->logit_scale = base / (double)c->dim;
    return OK;
}

static json_t *write_scale_emb(const struct model_config *c)
{
    return json_real(c->embedding_scale);
}

/* Writes scale_depth, rounded, since dividing and multiplying by the root of the number of layers leaves an error. */
static json_t *write_scale_depth(const struct model_config *c)
{
    return json_real(round(c->residual_scale * sqrt((double)c->layers) * 1e12) / 1e12);
}

static json_t *write_model_base(const struct model_config *c)
{
    return json_integer((json_int_t)llround(c->logit_scale * (double)c->dim));
}

static const struct config_key minicpm3_keys[] = {
    LLAMA_KEYS_BUT(1, 1e-5),
    {"scale_emb", KEY_SPECIAL, .read = read_scales, .write = write_scale_emb},
    {"scale_depth", KEY_SPECIAL, .write = write_scale_depth},
    {"dim_model_base", KEY_SPECIAL, .write = write_model_base},
    {NULL},
};
LATENT_FAMILY(minicpm3, "minicpm3", "MiniCPM3ForCausalLM", 32768, latent_layer, llama_derive, .experts = NULL);
