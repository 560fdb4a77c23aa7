/* Normal forms, replacements and prefixes of text. */
#include "text/normal.h"

#include "base/sys.h"
#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

void normal_free(struct normal *normal)
{
    for (int i = 0; i < normal->n; i++) {
        free(normal->step[i].text);
        regex_free(normal->step[i].pattern);
        char_map_free(&normal->step[i].map);
        char_map_free(&normal->step[i].sp.map);
    }
    normal->n = 0;
}

void normal_room_free(struct normal_room *room)
{
    text_buffer_free(&room->text[0]);
    text_buffer_free(&room->text[1]);
}

/* ---- normal forms ---- */

static const utf8proc_option_t options[] = {
    [NORMAL_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
    [NORMAL_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
    [NORMAL_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
    [NORMAL_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
};

static enum status add_form(enum normal_kind kind, const uint8_t *text, size_t n, struct text_buffer *out)
{
    int32_t some[64], *points = some;
    utf8proc_ssize_t count, room = 64;
    if (n == 0)
        return OK;
    count = utf8proc_decompose(text, (utf8proc_ssize_t)n, points, room, options[kind]);
    if (count > room) {
        room = count;
        points = sys_malloc((size_t)room * sizeof *points);
        if (!points)
            return status_fail(ERR_NOMEM, "out of memory: the normal form of %zu bytes", n);
        count = utf8proc_decompose(text, (utf8proc_ssize_t)n, points, room, options[kind]);
    }
    if (count >= 0)
        count = utf8proc_normalize_utf32(points, count, options[kind]);
    enum status st = count < 0 ? status_fail(ERR_INVALID, "the normal form of a text cannot be made") : OK;
    for (utf8proc_ssize_t i = 0; i < count && st == OK; i++)
        st = text_buffer_add_char(out, (uint32_t)points[i]);
    if (points != some)
        free(points);
    return st;
}

/* Adds a stretch of text in normal form. The stretch is cut at characters that Unicode 9 does not know, which neither combine nor
 * move. */
static enum status add_stretch(enum normal_kind kind, const uint8_t *text, size_t n, struct text_buffer *out)
{
    size_t from = 0, bytes;
    for (size_t at = 0; at < n; at += bytes) {
        uint32_t c = utf8_read(text + at, &bytes);
        if (!unicode_is_inert(c))
            continue;
        TRY(add_form(kind, text + from, at - from, out));
        TRY(text_buffer_add(out, text + at, bytes));
        from = at + bytes;
    }
    return add_form(kind, text + from, n - from, out);
}

/* Returns the end of a run of characters from `at` on that the normal form leaves as they are, except perhaps the last, which may
 * combine with the next character. */
static size_t plain_end(enum normal_kind kind, const uint8_t *text, size_t n, size_t at)
{
    /* smallest lead byte of a character that may change: of U+0300 for NFC, of any beyond ASCII for other forms */
    uint8_t below = kind == NORMAL_NFC ? 0xcc : 0x80;
    while (at < n) {
        uint64_t eight;
        while (at + 8 <= n && (memcpy(&eight, text + at, 8), (eight & 0x8080808080808080u) == 0))
            at += 8;
        if (at >= n || text[at] >= below)
            break;
        at += utf8_length(text[at]);
    }
    return at;
}

static enum status apply_form(enum normal_kind kind, const uint8_t *text, size_t n, struct text_buffer *out)
{
    size_t at = 0;
    while (at < n) {
        size_t end = plain_end(kind, text, n, at), last;
        if (end == n)
            return text_buffer_add(out, text + at, n - at);
        last = end > at ? utf8_before(text, end) : end; /* start of the run's last character, which may combine with the next */
        TRY(text_buffer_add(out, text + at, last - at));
        for (at = end; at < n && text[at] >= (kind == NORMAL_NFC ? 0xcc : 0x80);)
            at += utf8_length(text[at]);
        TRY(add_stretch(kind, text + last, at - last, out));
    }
    return OK;
}

/* ---- others ---- */

static enum status replace_single(const struct normal_step *s, const uint8_t *text, size_t n, size_t *zero,
                                  struct text_buffer *out)
{
    const uint8_t *end = text + n, *zero_end = text + *zero;
    for (;;) {
        const uint8_t *found = memchr(text, s->single, (size_t)(end - text));
        if (found && found < zero_end)
            *zero += s->n - 1;
        TRY(text_buffer_add(out, text, (size_t)((found ? found : end) - text)));
        if (!found)
            return OK;
        TRY(text_buffer_add(out, s->text, s->n));
        text = found + 1;
    }
}

/* Replaces matches. *zero (struct normal_room) counts a replacement as the document's first character if the match ends with that
 * character, or is empty and right behind it. */
static enum status replace(const struct normal_step *s, struct regex_room *matching, const uint8_t *text, size_t n, size_t *zero,
                           struct text_buffer *out)
{
    struct regex_scan scan = {0};
    struct regex_match m;
    size_t at = 0, was = *zero, now = 0;
    for (;;) {
        TRY(regex_next(s->pattern, matching, text, n, &scan, &m));
        size_t kept_end = m.start > n ? n : m.start;
        now += at < was ? (kept_end < was ? kept_end : was) - at : 0;
        TRY(text_buffer_add(out, text + at, kept_end - at));
        if (m.start > n) {
            *zero = now;
            return OK;
        }
        now += m.end == 0 || utf8_before(text, m.end) < was ? s->n : 0;
        TRY(text_buffer_add(out, s->text, s->n));
        at = m.end;
    }
}

static void strip(const struct normal_step *s, const uint8_t **text, size_t *n, size_t *zero)
{
    size_t bytes;
    while (s->left && *n > 0 && unicode_is_space(utf8_read(*text, &bytes))) {
        *text += bytes;
        *n -= bytes;
        *zero -= bytes < *zero ? bytes : *zero;
    }
    while (s->right && *n > 0) {
        size_t last = utf8_before(*text, *n);
        if (!unicode_is_space(utf8_read(*text + last, &bytes)))
            break;
        *n = last;
    }
    *zero = *zero < *n ? *zero : *n;
}

/* Rewrites text by a form or map. */
static enum status rewrite(const struct normal_step *s, const uint8_t *text, size_t n, struct text_buffer *out)
{
    return s->kind == NORMAL_PRECOMPILED ? char_map_apply(&s->map, text, n, out) : apply_form(s->kind, text, n, out);
}

static enum status rewrite_whole(const struct normal_step *s, const uint8_t *text, size_t n, size_t *zero,
                                 struct text_buffer *out)
{
    size_t first = 0;
    if (*zero > 0 && *zero < n) {
        TRY(rewrite(s, text, *zero, out));
        first = out->n;
        out->n = 0;
    }
    TRY(rewrite(s, text, n, out));
    if (*zero >= n)
        first = out->n;
    /* the library takes the next character for the document's first one, which was left out */
    else if (*zero > 0 && first == 0 && out->n > 0)
        first = utf8_length(out->data[0]);
    *zero = first < out->n ? first : out->n;
    return OK;
}

static enum status apply(const struct normal_step *s, struct regex_room *matching, enum text_begin begin, const uint8_t *text,
                         size_t n, size_t *zero, struct text_buffer *out)
{
    switch (s->kind) {
    case NORMAL_SENTENCEPIECE:
        return sp_normalize(&s->sp, begin, text, n, out);
    case NORMAL_PREPEND:
        *zero += *zero > 0 ? s->n : 0;
        TRY(text_buffer_add(out, s->text, s->n));
        return text_buffer_add(out, text, n);
    case NORMAL_REPLACE:
        return s->single >= 0 ? replace_single(s, text, n, zero, out) : replace(s, matching, text, n, zero, out);
    default:
        return rewrite_whole(s, text, n, zero, out);
    }
}

enum status normal_apply(const struct normal *normal, struct normal_room *room, struct regex_room *matching,
                         enum text_begin begin, const uint8_t **text, size_t *n)
{
    int turn = 0;
    room->zero = begin == TEXT_BEGINS && *n > 0 ? utf8_length((*text)[0]) : 0;
    for (int i = 0; i<normal->n && * n> 0; i++) {
        const struct normal_step *s = &normal->step[i];
        struct text_buffer *out = &room->text[turn];
        if (s->kind == NORMAL_STRIP) {
            strip(s, text, n, &room->zero);
            continue;
        }
        if (s->kind == NORMAL_PREPEND && begin == TEXT_CONTINUES)
            continue;
        out->n = 0;
        TRY(apply(s, matching, begin, *text, *n, &room->zero, out));
        *text = out->data;
        *n = out->n;
        turn = !turn;
    }
    return OK;
}
