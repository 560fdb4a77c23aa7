/* Files beside a tokenizer.model: further tokens, and those that begin and end a document. Private to parts.h. */
#include "text/parts.h"

#include "base/sys.h"
#include "text/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the files ---- */

/* Reads a JSON object beside the tokenizer's file; *out stays NULL if there is none. */
static enum status read_object(const struct tokenizer *t, const char *name, json_t **out)
{
    char path[4096], *text;
    const char *slash = strrchr(t->path, '/');
    size_t n;
    json_error_t error;
    snprintf(path, sizeof path, "%.*s%s", slash ? (int)(slash - t->path) + 1 : 0, t->path, name);
    if (sys_access(path, F_OK) != 0)
        return OK;
    TRY(read_whole(path, &text, &n));
    *out = json_loadb(text, n, JSON_ALLOW_NUL, &error);
    /* a number too large for jansson's integers: model_max_length is 10^30 in most files */
    if (!*out && json_error_code(&error) == json_error_numeric_overflow)
        *out = json_loadb(text, n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &error);
    free(text);
    if (!*out)
        return status_fail(ERR_INVALID, "%s: line %d: %s", path, error.line, error.text);
    return json_is_object(*out) ? OK : status_fail(ERR_INVALID, "%s is no JSON object", path);
}

enum status beside_read(const struct tokenizer *t, struct beside *out)
{
    enum status st;
    *out = (struct beside){.config = NULL};
    TRY_GOTO(read_object(t, "tokenizer_config.json", &out->config), fail);
    TRY_GOTO(read_object(t, "config.json", &out->model), fail);
    if (json_member(out->config, "added_tokens_decoder")) /* a member that has everything that the older files have */
        return OK;
    TRY_GOTO(read_object(t, "special_tokens_map.json", &out->map), fail);
    TRY_GOTO(read_object(t, "added_tokens.json", &out->added), fail);
    return OK;
fail:
    beside_free(out);
    return st;
}

void beside_free(struct beside *b)
{
    json_decref(b->config);
    json_decref(b->map);
    json_decref(b->added);
    json_decref(b->model);
    *b = (struct beside){.config = NULL};
}

/* ---- tokens ---- */

enum status beside_token(const json_t *value, struct named_token *out, struct added_token *like)
{
    *like = (struct added_token){.id = -1};
    *out = (struct named_token){"", 0};
    if (json_is_string(value)) {
        *out = (struct named_token){json_string_value(value), json_string_length(value)};
        return OK;
    }
    if (!json_is_object(value))
        return status_fail(ERR_INVALID, "a token is neither a string nor an object");
    TRY(json_text(value, "content", &out->text, &out->n));
    TRY(json_flag(value, "single_word", 0, &like->single_word));
    TRY(json_flag(value, "lstrip", 0, &like->lstrip));
    TRY(json_flag(value, "rstrip", 0, &like->rstrip));
    return json_flag(value, "special", 0, &like->special);
}

struct adding {
    struct tokenizer *t;
    int32_t next;
};

/* Adds a token that is sought in raw text. If the token was added before, it only becomes special if special is 1. */
static enum status add(struct adding *x, const json_t *value, int64_t id, int special)
{
    struct added_token like;
    struct named_token token;
    TRY(beside_token(value, &token, &like));
    if (id >= MOST_TOKENS)
        return status_fail(ERR_INVALID, "the token %.40s has the id %lld, and ids are 0 to %d", token.text, (long long)id,
                           MOST_TOKENS - 1);
    int32_t there = vocab_find(x->t->extra, token.text, token.n);
    for (int64_t i = 0; there >= 0 && i < x->t->added.n; i++)
        if (x->t->added.token[i].id == there)
            x->t->added.token[i].special |= special;
    if (token.n == 0 || there >= 0)
        return OK;
    like.id = (int32_t)id;
    like.special |= special;
    x->next = like.id >= x->next ? like.id + 1 : x->next;
    return add_token(x->t, token.text, token.n, &like, 0, &x->next);
}

/* Adds the tokens of {"32000": {"content": ...}, ...}, whose order does not matter here. */
static enum status add_decoder(struct adding *x, const json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        char *end;
        long long id = strtoll(key, &end, 10);
        if (!key[0] || *end || id < 0 || id >= MOST_TOKENS)
            return status_fail(ERR_INVALID, "added_tokens_decoder has %.40s, which is no id", key);
        TRY(add(x, value, id, 0));
    }
    return OK;
}

