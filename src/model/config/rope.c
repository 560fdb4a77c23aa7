/* Rotary positions in config.json: "rope_scaling" and "rope_parameters", with "rope_type" or its old name "type". */
#include "model/family/family.h"

#include <string.h>

/* clang-format off */
static const struct config_word rope_types[] = {
    {"default", ROPE_DEFAULT}, {"linear", ROPE_LINEAR},     {"llama3", ROPE_LLAMA3}, {"dynamic", ROPE_DYNAMIC},
    {"yarn", ROPE_YARN},       {"longrope", ROPE_LONGROPE}, {"su", ROPE_LONGROPE},
    {"proportional", ROPE_PROPORTIONAL}, {NULL, 0}};
/* clang-format on */

/* Tells whether transformers requires the family's rope_parameters to be given by kind of layer. */
static int has_kinds(const struct model_config *c)
{
    return c->family == FAMILY_GEMMA3 || c->family == FAMILY_GEMMA4 || c->family == FAMILY_OLMO3 || c->family == FAMILY_MELLUM;
}

/* Finds the original length of Phi-3: config.json's top level gives it, else it is 4096, as in transformers; a section with
 * another value is then refused. */
static enum status read_phi3_original(const struct config_reader *parent, const struct config_reader *r, double *original)
{
    const json_t *outer = json_object_get(parent->object, "original_max_position_embeddings");
    const double usual = 4096.0;
    if (outer && !json_is_null(outer))
        return OK;
    if (json_object_get(r->object, "original_max_position_embeddings") && *original != usual)
        return config_refuse(r, "original_max_position_embeddings",
                             "in this family it must stand beside the section, too: transformers takes 4096 else");
    *original = usual;
    return OK;
}

/* Reads the length that frequencies were trained for: config.json's, else the section's, else the number of positions. */
static enum status read_original(struct config_reader *parent, struct config_reader *r, struct model_config *c)
{
    double original = (double)c->max_positions;
    TRY(config_read_real(r, "original_max_position_embeddings", OPTIONAL, &original));
    if (c->family == FAMILY_PHI3 && c->rope != ROPE_DYNAMIC)
        TRY(read_phi3_original(parent, r, &original));
    if (c->rope == ROPE_LLAMA3 || c->rope == ROPE_YARN || c->rope == ROPE_LONGROPE || !(original > 0.0))
        TRY(config_read_real(parent, "original_max_position_embeddings", OPTIONAL, &original));
    if (!(original > 0.0))
        return config_missing(r, "original_max_position_embeddings");
    c->rope_original_positions = original;
    return OK;
}

static enum status read_factor(struct config_reader *r, struct model_config *c)
{
    if (c->rope == ROPE_PROPORTIONAL) {
        c->rope_factor = 1.0;
        return config_read_real(r, "factor", OPTIONAL, &c->rope_factor);
    }
    int derived = c->rope == ROPE_YARN || c->rope == ROPE_LONGROPE;
    c->rope_factor = derived && c->max_positions > 0 ? (double)c->max_positions / c->rope_original_positions : 0.0;
    return config_read_real(r, "factor", c->rope_factor > 0.0 ? OPTIONAL : REQUIRED, &c->rope_factor);
}

static enum status read_llama3(struct config_reader *r, struct model_config *c)
{
    TRY(config_read_real(r, "low_freq_factor", REQUIRED, &c->rope_low_freq));
    TRY(config_read_real(r, "high_freq_factor", REQUIRED, &c->rope_high_freq));
    return c->rope_high_freq <= c->rope_low_freq ? config_refuse(r, "high_freq_factor", "must be above low_freq_factor") : OK;
}

static enum status read_yarn(struct config_reader *r, struct model_config *c)
{
    int truncate = 1, finetuned = 0;
    c->rope_fast = 32.0;
    c->rope_slow = 1.0;
    TRY(config_read_real(r, "beta_fast", OPTIONAL, &c->rope_fast));
    TRY(config_read_real(r, "beta_slow", OPTIONAL, &c->rope_slow));
    TRY(config_read_real(r, "attention_factor", OPTIONAL, &c->rope_attention));
    TRY(config_read_real(r, "mscale", OPTIONAL, &c->rope_mscale));
    TRY(config_read_real(r, "mscale_all_dim", OPTIONAL, &c->rope_mscale_all));
    TRY(config_read_real(r, "llama_4_scaling_beta", OPTIONAL, &c->rope_slope));
    TRY(config_read_bool(r, "truncate", &truncate));
    TRY(config_read_bool(r, "finetuned", &finetuned)); /* informative only */
    c->rope_exact = !truncate;
    return c->rope_exact && has_kinds(c)
               ? config_refuse(r, "truncate", "transformers truncates in this family, whatever that says")
               : OK;
}

