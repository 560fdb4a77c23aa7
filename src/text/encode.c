/* Encoding text: added tokens are cut out, the rest is normalised and cut into pieces, and each piece is encoded. */
#include "text/parts.h"

#include "base/sys.h"
#include "text/byte_level.h"
#include "text/known.h"
#include "text/piece_cache.h"
#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>

struct encoder {
    const struct tokenizer *t;
    struct regex_room *matching;
    struct normal_room normal;
    struct text_buffer stage[MOST_STAGES]; /* [k]: the pieces that stage k has rewritten */
    struct bpe_room bpe;
    struct unigram_room unigram;
    struct piece_cache *cache;
    struct ids *out;
    int special;
};

enum status encoder_create(const struct tokenizer *t, struct encoder **out)
{
    enum status st;
    struct encoder *e = sys_calloc(1, sizeof *e);
    if (!e)
        return status_fail(ERR_NOMEM, "out of memory: a tokenizer");
    e->t = t;
    TRY_GOTO(regex_room_create(&e->matching), fail);
    TRY_GOTO(piece_cache_create(&e->cache), fail);
    *out = e;
    return OK;
fail:
    encoder_free(e);
    return st;
}

void encoder_free(struct encoder *e)
{
    if (!e)
        return;
    regex_room_free(e->matching);
    normal_room_free(&e->normal);
    for (int i = 0; i < MOST_STAGES; i++)
        text_buffer_free(&e->stage[i]);
    bpe_room_free(&e->bpe);
    unigram_room_free(&e->unigram);
    piece_cache_free(e->cache);
    free(e);
}

/* ---- the model ---- */

static enum status encode_word(struct encoder *e, const uint8_t *piece, size_t n)
{
    struct piece_key key = {0};
    int cached = !e->t->bpe.unused && piece_key_make(piece, n, &key);
    if (cached) {
        TRY(ids_reserve(e->out, PIECE_IDS));
        size_t k = piece_cache_take(e->cache, &key, e->out->id + e->out->n);
        e->out->n += k;
        if (k)
            return OK;
    }
    size_t first = e->out->n;
    TRY(e->t->model == MODEL_BPE ? bpe_encode(&e->t->bpe, &e->bpe, piece, n, e->out)
                                 : unigram_encode(&e->t->unigram, &e->unigram, piece, n, e->out));
    if (cached)
        piece_cache_put(e->cache, &key, e->out->id + first, e->out->n - first);
    return OK;
}

static enum status encode_piece(struct encoder *e, const uint8_t *piece, size_t n)
{
    while (n > 0) {
        size_t part = e->t->model == MODEL_BPE ? bpe_cut(&e->t->bpe, piece, n) : n;
        TRY(encode_word(e, piece, part));
        piece += part;
        n -= part;
    }
    return OK;
}

/* ---- stages ---- */

/* A piece's place in its document. */
struct where {
    int continues; /* 1: the piece begins where a document was cut (ENCODE_CONTINUES) */
    size_t zero;   /* bytes at the piece's beginning that come from the document's first character */
};

/* Returns the place of the part of a piece that begins at `start`. */
static struct where place_in(struct where whole, size_t start)
{
    return (struct where){start == 0 && whole.continues, whole.zero > start ? whole.zero - start : 0};
}

static enum status run_stage(struct encoder *e, int k, const uint8_t *text, size_t n, struct where where);

/* State of splitting a piece into matches of a pattern and the text between. `behavior` says how both are passed to the next
 * stage. */
struct splitting {
    struct encoder *e;
    int next;
    const uint8_t *text;
    struct where where;
    enum split_behavior behavior;
    int invert;
    size_t start, end; /* bytes of the part that waits to be passed on, as it may be joined with the next */
    int have, was_match;
};

static enum status pass(struct splitting *s, size_t start, size_t end)
{
    return end > start ? run_stage(s->e, s->next, s->text + start, end - start, place_in(s->where, start)) : OK;
}

