/* Writing config.json so that transformers loads it and json.c reads it back. */
#include "model/config/config.h"
#include "model/family/family.h"

#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the decimal digits needed to read x back exactly, at least 15. */
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

static json_t *word_json(const struct model_config *c, const struct config_key *k)
{
    const struct config_word *w = k->words;
    while (k->field != NO_FIELD && w->value != (int)config_get_number(c, k->field))
        w++;
    return json_string(w->word);
}

static json_t *field_json(const struct model_config *c, enum config_field_id field)
{
    double value = config_get_number(c, field);
    switch (config_fields[field].type) {
    case FIELD_COUNT:
        return json_integer((json_int_t)value);
    case FIELD_FLOAT:
    case FIELD_DOUBLE:
        return json_real(value);
    case FIELD_SWITCH:
        return json_boolean(value != 0);
    case FIELD_FAMILY:
    case FIELD_CHOICE:
        break;
    }
    return NULL;
}

/* Writes a key. Returns 1 on success, also if the key need not be written. */
static int write_key(json_t *root, const struct model_config *c, const struct config_key *k)
{
    switch (k->kind) {
    case KEY_FIELD:
    case KEY_REQUIRED:
        return json_object_set_new(root, k->name, field_json(c, k->field)) == 0;
    case KEY_WORD:
        return json_object_set_new(root, k->name, word_json(c, k)) == 0;
    case KEY_DROPOUT:
        return json_object_set_new(root, k->name, json_real(0.0)) == 0;
    case KEY_FALSE:
        return json_object_set_new(root, k->name, json_false()) == 0;
    case KEY_OWN:
        return config_get_number(c, k->field) == 0 || json_object_set_new(root, k->name, field_json(c, k->field)) == 0;
    case KEY_SPECIAL:
        return !k->write || json_object_set_new(root, k->name, k->write(c)) == 0;
    case KEY_ONLY_FALSE:
    case KEY_ONLY_TRUE:
    case KEY_ONLY_ONE:
        return 1;
    }
    return 1;
}

/* Adds partial_rotary_factor 1 to rope_parameters, if heads are rotated whole but the family rotates a part by default. */
static int spell_whole_heads(json_t *root, const struct model_config *c)
{
    json_t *rope = json_object_get(root, "rope_parameters"), *full = json_object_get(rope, "full_attention");
    rope = full ? full : rope;
    if (c->rope_share > 0.0 || family_of(c)->share == 0.0 || !json_is_object(rope) ||
        json_object_get(rope, "partial_rotary_factor"))
        return 1;
    return json_object_set_new(rope, "partial_rotary_factor", json_real(1.0)) == 0;
}

static json_t *config_json(const struct model_config *c, const char *dtype)
{
    const struct family *f = family_of(c);
    json_t *root = json_pack("{s:[s], s:s}", "architectures", f->class, "model_type", f->name);
    int ok = root != NULL;
    for (const struct config_key *k = f->keys[0]; ok && k->name; k++)
        ok = write_key(root, c, k);
    ok = ok && json_object_set_new(root, "use_cache", json_true()) == 0 &&
         json_object_set_new(root, "torch_dtype", json_string(dtype)) == 0;
    for (const struct config_key *k = f->keys[1]; ok && k && k->name; k++)
        ok = write_key(root, c, k);
    ok = ok && spell_whole_heads(root, c);
    if (ok && config_has_own(c))
        ok = json_object_set_new(root, "per_layer_config", config_write_own(c)) == 0;
    if (!ok) {
        json_decref(root);
        return NULL;
    }
    return root;
}

