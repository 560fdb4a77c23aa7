/* config.json of Hugging Face, read strictly.
 *
 * Strict means: a key that is neither understood nor known to be without effect on training is an error, and so is a value that
 * asks for something ltrain does not do. Dropout (attention_dropout, attn_pdrop, embd_pdrop, resid_pdrop) is the exception:
 * GPT-2's published configurations ask for 0.1, ltrain always trains without. */
#include "model/model.h"

#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_KEYS = 64, MAX_CONFIG_BYTES = 1 << 24, PATH_BYTES = 4096 };

/* ---- reading single keys ---- */

/* One JSON object and the keys asked for so far. */
struct reader {
    const char *path;    /* for messages */
    const char *section; /* "" or "rope_scaling." */
    const json_t *object;
    const char *asked[MAX_KEYS];
    int n_asked;
};

enum need { REQUIRED, OPTIONAL };

/* The value of a key; NULL if it is absent or null. */
static const json_t *get(struct reader *r, const char *key)
{
    const json_t *v = json_object_get(r->object, key);
    r->asked[r->n_asked++] = key;
    return json_is_null(v) ? NULL : v;
}

static enum status refuse(const struct reader *r, const char *key, const json_t *value, const char *instead)
{
    char text[80] = "null";
    if (value) {
        size_t n = json_dumpb(value, text, sizeof text - 1, JSON_COMPACT | JSON_ENCODE_ANY);
        text[n < sizeof text - 1 ? n : sizeof text - 1] = 0;
    }
    return status_fail(ERR_INVALID, "%s: %s%s is %s; %s", r->path, r->section, key, text, instead);
}

static enum status missing(const struct reader *r, const char *key)
{
    return status_fail(ERR_INVALID, "%s: %s%s is missing", r->path, r->section, key);
}

/* Leaves *out as it is when an optional key is absent. */
static enum status read_count(struct reader *r, const char *key, enum need need, int64_t least, int64_t *out)
{
    const json_t *v = get(r, key);
    if (!v)
        return need == REQUIRED ? missing(r, key) : OK;
    if (!json_is_integer(v) || json_integer_value(v) < least)
        return refuse(r, key, v, least ? "must be a positive whole number" : "must be a whole number, 0 or more");
    *out = (int64_t)json_integer_value(v);
    return OK;
}

static enum status read_int(struct reader *r, const char *key, enum need need, int64_t *out)
{
    return read_count(r, key, need, 1, out);
}

static enum status read_real(struct reader *r, const char *key, enum need need, double *out)
{
    const json_t *v = get(r, key);
    if (!v)
        return need == REQUIRED ? missing(r, key) : OK;
    if (!json_is_number(v) || !(json_number_value(v) > 0.0))
        return refuse(r, key, v, "must be a positive number");
    *out = json_number_value(v);
    return OK;
}

static enum status read_bool(struct reader *r, const char *key, int *out)
{
    const json_t *v = get(r, key);
    if (v && !json_is_boolean(v))
        return refuse(r, key, v, "must be true or false");
    if (v)
        *out = json_is_true(v);
    return OK;
}

/* A key that may be there with this one value only. */
static enum status only_bool(struct reader *r, const char *key, int allowed)
{
    const json_t *v = get(r, key);
    if (v && !(allowed ? json_is_true(v) : json_is_false(v)))
        return refuse(r, key, v, allowed ? "only true is supported" : "only false is supported");
    return OK;
}

static enum status only_number(struct reader *r, const char *key, double allowed)
{
    const json_t *v = get(r, key);
    char instead[64];
    snprintf(instead, sizeof instead, "only %g is supported", allowed);
    return v && !(json_is_number(v) && json_number_value(v) == allowed) ? refuse(r, key, v, instead) : OK;
}

static enum status only_null(struct reader *r, const char *key)
{
    const json_t *v = get(r, key);
    return v ? refuse(r, key, v, "only null is supported") : OK;
}

