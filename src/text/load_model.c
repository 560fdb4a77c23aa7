/* Loading the model of a tokenizer.json: its vocabulary and merges. Private to parts.h. */
#include "text/parts.h"

#include "base/sys.h"
#include "text/byte_level.h"
#include "text/json.h"
#include "text/unicode.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SHOWN(n) ((int)((n) > 40 ? 40 : (n)))

void find_fallbacks(const struct vocab *v, int32_t id[256])
{
    char name[8];
    for (int i = 0; i < 256; i++)
        id[i] = vocab_find(v, name, (size_t)snprintf(name, sizeof name, "<0x%02X>", (unsigned)i));
}

/* ---- byte pairs ---- */

static enum status read_vocab(struct tokenizer *t, const json_t *vocab)
{
    const char *key;
    json_t *value;
    if (!json_is_object(vocab))
        return status_fail(ERR_INVALID, "the model has no vocab");
    json_object_foreach((json_t *)vocab, key, value)
    {
        if (!json_is_integer(value))
            return status_fail(ERR_INVALID, "the token %.40s has no number as its id", key);
        TRY(vocab_add(t->tokens, key, json_object_iter_key_len(json_object_key_to_iter(key)), json_integer_value(value)));
    }
    return vocab_count(t->tokens) ? OK : status_fail(ERR_INVALID, "the model's vocab is empty");
}

/* Reads the two sides of a merge: ["a", "b"], or "a b". */
static enum status read_sides(const json_t *merge, const char **left, size_t *left_n, const char **right, size_t *right_n)
{
    if (json_is_array(merge) && json_array_size(merge) == 2 && json_is_string(json_array_get(merge, 0)) &&
        json_is_string(json_array_get(merge, 1))) {
        const json_t *a = json_array_get(merge, 0), *b = json_array_get(merge, 1);
        *left = json_string_value(a);
        *left_n = json_string_length(a);
        *right = json_string_value(b);
        *right_n = json_string_length(b);
        return OK;
    }
    const char *text = json_string_value(merge), *space = text ? memchr(text, ' ', json_string_length(merge)) : NULL;
    if (!space)
        return status_fail(ERR_INVALID, "a merge is neither \"a b\" nor [\"a\", \"b\"]");
    *left = text;
    *left_n = (size_t)(space - text);
    *right = space + 1;
    *right_n = json_string_length(merge) - *left_n - 1;
    return memchr(*right, ' ', *right_n) ? status_fail(ERR_INVALID, "the merge %.40s has more than one space", text) : OK;
}

static enum status add_merge(struct tokenizer *t, const json_t *merge, size_t rank, struct text_buffer *both)
{
    const char *left = "", *right = "";
    size_t left_n = 0, right_n = 0;
    TRY(read_sides(merge, &left, &left_n, &right, &right_n));
    both->n = 0;
    TRY(text_buffer_add(both, left, left_n));
    TRY(text_buffer_add(both, right, right_n));
    int32_t a = vocab_find(t->tokens, left, left_n), b = vocab_find(t->tokens, right, right_n),
            to = vocab_find(t->tokens, both->data, both->n);
    if (a < 0 || b < 0 || to < 0)
        return status_fail(ERR_INVALID, "the merge of %.*s and %.*s has a token that is not in the vocab", SHOWN(left_n), left,
                           SHOWN(right_n), right);
    bpe_add_merge(&t->bpe, a, b, (uint32_t)rank, to);
    return OK;
}

static enum status read_merges(struct tokenizer *t, const json_t *merges)
{
    struct text_buffer both = {0};
    enum status st = OK;
    if (!json_is_array(merges))
        return status_fail(ERR_INVALID, "the model has no merges");
    TRY(bpe_reserve_merges(&t->bpe, json_array_size(merges)));
    for (size_t i = 0; i < json_array_size(merges) && st == OK; i++)
        st = add_merge(t, json_array_get(merges, i), i, &both);
    text_buffer_free(&both);
    return st;
}

/* Makes a second vocabulary, in which the tokens' characters are replaced by the bytes they stand for. A token with other
 * characters never occurs and is left out. */
static enum status make_raw(struct tokenizer *t)
{
    struct text_buffer bytes = {0};
    enum status st = vocab_create(&t->raw);
    for (int64_t i = 0; i < vocab_count(t->tokens) && st == OK; i++) {
        int32_t id;
        struct token_text text = vocab_at(t->tokens, i, &id);
        int known = 1;
        bytes.n = 0;
        for (size_t at = 0, n; at < text.n && known && st == OK; at += n) {
            int byte = byte_of_char(utf8_read(text.data + at, &n));
            known = byte >= 0;
            if (known)
                st = text_buffer_add(&bytes, &(uint8_t){(uint8_t)byte}, 1);
        }
        if (known && st == OK)
            st = vocab_add(t->raw, bytes.data, bytes.n, id);
    }
    text_buffer_free(&bytes);
    return st;
}

