/* Decoding ids: the tokens' texts pass through the file's decoders. */
#include "text/parts.h"

#include "base/sys.h"
#include "text/byte_level.h"
#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>

/* Strings one after the other: string i is bytes [end[i - 1], end[i]). */
struct strings {
    struct text_buffer text;
    size_t *end;
    size_t n, room;
};

static void strings_free(struct strings *s)
{
    text_buffer_free(&s->text);
    free(s->end);
}

/* Ends a string, which is the text added since the last call. */
static enum status strings_close(struct strings *s)
{
    if (s->n == s->room) {
        size_t room = s->room ? 2 * s->room : 256;
        size_t *end = sys_realloc(s->end, room * sizeof *end);
        if (!end)
            return status_fail(ERR_NOMEM, "out of memory: %zu tokens", room);
        s->end = end;
        s->room = room;
    }
    s->end[s->n++] = s->text.n;
    return OK;
}

static struct token_text string_at(const struct strings *s, size_t i)
{
    size_t first = i ? s->end[i - 1] : 0;
    return (struct token_text){s->text.data + first, s->end[i] - first};
}

/* ---- the decoders: from strings to strings ---- */

static enum status add_lossy(struct text_buffer *out, const uint8_t *text, size_t n)
{
    struct text_buffer repaired = {0};
    int64_t broken;
    enum status st = text_repair(text, n, &repaired, &broken);
    if (st == OK)
        st = broken ? text_buffer_add(out, repaired.data, repaired.n) : text_buffer_add(out, text, n);
    text_buffer_free(&repaired);
    return st;
}

static enum status byte_level(const struct strings *in, struct strings *out)
{
    struct text_buffer bytes = {0};
    enum status st = OK;
    for (size_t i = 0; i < in->n && st == OK; i++) {
        struct token_text s = string_at(in, i);
        size_t first = bytes.n, n;
        for (size_t at = 0; at < s.n && st == OK; at += n) {
            int byte = byte_of_char(utf8_read(s.data + at, &n));
            if (byte < 0) { /* a character outside GPT-2's alphabet: the string stays as it is */
                bytes.n = first;
                st = text_buffer_add(&bytes, s.data, s.n);
                break;
            }
            st = text_buffer_add(&bytes, &(uint8_t){(uint8_t)byte}, 1);
        }
    }
    if (st == OK)
        st = add_lossy(&out->text, bytes.data, bytes.n);
    text_buffer_free(&bytes);
    return st == OK ? strings_close(out) : st;
}

