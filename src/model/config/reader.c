/* Reading single keys of config.json: a missing key, another type or an unknown value is an error that names the key. */
#include "model/config/config.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const json_t *config_get(struct config_reader *r, const char *key)
{
    const json_t *v = json_object_get(r->object, key);
    assert(r->n_asked < MAX_KEYS);
    r->asked[r->n_asked++] = key;
    return json_is_null(v) ? NULL : v;
}

enum status config_refuse(const struct config_reader *r, const char *key, const char *instead)
{
    char text[80] = "null";
    const json_t *value = json_object_get(r->object, key);
    if (value) {
        size_t n = json_dumpb(value, text, sizeof text - 1, JSON_COMPACT | JSON_ENCODE_ANY);
        text[n < sizeof text - 1 ? n : sizeof text - 1] = 0;
    }
    return status_fail(ERR_INVALID, "%s: %s%s is %s; %s", r->path, r->section, key, text, instead);
}

enum status config_missing(const struct config_reader *r, const char *key)
{
    return status_fail(ERR_INVALID, "%s: %s%s is missing", r->path, r->section, key);
}

enum status config_read_count(struct config_reader *r, const char *key, enum need need, int64_t least, int64_t *out)
{
    const json_t *v = config_get(r, key);
    if (!v)
        return need == REQUIRED ? config_missing(r, key) : OK;
    if (!json_is_integer(v) || json_integer_value(v) < least)
        return config_refuse(r, key, least ? "must be a positive whole number" : "must be a whole number, 0 or more");
    *out = (int64_t)json_integer_value(v);
    return OK;
}

enum status config_read_real(struct config_reader *r, const char *key, enum need need, double *out)
{
    const json_t *v = config_get(r, key);
    if (!v)
        return need == REQUIRED ? config_missing(r, key) : OK;
    const double number = json_number_value(v);
    if (!json_is_number(v) || !(number > 0.0) || !isfinite((float)number) || (float)number == 0.0f)
        return config_refuse(r, key, "must be a positive number, and one that fp32 holds");
    *out = json_number_value(v);
    return OK;
}

enum status config_read_bool(struct config_reader *r, const char *key, int *out)
{
    const json_t *v = config_get(r, key);
    if (v && !json_is_boolean(v))
        return config_refuse(r, key, "must be true or false");
    if (v)
        *out = json_is_true(v);
    return OK;
}

enum status config_only_bool(struct config_reader *r, const char *key, int allowed)
{
    const json_t *v = config_get(r, key);
    if (v && !(allowed ? json_is_true(v) : json_is_false(v)))
        return config_refuse(r, key, allowed ? "only true is supported" : "only false is supported");
    return OK;
}

enum status config_only_number(struct config_reader *r, const char *key, double allowed)
{
    const json_t *v = config_get(r, key);
    char instead[64];
    snprintf(instead, sizeof instead, "only %g is supported", allowed);
    return v && !(json_is_number(v) && json_number_value(v) == allowed) ? config_refuse(r, key, instead) : OK;
}

enum status config_only_null(struct config_reader *r, const char *key)
{
    const json_t *v = config_get(r, key);
    return v ? config_refuse(r, key, "only null is supported") : OK;
}

enum status config_read_word(struct config_reader *r, const char *key, const struct config_word *words, int *out)
{
    const json_t *v = config_get(r, key);
    char instead[160] = "supported: ";
    if (!v)
        return OK;
    for (const struct config_word *w = words; w->word; w++) {
        if (json_is_string(v) && strcmp(json_string_value(v), w->word) == 0) {
            *out = w->value;
            return OK;
        }
        size_t used = strlen(instead);
        snprintf(instead + used, sizeof instead - used, "%s%s", w > words ? ", " : "", w->word);
    }
    return config_refuse(r, key, instead);
}

/* Keys that say nothing about training: bookkeeping, generation, heads of other tasks, and dropout. */
/* clang-format off */
static const char *const ignorable[] = {
    "_name_or_path", "_attn_implementation", "_attn_implementation_autoset", "transformers_version", "torch_dtype", "dtype",
    "use_cache", "bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "sep_token_id", "cls_token_id",
    "decoder_start_token_id", "return_dict", "return_dict_in_generate", "output_attentions", "output_hidden_states",
    "output_scores", "torchscript", "tokenizer_class", "prefix", "problem_type", "task_specific_params", "id2label",
    "label2id", "finetuning_task", "chunk_size_feed_forward", "gradient_checkpointing", "do_sample",
    "temperature", "top_k", "top_p", "typical_p", "max_length", "min_length", "max_new_tokens", "num_beams",
    "num_beam_groups", "diversity_penalty", "early_stopping", "length_penalty", "repetition_penalty", "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size", "bad_words_ids", "begin_suppress_tokens", "suppress_tokens", "forced_bos_token_id",
    "forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty", "num_return_sequences", "n_ctx",
    "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj",
    "classifier_dropout", "attention_dropout", "attn_pdrop", "embd_pdrop", "resid_pdrop", "is_llama_config", "_commit_hash",
    "_flash_attn_2_enabled", "transformers.js_config", "max_sequence_length", "model_max_length", "pruned_heads",
    "tf_legacy_loss", "use_bfloat16", "tie_encoder_decoder", "cross_attention_hidden_size", "is_decoder", "output_past",
    "n_special", "predict_special_tokens", "auto_map", "pretraining_tp", "cache_implementation", "attention_softmax_in_fp32",
    "scale_attention_softmax_in_fp32", "trainer_version", "trl_version", "model_name", "hub_model_id", "license",
    "full_attn_mod", "interpolate_factor", "sliding_window_size", "unsloth", "embd_layer", "keys_to_ignore_at_inference", NULL,
};
/* clang-format on */

static int listed(const char *key, const char *const *list, int n)
{
    for (int i = 0; n < 0 ? list[i] != NULL : i < n; i++)
        if (strcmp(key, list[i]) == 0)
            return 1;
    return 0;
}

static int ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Tells whether a value means that there is nothing: null, {}, [], or a factor of 1. */
static int stands_for_none(const char *key, const json_t *value)
{
    int factor = ends_with(key, "factor") || ends_with(key, "multiplier") || ends_with(key, "scaling") || ends_with(key, "scale");
    return json_is_null(value) || (json_is_object(value) && json_object_size(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (factor && json_is_number(value) && json_number_value(value) == 1.0);
}

int config_is_idle(const char *key, const json_t *value)
{
    static const char unsloth[] = "unsloth_"; /* prefix of marks that Unsloth leaves: unsloth_fixed, unsloth_version */
    return key[0] == '_' || listed(key, ignorable, -1) || strncmp(key, unsloth, strlen(unsloth)) == 0 ||
           stands_for_none(key, value);
}

int config_was_asked(const struct config_reader *r, const char *key)
{
    return listed(key, r->asked, r->n_asked);
}

enum status config_check_understood(const struct config_reader *r)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)r->object, key, value)
    {
        if (!config_was_asked(r, key) && !config_is_idle(key, value))
            return config_refuse(r, key, "ltrain does not know this key");
    }
    return OK;
}