/* The string's place in `allowed` (NULL-terminated); `fallback` if the key is absent. */
static enum status read_choice(struct reader *r, const char *key, const char *const *allowed, int fallback, int *out)
{
    const json_t *v = get(r, key);
    char instead[160] = "supported: ";
    *out = fallback;
    if (!v)
        return OK;
    for (int i = 0; allowed[i]; i++) {
        if (json_is_string(v) && strcmp(json_string_value(v), allowed[i]) == 0) {
            *out = i;
            return OK;
        }
        size_t used = strlen(instead);
        snprintf(instead + used, sizeof instead - used, "%s%s", i ? ", " : "", allowed[i]);
    }
    return refuse(r, key, v, instead);
}

/* Keys that say nothing about training: bookkeeping, generation, heads of other tasks, and dropout. */
/* clang-format off */
static const char *const ignorable[] = {
    "_name_or_path", "_attn_implementation", "_attn_implementation_autoset", "transformers_version", "torch_dtype", "dtype",
    "use_cache", "bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "sep_token_id", "cls_token_id",
    "decoder_start_token_id", "return_dict", "return_dict_in_generate", "output_attentions", "output_hidden_states",
    "output_scores", "torchscript", "tokenizer_class", "prefix", "problem_type", "task_specific_params", "id2label",
    "label2id", "finetuning_task", "chunk_size_feed_forward", "gradient_checkpointing", "unsloth_version", "do_sample",
    "temperature", "top_k", "top_p", "typical_p", "max_length", "min_length", "max_new_tokens", "num_beams",
    "num_beam_groups", "diversity_penalty", "early_stopping", "length_penalty", "repetition_penalty", "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size", "bad_words_ids", "begin_suppress_tokens", "suppress_tokens", "forced_bos_token_id",
    "forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty", "num_return_sequences", "n_ctx",
    "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj",
    "classifier_dropout", "attention_dropout", "attn_pdrop", "embd_pdrop", "resid_pdrop", NULL,
};
/* clang-format on */

static int listed(const char *key, const char *const *list, int n)
{
    for (int i = 0; n < 0 ? list[i] != NULL : i < n; i++)
        if (strcmp(key, list[i]) == 0)
            return 1;
    return 0;
}

static enum status check_all_understood(const struct reader *r)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)r->object, key, value)
    {
        if (!listed(key, r->asked, r->n_asked) && (r->section[0] || !listed(key, ignorable, -1)))
            return refuse(r, key, value, "ltrain does not know this key");
    }
    return OK;
}

/* ---- rotary positions ---- */

static const char *const rope_types[] = {"default", "linear", "llama3", NULL};

/* The object under `section`: both "rope_scaling" and "rope_parameters", with "rope_type" or its old name "type". */
static enum status read_rope_object(const struct reader *parent, const char *section, const json_t *object,
                                    struct model_config *c)
{
    struct reader r = {.path = parent->path, .section = section, .object = object};
    int type, old;
    if (!json_is_object(object))
        return status_fail(ERR_INVALID, "%s: %.*s must be an object or null", r.path, (int)strlen(section) - 1, section);
    TRY(read_choice(&r, "type", rope_types, -1, &old));
    TRY(read_choice(&r, "rope_type", rope_types, old, &type));
    if (type < 0)
        return missing(&r, "rope_type");
    if (old >= 0 && old != type)
        return refuse(&r, "type", json_object_get(object, "type"), "rope_type says something else");
    TRY(read_real(&r, "rope_theta", OPTIONAL, &c->rope_theta));
    TRY(only_number(&r, "partial_rotary_factor", 1.0));
    c->rope = (enum rope_kind)type;
    if (c->rope != ROPE_DEFAULT)
        TRY(read_real(&r, "factor", REQUIRED, &c->rope_factor));
    if (c->rope == ROPE_LLAMA3) {
        TRY(read_real(&r, "low_freq_factor", REQUIRED, &c->rope_low_freq));
        TRY(read_real(&r, "high_freq_factor", REQUIRED, &c->rope_high_freq));
        TRY(read_real(&r, "original_max_position_embeddings", REQUIRED, &c->rope_original_positions));
        if (c->rope_high_freq <= c->rope_low_freq)
            return refuse(&r, "high_freq_factor", json_object_get(object, "high_freq_factor"), "must be above low_freq_factor");
    }
    return check_all_understood(&r);
}

