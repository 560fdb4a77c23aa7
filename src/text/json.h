/* Reading members of JSON objects, with defaults and errors. Private to this folder. */
#ifndef LTRAIN_TEXT_JSON_H
#define LTRAIN_TEXT_JSON_H

#include "base/status.h"

#include <jansson.h>

/* Returns a member; NULL if it is missing or null. */
static inline const json_t *json_member(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static inline const char *json_word(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_member(object, key));
    return text ? text : "";
}

static inline enum status json_flag(const json_t *object, const char *key, int otherwise, int *out)
{
    const json_t *value = json_member(object, key);
    *out = value ? json_is_true(value) : otherwise;
    return !value || json_is_boolean(value) ? OK : status_fail(ERR_INVALID, "%s is neither true nor false", key);
}

static inline enum status json_text(const json_t *object, const char *key, const char **text, size_t *n)
{
    const json_t *value = json_member(object, key);
    *text = "";
    *n = 0;
    if (!json_is_string(value))
        return status_fail(ERR_INVALID, "%s is no string", key);
    *text = json_string_value(value);
    *n = json_string_length(value);
    return OK;
}

#endif