static enum status hold(struct splitting *s, size_t start, size_t end)
{
    enum status st = s->have ? pass(s, s->start, s->end) : OK;
    s->have = 1;
    s->start = start;
    s->end = end;
    return st;
}

static enum status add_part(struct splitting *s, size_t start, size_t end, int match)
{
    match = match != s->invert;
    int was_match = s->was_match, have = s->have;
    s->was_match = match;
    switch (s->behavior) {
    case SPLIT_ISOLATED:
        return pass(s, start, end);
    case SPLIT_REMOVED:
        return match ? OK : pass(s, start, end);
    case SPLIT_CONTIGUOUS:
        if (!have || match != was_match)
            return hold(s, start, end);
        break;
    case SPLIT_MERGED_WITH_PREVIOUS:
        if (!have || !match || was_match)
            return hold(s, start, end);
        break;
    case SPLIT_MERGED_WITH_NEXT:
        if (!have || match || !was_match)
            return hold(s, start, end);
        break;
    }
    s->end = end;
    return OK;
}

static enum status end_parts(struct splitting *s)
{
    return s->have ? pass(s, s->start, s->end) : OK;
}

/* Splits by a pattern whose matches in ASCII text are known (known_piece), and passes the pieces straight on without `behavior`. */
static enum status split_known(struct encoder *e, int k, const struct stage *stage, const uint8_t *text, size_t n,
                               struct where where)
{
    struct regex_match m;
    size_t at = 0;
    while (at < n) {
        size_t end = known_piece(stage->known, text, n, at);
        if (end == 0) {
            TRY(regex_find(stage->pattern, e->matching, text, n, at, &m));
            size_t start = m.start > n ? n : m.start;
            if (start > at)
                TRY(run_stage(e, k + 1, text + at, start - at, place_in(where, at)));
            at = start;
            end = m.start > n ? n : m.end;
        }
        if (end > at)
            TRY(run_stage(e, k + 1, text + at, end - at, place_in(where, at)));
        at = end;
    }
    return OK;
}

static enum status split(struct encoder *e, int k, const struct stage *stage, const uint8_t *text, size_t n, struct where where)
{
    struct splitting s = {
        .e = e, .next = k + 1, .text = text, .where = where, .behavior = stage->behavior, .invert = stage->invert};
    struct regex_scan scan = {0};
    struct regex_match m;
    size_t at = 0;
    if (stage->known != PATTERN_UNKNOWN && stage->known < PATTERN_BREAKS && stage->behavior == SPLIT_ISOLATED)
        return split_known(e, k, stage, text, n, where);
    for (;;) {
        TRY(regex_next(stage->pattern, e->matching, text, n, &scan, &m));
        if (m.start > n)
            break;
        if (m.start > at)
            TRY(add_part(&s, at, m.start, 0));
        TRY(add_part(&s, m.start, m.end, 1));
        at = m.end;
    }
    if (at < n)
        TRY(add_part(&s, at, n, 0));
    return end_parts(&s);
}

static enum status split_chars(struct encoder *e, int k, const struct stage *stage, const uint8_t *text, size_t n,
                               struct where where)
{
    struct splitting s = {.e = e, .next = k + 1, .text = text, .where = where, .behavior = stage->behavior};
    size_t from = 0, bytes;
    for (size_t at = 0; at < n; at += bytes) {
        if (!stage->takes(utf8_read(text + at, &bytes)))
            continue;
        if (at > from)
            TRY(add_part(&s, from, at, 0));
        TRY(add_part(&s, at, at + bytes, 1));
        from = at + bytes;
    }
    if (from < n)
        TRY(add_part(&s, from, n, 0));
    return end_parts(&s);
}

/* Returns the place for the next stage. If this stage surely cuts at the beginning of a continued text, the piece there no longer
 * counts as continued. */
