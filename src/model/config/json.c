/* Reading Hugging Face's config.json strictly.
 *
 * A key or value that changes the computation is understood or refused. An unknown key is kept for a warning (--strict-config
 * makes it an error).
 *
 * Dropout (attention_dropout, attn_pdrop, embd_pdrop, resid_pdrop) is the exception: GPT-2's published configurations ask for
 * 0.1; ltrain always trains without dropout and says so. */
#include "model/config/config.h"
#include "model/family/family.h"

#include "base/sys.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ---- */

static int is_implied(const struct family *f, enum config_field_id field, int64_t *value)
{
    for (const struct config_implied *x = f->implied; x && x->field != NO_FIELD; x++)
        if (x->field == field) {
            *value = x->value;
            return 1;
        }
    return 0;
}

static enum status read_field(struct config_reader *r, const struct config_key *k, struct model_config *c)
{
    enum need need = k->kind == KEY_REQUIRED ? REQUIRED : OPTIONAL;
    void *at = config_field_at(c, k->field);
    double real = k->fallback;
    switch (config_fields[k->field].type) {
    case FIELD_COUNT:
        *(int64_t *)at = (int64_t)k->fallback;
        if (need == REQUIRED && c->wrapped && is_implied(r->family, k->field, at))
            need = OPTIONAL;
        if (k->field == AT_ffn && r->family->optional_ffn)
            need = OPTIONAL;
        return config_read_count(r, k->name, need, 1, at);
    case FIELD_FLOAT:
        TRY(config_read_real(r, k->name, need, &real));
        *(float *)at = (float)real;
        return OK;
    case FIELD_DOUBLE:
        *(double *)at = k->fallback;
        return config_read_real(r, k->name, need, at);
    case FIELD_SWITCH:
        *(int *)at = (int)k->fallback;
        return config_read_bool(r, k->name, at);
    case FIELD_FAMILY:
    case FIELD_CHOICE:
        return OK;
    }
    return OK;
}

static enum status read_word(struct config_reader *r, const struct config_key *k, struct model_config *c)
{
    int value = (int)k->fallback;
    TRY(config_read_word(r, k->name, k->words, &value));
    if (k->field != NO_FIELD)
        *(int *)config_field_at(c, k->field) = value;
    return OK;
}

static enum status read_dropout(struct config_reader *r, const char *key, struct model_config *c)
{
    const json_t *v = config_get(r, key);
    double share = json_number_value(v);
    if (v && !(json_is_number(v) && share >= 0.0 && share <= 1.0))
        return config_refuse(r, key, "must be a number from 0 to 1");
    if (share > c->dropout)
        c->dropout = share;
    return OK;
}

static enum status read_key(struct config_reader *r, const struct config_key *k, struct model_config *c)
{
    switch (k->kind) {
    case KEY_FIELD:
    case KEY_REQUIRED:
    case KEY_OWN:
        return read_field(r, k, c);
    case KEY_WORD:
        return read_word(r, k, c);
    case KEY_ONLY_FALSE:
    case KEY_ONLY_TRUE:
        return config_only_bool(r, k->name, k->kind == KEY_ONLY_TRUE);
    case KEY_ONLY_ONE:
        return config_only_number(r, k->name, 1.0);
    case KEY_SPECIAL:
        return k->read ? k->read(r, c) : OK;
    case KEY_DROPOUT:
        return read_dropout(r, k->name, c);
    case KEY_FALSE:
        return OK;
    }
    return OK;
}

/* ---- keys that nobody has asked for ---- */

/* Keys of models with experts; a value of 0 means no experts. */
static const char *const of_experts[] = {"num_experts",
                                         "num_local_experts",
                                         "n_routed_experts",
                                         "n_shared_experts",
                                         "num_shared_experts",
                                         "num_experts_per_tok",
                                         "num_experts_per_token",
                                         "experts_per_token",
                                         "moe_intermediate_size",
                                         "moe_num_experts",
                                         "moe_num_shared_experts",
                                         "moe_k",
                                         "moe_topk",
                                         "moe_layers",
                                         "moe_layer_freq",
                                         "moe_layer_interval",
                                         "moe_layer_start_index",
                                         "moe_layer_end_index",
                                         "mlp_only_layers",
                                         "decoder_sparse_step",
                                         "expert_layer_period",
                                         "shared_expert_intermediate_size",
                                         "moe_shared_expert_intermediate_size",
                                         "shared_intermediate_size",
                                         "first_k_dense_replace",
                                         NULL};

