/* Opening a tokenizer: a tokenizer.json, or sentencepiece's tokenizer.model where there is none. */
#include "text/parts.h"

#include "base/sys.h"
#include "text/json.h"
#include "text/known.h"
#include "text/unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

/* ---- cuts ---- */

static int is_alnum(uint8_t c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Tells whether a text has a newline directly before a letter or digit. */
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

/* Tells whether a newline never merges, as a token of its own or a byte that always is one, and letters and digits behind it are
 * not dropped. */
static int newline_stands_alone(const struct bpe *b)
{
    int all = b->byte_fallback, stays = b->unk != UNK_NONE;
    for (int i = 0; i < 256 && all; i++)
        all = b->fallback[i] >= 0;
    for (int c = '0'; c <= 'z' && !stays; c++)
        if (is_alnum((uint8_t)c) && b->single[c] < 0)
            return all;
    return all || (b->single['\n'] >= 0 && b->single['\n'] < b->n_ids);
}

/* Tells whether the model never joins text across a newline. A unigram model does not count: its sums would be rounded
 * differently in parts of a text. */
static int model_is_blind(const struct tokenizer *t)
{
    const struct bpe *b = &t->bpe;
    return t->model == MODEL_BPE && !b->ignore_merges && (b->raw || b->pairs) && newline_stands_alone(b) && !tokens_cross(t);
}

/* Tells whether a map leaves newlines as they are. It may also turn them into spaces, which does not matter if a later stage cuts
 * out white space. */
static int map_keeps_newlines(const struct char_map *map)
{
    struct text_buffer out = {0};
    int keeps = char_map_apply(map, (const uint8_t *)"\n", 1, &out) == OK && out.n == 1 && out.data[0] == '\n';
    text_buffer_free(&out);
    return keeps;
}

/* Tells whether a normalizer gives the parts of a cut text the same result as the whole. Prefixes are left out of a continued
 * text, and normal forms never join ASCII to the text before. */
static int normalizer_is_blind(const struct tokenizer *t, const struct normal_step *s)
{
    int spaces_cut = t->n_stages > 0 && t->stage[0].kind == STAGE_CHARS && t->stage[0].takes == unicode_is_space;
    if (s->kind == NORMAL_PRECOMPILED)
        return spaces_cut || map_keeps_newlines(&s->map);
    if (s->kind == NORMAL_SENTENCEPIECE)
        return !s->sp.map.units && !s->sp.as_suffix;
    return s->kind != NORMAL_STRIP && (s->kind != NORMAL_REPLACE || s->spaces);
}

/* Tells whether a stage puts a space or mark before each piece, except a continued one. */
static int stage_puts_in_front(const struct stage *s)
{
    return s->prefix_space || (s->kind == STAGE_METASPACE && s->prepend == PREPEND_ALWAYS);
}

/* Tells whether something is put before each text that follows an added token; a continued text would lack it. */
static int puts_in_front(const struct tokenizer *t)
{
    for (int i = 0; i < t->normal.n; i++) {
        const struct normal_step *s = &t->normal.step[i];
        if (s->kind == NORMAL_PREPEND || (s->kind == NORMAL_SENTENCEPIECE && s->sp.dummy_prefix && !s->sp.only_first))
            return 1;
    }
    for (int i = 0; i < t->n_stages; i++)
        if (stage_puts_in_front(&t->stage[i]))
            return 1;
    return 0;
}

/* Tells whether an added token cannot span a newline and the text behind, so that text may be cut there. Notes in no_cut_behind
 * the bytes that may not come before that newline. */
static int added_is_blind(struct tokenizer *t, const struct added_token *a, const uint8_t *text, size_t n, int in_front)
{
    int ends_line = text[n - 1] == '\n' && (a->single_word || in_front);
    if (crosses(text, n) || (a->lstrip && is_alnum(text[0])) || (ends_line && n == 1))
        return 0;
    if (ends_line)
        t->no_cut_behind[text[n - 2]] = 1;
    if (in_front) /* a newline behind the token is part of the token, or of the text that gets something put in front */
        t->no_cut_behind[text[n - 1]] = 1;
    return 1;
}

static void find_cuts(struct tokenizer *t)
{
    int cut = 0, in_front = puts_in_front(t), splits = 0; /* splits: a continued text may begin with a piece of its own */
    int spaces = 0;                                       /* 1: a map turns newlines into spaces */
    for (int i = 0; i < t->normal.n; i++) {
        if (!normalizer_is_blind(t, &t->normal.step[i]))
            return;
        spaces |= t->normal.step[i].kind == NORMAL_PRECOMPILED && !map_keeps_newlines(&t->normal.step[i].map);
    }
    for (int64_t i = 0; i < t->added.n; i++) {
        const struct added_token *a = &t->added.token[i];
        if (!added_is_blind(t, a, a->text, a->n, in_front) ||
            (a->normal && !added_is_blind(t, a, a->normal, a->normal_n, in_front)))
            return;
        if (a->normal && spaces && memchr(a->normal, ' ', a->normal_n))
            return;
    }
    for (int i = 0; i < t->n_stages && !cut; i++) {
        const struct stage *s = &t->stage[i];
        if (splits && stage_puts_in_front(s))
            return;
        splits |= s->kind == STAGE_CHARS || s->kind == STAGE_SPLIT;
        cut = known_cuts(s);
        if (!cut && !known_is_blind(s))
            return;
        /* from here on newlines are other characters, which later stages' rules do not know */
        if (!cut && s->kind == STAGE_BYTE_LEVEL && s->maps)
            return;
    }
    t->can_cut = cut || model_is_blind(t);
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
    t->file_ids = vocab_end(t->tokens) > vocab_end(t->extra) ? vocab_end(t->tokens) : vocab_end(t->extra);
    TRY(load_config_tokens(t, json_member(root, "pre_tokenizer")));
    TRY(added_index(&t->added));
    TRY(load_template(t, json_member(root, "post_processor")));
    return load_decoder(t, json_member(root, "decoder"));
}

static enum status parse(struct tokenizer *t, const char *text, size_t n)
{
    json_error_t error;
    json_t *root = json_loadb(text, n, JSON_ALLOW_NUL, &error);
    if (!root)
        return status_fail(ERR_INVALID, "line %d: %s", error.line, error.text);
    enum status st = load(t, root);
    json_decref(root);
    return st;
}

/* Tells whether a file is sentencepiece's, by its name. */
static int is_sentencepiece(const char *path)
{
    const char *slash = strrchr(path, '/');
    return strstr(slash ? slash : path, ".model") != NULL;
}

/* Hashes added tokens and rules, which the files beside the tokenizer may change. */
static uint64_t hash_tokens(const struct tokenizer *t, uint64_t hash)
{
    for (int64_t i = 0; i < t->added.n; i++) {
        const struct added_token *a = &t->added.token[i];
        const int32_t rest[] = {a->id, a->single_word, a->lstrip, a->rstrip, a->special, a->normal != NULL, t->splits_special};
        /* older releases did not read these files: without them the hash is the same as theirs */
        const size_t n_rest = t->from_beside || t->splits_special ? 7 : 5;
        hash = XXH3_64bits_withSeed(a->text, a->n, hash);
        hash = XXH3_64bits_withSeed(rest, n_rest * sizeof *rest, hash);
    }
    const int prefix[] = {t->normal.step[0].sp.dummy_prefix, t->normal.step[0].sp.only_first};
    hash = XXH3_64bits_withSeed(prefix, sizeof prefix, hash);
    hash = XXH3_64bits_withSeed(t->before.id, t->before.n * sizeof *t->before.id, hash);
    return XXH3_64bits_withSeed(t->behind.id, t->behind.n * sizeof *t->behind.id, hash);
}

static enum status read_file(struct tokenizer *t)
{
    char *text;
    size_t n;
    int sentencepiece = is_sentencepiece(t->path);
    TRY(read_whole(t->path, &text, &n));
    t->hash = XXH3_64bits(text, n);
    enum status st = sentencepiece ? load_sentencepiece(t, text, n) : parse(t, text, n);
    free(text);
    if (st == OK)
        find_cuts(t);
    if (st == OK && (sentencepiece || t->from_beside || t->splits_special))
        t->hash = hash_tokens(t, t->hash);
    if (st != OK) {
        char cause[600];
        snprintf(cause, sizeof cause, "%s", status_message());
        st = status_fail(st, "%s: %s", t->path, cause);
    }
    return st;
}

const char *tokenizer_file_name(const char *name)
{
    return is_sentencepiece(name) ? "tokenizer.model" : "tokenizer.json";
}

static int has(const char *dir, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return sys_access(path, F_OK) == 0;
}

int tokenizer_is_in(const char *dir)
{
    return has(dir, "tokenizer.json") || has(dir, "tokenizer.model");
}

enum status tokenizer_open(const char *path, struct tokenizer **out)
{
    enum status st;
    struct stat s;
    const int directory = sys_stat(path, &s) == 0 && S_ISDIR(s.st_mode);
    if (directory && !has(path, "tokenizer.json") && !has(path, "tokenizer.model"))
        TRY(tokenizer_check_others(path));
    struct tokenizer *t = sys_calloc(1, sizeof *t);
    if (!t)
        return status_fail(ERR_NOMEM, "out of memory: a tokenizer");
    t->bpe.unk = UNK_NONE;
    t->eos = -1;
    int json = directory && (has(path, "tokenizer.json") || !has(path, "tokenizer.model"));
    if (asprintf(&t->path, "%s%s", path, json ? "/tokenizer.json" : directory ? "/tokenizer.model" : "") < 0) {
        free(t);
        return status_fail(ERR_NOMEM, "out of memory: a tokenizer");
    }
    TRY_GOTO(vocab_create(&t->tokens), fail);
    TRY_GOTO(vocab_create(&t->extra), fail);
    TRY_GOTO(read_file(t), fail);
    *out = t;
    return OK;
fail:
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
    vocab_free(t->pieces);
    trie_free(&t->defined);
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
    int64_t a = vocab_end(t->tokens), b = vocab_end(t->extra), all = a > b ? a : b;
    return t->rows > 0 && t->file_ids <= t->rows && all > t->rows ? t->rows : all;
}

void tokenizer_fit(struct tokenizer *t, int64_t rows)
{
    t->rows = t->from_beside ? rows : 0;
}

const char *tokenizer_remark(const struct tokenizer *t)
{
    return t->remark;
}

void tokenizer_template(const struct tokenizer *t, const struct ids **before, const struct ids **behind)
{
    *before = &t->before;
    *behind = &t->behind;
}

int32_t tokenizer_eos(const struct tokenizer *t)
{
    return t->eos;
}

int32_t tokenizer_find(const struct tokenizer *t, const char *token)
{
    int32_t id = vocab_find(t->extra, token, strlen(token));
    return id >= 0 ? id : vocab_find(t->tokens, token, strlen(token));
}

size_t tokenizer_cut(const struct tokenizer *t, const uint8_t *text, size_t n)
{
    for (size_t at = n; t->can_cut && at > 2; at--)
        if (text[at - 2] == '\n' && is_alnum(text[at - 1]) && text[at - 3] > ' ' && text[at - 3] < 0x7f &&
            !t->no_cut_behind[text[at - 3]])
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