static struct where behind(const struct stage *stage, struct where where)
{
    where.continues = where.continues && !known_cuts(stage);
    return where;
}

/* Maps bytes to GPT-2's characters, for later stages that read characters. */
static enum status map_bytes(struct encoder *e, int k, const uint8_t *text, size_t n, struct where where)
{
    struct text_buffer *b = &e->stage[k];
    size_t zero = 0;
    b->n = 0;
    TRY(text_buffer_reserve(b, 2 * n));
    for (size_t i = 0; i < n; i++) {
        b->n += utf8_write(byte_to_char(text[i]), b->data + b->n);
        zero = i < where.zero ? b->n : zero;
    }
    where.zero = zero;
    return run_stage(e, k + 1, b->data, b->n, where);
}

static enum status byte_level(struct encoder *e, int k, const struct stage *stage, const uint8_t *text, size_t n,
                              struct where where)
{
    struct regex_scan scan = {0};
    struct regex_match m = {0, 0};
    struct text_buffer prefixed = {0};
    enum status st = OK;
    if (stage->prefix_space && text[0] != ' ' && !where.continues) {
        TRY(text_buffer_add(&prefixed, " ", 1));
        TRY_GOTO(text_buffer_add(&prefixed, text, n), done);
        text = prefixed.data;
        n++;
        where.zero += where.zero > 0;
    }
    where = behind(stage, where);
    if (!stage->maps) {
        st = stage->pattern ? split_known(e, k, stage, text, n, where) : run_stage(e, k + 1, text, n, where);
        goto done;
    }
    if (!stage->pattern) {
        st = map_bytes(e, k, text, n, where);
        goto done;
    }
    for (size_t at = 0; at < n; at = m.end) {
        TRY_GOTO(regex_next(stage->pattern, e->matching, text, n, &scan, &m), done);
        if (m.start > n)
            m.start = m.end = n;
        if (m.start > at)
            TRY_GOTO(map_bytes(e, k, text + at, m.start - at, place_in(where, at)), done);
        if (m.end > m.start)
            TRY_GOTO(map_bytes(e, k, text + m.start, m.end - m.start, place_in(where, m.start)), done);
    }
done:
    text_buffer_free(&prefixed);
    return st;
}

static enum status metaspace(struct encoder *e, int k, const struct stage *stage, const uint8_t *text, size_t n,
                             struct where where)
{
    struct text_buffer *b = &e->stage[k];
    int marked = text[0] == ' ' || (n >= stage->mark_n && memcmp(text, stage->mark, stage->mark_n) == 0);
    int wanted = stage->prepend == PREPEND_ALWAYS || (stage->prepend == PREPEND_FIRST && where.zero > 0);
    b->n = 0;
    TRY(text_buffer_reserve(b, n + stage->mark_n));
    if (wanted && !marked && !where.continues)
        TRY(text_buffer_add(b, stage->mark, stage->mark_n));
    size_t zero = where.zero > 0 ? where.zero + b->n : 0;
    for (const uint8_t *p = text, *end = text + n; p < end;) {
        const uint8_t *space = memchr(p, ' ', (size_t)(end - p));
        TRY(text_buffer_add(b, p, (size_t)((space ? space : end) - p)));
        if (!space)
            break;
        zero += space < text + where.zero ? stage->mark_n - 1 : 0;
        TRY(text_buffer_add(b, stage->mark, stage->mark_n));
        p = space + 1;
    }
    where.zero = zero;
    if (!stage->split)
        return run_stage(e, k + 1, b->data, b->n, where);
    for (size_t at = 0, end; at < b->n; at = end) { /* a new piece begins at each mark (the sign for a space) */
        end = at == 0 || memcmp(b->data + at, stage->mark, stage->mark_n) == 0 ? at + utf8_length(b->data[at]) : at;
        while (end < b->n && (b->n - end < stage->mark_n || memcmp(b->data + end, stage->mark, stage->mark_n) != 0))
            end += utf8_length(b->data[end]);
        TRY(run_stage(e, k + 1, b->data + at, end - at, place_in(where, at)));
    }
    return OK;
}

