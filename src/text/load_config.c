/* Tokens that files beside a tokenizer.json add to it, as transformers 5.24 reads them. Private to parts.h.
 *
 * Tokens are added in this order, each unless it exists. First those of added_tokens_decoder by their ids, or without that member
 * those of added_tokens.json. Then bos, eos, unk, sep, pad, cls and mask token, and other members ending in _token. Then lists of
 * further special tokens.
 *
 * A token's id is that of its text in the vocabulary, else the next free one, whatever the files say. */
#include "text/parts.h"

#include "base/grow.h"
#include "text/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const standard[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};
enum { STANDARD = sizeof standard / sizeof *standard };

/* A token to be added. */
struct item {
    struct named_token token;
    struct added_token like;
    int normalized, named; /* named: 1: by a member such as pad_token; 0: in a list */
    int64_t said;          /* id that the file gives the token; -1: none */
};

struct items {
    struct item *at;
    size_t n;
    int64_t room;
};

/* ---- reading the files ---- */

static enum status put(struct items *x, const struct item *one)
{
    if ((int64_t)x->n == x->room) {
        struct item *at = grow(x->at, &x->room, sizeof *at, 64, "added tokens");
        if (!at)
            return ERR_NOMEM;
        x->at = at;
    }
    x->at[x->n++] = *one;
    return OK;
}

/* Reads a token, which is a text or an object. special: 1: a token given as a text counts as special. */
static enum status read_item(const json_t *value, int special, struct item *out)
{
    *out = (struct item){.said = -1};
    TRY(beside_token(value, &out->token, &out->like));
    if (json_is_string(value))
        out->like.special = special;
    else
        TRY(json_flag(value, "normalized", !out->like.special, &out->normalized));
    return OK;
}

static int by_id(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    return x->said < y->said ? -1 : x->said > y->said;
}

static enum status list_decoder(const json_t *decoder, struct items *out)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)decoder, key, value)
    {
        struct item one;
        char *end;
        TRY(read_item(value, 0, &one));
        one.said = strtoll(key, &end, 10);
        if (!key[0] || *end || one.said < 0 || one.said >= MOST_TOKENS)
            return status_fail(ERR_INVALID, "added_tokens_decoder of tokenizer_config.json has %.40s, which is no id", key);
        TRY(put(out, &one));
    }
    return OK;
}

/* Returns a member of special_tokens_map.json if that file was read and has it; else the member of tokenizer_config.json. */
static const json_t *member_of(const struct beside *b, const char *key)
{
    const json_t *value = json_member(b->map, key);
    return value ? value : json_member(b->config, key);
}

/* Finds the lists or objects of further special tokens: out[0] in tokenizer_config.json (extra_special_tokens, else
 * additional_special_tokens), out[1] in special_tokens_map.json. The map's additional_special_tokens count only if the
 * configuration has neither. NULL: none. */
static void find_extras(const struct beside *b, const json_t *out[2])
{
    static const char *const names[] = {"extra_special_tokens", "additional_special_tokens"};
    out[0] = NULL;
    for (int i = 0; i < 2 && !out[0]; i++)
        if (json_array_size(json_member(b->config, names[i])) > 0 || json_object_size(json_member(b->config, names[i])) > 0)
            out[0] = json_member(b->config, names[i]);
    out[1] = json_member(b->map, names[0]);
    if (!out[1] && !out[0])
        out[1] = json_member(b->map, names[1]);
}

static int is_standard(const char *key)
{
    for (int i = 0; i < STANDARD; i++)
        if (strcmp(standard[i], key) == 0)
            return 1;
    return 0;
}

static int ends_so(const char *key)
{
    static const char ending[] = "_token";
    size_t n = strlen(key), m = sizeof ending - 1;
    return n > m && strcmp(key + n - m, ending) == 0;
}

static int is_token(const json_t *value)
{
    return json_is_string(value) || (json_is_object(value) && json_is_string(json_object_get(value, "content")));
}

static enum status put_named(const json_t *value, struct items *out)
{
    struct item one;
    TRY(read_item(value, 1, &one));
    one.named = 1;
    return put(out, &one);
}

/* Lists the tokens of other members such as image_token, then the named tokens of objects in `extras`. Members of
 * special_tokens_map.json come first, but if tokenizer_config.json has the same member, with that value. */
static enum status list_named_otherwise(const struct beside *b, const json_t *const extras[2], struct items *out)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)b->map, key, value) if (ends_so(key) && !is_standard(key) && is_token(value))
        TRY(put_named(is_token(json_member(b->config, key)) ? json_member(b->config, key) : value, out));
    json_object_foreach((json_t *)b->config, key, value) if (ends_so(key) && !is_standard(key) && is_token(value) &&
                                                             !json_object_get(b->map, key)) TRY(put_named(value, out));
    for (int i = 0; i < 2; i++)
        json_object_foreach((json_t *)extras[i], key, value) TRY(put_named(value, out));
    return OK;
}

static enum status list_specials(const struct beside *b, struct items *out)
{
    struct item one;
    const json_t *extras[2];
    json_t *value;
    size_t i;
    find_extras(b, extras);
    for (int k = 0; k < STANDARD; k++)
        if (member_of(b, standard[k])) {
            TRY(read_item(member_of(b, standard[k]), 1, &one));
            one.like.special = one.named = 1;
            TRY(put(out, &one));
        }
    TRY(list_named_otherwise(b, extras, out));
    for (int k = 0; k < 2; k++)
        json_array_foreach((json_t *)extras[k], i, value)
        {
            TRY(read_item(value, 1, &one));
            TRY(put(out, &one));
        }
    return OK;
}