static enum status read_rope(struct reader *r, struct model_config *c)
{
    const json_t *theta = json_object_get(r->object, "rope_theta");
    const json_t *scaling = get(r, "rope_scaling"), *parameters = get(r, "rope_parameters");
    c->rope_theta = 10000.0;
    TRY(read_real(r, "rope_theta", OPTIONAL, &c->rope_theta));
    double outer = c->rope_theta;
    if (scaling && parameters && !json_equal((json_t *)scaling, (json_t *)parameters))
        return refuse(r, "rope_scaling", scaling, "rope_parameters says something else");
    if (parameters)
        TRY(read_rope_object(r, "rope_parameters.", parameters, c));
    else if (scaling)
        TRY(read_rope_object(r, "rope_scaling.", scaling, c));
    if (theta && !json_is_null(theta) && c->rope_theta != outer)
        return refuse(r, "rope_theta", theta,
                      parameters ? "rope_parameters.rope_theta says something else"
                                 : "rope_scaling.rope_theta says something else");
    return OK;
}

/* ---- families ---- */

static enum status read_reals(struct reader *r, const char *eps_key, double eps, struct model_config *c)
{
    double std = 0.02;
    TRY(read_real(r, eps_key, OPTIONAL, &eps));
    TRY(read_real(r, "initializer_range", OPTIONAL, &std));
    c->norm_eps = (float)eps;
    c->init_std = (float)std;
    return OK;
}

/* Whether Qwen2's layers slide: those from max_window_layers on, if use_sliding_window says so; "layer_types" says it layer by
 * layer. One answer for all layers, or an error. */
static enum status read_qwen2_layers(struct reader *r, const struct model_config *c, int *windowed)
{
    int64_t first = 28;
    size_t i, sliding = 0;
    int use = 0;
    TRY(only_bool(r, "use_mrope", 0));
    TRY(read_bool(r, "use_sliding_window", &use));
    TRY(read_count(r, "max_window_layers", OPTIONAL, 0, &first));
    const json_t *types = get(r, "layer_types"), *type;
    if (!types) {
        *windowed = use && first == 0;
        if (use && first > 0 && first < c->layers)
            return refuse(r, "max_window_layers", json_object_get(r->object, "max_window_layers"),
                          "so many layers attend everything and the others a window; only the same in every layer is supported "
                          "(0, or all)");
        return OK;
    }
    json_array_foreach((json_t *)types, i, type)
    {
        const char *text = json_is_string(type) ? json_string_value(type) : "";
        sliding += strcmp(text, "sliding_attention") == 0;
        if (strcmp(text, "full_attention") != 0 && strcmp(text, "sliding_attention") != 0)
            return refuse(r, "layer_types", types, "supported: full_attention, sliding_attention");
    }
    *windowed = sliding > 0;
    if (!json_is_array(types) || json_array_size(types) != (size_t)c->layers || (sliding > 0 && sliding < json_array_size(types)))
        return refuse(r, "layer_types", types, "only one kind of attention in all layers is supported");
    return *windowed && !use ? refuse(r, "layer_types", types, "use_sliding_window says otherwise") : OK;
}