/* Reads a list with a divisor for each of n frequencies. */
static enum status read_divisors(struct config_reader *r, const char *key, int64_t n, double *out)
{
    const json_t *list = config_get(r, key), *entry;
    size_t i;
    if (!list)
        return config_missing(r, key);
    if (!json_is_array(list) || json_array_size(list) != (size_t)n || n > LONGROPE_MOST)
        return config_refuse(r, key, "must be a list with a number for each pair of a head's rotated elements");
    json_array_foreach((json_t *)list, i, entry)
    {
        if (!json_is_number(entry) || !(json_number_value(entry) > 0.0))
            return config_refuse(r, key, "its entries must be positive numbers");
        out[i] = json_number_value(entry);
    }
    return OK;
}

/* Returns the width of heads, or of the parts of heads that are rotated. */
static int64_t rotary_dim(const struct model_config *c)
{
    return c->head_rotated > 0 ? c->head_rotated : c->head_dim > 0 ? c->head_dim : c->dim / c->heads;
}

static enum status read_longrope(struct config_reader *r, struct model_config *c)
{
    int64_t n = model_rotated(c, rotary_dim(c)) / 2;
    TRY(read_divisors(r, "short_factor", n, c->rope_short));
    TRY(read_divisors(r, "long_factor", n, c->rope_long));
    return config_read_real(r, "attention_factor", OPTIONAL, &c->rope_attention);
}

/* Reads HunYuan's fixed alpha. Its files also hold yarn's keys, which have no effect. */
static enum status read_dynamic(struct config_reader *r, struct model_config *c)
{
    static const char *const idle[] = {"beta_fast", "beta_slow", "mscale", "mscale_all_dim"};
    const int knows = c->family == FAMILY_HUNYUAN || c->family == FAMILY_HUNYUAN_MOE;
    for (size_t i = 0; knows && i < sizeof idle / sizeof *idle; i++)
        config_get(r, idle[i]);
    return knows ? config_read_real(r, "alpha", OPTIONAL, &c->rope_alpha) : OK;
}

static enum status read_kind(struct config_reader *r, struct model_config *c)
{
    switch (c->rope) {
    case ROPE_LLAMA3:
        return read_llama3(r, c);
    case ROPE_YARN:
        return read_yarn(r, c);
    case ROPE_LONGROPE:
        return read_longrope(r, c);
    case ROPE_DYNAMIC:
        return read_dynamic(r, c);
    case ROPE_DEFAULT:
    case ROPE_LINEAR:
    case ROPE_PROPORTIONAL:
        break;
    }
    return OK;
}

/* Reads the share of each head that is rotated. outer: from the top level, under the family's own key. */
static enum status read_share(struct config_reader *r, struct model_config *c, int outer)
{
    double share = c->rope_share > 0.0 ? c->rope_share : 1.0;
    const char *key = outer && r->family->share_key ? r->family->share_key : "partial_rotary_factor";
    if (!r->family->partial)
        return config_only_number(r, key, 1.0);
    TRY(config_read_real(r, key, OPTIONAL, &share));
    if (share > 1.0)
        return config_refuse(r, key, "must be at most 1");
    c->rope_share = share < 1.0 ? share : 0.0;
    return OK;
}

static enum status read_section(struct config_reader *parent, const char *section, const json_t *object, struct model_config *c)
{
    struct config_reader r = {.path = parent->path, .family = parent->family, .section = section, .object = object};
    int old = -1;
    if (!json_is_object(object))
        return status_fail(ERR_INVALID, "%s: %.*s must be an object or null", r.path, (int)strlen(section) - 1, section);
    const int none = c->family == FAMILY_OLMO_HYBRID && json_is_null(json_object_get(object, "rope_type")); /* no positions */
    if (json_object_size(object) == 0 || none)
        return OK;
    TRY(config_read_word(&r, "type", rope_types, &old));
    int type = old;
    TRY(config_read_word(&r, "rope_type", rope_types, &type));
    if (type < 0)
        return config_missing(&r, "rope_type");
    if (old >= 0 && old != type)
        return config_refuse(&r, "type", "rope_type says something else");
    c->rope = (enum rope_kind)type;
    TRY(config_read_real(&r, "rope_theta", OPTIONAL, &c->rope_theta));
    config_get(&r, "max_position_embeddings"); /* marks the key as read: it repeats the outer key, which is used */
    if (c->family == FAMILY_QWEN3_5 || c->family == FAMILY_QWEN3_5_MOE) {
        /* for images only: the three positions (time, height, width) of a text's token are equal */
        config_get(&r, "mrope_section");
        config_get(&r, "mrope_interleaved");
    }
    TRY(read_share(&r, c, 0));
    if (c->family == FAMILY_GEMMA4 && c->rope != ROPE_PROPORTIONAL && c->rope_share > 0.0)
        return config_refuse(&r, "partial_rotary_factor",
                             "in this family transformers looks at it where rope_type is proportional");
    if (c->rope != ROPE_DEFAULT && c->rope != ROPE_LINEAR && c->rope != ROPE_PROPORTIONAL)
        TRY(read_original(parent, &r, c));
    if (c->rope != ROPE_DEFAULT)
        TRY(read_factor(&r, c));
    TRY(read_kind(&r, c));
    return config_check_understood(&r);
}