/* Keys of other models that change the computation and that ltrain does not know, beside the keys of its families. */
static const char *const changing[] = {"quantization_config",
                                       "compression_config",
                                       "kv_lora_rank",
                                       "q_lora_rank",
                                       "qk_rope_head_dim",
                                       "attn_temperature_tuning",
                                       "attention_chunk_size",
                                       "use_qk_norm",
                                       "qk_layernorm",
                                       "qk_norm",
                                       "use_parallel_residual",
                                       "parallel_attn",
                                       "logit_scale",
                                       "alibi",
                                       "use_alibi",
                                       "position_embedding_type",
                                       "rotary_pct",
                                       "rotary_dim",
                                       "attention_sinks",
                                       "num_nextn_predict_layers",
                                       "mtp_num_layers",
                                       "vision_config",
                                       "text_config",
                                       "layer_norm_eps",
                                       "norm_eps",
                                       "clip_qkv",
                                       "mup_scale",
                                       "sparse_attention",
                                       "linear_attention",
                                       "mamba_d_state",
                                       "attention_type",
                                       "use_mrope",
                                       "residual_scale",
                                       "scale_emb",
                                       "scale_depth",
                                       "dim_model_base",
                                       NULL};

static const struct config_key *key_of(const struct family *f, const char *key)
{
    for (int i = 0; i < 2; i++)
        for (const struct config_key *k = f->keys[i]; k && k->name; k++)
            if (strcmp(k->name, key) == 0)
                return k;
    return NULL;
}

static int family_has(const struct family *f, const char *key)
{
    return key_of(f, key) != NULL;
}

static int is_among(const char *const *keys, const char *key)
{
    while (*keys && strcmp(*keys, key) != 0)
        keys++;
    return *keys != NULL;
}

/* Tells whether a key changes the computation. Keys of dropout do not: no model is trained with it. */
static int changes_computation(const char *key)
{
    if (is_among(changing, key) || is_among(of_experts, key))
        return 1;
    for (int i = 0; i < N_FAMILIES; i++) {
        const struct config_key *k = key_of(families[i], key);
        if (k && k->kind != KEY_DROPOUT)
            return 1;
    }
    return 0;
}

static int is_off(const char *key, const json_t *value)
{
    return json_is_false(value) || (is_among(of_experts, key) && json_is_number(value) && json_number_value(value) == 0.0);
}

static void add_unknown(struct model_config *c, const char *key)
{
    size_t used = strlen(c->unknown);
    snprintf(c->unknown + used, sizeof c->unknown - used, "%s%.60s", used ? ", " : "", key);
}

/* Checks keys that nobody asked for. A key in the family's table that has no reader is ignored. A key that changes the
 * computation of other models is refused unless it is off. An unknown key is kept for a warning. */
static enum status check_keys(const struct config_reader *r, struct model_config *c)
{
    const char *key;
    json_t *value;
    char instead[96];
    snprintf(instead, sizeof instead, "ltrain does not know this key in a model of type %s", r->family->name);
    json_object_foreach((json_t *)r->object, key, value)
    {
        if (config_was_asked(r, key) || config_is_idle(key, value) || family_has(r->family, key))
            continue;
        if (!changes_computation(key))
            add_unknown(c, key);
        else if (!is_off(key, value))
            return config_refuse(r, key, instead);
    }
    return OK;
}

/* ---- families ---- */

static const struct wrapper *find_wrapper(const json_t *root);
static enum status enter_wrapper(struct config_reader *r, struct model_config *c);

/* Returns the family that knows the most keys of the file. */
static const struct family *nearest_family(const struct config_reader *r, int *shared, int *all)
{
    const struct family *nearest = families[0];
    const char *key;
    json_t *value;
    *shared = *all = 0;
    for (int i = 0; i < N_FAMILIES; i++) {
        int n = 0, most = 0;
        json_object_foreach((json_t *)r->object, key, value)
        {
            most += !config_is_idle(key, value);
            n += !config_is_idle(key, value) && family_has(families[i], key);
        }
        *all = most;
        if (n > *shared) {
            *shared = n;
            nearest = families[i];
        }
    }
    return nearest;
}

