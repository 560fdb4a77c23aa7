/* Rotary positions in config.json: "rope_scaling" and "rope_parameters", with "rope_type" or its old name "type". */
#include "model/config.h"

#include <string.h>

static const struct config_word rope_types[] = {
    {"default", ROPE_DEFAULT}, {"linear", ROPE_LINEAR}, {"llama3", ROPE_LLAMA3}, {NULL, 0}};

static enum status read_object(const struct config_reader *parent, const char *section, const json_t *object,
                               struct model_config *c)
{
    struct config_reader r = {.path = parent->path, .section = section, .object = object};
    int old = -1;
    if (!json_is_object(object))
        return status_fail(ERR_INVALID, "%s: %.*s must be an object or null", r.path, (int)strlen(section) - 1, section);
    TRY(config_read_word(&r, "type", rope_types, &old));
    int type = old;
    TRY(config_read_word(&r, "rope_type", rope_types, &type));
    if (type < 0)
        return config_missing(&r, "rope_type");
    if (old >= 0 && old != type)
        return config_refuse(&r, "type", "rope_type says something else");
    TRY(config_read_real(&r, "rope_theta", OPTIONAL, &c->rope_theta));
    TRY(config_only_number(&r, "partial_rotary_factor", 1.0));
    c->rope = (enum rope_kind)type;
    if (c->rope != ROPE_DEFAULT)
        TRY(config_read_real(&r, "factor", REQUIRED, &c->rope_factor));
    if (c->rope == ROPE_LLAMA3) {
        TRY(config_read_real(&r, "low_freq_factor", REQUIRED, &c->rope_low_freq));
        TRY(config_read_real(&r, "high_freq_factor", REQUIRED, &c->rope_high_freq));
        TRY(config_read_real(&r, "original_max_position_embeddings", REQUIRED, &c->rope_original_positions));
        if (c->rope_high_freq <= c->rope_low_freq)
            return config_refuse(&r, "high_freq_factor", "must be above low_freq_factor");
    }
    return config_check_understood(&r);
}

/* One may leave out what the other, or rope_theta beside them, says. */
static int same_rope(const struct model_config *a, const struct model_config *b, int theta)
{
    return a->rope == b->rope && a->rope_factor == b->rope_factor && a->rope_low_freq == b->rope_low_freq &&
           a->rope_high_freq == b->rope_high_freq && a->rope_original_positions == b->rope_original_positions &&
           (!theta || a->rope_theta == b->rope_theta);
}

enum status config_read_rope(struct config_reader *r, struct model_config *c)
{
    const json_t *theta = json_object_get(r->object, "rope_theta");
    const json_t *scaling = config_get(r, "rope_scaling"), *parameters = config_get(r, "rope_parameters");
    double outer = c->rope_theta;
    struct model_config older = *c;
    if (scaling)
        TRY(read_object(r, "rope_scaling.", scaling, &older));
    if (parameters)
        TRY(read_object(r, "rope_parameters.", parameters, c));
    if (scaling && parameters && !same_rope(&older, c, json_object_get(scaling, "rope_theta") != NULL))
        return config_refuse(r, "rope_scaling", "rope_parameters says something else");
    if (!parameters)
        *c = older;
    if (theta && !json_is_null(theta) && c->rope_theta != outer)
        return config_refuse(r, "rope_theta",
                             parameters ? "rope_parameters.rope_theta says something else"
                                        : "rope_scaling.rope_theta says something else");
    return OK;
}

/* Beside rope_theta: the spelling that every transformers release reads. */
json_t *config_write_rope(const struct model_config *c)
{
    if (c->rope == ROPE_DEFAULT)
        return json_null();
    if (c->rope == ROPE_LINEAR)
        return json_pack("{s:s, s:s, s:f}", "rope_type", "linear", "type", "linear", "factor", c->rope_factor);
    return json_pack("{s:s, s:f, s:f, s:f, s:I}", "rope_type", "llama3", "factor", c->rope_factor, "low_freq_factor",
                     c->rope_low_freq, "high_freq_factor", c->rope_high_freq, "original_max_position_embeddings",
                     (json_int_t)c->rope_original_positions);
}
