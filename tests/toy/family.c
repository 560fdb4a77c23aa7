/* A model family for tests, whose layers have different lists of blocks. `layer_blocks` in config.json gives a number for each
 * layer. */
#include "model/family/common.h"

enum lists { ATTENTION_MLP, TOY_MLP, ATTENTION_MLP_TOY, TOY_ALONE, TOY_TWICE /* refused */, LISTS };

static void toy_layer(struct builder *b, int l)
{
    const int64_t dim = b->m->config.dim;
    const int list = b->m->config.blocks_of[l];
    const double std = b->m->config.init_std;
    build_layer_prefix(b, "model.layers.", l);
    if (list == ATTENTION_MLP || list == ATTENTION_MLP_TOY) {
        struct model_block *attention = build_block(b, l, BLOCK_ATTENTION);
        attention->norm = build_norm(b, "input_layernorm", NORM_RMS);
        common_attention(b, &attention->attention, 0, 0);
    }
    if (list == ATTENTION_MLP || list == ATTENTION_MLP_TOY) {
        struct model_block *mlp = build_block(b, l, BLOCK_MLP);
        mlp->norm = build_norm(b, "post_attention_layernorm", NORM_RMS);
        common_mlp(b, &mlp->mlp, 0);
    }
    for (int i = 0; i < (list == ATTENTION_MLP ? 0 : list == TOY_TWICE ? 2 : 1); i++) {
        struct model_block *toy = build_block(b, l, BLOCK_TOY);
        toy->norm = build_norm(b, "toy_layernorm", NORM_RMS);
        toy->toy.in = build_linear(b, "toy.in_proj", dim, 2 * dim, 0, std);
        toy->toy.gate = build_linear(b, "toy.gate_proj", dim, 2 * dim, LINEAR_BIAS, std);
        toy->toy.out = build_linear(b, "toy.out_proj", 2 * dim, dim, 0, std);
    }
    if (list == TOY_MLP) {
        struct model_block *mlp = build_block(b, l, BLOCK_MLP);
        mlp->norm = build_norm(b, "post_attention_layernorm", NORM_RMS);
        common_mlp(b, &mlp->mlp, 0);
    }
}

static enum status read_blocks(struct config_reader *r, struct model_config *c)
{
    const json_t *list = config_get(r, "layer_blocks"), *number;
    size_t l;
    json_array_foreach((json_t *)list, l, number)
    {
        if (json_integer_value(number) < 0 || json_integer_value(number) >= LISTS || (int64_t)l >= c->layers)
            return config_refuse(r, "layer_blocks", "a number from 0 to 4 for each layer");
        c->blocks_of[l] = (uint8_t)json_integer_value(number);
    }
    return OK;
}

static json_t *write_blocks(const struct model_config *c)
{
    json_t *list = json_array();
    for (int64_t l = 0; l < c->layers; l++)
        json_array_append_new(list, json_integer(c->blocks_of[l]));
    return list;
}

static enum status read_window(struct config_reader *r, struct model_config *c)
{
    return common_read_pattern(r, c, 0, 0);
}

static const struct config_key toy_keys[] = {{"hidden_act", KEY_WORD, AT_gate, GATE_SILU, common_silu},
                                             {"rms_norm_eps", KEY_FIELD, AT_norm_eps, 1e-6},
                                             {"tie_word_embeddings", KEY_FIELD, AT_tied, 0},
                                             WINDOW_KEY(read_window),
                                             LAYER_TYPES_KEY,
                                             {"layer_blocks", KEY_SPECIAL, .read = read_blocks, .write = write_blocks},
                                             {NULL}};

const struct family family_toy = {.name = "toy",
                                  .class = "ToyForCausalLM",
                                  COMMON,
                                  .keys = {common_keys, toy_keys},
                                  .derive = common_derive,
                                  .layer = toy_layer,
                                  .head = common_head};
