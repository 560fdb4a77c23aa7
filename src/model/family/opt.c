/* OPT: layer norms before blocks, learned positions from the table's third row on, biases, an MLP of two maps with a ReLU
 * between. */
#include "model/family/family.h"

enum { FIRST_POSITION = 2 }; /* the first two rows of the table were once for padding */

static void embedding(struct builder *b)
{
    const struct model_config *c = &b->m->config;
    build_prefix(b, "model.decoder.");
    b->m->embed = build_embedding(b, "embed_tokens", c->vocab, c->dim, c->init_std);
    b->m->pos_embed = build_matrix(b, "embed_positions", c->max_positions + FIRST_POSITION, c->dim, c->init_std);
    build_use_rows(b, c->positions > 0 ? c->positions + FIRST_POSITION : 0);
}

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    const unsigned form = c->attention_bias ? LINEAR_BIAS : 0;
    struct model_block *attention = build_block(b, l, BLOCK_ATTENTION), *mlp = build_block(b, l, BLOCK_MLP);
    struct attention_block *a = &attention->attention;
    build_layer_prefix(b, "model.decoder.layers.", l);
    attention->norm = build_norm(b, "self_attn_layer_norm", NORM_LAYER);
    a->q = build_linear(b, "self_attn.q_proj", c->dim, c->dim, form, c->init_std);
    a->k = build_linear(b, "self_attn.k_proj", c->dim, c->dim, form, c->init_std);
    a->v = build_linear(b, "self_attn.v_proj", c->dim, c->dim, form, c->init_std);
    a->o = build_linear(b, "self_attn.out_proj", c->dim, c->dim, form, c->init_std);
    mlp->norm = build_norm(b, "final_layer_norm", NORM_LAYER);
    mlp->mlp.gate = build_no_linear();
    mlp->mlp.up = build_linear(b, "fc1", c->dim, c->ffn, form, c->init_std);
    mlp->mlp.down = build_linear(b, "fc2", c->ffn, c->dim, form, c->init_std);
}

static void head(struct builder *b)
{
    build_head(b);
    b->m->final_norm = build_norm(b, "model.decoder.final_layer_norm", NORM_LAYER);
}

/* ---- config.json ---- */

static enum status derive(struct config_reader *r, struct model_config *c)
{
    if (c->dim % c->heads)
        return config_refuse(r, "num_attention_heads", "hidden_size is not a multiple");
    c->head_dim = c->dim / c->heads;
    c->kv_heads = c->heads;
    return OK;
}

static enum status check(const struct model_config *c)
{
    if (c->heads * c->head_dim != c->dim || c->kv_heads != c->heads)
        return status_fail(ERR_INVALID, "model: OPT with hidden size %lld needs heads x head size of the same, not %lld x %lld",
                           (long long)c->dim, (long long)c->heads, (long long)c->head_dim);
    return OK;
}

/* Sets the norms' epsilon, which no key gives, and refuses opt-350m's narrower embeddings. */
static enum status read_width(struct config_reader *r, struct model_config *c)
{
    int64_t width = c->dim;
    c->norm_eps = 1e-5f;
    TRY(config_read_count(r, "word_embed_proj_dim", OPTIONAL, 1, &width));
    return width == c->dim ? OK : config_refuse(r, "word_embed_proj_dim", "must be hidden_size");
}

static json_t *write_width(const struct model_config *c)
{
    return json_integer((json_int_t)c->dim);
}

static const struct config_word activations[] = {
    {"relu", RELU}, {"gelu", GELU_ERF}, {"gelu_new", GELU_TANH}, {"gelu_pytorch_tanh", GELU_TANH}, {NULL, 0}};

static const struct config_key keys[] = {
    {"vocab_size", KEY_REQUIRED, AT_vocab},
    {"hidden_size", KEY_REQUIRED, AT_dim},
    {"num_hidden_layers", KEY_REQUIRED, AT_layers},
    {"num_attention_heads", KEY_REQUIRED, AT_heads},
    {"ffn_dim", KEY_REQUIRED, AT_ffn},
    {"max_position_embeddings", KEY_FIELD, AT_max_positions, 2048},
    {"init_std", KEY_FIELD, AT_init_std, 0.02},
    {"activation_function", KEY_WORD, AT_activation, RELU, activations},
    {"enable_bias", KEY_FIELD, AT_attention_bias, 1},
    {"word_embed_proj_dim", KEY_SPECIAL, .read = read_width, .write = write_width},
    {"do_layer_norm_before", KEY_ONLY_TRUE},
    {"layer_norm_elementwise_affine", KEY_ONLY_TRUE},
    {"_remove_final_layer_norm", KEY_ONLY_FALSE},
    {"tie_word_embeddings", KEY_FIELD, AT_tied, 1},
    {"is_encoder_decoder", KEY_ONLY_FALSE},
    {"add_cross_attention", KEY_ONLY_FALSE},
    {"is_causal", KEY_ONLY_TRUE},
    {"activation_dropout", KEY_SPECIAL}, /* ignored by transformers */
    {"attention_dropout", KEY_DROPOUT},
    {"dropout", KEY_DROPOUT},
    {"layerdrop", KEY_DROPOUT},
    {NULL},
};

static const char *const buffers[] = {NULL};

const struct family family_opt = {.name = "opt",
                                  .class = "OPTForCausalLM",
                                  .learned_positions = 1,
                                  .first_position = FIRST_POSITION,
                                  .buffers = buffers,
                                  .keys = {keys},
                                  .derive = derive,
                                  .check = check,
                                  .embedding = embedding,
                                  .layer = layer,
                                  .head = head};