static int hex(uint8_t c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

/* Returns the byte of a token <0xXX>, or -1. */
static int byte_of_token(struct token_text s)
{
    if (s.n != 6 || memcmp(s.data, "<0x", 3) != 0 || s.data[5] != '>' || hex(s.data[4]) < 0)
        return -1;
    if (s.data[3] == '+')
        return hex(s.data[4]);
    return hex(s.data[3]) < 0 ? -1 : hex(s.data[3]) * 16 + hex(s.data[4]);
}

static enum status end_bytes(struct text_buffer *bytes, struct strings *out)
{
    size_t n = bytes->n;
    bytes->n = 0;
    if (n == 0)
        return OK;
    if (utf8_valid(bytes->data, n) == n) {
        TRY(text_buffer_add(&out->text, bytes->data, n));
        return strings_close(out);
    }
    for (size_t i = 0; i < n; i++) {
        TRY(text_buffer_add_char(&out->text, 0xfffd));
        TRY(strings_close(out));
    }
    return OK;
}

static enum status byte_fallback(const struct strings *in, struct strings *out)
{
    struct text_buffer bytes = {0};
    enum status st = OK;
    for (size_t i = 0; i < in->n && st == OK; i++) {
        struct token_text s = string_at(in, i);
        int byte = byte_of_token(s);
        if (byte >= 0) {
            st = text_buffer_add(&bytes, &(uint8_t){(uint8_t)byte}, 1);
            continue;
        }
        st = end_bytes(&bytes, out);
        if (st == OK)
            st = text_buffer_add(&out->text, s.data, s.n);
        if (st == OK)
            st = strings_close(out);
    }
    if (st == OK)
        st = end_bytes(&bytes, out);
    text_buffer_free(&bytes);
    return st;
}

static enum status strip(const struct decoder *d, struct token_text s, struct text_buffer *out)
{
    size_t n;
    for (int64_t i = 0; i < d->start && s.n > 0 && utf8_read(s.data, &n) == d->mark; i++) {
        s.data += n;
        s.n -= n;
    }
    for (int64_t i = 0; i < d->stop && s.n > 0; i++) {
        size_t last = utf8_before(s.data, s.n);
        if (utf8_read(s.data + last, &n) != d->mark)
            break;
        s.n = last;
    }
    return text_buffer_add(out, s.data, s.n);
}

static enum status replace(const struct decoder *d, struct regex_room *room, struct token_text s, struct text_buffer *out)
{
    struct regex_scan scan = {0};
    struct regex_match m;
    size_t at = 0;
    for (;;) {
        TRY(regex_next(d->pattern, room, s.data, s.n, &scan, &m));
        if (m.start > s.n)
            return text_buffer_add(out, s.data + at, s.n - at);
        TRY(text_buffer_add(out, s.data + at, m.start - at));
        TRY(text_buffer_add(out, d->text, d->n));
        at = m.end;
    }
}

static enum status metaspace(const struct decoder *d, struct token_text s, int first, struct text_buffer *out)
{
    for (size_t at = 0, n; at < s.n; at += n) {
        int mark = utf8_read(s.data + at, &n) == d->mark;
        if (!mark)
            TRY(text_buffer_add(out, s.data + at, n));
        else if (!first || !d->prepends)
            TRY(text_buffer_add(out, " ", 1));
    }
    return OK;
}

static enum status apply(const struct decoder *d, struct regex_room *room, const struct strings *in, struct strings *out)
{
    if (d->kind == DECODE_BYTE_LEVEL)
        return byte_level(in, out);
    if (d->kind == DECODE_BYTE_FALLBACK)
        return byte_fallback(in, out);
    if (d->kind == DECODE_FUSE) {
        TRY(text_buffer_add(&out->text, in->text.data, in->text.n));
        return strings_close(out);
    }
    for (size_t i = 0; i < in->n; i++) {
        struct token_text s = string_at(in, i);
        TRY(d->kind == DECODE_STRIP     ? strip(d, s, &out->text)
            : d->kind == DECODE_REPLACE ? replace(d, room, s, &out->text)
                                        : metaspace(d, s, i == 0, &out->text));
        TRY(strings_close(out));
    }
    return OK;
}

/* ---- the whole ---- */

static enum status find_texts(const struct tokenizer *t, const int32_t *id, size_t n, int special, struct strings *out)
{
    for (size_t i = 0; i < n; i++) {
        struct token_text text;
        int32_t place = -1;
        if (vocab_text(t->extra, id[i], &text))
            place = vocab_find(t->extra, text.data, text.n) == id[i] ? id[i] : -1;
        const struct added_token *added = NULL;
        for (int64_t k = 0; place >= 0 && k < t->added.n && !added; k++)
            added = t->added.token[k].id == id[i] ? &t->added.token[k] : NULL;
        if (added && added->special && !special)
            continue;
        if (added && added->normal)
            text = (struct token_text){added->normal, added->normal_n};
        if (!added && !vocab_text(t->tokens, id[i], &text))
            return status_fail(ERR_INVALID, "no token has the id %d: the ids of %s end at %lld", id[i], t->path,
                               (long long)tokenizer_ids(t) - 1);
        if (t->n_decoders == 0 && out->n > 0)
            TRY(text_buffer_add(&out->text, " ", 1));
        TRY(text_buffer_add(&out->text, text.data, text.n));
        TRY(strings_close(out));
    }
    return OK;
}

enum status tokenizer_decode(const struct tokenizer *t, const int32_t *id, size_t n, int special, struct text_buffer *out)
{
    struct strings now = {0}, next = {0};
    struct regex_room *room = NULL;
    enum status st;
    TRY_GOTO(regex_room_create(&room), done);
    TRY_GOTO(find_texts(t, id, n, special, &now), done);
    for (int i = 0; i < t->n_decoders; i++) {
        next.n = next.text.n = 0;
        TRY_GOTO(apply(&t->decoder[i], room, &now, &next), done);
        struct strings swap = now;
        now = next;
        next = swap;
    }
    st = text_buffer_add(out, now.text.data, now.text.n);
done:
    strings_free(&now);
    strings_free(&next);
    regex_room_free(room);
    return st;
}