static enum status write_text(const char *path, const char *text, size_t n)
{
    size_t done = 0;
    int fd = sys_create_file(path);
    if (fd < 0)
        return status_fail(ERR_IO, "cannot create %s: %s", path, sys_strerror(errno));
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

/* Returns the digits that every number in the value needs. */
static int most_digits(json_t *value)
{
    const char *key;
    json_t *inner;
    size_t i;
    int digits = json_is_real(value) ? digits_needed(json_real_value(value)) : 15;
    json_object_foreach(value, key, inner)
    {
        digits = (int)max_i64(digits, most_digits(inner));
    }
    json_array_foreach(value, i, inner)
    {
        digits = (int)max_i64(digits, most_digits(inner));
    }
    return digits;
}

/* Writes `root`, which may be NULL for lack of memory, to DIR/config.json and frees it. */
static enum status write_object(const char *dir, json_t *root)
{
    char path[CONFIG_PATH];
    if (snprintf(path, sizeof path, "%s/config.json", dir) >= (int)sizeof path) {
        json_decref(root);
        return status_fail(ERR_INVALID, "%.64s...: the path is too long", dir);
    }
    char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION((size_t)most_digits(root))) : NULL;
    json_decref(root);
    if (!text)
        return status_fail(ERR_NOMEM, "out of memory: the text of %s", path);
    size_t n = strlen(text);
    text[n] = '\n'; /* replaces the terminator */
    enum status st = write_text(path, text, n + 1);
    free(text);
    return st;
}

static const char *dtype_text(enum dtype dtype)
{
    return dtype == BF16 ? "bfloat16" : "float32";
}

enum status model_config_write(const char *dir, const struct model_config *config, enum dtype dtype)
{
    return write_object(dir, config_json(config, dtype_text(dtype)));
}

static int same_number(const json_t *value, double number)
{
    return json_is_number(value) && json_number_value(value) == number;
}

/* Writes the number of positions, which a scaling stretches. */
static int spell_positions(json_t *root, const struct model_config *c)
{
    return json_object_set_new(root, "max_position_embeddings", json_integer((json_int_t)c->max_positions)) == 0;
}

/* Writes rotary positions in both spellings. Releases of transformers before 5 read rope_theta and rope_scaling only; with
 * rope_parameters alone they silently take a theta of 10000 and no scaling. anew: the positions differ from the file's. */
static int spell_rope(json_t *root, const struct model_config *c, int anew)
{
    const struct family *f = family_of(c);
    const char *base = f->base_key ? f->base_key : "rope_theta", *share = f->share_key ? f->share_key : "partial_rotary_factor";
    int ok = 1;
    if (!model_rotates(c) || f->fixed_rope)
        return 1;
    /* in these families all releases of transformers read rope_parameters only */
    if (c->family == FAMILY_GEMMA4 || c->family == FAMILY_GRANITE_SWA || c->family == FAMILY_GRANITEMOE_SWA ||
        c->family == FAMILY_MELLUM) {
        if (anew || !json_object_get(root, "rope_parameters"))
            ok = json_object_set_new(root, "rope_parameters", config_write_rope_parameters(c)) == 0;
        if (anew && json_object_get(root, "layer_rope_theta"))
            ok = ok && json_object_set_new(root, "layer_rope_theta", config_list_thetas(c)) == 0;
        return ok && (!anew || spell_positions(root, c));
    }
    if (!same_number(json_object_get(root, base), c->rope_theta))
        ok = json_object_set_new(root, base, json_real(c->rope_theta)) == 0;
    const double rotated = c->rope_share > 0.0 ? c->rope_share : 1.0;
    if ((rotated < 1.0 || f->share > 0.0) && !same_number(json_object_get(root, share), rotated))
        ok = ok && json_object_set_new(root, share, json_real(rotated)) == 0;
    if (anew || !json_object_get(root, "rope_scaling"))
        ok = ok && json_object_set_new(root, "rope_scaling", config_write_rope(c)) == 0;
    if (anew || !json_is_object(json_object_get(root, "rope_parameters")))
        ok = ok && json_object_set_new(root, "rope_parameters", config_write_rope_parameters(c)) == 0 &&
             spell_whole_heads(root, c);
    if (c->rope_local_theta > 0.0 && c->family == FAMILY_GEMMA3 && !json_object_get(root, "rope_local_base_freq"))
        ok = ok && json_object_set_new(root, "rope_local_base_freq", json_real(c->rope_local_theta)) == 0;
    ok = ok && (!anew || spell_positions(root, c));
    /* updated, too, since readers prefer this key to the sections' */
    if (anew && c->rope_original_positions > 0.0 && json_object_get(root, "original_max_position_embeddings"))
        ok = ok && json_object_set_new(root, "original_max_position_embeddings",
                                       json_integer((json_int_t)c->rope_original_positions)) == 0;
    return ok;
}