/* Well-known types of models that are not supported, each between spaces, and the reason. */
static const struct {
    const char *what, *types;
} lacking[] = {
    {"experts are", " qwen3_vl_moe phimoe jetmoe dbrx doge zaya llama4 llama4_text cohere2_moe sarvam_moe mimo_v2_flash laguna "},
    {"experts and multi-head latent attention are", " deepseek_v32 longcat_flash glm_moe_dsa mistral4 "},
    {"layers without attention are", " mamba mamba2 falcon_mamba rwkv jamba zamba zamba2 recurrent_gemma "},
    {"the learned activation of its MLPs (xIELU) is", " apertus "},
    {"positions by ALiBi are", " bloom mpt "},
    {"positions by sines are", " xglm "},
    {"a norm of embeddings is", " nanochat modernbert-decoder "},
    {"a factor of embeddings beside learned positions is", " biogpt "},
    {"norms of heads with biases are", " persimmon "},
    {"attention by differences is", " diffllama "},
    {"norms within blocks are", " bitnet "},
};

static const char *what_lacks(const json_t *type)
{
    char word[80];
    snprintf(word, sizeof word, " %.70s ", json_is_string(type) ? json_string_value(type) : "");
    for (size_t i = 0; i < sizeof lacking / sizeof *lacking; i++)
        if (strlen(word) > 2 && strstr(lacking[i].types, word))
            return lacking[i].what;
    return NULL;
}

static enum status refuse_family(struct config_reader *r)
{
    char list[1200] = "", instead[1400];
    int shared, all;
    const struct family *nearest = nearest_family(r, &shared, &all);
    for (int i = 0; i < N_FAMILIES; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", families[i]->name);
    }
    const char *lack = what_lacks(json_object_get(r->object, "model_type"));
    if (lack)
        snprintf(instead, sizeof instead, "%s not supported yet; supported: %s", lack, list);
    else if (shared > 4)
        snprintf(instead, sizeof instead, "nearest is %s, which has %d of its %d keys; supported: %s", nearest->name, shared, all,
                 list);
    else
        snprintf(instead, sizeof instead, "supported: %s", list);
    return config_refuse(r, "model_type", instead);
}

static enum status read_family(struct config_reader *r, struct model_config *c)
{
    const json_t *type = config_get(r, "model_type");
    int family = 0;
    if (!type)
        return config_missing(r, "model_type");
    if (!c->wrapped && find_wrapper(r->object))
        return enter_wrapper(r, c);
    while (family < N_FAMILIES && !(json_is_string(type) && strcmp(json_string_value(type), families[family]->name) == 0))
        family++;
    if (family == N_FAMILIES)
        return refuse_family(r);
    const json_t *names = config_get(r, "architectures"), *first = json_array_get(names, 0);
    const char *class = families[family]->class, *before = families[family]->class_before;
    const char *name = json_array_size(names) == 1 && json_is_string(first) ? json_string_value(first) : "";
    char instead[64];
    snprintf(instead, sizeof instead, "supported: [\"%s\"]", class);
    if (!c->wrapped && names && strcmp(name, class) != 0 && !(before && strcmp(name, before) == 0))
        return config_refuse(r, "architectures", instead);
    c->family = (enum model_family)family;
    r->family = families[family];
    return OK;
}

/* ---- multimodal models ---- */

static const struct wrapper {
    const char *type, *class;
} wrappers[] = {{"gemma3", "Gemma3ForConditionalGeneration"},
                {"gemma4", "Gemma4ForConditionalGeneration"},
                {"mistral3", "Mistral3ForConditionalGeneration"},
                {"qwen3_5", "Qwen3_5ForConditionalGeneration"},
                {"qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration"}};

static const struct wrapper *find_wrapper(const json_t *root)
{
    const char *type = json_string_value(json_object_get(root, "model_type"));
    for (size_t i = 0; type && i < sizeof wrappers / sizeof *wrappers; i++)
        if (strcmp(type, wrappers[i].type) == 0)
            return &wrappers[i];
    return NULL;
}

