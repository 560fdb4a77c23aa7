/* Loading a tokenizer from sentencepiece's tokenizer.model. Private to parts.h. */
#include "text/parts.h"

#include "base/sys.h"
#include "text/json.h"
#include "text/sentencepiece.h"
#include "text/unicode.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#define MARK "\xe2\x96\x81"

/* Tells whether encoding a text may give a piece of this type; pieces of other types are found by their ids only. */
static int is_of_text(enum sp_type type)
{
    return type == SP_NORMAL || type == SP_USER_DEFINED || type == SP_UNUSED;
}

static enum status load_pieces(struct tokenizer *t, const struct sp_file *f)
{
    TRY(vocab_create(&t->pieces));
    for (size_t i = 0; i < f->n; i++) {
        const struct sp_piece *p = &f->piece[i];
        if (vocab_find(t->tokens, p->text.data, p->text.n) >= 0)
            return status_fail(ERR_INVALID, "pieces %d and %zu both are %.*s", vocab_find(t->tokens, p->text.data, p->text.n), i,
                               (int)(p->text.n > 40 ? 40 : p->text.n), (const char *)p->text.data);
        TRY(vocab_add(t->tokens, p->text.data, p->text.n, (int64_t)i));
        if (is_of_text(p->type))
            TRY(vocab_add(t->pieces, p->text.data, p->text.n, (int64_t)i));
        if (p->type == SP_USER_DEFINED)
            TRY(trie_add(&t->defined, p->text.data, p->text.n, (int32_t)i));
    }
    return OK;
}

/* ---- byte pairs: two neighbours become the piece that joins them, the piece of the highest score first ---- */

/* Adds the single characters that are parts of pieces but no pieces themselves, as symbols with ids above those of all pieces. */
static enum status add_characters(struct tokenizer *t, const struct sp_file *f)
{
    int32_t next = (int32_t)f->n;
    for (size_t i = 0; i < f->n; i++) {
        const struct sp_text text = f->piece[i].text;
        if (f->piece[i].type != SP_NORMAL && f->piece[i].type != SP_UNUSED)
            continue;
        for (size_t at = 0, n; at < text.n; at += n) {
            n = utf8_length(text.data[at]);
            if (vocab_find(t->pieces, text.data + at, n) < 0)
                TRY(vocab_add(t->pieces, text.data + at, n, next++));
        }
    }
    return OK;
}

static int descending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return x > y ? -1 : x < y;
}

/* Sorts the scores in descending order; equal scores share a rank. */
static enum status sort_scores(const struct sp_file *f, float **out)
{
    *out = sys_malloc((f->n + 1) * sizeof **out);
    if (!*out)
        return status_fail(ERR_NOMEM, "out of memory: scores of %zu pieces", f->n);
    for (size_t i = 0; i < f->n; i++)
        (*out)[i] = f->piece[i].score;
    qsort(*out, f->n, sizeof **out, descending);
    return OK;
}

