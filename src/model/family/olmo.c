/* OLMo 1: layer norms without weights before each block. OLMo 2 and 3: norms after each block only, and of q and k over all heads
 * together. OLMo 3's windowed layers take no part in a scaling of rotary positions. */
#include "model/family/common.h"

static void layer(struct builder *b, int l)
{
    build_layer_prefix(b, "model.layers.", l);
    common_normed_after(b, l);
}

static struct model_norm weightless(void)
{
    return (struct model_norm){.kind = NORM_LAYER, .weight = -1, .bias = -1};
}

static void olmo1_layer(struct builder *b, int l)
{
    unsigned form = b->m->config.attention_bias ? LINEAR_BIAS : 0;
    struct model_block *attention = build_block(b, l, BLOCK_ATTENTION), *mlp = build_block(b, l, BLOCK_MLP);
    build_layer_prefix(b, "model.layers.", l);
    attention->norm = mlp->norm = weightless();
    common_attention(b, &attention->attention, form, form);
    common_mlp(b, &mlp->mlp, 0);
}

static void olmo1_head(struct builder *b)
{
    build_head(b);
    b->m->final_norm = weightless();
}

/* Sets the norms' epsilon, which no key gives, and refuses limits of q, k and v (clip_qkv), which OLMo 7B of July 2024 has. */
static enum status read_clip(struct config_reader *r, struct model_config *c)
{
    c->norm_eps = 1e-5f;
    return config_only_null(r, "clip_qkv");
}

static enum status read_windows(struct config_reader *r, struct model_config *c)
{
    TRY(common_read_pattern(r, c, 4096, 4));
    if (c->window == 0)
        c->rope_local_theta = 0.0;
    else if (c->rope_local_theta == 0.0) /* like transformers, which takes rope_theta for the other layers */
        c->rope_local_theta = r->family->theta;
    return OK;
}

static enum status derive(struct config_reader *r, struct model_config *c)
{
    if (!c->max_positions)
        c->max_positions = 2048;
    return common_derive(r, c);
}

#define ALIKE                                                                                                  \
    {"hidden_act", KEY_WORD, AT_gate, GATE_SILU, common_silu}, {"rms_norm_eps", KEY_FIELD, AT_norm_eps, 1e-5}, \
        {"tie_word_embeddings", KEY_FIELD, AT_tied, 0},                                                        \
    {                                                                                                          \
        "attention_bias", KEY_FIELD, AT_attention_bias, 0                                                      \
    }

static const struct config_key olmo_keys[] = {
    {"hidden_act", KEY_WORD, AT_gate, GATE_SILU, common_silu},
    {"clip_qkv", KEY_SPECIAL, .read = read_clip},
    {"tie_word_embeddings", KEY_FIELD, AT_tied, 0},
    {"attention_bias", KEY_FIELD, AT_attention_bias, 0},
    {NULL},
};
static const struct config_key olmo2_keys[] = {ALIKE, {NULL}};
static const struct config_key olmo3_keys[] = {ALIKE, WINDOW_KEY(read_windows), LISTED_TYPES_KEY, ROPE_BY_KIND_KEY, {NULL}};

const struct family family_olmo = {.name = "olmo",
                                   .class = "OlmoForCausalLM",
                                   .theta = 10000,
                                   .keys = {common_keys, olmo_keys},
                                   COMMON,
                                   .derive = derive,
                                   .layer = olmo1_layer,
                                   .head = olmo1_head};
const struct family family_olmo2 = {.name = "olmo2",
                                    .class = "Olmo2ForCausalLM",
                                    .keys = {common_keys, olmo2_keys},
                                    COMMON,
                                    .derive = derive,
                                    .layer = layer,
                                    .head = common_head};
const struct family family_olmo3 = {.name = "olmo3",
                                    .class = "Olmo3ForCausalLM",
                                    .keys = {common_keys, olmo3_keys},
                                    .theta = 500000,
                                    COMMON,
                                    .derive = derive,
                                    .layer = layer,
                                    .head = common_head};