/* Without the key transformers takes a window of 4096; null is none. */
static enum status read_window(struct reader *r, struct model_config *c)
{
    int64_t window = json_object_get(r->object, "sliding_window") ? 0 : 4096;
    int windowed = 1;
    if (c->variant == VARIANT_LLAMA) {
        TRY(only_bool(r, "use_sliding_window", 0));
        return only_null(r, "sliding_window");
    }
    TRY(read_int(r, "sliding_window", OPTIONAL, &window));
    if (c->variant == VARIANT_QWEN2)
        TRY(read_qwen2_layers(r, c, &windowed));
    c->window = windowed ? window : 0;
    return OK;
}

static enum status read_llama(struct reader *r, struct model_config *c)
{
    static const char *const activations[] = {"silu", "swish", NULL};
    static const int64_t positions[] = {2048, 4096 * 32, 32768};
    int activation;
    c->max_positions = positions[c->variant];
    TRY(read_int(r, "vocab_size", REQUIRED, &c->vocab));
    TRY(read_int(r, "hidden_size", REQUIRED, &c->dim));
    TRY(read_int(r, "intermediate_size", REQUIRED, &c->ffn));
    TRY(read_int(r, "num_hidden_layers", REQUIRED, &c->layers));
    TRY(read_int(r, "num_attention_heads", REQUIRED, &c->heads));
    TRY(read_int(r, "max_position_embeddings", OPTIONAL, &c->max_positions));
    c->kv_heads = c->heads;
    TRY(read_int(r, "num_key_value_heads", c->variant == VARIANT_LLAMA ? OPTIONAL : REQUIRED, &c->kv_heads));
    TRY(read_int(r, "head_dim", OPTIONAL, &c->head_dim));
    if (!c->head_dim && c->dim % c->heads)
        return refuse(r, "num_attention_heads", json_object_get(r->object, "num_attention_heads"),
                      "hidden_size is not a multiple, and head_dim is missing");
    if (!c->head_dim)
        c->head_dim = c->dim / c->heads;
    TRY(read_bool(r, "tie_word_embeddings", &c->tied));
    TRY(read_reals(r, "rms_norm_eps", 1e-6, c));
    TRY(read_rope(r, c));
    TRY(read_choice(r, "hidden_act", activations, 0, &activation));
    TRY(only_bool(r, "attention_bias", 0));
    TRY(only_bool(r, "mlp_bias", 0));
    TRY(only_bool(r, "rope_interleaved", 0));
    TRY(only_bool(r, "is_encoder_decoder", 0));
    TRY(only_bool(r, "add_cross_attention", 0));
    TRY(read_window(r, c));
    TRY(only_number(r, "partial_rotary_factor", 1.0));
    return only_number(r, "pretraining_tp", 1.0);
}

static enum status read_gpt2(struct reader *r, struct model_config *c)
{
    static const char *const activations[] = {"gelu_new", "gelu_pytorch_tanh", "gelu", NULL};
    int activation;
    c->max_positions = 1024;
    c->tied = 1;
    TRY(read_int(r, "vocab_size", REQUIRED, &c->vocab));
    TRY(read_int(r, "n_positions", OPTIONAL, &c->max_positions));
    TRY(read_int(r, "n_embd", REQUIRED, &c->dim));
    TRY(read_int(r, "n_layer", REQUIRED, &c->layers));
    TRY(read_int(r, "n_head", REQUIRED, &c->heads));
    if (c->dim % c->heads)
        return refuse(r, "n_head", json_object_get(r->object, "n_head"), "n_embd is not a multiple");
    c->head_dim = c->dim / c->heads;
    c->kv_heads = c->heads;
    c->ffn = 4 * (c->dim < INT32_MAX ? c->dim : INT32_MAX);
    TRY(read_int(r, "n_inner", OPTIONAL, &c->ffn));
    TRY(read_bool(r, "tie_word_embeddings", &c->tied));
    TRY(read_reals(r, "layer_norm_epsilon", 1e-5, c));
    TRY(read_choice(r, "activation_function", activations, 0, &activation));
    c->gelu = activation == 2 ? GELU_ERF : GELU_TANH;
    TRY(only_bool(r, "scale_attn_weights", 1));
    TRY(only_bool(r, "scale_attn_by_inverse_layer_idx", 0));
    TRY(only_bool(r, "reorder_and_upcast_attn", 0));
    TRY(only_bool(r, "is_encoder_decoder", 0));
    return only_bool(r, "add_cross_attention", 0);
}