/* Adds the tokens of {"<|user|>": 32010, ...}. */
static enum status add_ids(struct adding *x, const json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        struct added_token like = {.id = (int32_t)json_integer_value(value)};
        size_t n = json_object_iter_key_len(json_object_key_to_iter(key));
        if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) >= MOST_TOKENS)
            return status_fail(ERR_INVALID, "added_tokens.json: %.40s has no id", key);
        x->next = like.id >= x->next ? like.id + 1 : x->next;
        if (n && vocab_find(x->t->extra, key, n) < 0)
            TRY(add_token(x->t, key, n, &like, 0, &x->next));
    }
    return OK;
}

static const json_t *member_of(const struct beside *b, const char *key)
{
    const json_t *value = json_member(b->map, key);
    return value ? value : json_member(b->config, key);
}

static enum status add_specials(struct adding *x, const struct beside *b)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
    static const char *const lists[] = {"additional_special_tokens", "extra_special_tokens"};
    const char *key;
    json_t *value;
    size_t i;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (member_of(b, names[k]))
            TRY(add(x, member_of(b, names[k]), -1, 1));
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
        json_t *list = (json_t *)member_of(b, lists[k]);
        json_array_foreach(list, i, value) TRY(add(x, value, -1, 1));
        json_object_foreach(list, key, value) TRY(add(x, value, -1, 1));
    }
    return OK;
}

enum status beside_add(struct tokenizer *t, const struct beside *b)
{
    struct adding x = {t, (int32_t)vocab_count(t->tokens)};
    TRY(add_decoder(&x, json_member(b->config, "added_tokens_decoder")));
    TRY(add_ids(&x, b->added));
    TRY(add_specials(&x, b));
    for (int64_t i = 0, n = vocab_count(t->extra); i < n; i++) {
        int32_t id;
        struct token_text token = vocab_at(t->extra, i, &id);
        if (vocab_find(t->tokens, token.data, token.n) >= 0 && vocab_find(t->tokens, token.data, token.n) != id)
            return status_fail(ERR_INVALID, "the token %.*s has the id %d beside tokenizer.model and %d in it",
                               (int)(token.n > 40 ? 40 : token.n), (const char *)token.data, id,
                               vocab_find(t->tokens, token.data, token.n));
    }
    return OK;
}

/* ---- tokens before and behind a text ---- */

enum status beside_find_eos(struct tokenizer *t, const struct beside *b, struct named_token eos)
{
    struct added_token like;
    const json_t *id = json_member(b->model, "eos_token_id");
    const int64_t tokens = vocab_end(t->tokens), extra = vocab_end(t->extra);
    if (member_of(b, "eos_token"))
        TRY(beside_token(member_of(b, "eos_token"), &eos, &like));
    t->eos = vocab_find(t->extra, eos.text, eos.n);
    if (t->eos < 0)
        t->eos = vocab_find(t->tokens, eos.text, eos.n);
    if (eos.n == 0) /* GPT-2's files name no such token, but its config.json has the id */
        t->eos = json_is_integer(id) && json_integer_value(id) >= 0 && json_integer_value(id) < (tokens > extra ? tokens : extra)
                     ? (int32_t)json_integer_value(id)
                     : -1;
    return OK;
}

static enum status wrap(const struct tokenizer *t, const struct beside *b, const char *flag, int otherwise, const char *name,
                        struct named_token token, struct ids *out)
{
    struct added_token like;
    int wanted;
    TRY(json_flag(b->config, flag, otherwise, &wanted));
    if (member_of(b, name))
        TRY(beside_token(member_of(b, name), &token, &like));
    int32_t id = vocab_find(t->extra, token.text, token.n);
    if (!wanted)
        return OK;
    if (id >= 0)
        return ids_add(out, id);
    return json_member(b->config, flag) ? status_fail(ERR_INVALID, "tokenizer_config.json has %s, and no token is named %.40s",
                                                      flag, token.n ? token.text : name)
                                        : OK;
}

enum status beside_wrap(struct tokenizer *t, const struct beside *b, struct named_token bos, struct named_token eos)
{
    TRY(wrap(t, b, "add_bos_token", 1, "bos_token", bos, &t->before));
    return wrap(t, b, "add_eos_token", 0, "eos_token", eos, &t->behind);
}
