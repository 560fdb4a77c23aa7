/* config.json of Hugging Face, written so that transformers loads it and config_json.c reads it back. */
#include "model/model.h"

#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The double whose shortest decimal form is that of the float: 1e-05, not 9.99999974737875e-06. */
static double shortest(float x)
{
    char text[32];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)x);
        if (strtof(text, NULL) == x)
            break;
    }
    return strtod(text, NULL);
}

/* Decimal digits needed to read x back exactly, 15 at least. */
static int digits_needed(double x)
{
    char text[40];
    for (int digits = 15; digits < 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            return digits;
    }
    return 17;
}

static json_t *rope_scaling_json(const struct model_config *c)
{
    if (c->rope == ROPE_DEFAULT)
        return json_null();
    if (c->rope == ROPE_LINEAR)
        return json_pack("{s:s, s:s, s:f}", "rope_type", "linear", "type", "linear", "factor", c->rope_factor);
    return json_pack("{s:s, s:f, s:f, s:f, s:I}", "rope_type", "llama3", "factor", c->rope_factor, "low_freq_factor",
                     c->rope_low_freq, "high_freq_factor", c->rope_high_freq, "original_max_position_embeddings",
                     (json_int_t)c->rope_original_positions);
}

/* rope_theta and rope_scaling: the spelling that every transformers release reads. */
static json_t *llama_json(const struct model_config *c, const char *dtype)
{
    static const char *const types[] = {"llama", "mistral", "qwen2"};
    static const char *const classes[] = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM"};
    json_t *root = json_pack(
        "{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:f, s:o, s:b, s:f, s:b, s:s}", "architectures",
        classes[c->variant], "model_type", types[c->variant], "vocab_size", (json_int_t)c->vocab, "hidden_size",
        (json_int_t)c->dim, "intermediate_size", (json_int_t)c->ffn, "num_hidden_layers", (json_int_t)c->layers,
        "num_attention_heads", (json_int_t)c->heads, "num_key_value_heads", (json_int_t)c->kv_heads, "head_dim",
        (json_int_t)c->head_dim, "max_position_embeddings", (json_int_t)c->max_positions, "hidden_act", "silu", "rms_norm_eps",
        shortest(c->norm_eps), "initializer_range", shortest(c->init_std), "rope_theta", c->rope_theta, "rope_scaling",
        rope_scaling_json(c), "tie_word_embeddings", c->tied, "attention_dropout", 0.0, "use_cache", 1, "torch_dtype", dtype);
    json_t *more = c->variant == VARIANT_LLAMA
                       ? json_pack("{s:b, s:b}", "attention_bias", 0, "mlp_bias", 0)
                       : json_pack("{s:o}", "sliding_window", c->window ? json_integer(c->window) : json_null());
    if (c->variant == VARIANT_QWEN2 && more)
        json_object_update_new(more, json_pack("{s:b, s:I}", "use_sliding_window", c->window > 0, "max_window_layers",
                                               (json_int_t)(c->window ? 0 : c->layers)));
    if (!root || !more || json_object_update(root, more) != 0) {
        json_decref(root);
        root = NULL;
    }
    json_decref(more);
    return root;
}

static json_t *gpt2_json(const struct model_config *c, const char *dtype)
{
    return json_pack("{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:b, s:f, s:f, s:f, s:b, s:s}", "architectures",
                     "GPT2LMHeadModel", "model_type", "gpt2", "vocab_size", (json_int_t)c->vocab, "n_positions",
                     (json_int_t)c->max_positions, "n_embd", (json_int_t)c->dim, "n_layer", (json_int_t)c->layers, "n_head",
                     (json_int_t)c->heads, "n_inner", (json_int_t)c->ffn, "activation_function",
                     c->gelu == GELU_ERF ? "gelu" : "gelu_new", "layer_norm_epsilon", shortest(c->norm_eps), "initializer_range",
                     shortest(c->init_std), "tie_word_embeddings", c->tied, "attn_pdrop", 0.0, "embd_pdrop", 0.0, "resid_pdrop",
                     0.0, "use_cache", 1, "torch_dtype", dtype);
}

static enum status write_text(const char *path, const char *text, size_t n)
{
    size_t done = 0;
    int fd = sys_open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return status_fail(ERR_IO, "cannot create %s: %s", path, strerror(errno));
    while (done < n) {
        ssize_t put = sys_pwrite(fd, text + done, n - done, (off_t)done);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            break;
        done += (size_t)put;
    }
    int failed = done < n || sys_fsync(fd) != 0 ? errno : 0;
    if (sys_close(fd) != 0 && !failed)
        failed = errno;
    return failed ? status_fail(ERR_IO, "cannot write %s: %s", path, strerror(failed)) : OK;
}

enum status model_config_write(const char *dir, const struct model_config *config, enum dtype dtype)
{
    char path[4096];
    const char *dtype_text = dtype == BF16 ? "bfloat16" : "float32";
    if (snprintf(path, sizeof path, "%s/config.json", dir) >= (int)sizeof path)
        return status_fail(ERR_INVALID, "%.64s...: the path is too long", dir);
    json_t *root = config->family == FAMILY_LLAMA ? llama_json(config, dtype_text) : gpt2_json(config, dtype_text);
    double reals[] = {config->rope_theta, config->rope_factor, config->rope_low_freq, config->rope_high_freq};
    int digits = 15;
    for (int i = 0; i < 4; i++)
        digits = digits_needed(reals[i]) > digits ? digits_needed(reals[i]) : digits;
    char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION((size_t)digits)) : NULL;
    json_decref(root);
    if (!text)
        return status_fail(ERR_NOMEM, "out of memory: the text of %s", path);
    size_t n = strlen(text);
    text[n] = '\n'; /* in place of the terminator */
    enum status st = write_text(path, text, n + 1);
    free(text);
    return st;
}