static uint32_t rank_of(const float *scores, size_t n, float score)
{
    size_t low = 0;
    while (n > 0) {
        size_t half = n / 2;
        if (scores[low + half] > score) {
            low += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return (uint32_t)low;
}

/* Returns the id of one side of a merge; -1: there is no such piece, or it is user-defined, and these never merge. */
static int32_t side(const struct tokenizer *t, const struct sp_file *f, const uint8_t *text, size_t n)
{
    int32_t id = vocab_find(t->pieces, text, n);
    return id >= 0 && (size_t)id < f->n && f->piece[id].type == SP_USER_DEFINED ? -1 : id;
}

/* Counts the ways in which piece i is made of two other pieces. If `scores` are given, adds each as a merge. */
static uint64_t each_split(struct tokenizer *t, const struct sp_file *f, size_t i, const float *scores)
{
    const struct sp_piece *p = &f->piece[i];
    uint64_t ways = 0;
    if (p->type != SP_NORMAL && p->type != SP_UNUSED)
        return 0;
    for (size_t at = utf8_length(p->text.data[0]); at < p->text.n; at += utf8_length(p->text.data[at])) {
        int32_t left = side(t, f, p->text.data, at), right = left < 0 ? -1 : side(t, f, p->text.data + at, p->text.n - at);
        if (right < 0)
            continue;
        ways++;
        if (scores)
            bpe_add_merge(&t->bpe, left, right, rank_of(scores, f->n, p->score), (int32_t)i);
    }
    return ways;
}

/* Refuses pieces that are too long: looking up every split of a piece takes time by the square of its length. For a vocabulary of
 * 256,000 pieces the squares' sum is 2e7; at the limit the look-ups take seconds. */
static enum status check_work(const struct sp_file *f)
{
    enum { LONG = 64 };
    const uint64_t most = (uint64_t)1 << 31;
    uint64_t work = 0;
    size_t n_long = 0;
    for (size_t i = 0; i < f->n; i++) {
        const struct sp_piece *p = &f->piece[i];
        if (p->type != SP_NORMAL && p->type != SP_UNUSED)
            continue;
        work += (uint64_t)p->text.n * p->text.n;
        n_long += p->text.n > LONG;
    }
    return work <= most
               ? OK
               : status_fail(ERR_INVALID,
                             "%zu of its %zu pieces have more than %d bytes: there are too many ways to merge them from others",
                             n_long, f->n, LONG);
}

static enum status load_merges(struct tokenizer *t, const struct sp_file *f)
{
    float *scores;
    uint64_t n = 0;
    TRY(check_work(f));
    for (size_t i = 0; i < f->n; i++)
        n += each_split(t, f, i, NULL);
    TRY(bpe_reserve_merges(&t->bpe, n));
    TRY(sort_scores(f, &scores));
    for (size_t i = 0; i < f->n; i++)
        each_split(t, f, i, scores);
    free(scores);
    return OK;
}

static enum status find_unused(const struct sp_file *f, const uint8_t **out)
{
    uint8_t *unused = NULL;
    for (size_t i = 0; i < f->n; i++) {
        if (f->piece[i].type != SP_UNUSED)
            continue;
        if (!unused)
            unused = sys_calloc(f->n, 1);
        if (!unused)
            return status_fail(ERR_NOMEM, "out of memory: %zu pieces", f->n);
        unused[i] = 1;
    }
    *out = unused;
    return OK;
}

static enum status load_bpe(struct tokenizer *t, const struct sp_file *f)
{
    struct bpe *b = &t->bpe;
    t->model = MODEL_BPE;
    b->byte_fallback = f->byte_fallback;
    b->fuse_unk = 1;
    b->unk = (int32_t)f->unk;
    b->n_ids = (int32_t)f->n;
    b->keys = t->pieces;
    TRY(find_unused(f, &b->unused));
    TRY(add_characters(t, f));
    TRY(load_merges(t, f));
    for (int c = 0; c < 256; c++)
        b->single[c] = c < 128 ? vocab_find(t->pieces, &(uint8_t){(uint8_t)c}, 1) : -1;
    find_fallbacks(t->tokens, b->fallback);
    if (t->defined.nodes && b->unused)
        /* here the user-defined pieces may not be cut out first: how an unused piece is split depends on the whole text */
        b->defined = &t->defined;
    else if (t->defined.nodes)
        t->stage[t->n_stages++] = (struct stage){.kind = STAGE_DEFINED, .defined = &t->defined};
    return bpe_find_cuts(b);
}

/* ---- unigram ---- */

/* Returns a piece's score. A user-defined piece gets a score so high that it is always taken, as in sentencepiece. */
static double score_of(const struct sp_piece *p, float highest)
{
    return p->type == SP_USER_DEFINED ? (double)((float)p->text.n * highest) - 0.1 : (double)p->score;
}

static enum status load_unigram(struct tokenizer *t, const struct sp_file *f)
{
    struct unigram *u = &t->unigram;
    float lowest = FLT_MAX, highest = FLT_MIN;
    t->model = MODEL_UNIGRAM;
    u->score = sys_calloc(f->n, sizeof *u->score);
    if (!u->score)
        return status_fail(ERR_NOMEM, "out of memory: scores of %zu tokens", f->n);
    for (size_t i = 0; i < f->n; i++)
        if (f->piece[i].type == SP_NORMAL) {
            lowest = f->piece[i].score < lowest ? f->piece[i].score : lowest;
            highest = f->piece[i].score > highest ? f->piece[i].score : highest;
        }
    TRY(trie_add(&u->trie, "", 0, -1)); /* an empty string, so that the root exists */
    u->longest = 4;
    for (size_t i = 0; i < f->n; i++) {
        const struct sp_piece *p = &f->piece[i];
        u->score[i] = score_of(p, highest);
        u->longest = p->text.n > u->longest ? p->text.n : u->longest;
        if (p->type == SP_NORMAL || p->type == SP_USER_DEFINED)
            TRY(trie_add(&u->trie, p->text.data, p->text.n, (int32_t)i));
    }
    u->lowest = lowest;
    u->tokens = t->tokens;
    u->unk = (int32_t)f->unk;
    u->byte_fallback = f->byte_fallback;
    u->as_sentencepiece = 1;
    find_fallbacks(t->tokens, u->fallback);
    return OK;
}

/* ---- the rules around the model ---- */

/* Loads the rules of normalisation. In transformers' legacy mode a space is put before each text between added tokens; else only
 * before the text at the document's beginning. */
static enum status load_rules(struct tokenizer *t, const struct sp_file *f, const struct beside *b)
{
    struct sp_rules *r = &t->normal.step[0].sp;
    int legacy, prefix;
    TRY(json_flag(b->config, "legacy", 1, &legacy));
    TRY(json_flag(b->config, "add_prefix_space", 1, &prefix));
    t->normal.n = 1;
    t->normal.step[0].kind = NORMAL_SENTENCEPIECE;
    r->dummy_prefix = f->dummy_prefix && (legacy || prefix);
    r->only_first = !legacy;
    r->as_suffix = f->space_as_suffix;
    r->removes_spaces = f->removes_spaces;
    r->escapes_spaces = f->escapes_spaces;
    r->defined = t->defined.nodes ? &t->defined : NULL;
    if (f->char_map.n)
        TRY(char_map_take(f->char_map.data, f->char_map.n, &r->map));
    sp_find_plain(r);
    return OK;
}

static enum status add_decoder(struct tokenizer *t, struct decoder d)
{
    t->decoder[t->n_decoders++] = d;
    return OK;
}

/* Loads the decoders that transformers makes for such a file. */
static enum status load_decoders(struct tokenizer *t, const struct sp_file *f)
{
    struct decoder mark = {.kind = DECODE_REPLACE, .n = 1};
    mark.text = sys_calloc(2, 1);
    if (!mark.text)
        return status_fail(ERR_NOMEM, "out of memory: a tokenizer");
    mark.text[0] = ' ';
    TRY(add_decoder(t, mark));
    TRY(regex_compile_literal(MARK, strlen(MARK), &t->decoder[0].pattern));
    if (f->byte_fallback)
        TRY(add_decoder(t, (struct decoder){.kind = DECODE_BYTE_FALLBACK}));
    if (f->byte_fallback || f->dummy_prefix)
        TRY(add_decoder(t, (struct decoder){.kind = DECODE_FUSE}));
    return f->dummy_prefix ? add_decoder(t, (struct decoder){.kind = DECODE_STRIP, .mark = ' ', .start = 1}) : OK;
}

/* Adds the control pieces and the unknown piece as special tokens, whether or not files beside name them. */
static enum status add_controls(struct tokenizer *t, const struct sp_file *f)
{
    int32_t next = 0;
    for (size_t i = 0; i < f->n; i++) {
        const struct sp_piece *p = &f->piece[i];
        const struct added_token like = {.id = (int32_t)i, .special = 1};
        if ((p->type == SP_CONTROL || p->type == SP_UNKNOWN) && vocab_find(t->extra, p->text.data, p->text.n) < 0)
            TRY(add_token(t, (const char *)p->text.data, p->text.n, &like, 0, &next));
    }
    return OK;
}

static struct named_token named(struct sp_text text)
{
    return (struct named_token){(const char *)text.data, text.n};
}

static enum status load_around(struct tokenizer *t, const struct sp_file *f, const struct beside *b)
{
    TRY(load_rules(t, f, b));
    TRY(f->model == SP_BPE ? load_bpe(t, f) : load_unigram(t, f));
    TRY(beside_add(t, b));
    TRY(add_controls(t, f));
    TRY(beside_find_eos(t, b, named(f->eos)));
    TRY(beside_wrap(t, b, named(f->bos), named(f->eos)));
    TRY(added_index(&t->added));
    return load_decoders(t, f);
}

static enum status load_file(struct tokenizer *t, const struct sp_file *f)
{
    static const char *const unknown[] = {"word", "char"};
    struct beside b;
    if (f->model == SP_WORD || f->model == SP_CHAR)
        return status_fail(ERR_INVALID, "the model type %s is not known here (unigram and bpe are)", unknown[f->model - SP_WORD]);
    if (f->model != SP_UNIGRAM && f->model != SP_BPE)
        return status_fail(ERR_INVALID, "the model type %lld is not known here (unigram and bpe are)", (long long)f->model);
    if (f->has_denormalizer)
        return status_fail(ERR_INVALID, "it has a denormalizer, which is not known here");
    TRY(load_pieces(t, f));
    TRY(beside_read(t, &b));
    enum status st = load_around(t, f, &b);
    beside_free(&b);
    return st;
}

enum status load_sentencepiece(struct tokenizer *t, const char *data, size_t n)
{
    struct sp_file f;
    TRY(sp_read(data, n, &f));
    enum status st = load_file(t, &f);
    sp_free(&f);
    return st;
}
