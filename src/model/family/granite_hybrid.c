/* Granite 4: attention, mostly without positions, or a Mamba-2 mixer in each layer; then an MLP, beside experts or alone. */
#include "model/family/granite.h"
#include "model/family/mamba.h"

#include <string.h>

/* Declares the MLP of a layer without experts, which has the names of the shared one. */
static void dense(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    const int64_t n = c->shared_ffn;
    struct model_block *block = build_block(b, l, BLOCK_MLP);
    struct mlp_block *m = &block->mlp;
    block->norm = build_norm(b, "post_attention_layernorm", NORM_RMS);
    const struct model_linear fused = build_linear(b, "shared_mlp.input_linear", c->dim, 2 * n, 0, c->init_std);
    m->gate = build_slice(&fused, 0, n);
    m->up = build_slice(&fused, n, n);
    m->down = build_linear(b, "shared_mlp.output_linear", n, c->dim, 0, c->init_std);
    m->kind = c->gate;
}

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    const unsigned form = c->attention_bias ? LINEAR_BIAS : 0;
    build_layer_prefix(b, "model.layers.", l);
    if (recurrent_mixer(c, l) == LIST_RECURRENT) {
        struct model_block *mixer = mamba_mixer(b, l, "mamba", SCAN_NORM_LAST);
        mixer->norm = build_norm(b, "input_layernorm", NORM_RMS);
    } else {
        llama_attention(b, l, &(struct llama_layer){form, form, 0});
    }
    if (c->experts > 0)
        experts_mlp(b, l, "post_attention_layernorm");
    else
        dense(b, l);
}

/* ---- config.json ---- */

static enum status read_types(struct config_reader *r, struct model_config *c)
{
    return recurrent_read_types(r, c, &mamba_words, LAYERS_MOST + 1);
}

static json_t *list_types(const struct model_config *c)
{
    return recurrent_list_types(c, &mamba_words);
}

static enum status read_positions(struct config_reader *r, struct model_config *c)
{
    static const struct config_word words[] = {{"rope", 1}, {"nope", 0}, {NULL, 0}};
    int rotated = 0;
    TRY(config_read_word(r, "position_embedding_type", words, &rotated));
    memset(c->unrotated, rotated ? 0 : 0xff, sizeof c->unrotated);
    return OK;
}

static json_t *write_positions(const struct model_config *c)
{
    return model_bit(c->unrotated, 0) ? json_null() : json_string("rope");
}

/* Reads the number of experts, 0 for none. */
static enum status read_experts(struct config_reader *r, struct model_config *c)
{
    c->experts = 8;
    return config_read_count(r, "num_local_experts", OPTIONAL, 0, &c->experts);
}

static enum status read_used(struct config_reader *r, struct model_config *c)
{
    c->experts_used = 2;
    TRY(config_read_count(r, "num_experts_per_tok", OPTIONAL, 0, &c->experts_used));
    c->experts_used = c->experts > 0 ? c->experts_used : 0;
    return OK;
}

static json_t *write_used(const struct model_config *c)
{
    return json_integer(c->experts_used);
}

static enum status read_shared(struct config_reader *r, struct model_config *c)
{
    c->shared_ffn = 1024;
    return config_read_count(r, "shared_intermediate_size", OPTIONAL, 1, &c->shared_ffn);
}

static enum status derive(struct config_reader *r, struct model_config *c)
{
    c->expert_ffn = c->experts > 0 ? c->ffn : 0;
    return granite_derive(r, c);
}

static const struct config_word norms[] = {{"rmsnorm", 0}, {NULL, 0}};

static const struct config_key keys[] = {
    GRANITE_KEYS(0, 1e-6),
    {"layer_types", KEY_SPECIAL, .read = read_types, .write = list_types},
    {"position_embedding_type", KEY_SPECIAL, .read = read_positions, .write = write_positions},
    {"num_local_experts", KEY_SPECIAL, .read = read_experts, .write = experts_write_count},
    {"num_experts_per_tok", KEY_SPECIAL, .read = read_used, .write = write_used},
    {"shared_intermediate_size", KEY_SPECIAL, .read = read_shared, .write = experts_write_width},
    MAMBA_KEYS,
    EXPERTS_AUX,
    {"normalization_function", KEY_WORD, NO_FIELD, 0, norms},
    {"init_method", KEY_SPECIAL}, /* the makers' way to draw initial values */
    {NULL},
};

const struct family family_granitemoehybrid = {.name = "granitemoehybrid",
                                               .class = "GraniteMoeHybridForCausalLM",
                                               .theta = 10000,
                                               .experts = &granite_experts,
                                               .keys = {common_keys, keys},
                                               .buffers = common_buffers,
                                               .embedding = common_embedding,
                                               .check = recurrent_check,
                                               .derive = derive,
                                               .layer = layer,
                                               .head = common_head};