/* ---- added_tokens.json ---- */

static int same_text(const struct named_token *a, const char *text, size_t n)
{
    return a->n == n && memcmp(a->text, text, n) == 0;
}

static int is_special(const struct items *specials, int named_only, const char *text, size_t n)
{
    for (size_t i = 0; i < specials->n; i++)
        if (specials->at[i].named >= named_only && same_text(&specials->at[i].token, text, n))
            return 1;
    return 0;
}

/* Lists the tokens of {"<|user|>": 32010, ...}. An id that a token of tokenizer.json has is skipped. */
static enum status list_added(const struct tokenizer *t, const json_t *object, const struct items *specials, struct items *out)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        struct token_text other;
        size_t n = json_object_iter_key_len(json_object_key_to_iter(key));
        const int special = is_special(specials, 0, key, n);
        const struct item one = {{key, n}, {.id = -1, .special = special}, !special, 0, json_integer_value(value)};
        if (!json_is_integer(value) || one.said < 0 || one.said >= MOST_TOKENS)
            return status_fail(ERR_INVALID, "added_tokens.json: %.40s has no id", key);
        if (!vocab_text(t->extra, (int32_t)one.said, &other))
            TRY(put(out, &one));
    }
    return OK;
}

/* ---- adding ---- */

static struct added_token *find_added(struct tokenizer *t, const struct named_token *token)
{
    for (int64_t i = 0; i < t->added.n; i++)
        if (same_text(token, (const char *)t->added.token[i].text, t->added.token[i].n))
            return &t->added.token[i];
    return NULL;
}

static int looked_for_alike(const struct added_token *a, const struct item *one)
{
    return a->single_word == one->like.single_word && a->lstrip == one->like.lstrip && a->rstrip == one->like.rstrip &&
           a->special == one->like.special && (a->normal != NULL) == one->normalized;
}

/* Changes the flags of a token of tokenizer.json to those of an item that lists the same token. */
static enum status change(struct tokenizer *t, struct added_token *there, const struct item *one, int named)
{
    if (looked_for_alike(there, one))
        return OK;
    there->single_word = one->like.single_word;
    there->lstrip = one->like.lstrip;
    there->rstrip = one->like.rstrip;
    there->special = one->like.special || named;
    free(there->normal);
    there->normal = NULL;
    t->from_beside = 1;
    return one->normalized ? added_normalize(t, there) : OK;
}

static enum status add(struct tokenizer *t, const struct item *one, int named, int32_t *next)
{
    struct added_token like = one->like;
    if (one->token.n == 0)
        return OK;
    like.special |= named;
    TRY(add_token(t, one->token.text, one->token.n, &like, one->normalized, next));
    const int32_t id = t->added.token[t->added.n - 1].id;
    t->from_beside = 1;
    if (one->said >= 0 && one->said != id && !t->remark[0])
        snprintf(
            t->remark, sizeof t->remark,
            "the files beside %.300s give %.60s the id %lld, and transformers, which counts on from the vocabulary, %d, as here",
            t->path, one->token.text, (long long)one->said, id);
    return OK;
}

static enum status add_all(struct tokenizer *t, struct items *listed, const struct items *specials)
{
    int32_t next = (int32_t)vocab_count(t->tokens), id;
    for (int64_t i = 0; i < vocab_count(t->extra); i++) {
        vocab_at(t->extra, i, &id);
        next = id >= next ? id + 1 : next;
    }
    if (listed->n)
        qsort(listed->at, listed->n, sizeof *listed->at, by_id);
    for (size_t i = 0; i < listed->n; i++) {
        const struct item *one = &listed->at[i];
        struct added_token *there = find_added(t, &one->token);
        const int named = is_special(specials, 1, one->token.text, one->token.n);
        TRY(there ? change(t, there, one, named) : add(t, one, named, &next));
    }
    for (size_t i = 0; i < specials->n; i++)
        if (!find_added(t, &specials->at[i].token))
            TRY(add(t, &specials->at[i], specials->at[i].named, &next));
    return OK;
}

static enum status load_from(struct tokenizer *t, const struct beside *b)
{
    struct items listed = {0}, specials = {0};
    const json_t *decoder = json_member(b->config, "added_tokens_decoder");
    if (decoder && !json_is_object(decoder))
        return status_fail(ERR_INVALID, "added_tokens_decoder of tokenizer_config.json is no object");
    enum status st = json_flag(b->config, "split_special_tokens", 0, &t->splits_special);
    if (st == OK)
        st = list_specials(b, &specials);
    if (st == OK)
        st = decoder ? list_decoder(decoder, &listed) : list_added(t, b->added, &specials, &listed);
    if (st == OK)
        st = add_all(t, &listed, &specials);
    free(listed.at);
    free(specials.at);
    return st;
}

enum status load_config_tokens(struct tokenizer *t, const json_t *pre_tokenizer)
{
    struct beside b;
    TRY(beside_read(t, &b));
    enum status st = load_from(t, &b);
    if (st == OK)
        st = beside_find_eos(t, &b, (struct named_token){"", 0});
    if (st == OK)
        remark_mistral(t, pre_tokenizer, &b);
    beside_free(&b);
    return st;
}