/* Reads a section that describes kinds of layers separately: windowed layers have a base of their own and no scaling. */
static enum status read_by_kind(struct config_reader *parent, const json_t *object, struct model_config *c)
{
    const json_t *full = json_object_get(object, "full_attention"), *sliding = json_object_get(object, "sliding_attention");
    struct model_config local = *c;
    local.rope_share = 0.0;
    if (!has_kinds(c))
        return config_refuse(parent, "rope_parameters", "layers of this family are of one kind");
    if (json_object_size(object) != 2 || !full || !sliding)
        return config_refuse(parent, "rope_parameters", "supported: full_attention and sliding_attention");
    if (!json_object_get(sliding, "rope_theta"))
        return config_missing(parent, "rope_parameters.sliding_attention.rope_theta");
    TRY(read_section(parent, "rope_parameters.full_attention.", full, c));
    TRY(read_section(parent, "rope_parameters.sliding_attention.", sliding, &local));
    if (local.rope != ROPE_DEFAULT)
        return config_refuse(parent, "rope_parameters", "sliding_attention with a scaling is not supported");
    if (local.rope_share > 0.0)
        return config_refuse(parent, "rope_parameters", "sliding_attention of which a part is rotated is not supported");
    c->rope_local_theta = local.rope_theta;
    return OK;
}

/* Tells whether two spellings of rotary positions agree; theta: 1 if their bases must agree, too. A spelling may leave out values
 * that the other one, or rope_theta, gives. */
static int same_rope(const struct model_config *a, const struct model_config *b, int theta)
{
    return a->rope == b->rope && a->rope_factor == b->rope_factor && a->rope_low_freq == b->rope_low_freq &&
           a->rope_high_freq == b->rope_high_freq && a->rope_original_positions == b->rope_original_positions &&
           a->rope_fast == b->rope_fast && a->rope_slow == b->rope_slow && a->rope_exact == b->rope_exact &&
           a->rope_attention == b->rope_attention && a->rope_mscale == b->rope_mscale &&
           a->rope_mscale_all == b->rope_mscale_all && a->rope_slope == b->rope_slope && a->rope_alpha == b->rope_alpha &&
           a->rope_share == b->rope_share && memcmp(a->rope_short, b->rope_short, sizeof a->rope_short) == 0 &&
           memcmp(a->rope_long, b->rope_long, sizeof a->rope_long) == 0 && (!theta || a->rope_theta == b->rope_theta);
}

enum status config_read_rope(struct config_reader *r, struct model_config *c)
{
    const char *base = r->family->base_key ? r->family->base_key : "rope_theta";
    const json_t *theta = json_object_get(r->object, base);
    const json_t *scaling = config_get(r, "rope_scaling"), *parameters = config_get(r, "rope_parameters");
    double outer = c->rope_theta;
    config_get(r, "original_max_position_embeddings"); /* marks the key as read; a scaling reads it if needed */
    c->rope_share = r->family->share;
    TRY(read_share(r, c, 1));
    struct model_config older = *c;
    if (scaling)
        TRY(read_section(r, "rope_scaling.", scaling, &older));
    if (has_kinds(c) && older.rope != ROPE_DEFAULT && !json_object_get(scaling, "rope_type"))
        return config_refuse(r, "rope_scaling",
                             "in this family transformers looks for rope_type and not for type, and would scale nothing");
    if (json_is_object(json_object_get(parameters, "full_attention")))
        TRY(read_by_kind(r, parameters, c));
    else if (json_object_size(parameters) > 0 && has_kinds(c))
        return config_refuse(r, "rope_parameters", "in this family they are said of full_attention and sliding_attention apart");
    else if (parameters)
        TRY(read_section(r, "rope_parameters.", parameters, c));
    if (scaling && parameters && !same_rope(&older, c, json_object_get(scaling, "rope_theta") != NULL))
        return config_refuse(r, "rope_scaling", "rope_parameters says something else");
    if (!parameters)
        *c = older;
    if (theta && !json_is_null(theta) && c->rope_theta != outer)
        return config_refuse(r, base,
                             parameters ? "rope_parameters.rope_theta says something else"
                                        : "rope_scaling.rope_theta says something else");
    return OK;
}