static void find_singles(struct tokenizer *t)
{
    for (int i = 0; i < 256; i++) {
        uint8_t c[4];
        size_t n = utf8_write(t->bpe.raw ? byte_to_char((uint8_t)i) : (uint32_t)i, c);
        t->bpe.single[i] = i < 128 || t->bpe.raw ? vocab_find(t->tokens, c, n) : -1;
    }
}

static enum status refuse_text(const json_t *model, const char *key)
{
    return json_word(model, key)[0] ? status_fail(ERR_INVALID, "the model has %s, which is not known here", key) : OK;
}

static enum status load_bpe(struct tokenizer *t, const json_t *model)
{
    struct bpe *b = &t->bpe;
    const json_t *unk = json_member(model, "unk_token");
    TRY(refuse_text(model, "continuing_subword_prefix"));
    TRY(refuse_text(model, "end_of_word_suffix"));
    if (json_number_value(json_member(model, "dropout")) != 0.0)
        return status_fail(ERR_INVALID, "the model has a dropout of merges, which is not known here");
    TRY(json_flag(model, "byte_fallback", 0, &b->byte_fallback));
    TRY(json_flag(model, "fuse_unk", 0, &b->fuse_unk));
    TRY(json_flag(model, "ignore_merges", 0, &b->ignore_merges));
    TRY(read_vocab(t, json_member(model, "vocab")));
    TRY(read_merges(t, json_member(model, "merges")));
    b->unk = UNK_NONE;
    b->n_ids = INT32_MAX;
    if (json_is_string(unk)) {
        b->unk = vocab_find(t->tokens, json_string_value(unk), json_string_length(unk));
        b->unk = b->unk < 0 ? UNK_MISSING : b->unk;
    }
    const struct stage *last = t->n_stages ? &t->stage[t->n_stages - 1] : NULL;
    b->raw = last && last->kind == STAGE_BYTE_LEVEL && !last->maps;
    if (b->raw)
        TRY(make_raw(t));
    b->keys = b->raw ? t->raw : t->tokens;
    find_singles(t);
    find_fallbacks(t->tokens, b->fallback);
    return bpe_find_cuts(b);
}

/* ---- unigram ---- */

static enum status read_pieces(struct tokenizer *t, const json_t *vocab)
{
    struct unigram *u = &t->unigram;
    size_t n = json_array_size(vocab);
    if (n == 0 || n > MOST_TOKENS)
        return status_fail(ERR_INVALID, "the model's vocab is no list of 1 to %d tokens", MOST_TOKENS);
    u->score = sys_calloc(n, sizeof *u->score);
    if (!u->score)
        return status_fail(ERR_NOMEM, "out of memory: scores of %zu tokens", n);
    u->lowest = INFINITY;
    for (size_t i = 0; i < n; i++) {
        const json_t *piece = json_array_get(vocab, i), *text = json_array_get(piece, 0), *score = json_array_get(piece, 1);
        if (!json_is_string(text) || !json_is_number(score))
            return status_fail(ERR_INVALID, "token %zu of the model's vocab is no pair of text and score", i);
        u->score[i] = json_number_value(score);
        u->lowest = u->score[i] < u->lowest ? u->score[i] : u->lowest;
        TRY(vocab_add(t->tokens, json_string_value(text), json_string_length(text), (int64_t)i));
        if (json_string_length(text))
            TRY(trie_add(&u->trie, json_string_value(text), json_string_length(text), (int32_t)i));
    }
    return trie_add(&u->trie, "", 0, -1); /* an empty string, so that the root exists */
}

static enum status load_unigram(struct tokenizer *t, const json_t *model)
{
    struct unigram *u = &t->unigram;
    const json_t *unk = json_member(model, "unk_id");
    TRY(json_flag(model, "byte_fallback", 0, &u->byte_fallback));
    TRY(read_pieces(t, json_member(model, "vocab")));
    u->unk = -1;
    if (unk && (json_integer_value(unk) < 0 || json_integer_value(unk) >= vocab_count(t->tokens)))
        return status_fail(ERR_INVALID, "the model's unk_id is %lld, and it has %lld tokens", (long long)json_integer_value(unk),
                           (long long)vocab_count(t->tokens));
    if (unk)
        u->unk = (int32_t)json_integer_value(unk);
    u->tokens = t->tokens;
    if (t->n_stages) /* the last stage gives characters, as a unigram model takes no bytes */
        t->stage[t->n_stages - 1].maps = 1;
    find_fallbacks(t->tokens, u->fallback);
    return OK;
}

enum status load_model(struct tokenizer *t, const json_t *model)
{
    const char *type = json_word(model, "type");
    if (!json_is_object(model))
        return status_fail(ERR_INVALID, "it has no model");
    if (strcmp(type, "Unigram") == 0 || (!type[0] && json_is_array(json_member(model, "vocab")))) {
        t->model = MODEL_UNIGRAM;
        return load_unigram(t, model);
    }
    if (strcmp(type, "BPE") == 0 || (!type[0] && json_member(model, "merges")))
        return load_bpe(t, model);
    return status_fail(ERR_INVALID, "the model %.40s is not known here (BPE and Unigram are)", type[0] ? type : "without a type");
}