static enum status read_object(struct reader *r, struct model_config *c)
{
    static const char *const types[] = {"llama", "mistral", "qwen2", "gpt2", NULL};
    static const char *const classes[] = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "GPT2LMHeadModel"};
    enum { GPT2 = 3 };
    int type;
    TRY(read_choice(r, "model_type", types, -1, &type));
    if (type < 0)
        return missing(r, "model_type");
    const json_t *names = get(r, "architectures"), *first = json_array_get(names, 0);
    char instead[64];
    snprintf(instead, sizeof instead, "supported: [\"%s\"]", classes[type]);
    if (names && !(json_array_size(names) == 1 && json_is_string(first) && strcmp(json_string_value(first), classes[type]) == 0))
        return refuse(r, "architectures", names, instead);
    c->family = type == GPT2 ? FAMILY_GPT2 : FAMILY_LLAMA;
    c->variant = type == GPT2 ? VARIANT_LLAMA : (enum llama_variant)type;
    TRY(type == GPT2 ? read_gpt2(r, c) : read_llama(r, c));
    return check_all_understood(r);
}

/* ---- files ---- */

static enum status read_text(const char *path, char **text, size_t *bytes)
{
    struct stat s;
    enum status st = OK;
    int fd = sys_open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return status_fail(ERR_INVALID, "cannot open %s: %s", path, strerror(errno));
    size_t done = 0, n = fstat(fd, &s) == 0 && s.st_size > 0 && s.st_size <= MAX_CONFIG_BYTES ? (size_t)s.st_size : 0;
    char *buf = sys_malloc(n + 1);
    if (!buf)
        st = status_fail(ERR_NOMEM, "out of memory: %zu bytes for %s", n, path);
    else if (n == 0)
        st = status_fail(ERR_INVALID, "%s is empty or larger than %d bytes", path, MAX_CONFIG_BYTES);
    while (st == OK && done < n) {
        ssize_t got = sys_pread(fd, buf + done, n - done, (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            st = status_fail(ERR_IO, "cannot read %s: %s", path, got < 0 ? strerror(errno) : "it became shorter");
        else
            done += (size_t)got;
    }
    sys_close(fd);
    if (st != OK) {
        free(buf);
        return st;
    }
    *text = buf;
    *bytes = n;
    return OK;
}

static enum status config_path(const char *dir, const char *file, char path[PATH_BYTES])
{
    if (snprintf(path, PATH_BYTES, "%s/%s", dir, file) >= PATH_BYTES)
        return status_fail(ERR_INVALID, "%.64s...: the path is too long", dir);
    return OK;
}

/* The directory's last component, whatever way it is spelled. */
static void set_name(const char *dir, char name[64])
{
    char *canonical = realpath(dir, NULL);
    const char *slash = canonical ? strrchr(canonical, '/') : NULL;
    snprintf(name, 64, "%.63s", slash ? slash + 1 : dir);
    free(canonical);
}

enum status model_config_read(const char *dir, struct model_config *out)
{
    char path[PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    json_error_t error;
    TRY(config_path(dir, "config.json", path));
    TRY(read_text(path, &text, &bytes));
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (!root)
        return status_fail(ERR_INVALID, "%s: line %d: %s", path, error.line, error.text);
    struct model_config c = {.family = FAMILY_LLAMA};
    struct reader r = {.path = path, .section = "", .object = root};
    enum status st = json_is_object(root) ? read_object(&r, &c) : status_fail(ERR_INVALID, "%s must hold an object", path);
    json_decref(root);
    if (st == OK) {
        set_name(dir, c.name);
        *out = c;
    }
    return st;
}