/* Adds user-defined pieces as tokens; the text between them goes to the next stage. */
static enum status split_defined(struct encoder *e, int k, const struct stage *stage, const uint8_t *text, size_t n,
                                 struct where where)
{
    size_t from = 0;
    for (size_t at = 0; at < n;) {
        size_t end = at;
        int32_t id = -1;
        uint32_t node = 0;
        for (size_t i = at; i < n && (node = trie_step(stage->defined, node, text[i])) != 0; i++)
            if (stage->defined->values[node] >= 0) {
                id = stage->defined->values[node];
                end = i + 1;
            }
        if (id < 0) {
            at += utf8_length(text[at]);
            continue;
        }
        if (at > from)
            TRY(run_stage(e, k + 1, text + from, at - from, place_in(where, from)));
        TRY(ids_add(e->out, id));
        from = at = end;
    }
    return n > from ? run_stage(e, k + 1, text + from, n - from, place_in(where, from)) : OK;
}

static enum status run_stage(struct encoder *e, int k, const uint8_t *text, size_t n, struct where where)
{
    if (k == e->t->n_stages)
        return encode_piece(e, text, n);
    const struct stage *stage = &e->t->stage[k];
    switch (stage->kind) {
    case STAGE_SPLIT:
        return split(e, k, stage, text, n, behind(stage, where));
    case STAGE_CHARS:
        return split_chars(e, k, stage, text, n, behind(stage, where));
    case STAGE_BYTE_LEVEL:
        return byte_level(e, k, stage, text, n, where);
    case STAGE_METASPACE:
        return metaspace(e, k, stage, text, n, where);
    case STAGE_DEFINED:
        return split_defined(e, k, stage, text, n, where);
    }
    return OK;
}

/* ---- the whole ---- */

static enum status add_added(struct encoder *e, const struct added_token *token)
{
    TRY(added_check(e->t, token));
    return ids_add(e->out, token->id);
}

/* Encodes text that has no added tokens sought in raw text. */
static enum status encode_text(struct encoder *e, const uint8_t *text, size_t n, enum text_begin begin)
{
    struct added_scan scan = {0};
    struct added_part part;
    TRY(normal_apply(&e->t->normal, &e->normal, e->matching, begin, &text, &n));
    const struct where where = {begin == TEXT_CONTINUES, e->normal.zero};
    while (added_next(&e->t->added, ADDED_NORMAL, e->special, text, n, &scan, &part))
        TRY(part.token ? add_added(e, part.token)
                       : run_stage(e, 0, text + part.start, part.end - part.start, place_in(where, part.start)));
    return OK;
}

enum status tokenizer_encode(struct encoder *e, const uint8_t *text, size_t n, unsigned flags, struct ids *out)
{
    struct added_scan scan = {0};
    struct added_part part;
    enum text_begin first = flags & ENCODE_CONTINUES ? TEXT_CONTINUES : TEXT_BEGINS;
    e->out = out;
    e->special = !(flags & ENCODE_PLAIN) && !e->t->splits_special;
    while (added_next(&e->t->added, ADDED_RAW, e->special, text, n, &scan, &part))
        TRY(part.token ? add_added(e, part.token)
                       : encode_text(e, text + part.start, part.end - part.start, part.start ? TEXT_FOLLOWS : first));
    return OK;
}

enum status encoder_add_text(struct encoder *e, const uint8_t *text, size_t n, size_t at, int special, struct ids *out)
{
    e->out = out;
    e->special = special;
    return encode_text(e, text, n, at ? TEXT_FOLLOWS : TEXT_BEGINS);
}

const struct tokenizer *encoder_tokenizer(const struct encoder *e)
{
    return e->t;
}
