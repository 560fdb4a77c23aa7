/* Reads settings of sampling from config.json and generation_config.json. */
#include "eval/generation.h"

#include "base/sys.h"
#include "model/model.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_NAME "generation_config.json"

static enum status open_json(const char *dir, const char *name, json_t **out)
{
    char path[8192];
    json_error_t error;
    *out = NULL;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (sys_access(path, F_OK) != 0)
        return OK;
    *out = json_load_file(path, 0, &error);
    return *out ? OK : status_fail(ERR_INVALID, "%s, line %d: %s", path, error.line, error.text);
}

/* Formats a value as the file has it, cut if it is long. */
static const char *written(const json_t *value, char text[64])
{
    char *all = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    snprintf(text, 64, "%.59s%s", all ? all : "?", all && strlen(all) > 59 ? "..." : "");
    free(all);
    return text;
}

static enum status add_id(const char *dir, const char *file, struct ids *eos, const json_t *id)
{
    char text[64];
    const json_int_t x = json_integer_value(id);
    if (!json_is_integer(id) || x < -1 || x > INT32_MAX)
        return status_fail(ERR_INVALID, "%s/%s: eos_token_id has %s, which is no token's id", dir, file, written(id, text));
    return x < 0 ? OK : ids_add(eos, (int32_t)x); /* some files write -1 for none */
}

static enum status add_eos(const char *dir, const char *file, struct ids *eos, const json_t *config)
{
    const json_t *said = json_object_get(config, "eos_token_id");
    if (!said || json_is_null(said))
        return OK;
    if (!json_is_array(said))
        return add_id(dir, file, eos, said);
    for (size_t i = 0; i < json_array_size(said); i++)
        TRY(add_id(dir, file, eos, json_array_get(said, i)));
    return OK;
}

/* Reads a number; -1 if it is absent or null. */
static enum status read_number(const char *dir, const json_t *o, const char *name, double most, double *out)
{
    char text[64];
    const json_t *x = json_object_get(o, name);
    *out = -1;
    if (!x || json_is_null(x))
        return OK;
    const double value = json_number_value(x);
    if (!json_is_number(x) || !(value >= 0 && value <= most))
        return status_fail(ERR_INVALID, "%s/" FILE_NAME ": %s is %s; it is a number from 0 to %g", dir, name, written(x, text),
                           most);
    *out = value;
    return OK;
}

static enum status read_numbers(const char *dir, const json_t *o, struct generation *g)
{
    double top_k;
    TRY(read_number(dir, o, "temperature", 1000, &g->temperature));
    TRY(read_number(dir, o, "top_p", 1, &g->top_p));
    TRY(read_number(dir, o, "min_p", 1, &g->min_p));
    TRY(read_number(dir, o, "repetition_penalty", 1000, &g->repetition_penalty));
    TRY(read_number(dir, o, "top_k", INT32_MAX, &top_k));
    g->top_k = (int64_t)top_k;
    return OK;
}

/* Keys that change the texts of transformers: the value without effect, and 1 if the key counts only while tokens are drawn. null
 * and false never have an effect. */
static const struct {
    const char *name;
    double neutral;
    int drawn;
} others[] = {
    {"num_beams", 1, 0},
    {"no_repeat_ngram_size", 0, 0},
    {"min_length", 0, 0},
    {"min_new_tokens", 0, 0},
    {"guidance_scale", 1, 0},
    {"penalty_alpha", 0, 0},
    {"typical_p", 1, 1},
    {"epsilon_cutoff", 0, 1},
    {"eta_cutoff", 0, 1},
    {"top_h", 1, 1},
    {"bad_words_ids", NAN, 0},
    {"suppress_tokens", NAN, 0},
    {"begin_suppress_tokens", NAN, 0},
    {"sequence_bias", NAN, 0},
    {"forced_bos_token_id", NAN, 0},
    {"forced_eos_token_id", NAN, 0},
    {"exponential_decay_length_penalty", NAN, 0},
    {"watermarking_config", NAN, 0},
    {"dola_layers", NAN, 0},
    {"stop_strings", NAN, 0},
};

static void note_undone(const json_t *o, struct generation *g)
{
    char text[64];
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const json_t *x = json_object_get(o, others[i].name);
        const int idle = !x || json_is_null(x) || json_is_false(x) ||
                         (json_is_number(x) && json_number_value(x) == others[i].neutral) ||
                         (json_is_array(x) && json_array_size(x) == 0) || (json_is_object(x) && json_object_size(x) == 0);
        const size_t n = strlen(g->undone);
        if (!idle && (g->samples || !others[i].drawn))
            snprintf(g->undone + n, sizeof g->undone - n, "%s%s %s", n ? ", " : "", others[i].name, written(x, text));
    }
}

enum status generation_read(const struct settings *s, struct generation *out)
{
    json_t *config = NULL, *generation = NULL;
    *out = (struct generation){.temperature = -1, .top_p = -1, .min_p = -1, .repetition_penalty = -1, .top_k = -1};
    if (model_is_preset(s->model))
        return OK;
    enum status st = open_json(s->model, "config.json", &config);
    if (st == OK)
        st = open_json(s->model, FILE_NAME, &generation);
    if (st == OK)
        st = add_eos(s->model, "config.json", &out->eos, config);
    if (st == OK)
        st = add_eos(s->model, FILE_NAME, &out->eos, generation);
    if (st == OK)
        st = read_numbers(s->model, generation, out);
    out->samples = json_is_true(json_object_get(generation, "do_sample"));
    note_undone(generation, out);
    json_decref(config);
    json_decref(generation);
    return st;
}
