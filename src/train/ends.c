/* The end tokens of a result. */
#include "train/ends.h"

#include "base/num.h"
#include "base/sys.h"
#include "base/tell.h"
#include "checkpoint/checkpoint.h"
#include "data/stream.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

/* Reads a JSON object; *out is NULL if the directory has no such file. */
static enum status read_object(const char *dir, const char *name, json_t **out)
{
    char path[PATH_BYTES];
    json_error_t error;
    *out = NULL;
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= PATH_BYTES || sys_access(path, F_OK) != 0)
        return OK;
    *out = json_load_file(path, 0, &error);
    return json_is_object(*out)
               ? OK
               : status_fail(ERR_INVALID, "%s is no JSON object: %s", path, *out ? "it is something else" : error.text);
}

/* Makes the generation_config.json that transformers derives from a config.json alone. */
static json_t *generation_of(const json_t *config)
{
    static const char *const names[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
    json_t *out = json_object();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (json_is_integer(json_object_get(config, names[i])) || json_is_array(json_object_get(config, names[i])))
            json_object_set(out, names[i], json_object_get(config, names[i]));
    return out;
}

static int has(const json_t *list, int32_t id)
{
    size_t i;
    const json_t *x;
    json_array_foreach(list, i, x)
    {
        if (json_is_integer(x) && json_integer_value(x) == id)
            return 1;
    }
    return 0;
}

/* Returns the list of the ids that end texts so far. */
static json_t *ends_of(const json_t *generation, const json_t *config)
{
    const json_t *said = json_object_get(generation, "eos_token_id");
    said = said && !json_is_null(said) ? said : json_object_get(config, "eos_token_id");
    if (json_is_array(said))
        return json_copy((json_t *)said);
    return json_is_integer(said) && json_integer_value(said) >= 0 ? json_pack("[O]", said) : json_array();
}

/* Adds the chats' end tokens to the list and names the new ones: "<|im_end|> (258), <|eom|> (7)". */
static enum status add_ends(const struct chat_counts *chats, const struct tokenizer *t, json_t *list, struct text_buffer *names)
{
    struct text_buffer name = {.n = 0};
    enum status st = OK;
    for (int32_t i = 0; i < chats->n_ends && st == OK; i++) {
        const int32_t id = chats->ends[i];
        if (has(list, id))
            continue;
        name.n = 0;
        st = tokenizer_decode(t, &id, 1, 1, &name);
        json_array_append_new(list, json_integer(id));
        if (st == OK)
            st = text_buffer_print(names, "%s%.*s (%d)", names->n ? ", " : "", (int)name.n, (const char *)name.data, id);
    }
    text_buffer_free(&name);
    return st;
}

static enum status write_generation(json_t *generation, json_t *list, const char *dir)
{
    enum { DIGITS = 15 }; /* enough for 0.6 and the like */
    json_object_set(generation, "eos_token_id", list);
    char *text = json_dumps(generation, JSON_INDENT(2) | JSON_REAL_PRECISION(DIGITS));
    enum status st =
        text ? checkpoint_keep_generation(text, dir) : status_fail(ERR_NOMEM, "out of memory: generation_config.json");
    free(text);
    return st;
}

static enum status keep(const struct chat_counts *chats, const struct tokenizer *t, const char *dir, int adapter,
                        json_t **generation, json_t **config, json_t **list)
{
    struct text_buffer names = {.n = 0};
    TRY(read_object(dir, "config.json", config));
    TRY(read_object(dir, "generation_config.json", generation));
    *list = ends_of(*generation, *config);
    if (!*generation)
        *generation = generation_of(*config);
    enum status st = add_ends(chats, t, *list, &names);
    if (st == OK && names.n > 0)
        st = write_generation(*generation, *list, dir);
    if (st == OK && names.n > 0)
        tell(
            "generation: the chats end turns at %.*s, which ended no text before: eos_token_id of the result's generation_config.json has %s\n",
            (int)names.n, (const char *)names.data,
            adapter ? "it once adapters are merged (ltrain export); "
                      "whoever loads them beside their base has to stop there"
                    : "it, too");
    text_buffer_free(&names);
    return st;
}

enum status ends_keep(const struct chat_counts *chats, const struct tokenizer *t, const char *dir, int adapter)
{
    json_t *generation = NULL, *config = NULL, *list = NULL;
    if (chats->n_ends == 0)
        return OK;
    enum status st = keep(chats, t, dir, adapter, &generation, &config, &list);
    json_decref(generation);
    json_decref(config);
    json_decref(list);
    return st;
}

/* ---- documents of ids ---- */

/* Finds the trained token that ends every document of a sample. *id: -1 if there is no such token. */
static enum status find_common_end(const struct stream *d, int32_t *id)
{
    enum { LOOKED_AT = 64, FEWEST = 2 };
    const int64_t documents = stream_documents(d), n = min_i64(documents, LOOKED_AT);
    *id = -1;
    for (int64_t i = 0; n >= FEWEST && i < n; i++) {
        int32_t last, next;
        TRY(stream_read(d, stream_end(d, i * documents / n) - 1, 1, &last, &next));
        if (i > 0 && last != *id) {
            *id = -1;
            return OK;
        }
        *id = last < 0 ? -1 : last;
        if (last < 0)
            return OK;
    }
    return OK;
}

static enum status name_of(const struct tokenizer *t, int32_t id, struct text_buffer *name)
{
    if (t)
        TRY(tokenizer_decode(t, &id, 1, 1, name));
    return text_buffer_print(name, "%s%d%s", name->n ? " (" : "", id, name->n ? ")" : "");
}

static enum status say_end(const struct corpus_source *source, const struct tokenizer *t, int32_t id, json_t *list)
{
    struct text_buffer name = {.n = 0};
    char *own = json_dumps(list, JSON_ENCODE_ANY);
    enum status st = own ? name_of(t, id, &name) : status_fail(ERR_NOMEM, "out of memory: a remark");
    if (st == OK)
        tell(
            "remark: documents of %s end at %.*s, and the model's texts at other ids (eos_token_id %s): the result will not stop "
            "there by itself: add %d to eos_token_id of its generation_config.json, or end the rows with an id of that list\n",
            source->name, (int)name.n, (const char *)name.data, own, id);
    free(own);
    text_buffer_free(&name);
    return st;
}

enum status ends_remark(const struct corpus_source *source, const struct tokenizer *t, const char *dir)
{
    json_t *generation = NULL, *config = NULL;
    const unsigned holds = stream_holds(source->documents);
    int32_t id;
    if (!(holds & HOLDS_TOKENS) || holds & (HOLDS_TEXTS | HOLDS_CHATS))
        return OK;
    TRY(find_common_end(source->documents, &id));
    if (id < 0)
        return OK;
    enum status st = read_object(dir, "config.json", &config);
    if (st == OK)
        st = read_object(dir, "generation_config.json", &generation);
    json_t *list = st == OK ? ends_of(generation, config) : NULL;
    if (json_array_size(list) > 0 && !has(list, id))
        st = say_end(source, t, id, list);
    json_decref(list);
    json_decref(generation);
    json_decref(config);
    return st;
}
