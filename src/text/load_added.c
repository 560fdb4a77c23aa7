/* Added tokens of a tokenizer.json, and of the files beside a tokenizer.model. Private to parts.h. */
#include "text/parts.h"

#include "base/sys.h"
#include "text/json.h"

#include <stdlib.h>
#include <string.h>

static enum status copy(const void *from, size_t n, uint8_t **out)
{
    *out = sys_malloc(n + 1);
    if (!*out)
        return status_fail(ERR_NOMEM, "out of memory: added tokens");
    memcpy(*out, from, n);
    (*out)[n] = 0;
    return OK;
}

enum status added_normalize(struct tokenizer *t, struct added_token *a)
{
    struct normal_room room = {0};
    struct regex_room *matching = NULL;
    const uint8_t *text = a->text;
    size_t n = a->n;
    enum status st = regex_room_create(&matching);
    if (st == OK)
        st = normal_apply(&t->normal, &room, matching, TEXT_BEGINS, &text, &n);
    if (st == OK)
        st = copy(text, n, &a->normal);
    a->normal_n = n;
    normal_room_free(&room);
    regex_room_free(matching);
    return st;
}

/* Finds a token's id by the rule of the `tokenizers` library: the id that its text already has, else *next, which begins at the
 * number of the vocabulary's tokens.
 *
 * If the vocabulary has holes, another token may have that id, which is refused: the library could find only one of the two. */
static enum status id_of_added(const struct tokenizer *t, const char *text, size_t n, int32_t *next, int32_t *id)
{
    struct token_text other;
    *id = vocab_find(t->extra, text, n);
    if (*id < 0)
        *id = vocab_find(t->tokens, text, n);
    if (*id >= 0)
        return OK;
    *id = (*next)++;
    return vocab_text(t->tokens, *id, &other)
               ? status_fail(ERR_INVALID, "the added token %.40s would get the id %d, which is that of %.*s: the vocab has holes",
                             text, *id, (int)(other.n > 40 ? 40 : other.n), (const char *)other.data)
               : OK;
}

enum status add_token(struct tokenizer *t, const char *text, size_t n, const struct added_token *like, int normalized,
                      int32_t *next)
{
    struct added_token a = *like;
    a.text = a.normal = NULL;
    if (a.id < 0)
        TRY(id_of_added(t, text, n, next, &a.id));
    a.n = n;
    enum status st = copy(text, n, &a.text);
    if (st == OK && normalized)
        st = added_normalize(t, &a);
    if (st == OK)
        st = vocab_add(t->extra, text, n, a.id);
    if (st == OK)
        st = added_put(&t->added, &a);
    if (st != OK) {
        free(a.text);
        free(a.normal);
    }
    return st;
}

static enum status load_added_token(struct tokenizer *t, const json_t *object, int32_t *next)
{
    struct added_token a = {.id = -1};
    const char *text;
    size_t n;
    int normalized;
    TRY(json_text(object, "content", &text, &n));
    TRY(json_flag(object, "single_word", 0, &a.single_word));
    TRY(json_flag(object, "lstrip", 0, &a.lstrip));
    TRY(json_flag(object, "rstrip", 0, &a.rstrip));
    TRY(json_flag(object, "special", 0, &a.special));
    TRY(json_flag(object, "normalized", !a.special, &normalized));
    if (n == 0)
        return OK;
    if (vocab_find(t->extra, text, n) >= 0)
        return status_fail(ERR_INVALID, "the added token %.40s is there twice", text);
    return add_token(t, text, n, &a, normalized, next);
}

enum status load_added(struct tokenizer *t, const json_t *list)
{
    int32_t next = (int32_t)vocab_count(t->tokens);
    for (size_t i = 0; i < json_array_size(list); i++)
        TRY(load_added_token(t, json_array_get(list, i), &next));
    return OK;
}

enum status added_check(const struct tokenizer *t, const struct added_token *a)
{
    if (t->rows == 0 || a->id < t->rows)
        return OK;
    return status_fail(
        ERR_INVALID,
        "%.60s stands in the text, which a file beside %.300s adds as the id %d, and the model's embedding has %lld rows",
        (const char *)a->text, t->path, a->id, (long long)t->rows);
}