static int spell_dtype(json_t *object, enum dtype dtype)
{
    return json_object_set_new(object, "torch_dtype", json_string(dtype_text(dtype))) == 0 &&
           json_object_set_new(object, "dtype", json_string(dtype_text(dtype))) == 0;
}

/* Writes tie_word_embeddings, which multimodal models also have outside the text model's keys. */
static int spell_tie(json_t *root, json_t *text, int tied)
{
    return json_object_set_new(root, "tie_word_embeddings", json_boolean(tied)) == 0 &&
           json_object_set_new(text, "tie_word_embeddings", json_boolean(tied)) == 0;
}

/* Writes the config.json of `like` with the changes that `config` asks for. dtype NULL: the file's dtype stays. */
static enum status write_anew(const char *dir, const char *like, const struct model_config *config, const enum dtype *dtype)
{
    char path[CONFIG_PATH], difference[128];
    json_t *root;
    struct model_config there;
    TRY(model_config_read(like, &there));
    TRY(config_load(like, path, &root));
    const int tie = there.tied != config->tied;
    there.tied = config->tied;
    int anew = model_config_differs(&there, config, difference, sizeof difference);
    json_t *text = config_text_of(root);
    if (config->base == BASE_STORED)
        json_object_del(root, "quantization_config");
    int ok = !dtype || (spell_dtype(root, *dtype) && (text == root || spell_dtype(text, *dtype)));
    ok = ok && spell_rope(text, config, anew) && (!tie || spell_tie(root, text, config->tied));
    if (ok && text == root && !json_object_get(root, "architectures"))
        ok = json_object_set_new(root, "architectures", json_pack("[s]", family_of(config)->class)) == 0;
    if (!ok) {
        json_decref(root);
        return status_fail(ERR_NOMEM, "out of memory: %s", path);
    }
    return write_object(dir, root);
}

enum status model_config_write_like(const char *dir, const char *like, const struct model_config *config, enum dtype dtype)
{
    return write_anew(dir, like, config, &dtype);
}

enum status model_config_write_stretched(const char *dir, const char *like, const struct model_config *config)
{
    return write_anew(dir, like, config, NULL);
}

static json_t *quantisation(enum model_base base, const char *compute)
{
    const int four = base != BASE_INT8;
    return json_pack("{s:s, s:b, s:b, s:b, s:b, s:s, s:s, s:s, s:b, s:f, s:n, s:b, s:b}", "quant_method", "bitsandbytes",
                     "load_in_4bit", four, "load_in_8bit", !four, "_load_in_4bit", four, "_load_in_8bit", !four,
                     "bnb_4bit_quant_type", four ? "nf4" : "fp4", "bnb_4bit_compute_dtype", compute, "bnb_4bit_quant_storage",
                     "uint8", "bnb_4bit_use_double_quant", base == BASE_NF4, "llm_int8_threshold", 6.0, "llm_int8_skip_modules",
                     "llm_int8_has_fp16_weight", 0, "llm_int8_enable_fp32_cpu_offload", 0);
}

enum status model_config_write_quantised(const char *dir, const char *like, enum model_base base)
{
    char path[CONFIG_PATH];
    json_t *root;
    TRY(config_load(like, path, &root));
    const char *type = json_string_value(json_object_get(root, "dtype")),
               *older = json_string_value(json_object_get(root, "torch_dtype"));
    json_t *words = quantisation(base, type ? type : older ? older : dtype_text(F32));
    if (json_object_set_new(root, "quantization_config", words) == 0)
        return write_object(dir, root);
    json_decref(root);
    return status_fail(ERR_NOMEM, "out of memory: %s", path);
}
