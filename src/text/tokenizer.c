/* Opening a tokenizer.json. */
#include "text/parts.h"

#include "base/sys.h"
#include "text/json.h"
#include "text/known.h"
#include "text/unicode.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#define LARGEST_FILE ((int64_t)1 << 30)

/* ---- the file ---- */

static enum status read_all(const char *path, char **text, size_t *n)
{
    struct stat s;
    int fd = sys_open_file(path, O_RDONLY, 0);
    if (fd < 0)
        return sys_cannot_open(path);
    enum status st = OK;
    size_t done = 0;
    *text = NULL;
    if (sys_fstat(fd, &s) != 0)
        st = status_fail(ERR_IO, "cannot read the state of %s: %s", path, strerror(errno));
    else if (s.st_size > LARGEST_FILE)
        st = status_fail(ERR_INVALID, "%s has %lld bytes: no tokenizer is that large", path, (long long)s.st_size);
    else if (!(*text = sys_malloc((size_t)s.st_size + 1)))
        st = status_fail(ERR_NOMEM, "out of memory: %s", path);
    while (st == OK && done < (size_t)s.st_size) {
        ssize_t got = sys_pread(fd, *text + done, (size_t)s.st_size - done, (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            st = status_fail(got < 0 ? ERR_IO : ERR_CORRUPT, "cannot read %s: %s", path, got < 0 ? strerror(errno) : "it ends early");
        done += got > 0 ? (size_t)got : 0;
    }
    sys_close(fd);
    *n = done;
    if (st != OK) {
        free(*text);
        *text = NULL;
    }
    return st;
}

/* ---- added tokens ---- */

static enum status copy(const void *from, size_t n, uint8_t **out)
{
    *out = sys_malloc(n + 1);
    if (!*out)
        return status_fail(ERR_NOMEM, "out of memory: added tokens");
    memcpy(*out, from, n);
    (*out)[n] = 0;
    return OK;
}

static enum status normalize_added(struct tokenizer *t, struct added_token *a)
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

/* The library's rule: the id that the text has already, else the next free one. */
static int32_t id_of_added(const struct tokenizer *t, const char *text, size_t n, int32_t *next)
{
    int32_t id = vocab_find(t->extra, text, n);
    if (id < 0)
        id = vocab_find(t->tokens, text, n);
    return id >= 0 ? id : (*next)++;
}

static enum status load_added_token(struct tokenizer *t, const json_t *object, int32_t *next)
{
    struct added_token a = {0};
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
    a.id = id_of_added(t, text, n, next);
    a.n = n;
    enum status st = copy(text, n, &a.text);
    if (st == OK && normalized)
        st = normalize_added(t, &a);
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

static enum status load_added(struct tokenizer *t, const json_t *list)
{
    int32_t next = (int32_t)vocab_count(t->tokens);
    for (size_t i = 0; i < json_array_size(list); i++)
        TRY(load_added_token(t, json_array_get(list, i), &next));
    return added_index(&t->added);
}

/* ---- the whole ---- */

static enum status load(struct tokenizer *t, const json_t *root)
{
    if (!json_is_object(root))
        return status_fail(ERR_INVALID, "it is no JSON object");
    TRY(load_normalizer(t, json_member(root, "normalizer")));
    TRY(load_stages(t, json_member(root, "pre_tokenizer")));
    TRY(load_model(t, json_member(root, "model")));
    TRY(load_added(t, json_member(root, "added_tokens")));
    TRY(load_template(t, json_member(root, "post_processor")));
    TRY(load_decoder(t, json_member(root, "decoder")));
    tokenizer_find_cuts(t);
    return OK;
}

static enum status parse(struct tokenizer *t, const char *text, size_t n)
{
    json_error_t error;
    json_t *root = json_loadb(text, n, JSON_ALLOW_NUL, &error);
    if (!root)
        return status_fail(ERR_INVALID, "%s: line %d: %s", t->path, error.line, error.text);
    enum status st = load(t, root);
    json_decref(root);
    if (st != OK) {
        char cause[600];
        snprintf(cause, sizeof cause, "%s", status_message());
        st = status_fail(st, "%s: %s", t->path, cause);
    }
    return st;
}

enum status tokenizer_open(const char *path, struct tokenizer **out)
{
    enum status st;
    struct stat s;
    char *text = NULL;
    size_t n = 0;
    struct tokenizer *t = sys_calloc(1, sizeof *t);
    if (!t)
        return status_fail(ERR_NOMEM, "out of memory: a tokenizer");
    t->bpe.unk = UNK_NONE;
    int directory = sys_stat(path, &s) == 0 && S_ISDIR(s.st_mode);
    if (asprintf(&t->path, "%s%s", path, directory ? "/tokenizer.json" : "") < 0) {
        free(t);
        return status_fail(ERR_NOMEM, "out of memory: a tokenizer");
    }
    TRY_GOTO(read_all(t->path, &text, &n), fail);
    t->hash = XXH3_64bits(text, n);
    TRY_GOTO(vocab_create(&t->tokens), fail);
    TRY_GOTO(vocab_create(&t->extra), fail);
    TRY_GOTO(parse(t, text, n), fail);
    free(text);
    *out = t;
    return OK;
fail:
    free(text);
    tokenizer_close(t);
    return st;
}

void tokenizer_close(struct tokenizer *t)
{
    if (!t)
        return;
    for (int i = 0; i < t->n_stages; i++)
        regex_free(t->stage[i].pattern);
    for (int i = 0; i < t->n_decoders; i++) {
        regex_free(t->decoder[i].pattern);
        free(t->decoder[i].text);
    }
    normal_free(&t->normal);
    added_free(&t->added);
    bpe_free(&t->bpe);
    unigram_free(&t->unigram);
    vocab_free(t->tokens);
    vocab_free(t->raw);
    vocab_free(t->extra);
    free(t->before.id);
    free(t->behind.id);
    free(t->path);
    free(t);
}

const char *tokenizer_path(const struct tokenizer *t)
{
    return t->path;
}

uint64_t tokenizer_hash(const struct tokenizer *t)
{
    return t->hash;
}

int64_t tokenizer_ids(const struct tokenizer *t)
{
    int64_t a = vocab_end(t->tokens), b = vocab_end(t->extra);
    return a > b ? a : b;
}

void tokenizer_template(const struct tokenizer *t, const struct ids **before, const struct ids **behind)
{
    *before = &t->before;
    *behind = &t->behind;
}

int32_t tokenizer_find(const struct tokenizer *t, const char *token)
{
    int32_t id = vocab_find(t->extra, token, strlen(token));
    return id >= 0 ? id : vocab_find(t->tokens, token, strlen(token));
}

/* ---- cuts ---- */

static int is_alnum(uint8_t c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Whether a text has a newline with a letter or digit behind it. */
static int crosses(const uint8_t *text, size_t n)
{
    for (size_t i = 0; i + 1 < n; i++)
        if (text[i] == '\n' && is_alnum(text[i + 1]))
            return 1;
    return 0;
}

static int tokens_cross(const struct tokenizer *t)
{
    const struct vocab *v = t->raw ? t->raw : t->tokens;
    for (int64_t i = 0; i < vocab_count(v); i++) {
        int32_t id;
        struct token_text text = vocab_at(v, i, &id);
        if (crosses(text.data, text.n))
            return 1;
    }
    return 0;
}

/* Whether the model itself joins nothing across a newline. Unigram's sums would be rounded otherwise in parts of a text. */
static int model_is_blind(const struct tokenizer *t)
{
    const struct bpe *b = &t->bpe;
    return t->model == MODEL_BPE && !b->ignore_merges && (b->raw || b->pairs) && b->single['\n'] >= 0 && !tokens_cross(t);
}

/* A map may make spaces of newlines, which is no matter where white space is cut out. */
static int map_keeps_newlines(const struct char_map *map)
{
    struct text_buffer out = {0};
    int keeps = char_map_apply(map, (const uint8_t *)"\n", 1, &out) == OK && out.n == 1 && out.data[0] == '\n';
    text_buffer_free(&out);
    return keeps;
}

/* Prefixes are left out of a continued text, and normal forms never join ASCII to what is before it. */
static int normalizer_is_blind(const struct tokenizer *t, const struct normal_step *s)
{
    int spaces_cut = t->n_stages > 0 && t->stage[0].kind == STAGE_CHARS && t->stage[0].takes == unicode_is_space;
    if (s->kind == NORMAL_PRECOMPILED)
        return spaces_cut || map_keeps_newlines(&s->map);
    return s->kind != NORMAL_STRIP && (s->kind != NORMAL_REPLACE || s->spaces);
}

void tokenizer_find_cuts(struct tokenizer *t)
{
    int cut = 0;
    for (int i = 0; i < t->normal.n; i++)
        if (!normalizer_is_blind(t, &t->normal.step[i]))
            return;
    for (int64_t i = 0; i < t->added.n; i++) {
        const struct added_token *a = &t->added.token[i];
        if (crosses(a->text, a->n) || (a->normal && crosses(a->normal, a->normal_n)) || (a->lstrip && is_alnum(a->text[0])))
            return;
    }
    for (int i = 0; i < t->n_stages && !cut; i++) {
        const struct stage *s = &t->stage[i];
        cut = known_cuts(s);
        if (!cut && !known_is_blind(s))
            return;
        if (!cut && s->kind == STAGE_BYTE_LEVEL && s->maps) /* newlines are other characters from here on */
            return;
    }
    t->can_cut = cut || model_is_blind(t);
}

int tokenizer_can_cut(const struct tokenizer *t)
{
    return t->can_cut;
}

size_t tokenizer_cut(const struct tokenizer *t, const uint8_t *text, size_t n)
{
    for (size_t at = n; t->can_cut && at > 2; at--)
        if (text[at - 2] == '\n' && is_alnum(text[at - 1]) && text[at - 3] > ' ' && text[at - 3] < 0x7f)
            return at - 1;
    return 0;
}

/* ---- broken text ---- */

enum status text_repair(const uint8_t *text, size_t n, struct text_buffer *out, int64_t *repaired)
{
    size_t at = utf8_valid(text, n), from = 0;
    *repaired = 0;
    while (at < n) {
        TRY(text_buffer_add(out, text + from, at - from));
        TRY(text_buffer_add_char(out, 0xfffd));
        at += utf8_broken(text + at, n - at);
        from = at;
        at += utf8_valid(text + at, n - at);
        ++*repaired;
    }
    return *repaired ? text_buffer_add(out, text + from, n - from) : OK;
}

int tokenizer_special(const struct tokenizer *t, int64_t *at, const uint8_t **text, size_t *n)
{
    for (; *at < t->added.n; ++*at) {
        const struct added_token *token = &t->added.token[*at];
        if (!token->special)
            continue;
        *text = token->text;
        *n = token->n;
        ++*at;
        return 1;
    }
    return 0;
}