json_t *config_text_of(json_t *root)
{
    json_t *text = json_object_get(root, "text_config");
    return find_wrapper(root) && json_is_object(text) ? text : root;
}

/* Keys of a multimodal model's config.json outside its parts; they concern how images become tokens. */
/* clang-format off */
static const char *const about_images[] = {"model_type",           "architectures",
                                           "text_config",          "vision_config",
                                           "tie_word_embeddings",  "initializer_range",
                                           "image_token_index",    "image_token_id",
                                           "boi_token_index",      "boi_token_id",
                                           "eoi_token_index",      "eoi_token_id",
                                           "mm_tokens_per_image",  "multimodal_projector_bias",
                                           "projector_hidden_act", "spatial_merge_size",
                                           "vision_feature_layer", "video_token_id",
                                           "vision_start_token_id", "vision_end_token_id",
                                           "audio_config",         "audio_token_id",
                                           "boa_token_id",         "eoa_token_id",
                                           "eoa_token_index",      "vision_soft_tokens_per_image",
                                           NULL};
/* clang-format on */

static enum status check_outer_keys(const struct config_reader *r, struct model_config *c)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)r->object, key, value)
    {
        if (is_among(about_images, key) || config_is_idle(key, value))
            continue;
        if (changes_computation(key) && !is_off(key, value))
            return config_refuse(r, key, "ltrain does not know this key in a multimodal model");
        add_unknown(c, key);
    }
    return OK;
}

/* Enters the text model's object of a multimodal model. */
static enum status enter_wrapper(struct config_reader *r, struct model_config *c)
{
    const struct wrapper *w = find_wrapper(r->object);
    const json_t *names = json_object_get(r->object, "architectures"), *text = json_object_get(r->object, "text_config");
    const char *name = json_string_value(json_array_get(names, 0));
    char instead[64];
    snprintf(instead, sizeof instead, "supported: [\"%s\"]", w->class);
    if (names && !(json_array_size(names) == 1 && name && strcmp(name, w->class) == 0))
        return config_refuse(r, "architectures", instead);
    if (!json_is_object(text))
        return config_missing(r, "text_config");
    TRY(check_outer_keys(r, c));
    c->wrapped = 1;
    *r = (struct config_reader){.path = r->path, .section = "text_config.", .object = text};
    return read_family(r, c);
}

static enum status read_object(struct config_reader *r, struct model_config *c)
{
    const json_t *outer = r->object;
    TRY(read_family(r, c));
    const struct family *f = family_of(c);
    for (int i = 0; i < 2; i++)
        for (const struct config_key *k = f->keys[i]; k && k->name; k++)
            TRY(read_key(r, k, c));
    TRY(f->derive(r, c));
    if (c->layers > LAYERS_MOST)
        return status_fail(ERR_INVALID, "%s: number of layers is %lld, must be at most %d", r->path, (long long)c->layers,
                           LAYERS_MOST);
    TRY(config_check_own(r, c));
    if (!c->wrapped)
        TRY(config_read_quantised(r, c));
    const json_t *tied = json_object_get(outer, "tie_word_embeddings");
    if (c->wrapped && json_is_boolean(tied) && !json_object_get(r->object, "tie_word_embeddings"))
        c->tied = json_is_true(tied);
    return check_keys(r, c);
}

/* ---- files ---- */

/* Sets the name to the directory's last component, after resolving links and dots. */
static void set_name(const char *dir, char name[64])
{
    char *canonical = sys_realpath(dir);
    const char *slash = canonical ? strrchr(canonical, '/') : NULL;
    snprintf(name, 64, "%.63s", slash ? slash + 1 : dir);
    free(canonical);
}

enum status model_config_read(const char *dir, struct model_config *out)
{
    char path[CONFIG_PATH];
    json_t *root;
    TRY(config_load(dir, path, &root));
    struct model_config c = {.family = FAMILY_LLAMA};
    struct config_reader r = {.path = path, .section = "", .object = root};
    enum status st = read_object(&r, &c);
    json_decref(root);
    if (st == OK) {
        set_name(dir, c.name);
        *out = c;
    }
    return st;
}
