/* quantization_config of config.json: how files that bitsandbytes has quantised are read; everything else is refused by its name. */
#include "model/config.h"

#include <stdio.h>
#include <string.h>

static enum status refuse(const struct config_reader *r, const char *what)
{
    return status_fail(ERR_INVALID, "%s: quantization_config: the weights are %s, which is not read: of quantised models those in bitsandbytes' NF4 "
                                    "are; give a copy that is not quantised",
                       r->path, what);
}

static int is_true(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

static enum status refuse_other(const struct config_reader *r, const json_t *q, const char *method)
{
    char what[96];
    if (strcmp(method, "bitsandbytes") == 0 || is_true(q, "load_in_8bit"))
        return refuse(r, is_true(q, "load_in_8bit") ? "bitsandbytes' int8" : "quantised by bitsandbytes in a way that is not said");
    snprintf(what, sizeof what, "quantised by %.60s", method[0] ? method : "a method that is not said");
    return refuse(r, what);
}

/* Head and embedding are never quantised; that others are not is in no file that ltrain reads. */
static enum status check_skipped(const struct config_reader *r, const json_t *list)
{
    static const char *const outside[] = {"lm_head", "embed_out", "model.embed_tokens", "embed_tokens", NULL};
    char what[160];
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item)
    {
        const char *name = json_string_value(item);
        const char *const *known = outside;
        while (name && *known && strcmp(*known, name) != 0)
            known++;
        if (name && *known)
            continue;
        snprintf(what, sizeof what, "quantised but for %.100s (llm_int8_skip_modules)", name ? name : "something without a name");
        return refuse(r, what);
    }
    return OK;
}

enum status config_read_quantised(struct config_reader *r, struct model_config *c)
{
    const json_t *q = config_get(r, "quantization_config");
    const char *method = json_string_value(json_object_get(q, "quant_method")), *type = json_string_value(json_object_get(q, "bnb_4bit_quant_type")),
               *storage = json_string_value(json_object_get(q, "bnb_4bit_quant_storage"));
    if (!q)
        return OK;
    if (!json_is_object(q))
        return config_refuse(r, "quantization_config", "an object is expected");
    if (!is_true(q, "load_in_4bit") || (method && strcmp(method, "bitsandbytes") != 0))
        return refuse_other(r, q, method ? method : "");
    if (!type || strcmp(type, "nf4") != 0)
        return refuse(r, "bitsandbytes' fp4");
    if (storage && strcmp(storage, "uint8") != 0)
        return refuse(r, "NF4 stored as something other than uint8 (bnb_4bit_quant_storage)");
    TRY(check_skipped(r, json_object_get(q, "llm_int8_skip_modules")));
    c->quantised = 1;
    c->base = is_true(q, "bnb_4bit_use_double_quant") ? BASE_NF4 : BASE_NF4_PLAIN;
    return OK;
}
