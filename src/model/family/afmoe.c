/* AFMoE (Trinity): norms before and after each block, and of q and k of each head; gates of what heads give; layers without a window
 * have no positions. Experts are chosen by sigmoids with a bias, beside shared experts; one norm follows both. */
#include "model/family/experts.h"

#include <math.h>

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    const unsigned form = c->attention_bias ? LINEAR_BIAS : 0;
    struct attention_block *a =
        llama_attention(b, l, &(struct llama_layer){form, form, 0, .q_norm = "self_attn.q_norm", .k_norm = "self_attn.k_norm"});
    a->gate = build_linear(b, "self_attn.gate_proj", c->dim, a->q.out, 0, c->init_std);
    b->m->layers[l].blocks[0].after = build_norm(b, "post_attention_layernorm", NORM_RMS);
    experts_mlp(b, l, "pre_mlp_layernorm");
    b->m->layers[l].blocks[1].after = build_norm(b, "post_mlp_layernorm", NORM_RMS);
    if (b->m->layers[l].n_blocks > 2)
        b->m->layers[l].blocks[2].after = b->m->layers[l].blocks[1].after;
}

/* ---- config.json ---- */

/* Reads windows: every global_attn_every_n_layers-th layer has none, and no positions. */
static enum status read_windows(struct config_reader *r, struct model_config *c)
{
    int64_t period = 4;
    TRY(config_read_count(r, "global_attn_every_n_layers", OPTIONAL, 1, &period));
    TRY(common_read_pattern(r, c, 1024, period));
    for (int64_t l = 0; l < min_i64(c->layers, LAYERS_MOST); l++)
        if (!model_bit(c->windowed, l))
            c->unrotated[l / 8] |= (uint8_t)(1 << l % 8);
    return OK;
}

static enum status read_scale(struct config_reader *r, struct model_config *c)
{
    int scaled = 0;
    TRY(config_read_bool(r, "mup_enabled", &scaled));
    c->embedding_scale = scaled ? sqrt((double)c->dim) : 0.0;
    return OK;
}

static json_t *write_scale(const struct model_config *c)
{
    return json_boolean(c->embedding_scale > 0.0);
}

static enum status derive(struct config_reader *r, struct model_config *c)
{
    c->router_normalises = 1;
    return experts_derive(r, c);
}

static const struct config_key afmoe_keys[] = {
    LLAMA_KEYS_BUT(0, 1e-5),
    {"attention_bias", KEY_FIELD, AT_attention_bias, 0},
    WINDOW_KEY(read_windows),
    LISTED_TYPES_KEY,
    {"global_attn_every_n_layers", KEY_SPECIAL}, /* layer_types is written */
    {"mup_enabled", KEY_SPECIAL, .read = read_scale, .write = write_scale},
    EXPERTS_KEY("num_experts"),
    {"num_experts_per_tok", KEY_REQUIRED, AT_experts_used},
    {"moe_intermediate_size", KEY_REQUIRED, AT_expert_ffn},
    EXPERTS_SHARED("num_shared_experts"),
    EXPERTS_FIRST("num_dense_layers"),
    {"route_scale", KEY_FIELD, AT_router_scale, 1.0},
    {"route_norm", KEY_ONLY_TRUE},
    {"score_func", KEY_WORD, NO_FIELD, .words = experts_sigmoid},
    {"n_group", KEY_ONLY_ONE},
    {"topk_group", KEY_ONLY_ONE},
    {"num_expert_groups", KEY_ONLY_ONE},
    {"num_limited_groups", KEY_ONLY_ONE},
    {"load_balance_coeff", KEY_SPECIAL}, /* pretraining only: transformers changes no bias */
    {"use_grouped_mm", KEY_SPECIAL},
    {"output_router_logits", KEY_FIELD, AT_router_aux_used, 0},
    {NULL},
};
static const struct experts_form form = {.router = ROUTER_SIGMOID,
                                         .gate = "mlp.router.gate",
                                         .bias = "mlp.expert_bias",
                                         EXPERTS_STACKS,
                                         .shared = "mlp.shared_experts",
                                         .count = {"num_experts"},
                                         .shared_key = "num_shared_experts",
                                         .shared_count = 2,
                                         .first_key = "num_dense_layers",
                                         .first_count = 1};
LLAMA_FAMILY(afmoe, "afmoe", "AfmoeForCausalLM", 10000, 16384, layer, derive, .all_heads = 1, .head_dim = 128, .experts = &form);