static json_t *divisors(const double *x, int64_t n)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++)
        json_array_append_new(list, json_real(x[i]));
    return list;
}

static void set_real(json_t *o, const char *key, double value)
{
    if (value > 0.0)
        json_object_set_new(o, key, json_real(value));
}

/* Writes rope_scaling, which every release of transformers reads, beside rope_theta. */
json_t *config_write_rope(const struct model_config *c)
{
    const struct config_word *word = rope_types;
    if (c->rope == ROPE_DEFAULT) /* gpt-oss and CWM without the key have a scaling, so "default" is written */
        return c->family == FAMILY_GPT_OSS || c->family == FAMILY_CWM
                   ? json_pack("{s:s, s:s}", "rope_type", "default", "type", "default")
                   : json_null();
    while (word->value != (int)c->rope)
        word++;
    if (c->rope == ROPE_LONGROPE && c->family == FAMILY_PHI3 && c->rope_attention == 0.0 &&
        c->rope_factor ==
            (double)c->max_positions / c->rope_original_positions) /* only these keys: Phi-3's readers accept no others */
        return json_pack("{s:s, s:o, s:o}", "type", word->word, "short_factor",
                         divisors(c->rope_short, model_rotated(c, rotary_dim(c)) / 2), "long_factor",
                         divisors(c->rope_long, model_rotated(c, rotary_dim(c)) / 2));
    json_t *o = json_pack("{s:s, s:s, s:f}", "rope_type", word->word, "type", word->word, "factor", c->rope_factor);
    if (c->rope == ROPE_PROPORTIONAL)
        json_object_set_new(o, "partial_rotary_factor", json_real(c->rope_share > 0.0 ? c->rope_share : 1.0));
    else if (c->rope != ROPE_LINEAR)
        json_object_set_new(o, "original_max_position_embeddings", json_integer((json_int_t)c->rope_original_positions));
    set_real(o, "alpha", c->rope_alpha);
    set_real(o, "low_freq_factor", c->rope_low_freq);
    set_real(o, "high_freq_factor", c->rope_high_freq);
    set_real(o, "beta_fast", c->rope_fast);
    set_real(o, "beta_slow", c->rope_slow);
    set_real(o, "attention_factor", c->rope_attention);
    set_real(o, "mscale", c->rope_mscale);
    set_real(o, "mscale_all_dim", c->rope_mscale_all);
    set_real(o, "llama_4_scaling_beta", c->rope_slope);
    if (c->rope_exact)
        json_object_set_new(o, "truncate", json_false());
    if (c->rope == ROPE_LONGROPE) {
        json_object_set_new(o, "short_factor", divisors(c->rope_short, model_rotated(c, rotary_dim(c)) / 2));
        json_object_set_new(o, "long_factor", divisors(c->rope_long, model_rotated(c, rotary_dim(c)) / 2));
    }
    return o;
}

json_t *config_write_rope_parameters(const struct model_config *c)
{
    json_t *o = c->rope == ROPE_DEFAULT ? json_pack("{s:s}", "type", "default") : config_write_rope(c);
    json_object_set_new(o, "rope_type", json_incref(json_object_get(o, "type")));
    json_object_del(o, "type");
    if (c->rope == ROPE_LONGROPE)
        json_object_set_new(o, "original_max_position_embeddings", json_integer((json_int_t)c->rope_original_positions));
    json_object_set_new(o, "rope_theta", json_real(c->rope_theta));
    if (c->rope_share > 0.0)
        json_object_set_new(o, "partial_rotary_factor", json_real(c->rope_share));
    if (!has_kinds(c))
        return o;
    return json_pack("{s:o, s:{s:s, s:f}}", "full_attention", o, "sliding_attention", "rope_type", "default", "rope_theta",
                     c->rope_local_theta > 0.0 ? c->rope_local_theta : c->rope_theta);
}
