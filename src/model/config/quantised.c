/* quantization_config of config.json: files quantised by bitsandbytes and experts in MXFP4 are read, everything else is refused by
 * name. */
#include "model/config/config.h"

#include <stdio.h>
#include <string.h>

static enum status refuse(const struct config_reader *r, const char *what)
{
    return status_fail(
        ERR_INVALID,
        "%s: quantization_config: the weights are %s, which is not read: of quantised models those in bitsandbytes' NF4 "
        "and int8 and gpt-oss' MXFP4 are; give a copy that is not quantised",
        r->path, what);
}

static int is_true(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

static enum status refuse_other(const struct config_reader *r, const char *method)
{
    char what[96];
    if (strcmp(method, "bitsandbytes") == 0)
        return refuse(r, "quantised by bitsandbytes in a way that is not said");
    snprintf(what, sizeof what, "quantised by %.60s", method[0] ? method : "a method that is not said");
    return refuse(r, what);
}

/* Refuses a list of modules left unquantised. */
static enum status refuse_skipped(const struct config_reader *r, const char *key, const char *why)
{
    char what[96];
    snprintf(what, sizeof what, "quantised but for %s (%s)", why, key);
    return refuse(r, what);
}

/* Reads the modules left unquantised. These names are matched with the model's modules once the model is built. */
static enum status read_skipped(const struct config_reader *r, const json_t *q, const char *key, struct model_config *c)
{
    const json_t *list = json_object_get(q, key);
    size_t used = 0, i;
    json_t *item;
    if (!list || json_is_null(list))
        return OK;
    if (!json_is_array(list))
        return refuse_skipped(r, key, "something that is no list of modules");
    json_array_foreach(list, i, item)
    {
        const char *name = json_string_value(item);
        if (!name || strchr(name, '\n'))
            return refuse_skipped(r, key, "something without a name");
        used += (size_t)snprintf(c->skipped + used, sizeof c->skipped - used, "%s%s", i ? "\n" : "", name);
        if (used >= sizeof c->skipped)
            return refuse_skipped(r, key, "more modules than 8,191 characters name");
    }
    return OK;
}

static enum status read_nf4(struct config_reader *r, const json_t *q, struct model_config *c)
{
    const char *type = json_string_value(json_object_get(q, "bnb_4bit_quant_type")),
               *storage = json_string_value(json_object_get(q, "bnb_4bit_quant_storage"));
    if (!type || strcmp(type, "nf4") != 0)
        return refuse(r, "bitsandbytes' fp4");
    if (storage && strcmp(storage, "uint8") != 0)
        return refuse(r, "NF4 stored as something other than uint8 (bnb_4bit_quant_storage)");
    c->base = is_true(q, "bnb_4bit_use_double_quant") ? BASE_NF4 : BASE_NF4_PLAIN;
    return OK;
}

/* Reads int8 settings. The threshold for outliers concerns activations, not weights, so it is ignored. */
static enum status read_int8(struct config_reader *r, const json_t *q, struct model_config *c)
{
    if (is_true(q, "llm_int8_has_fp16_weight"))
        return refuse(r, "kept in fp16 and quantised anew for each product (llm_int8_has_fp16_weight)");
    c->base = BASE_INT8;
    return OK;
}

/* Reads MXFP4 settings: gpt-oss stores its stacks of experts so, except in modules_to_not_convert. */
static enum status read_mxfp4(struct config_reader *r, const json_t *q, struct model_config *c)
{
    if (c->family != FAMILY_GPT_OSS || c->experts == 0)
        return refuse(r, "in MXFP4, which experts of gpt-oss alone have");
    if (model_expert_dim(c) % MXFP4_BLOCK || c->expert_ffn % MXFP4_BLOCK)
        return refuse(r, "in MXFP4, whose blocks of 32 do not divide hidden_size and intermediate_size");
    c->base = BASE_MXFP4;
    c->quantised = c->mxfp4 = 1;
    return read_skipped(r, q, "modules_to_not_convert", c);
}

enum status config_read_quantised(struct config_reader *r, struct model_config *c)
{
    const json_t *q = config_get(r, "quantization_config");
    const char *method = json_string_value(json_object_get(q, "quant_method"));
    const int four = is_true(q, "load_in_4bit"), eight = is_true(q, "load_in_8bit");
    if (!q || (json_is_object(q) && json_object_size(q) == 0)) /* {} means not quantised */
        return OK;
    if (!json_is_object(q))
        return config_refuse(r, "quantization_config", "an object is expected");
    if (method && strcmp(method, "mxfp4") == 0)
        return read_mxfp4(r, q, c);
    if (four == eight || (method && strcmp(method, "bitsandbytes") != 0))
        return refuse_other(r, method ? method : "");
    TRY(four ? read_nf4(r, q, c) : read_int8(r, q, c));
    TRY(read_skipped(r, q, "llm_int8_skip_modules", c));
    c->lists_skipped = json_is_array(json_object_get(q, "llm_int8_skip_modules"));
    c->quantised = 1;
    return OK;
}
