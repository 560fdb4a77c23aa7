/* ERNIE 4.5: Llama with one key for all biases, rotating neighbouring pairs. With experts: softmax weighs them, a bias helps to
 * choose, and shared experts stand beside. */
#include "model/family/experts.h"

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    const unsigned attention = c->attention_bias ? LINEAR_BIAS : 0, mlp = c->mlp_bias || c->attention_bias ? LINEAR_BIAS : 0;
    llama_build(b, l, &(struct llama_layer){attention, attention, mlp});
}

static enum status derive(struct config_reader *r, struct model_config *c)
{
    c->rope_interleaved = 1;
    return llama_derive(r, c);
}

static const struct config_key ernie4_5_keys[] = {
    LLAMA_KEYS_BUT(1, 1e-5),
    {"use_bias", KEY_FIELD, AT_attention_bias, 0},
    {NULL},
};
LLAMA_FAMILY(ernie4_5, "ernie4_5", "Ernie4_5ForCausalLM", 500000, 131072, layer, derive, .class_before = "Ernie4_5_ForCausalLM",
             .head_dim = 128);

/* ---- with experts ---- */

static void experts_layer(struct builder *b, int l)
{
    llama_attention(b, l, &(struct llama_layer){0, 0, 0});
    experts_mlp(b, l, "post_attention_layernorm");
}

static enum status derive_experts(struct config_reader *r, struct model_config *c)
{
    c->rope_interleaved = 1;
    c->router_normalises = 1;
    return experts_derive(r, c);
}

/* Reads which layers have experts: every moe_layer_interval-th from moe_layer_start_index to moe_layer_end_index. */
static enum status read_layers(struct config_reader *r, struct model_config *c)
{
    int64_t start = 1, end = c->layers - 1, interval = 1;
    const json_t *last = config_get(r, "moe_layer_end_index");
    TRY(config_read_count(r, "moe_layer_start_index", OPTIONAL, 0, &start));
    TRY(config_read_count(r, "moe_layer_interval", OPTIONAL, 1, &interval));
    if (!json_is_integer(last) || json_integer_value(last) != -1)
        TRY(config_read_count(r, "moe_layer_end_index", OPTIONAL, 0, &end));
    for (int64_t l = 0; l < min_i64(c->layers, LAYERS_MOST); l++)
        experts_set(c, l, (l + 1) % interval == 0 && l >= start && l <= end);
    return OK;
}

static json_t *write_end(const struct model_config *c)
{
    int64_t end = c->layers - 1;
    while (end > 0 && !experts_has(c, end))
        end--;
    return json_integer(end);
}

/* Returns the distance of layers with experts, which divides the number of each of them, counted from 1. */
static json_t *write_interval(const struct model_config *c)
{
    int64_t first = 0, second;
    while (first < c->layers && !experts_has(c, first))
        first++;
    for (second = first + 1; second < c->layers && !experts_has(c, second);)
        second++;
    return json_integer(second < c->layers ? second - first : 1);
}

static const struct config_word topk[] = {{"topk", 0}, {NULL, 0}};
static const struct config_key ernie4_5_moe_keys[] = {
    LLAMA_KEYS_BUT(1, 1e-5),
    {"use_bias", KEY_ONLY_FALSE},
    EXPERTS_KEY("moe_num_experts"),
    {"moe_k", KEY_REQUIRED, AT_experts_used},
    {"moe_intermediate_size", KEY_REQUIRED, AT_expert_ffn},
    EXPERTS_SHARED("moe_num_shared_experts"),
    {"moe_norm_min", KEY_FIELD, AT_router_floor, 1e-12},
    {"moe_layer_start_index", KEY_SPECIAL, .read = read_layers, .write = experts_write_first},
    {"moe_layer_end_index", KEY_SPECIAL, .write = write_end},
    {"moe_layer_interval", KEY_SPECIAL, .write = write_interval},
    EXPERTS_AUX,
    EXPERTS_FURTHER("num_nextn_predict_layers"),
    {"moe_gate", KEY_WORD, NO_FIELD, .words = topk},
    {"moe_use_aux_free", KEY_ONLY_TRUE},
    {"moe_capacity", KEY_SPECIAL}, /* pretraining only: transformers drops no token */
    {NULL},
};
static const struct experts_form form = {.router = ROUTER_SOFTMAX,
                                         .gate = "mlp.gate",
                                         .bias = "mlp.moe_statics.e_score_correction_bias",
                                         .bias_rows = 1,
                                         EXPERTS_STACKS,
                                         .shared = "mlp.shared_experts",
                                         .count = {"moe_num_experts"},
                                         .shared_key = "moe_num_shared_experts",
                                         .shared_count = 2,
                                         .aux = 0.001};
LLAMA_FAMILY(ernie4_5_moe, "ernie4_5_moe", "Ernie4_5_MoeForCausalLM", 500000, 131072, experts_layer, derive_experts,
             .all_heads = 1, .class_before = "Ernie4_5_MoEForCausalLM", .experts = &form);
