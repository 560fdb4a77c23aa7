#include "eval/stream_text.h"

#include <stdlib.h>
#include <string.h>

void stream_text_free(struct stream_text *s)
{
    free(s->ids.id);
    text_buffer_free(&s->text);
    *s = (struct stream_text){.tokenizer = s->tokenizer, .stop_at = s->stop_at};
}

static enum status decode(const struct stream_text *s, size_t first, size_t end, struct text_buffer *out)
{
    if (s->tokenizer)
        return tokenizer_decode(s->tokenizer, s->ids.id + first, end - first, 0, out);
    for (size_t i = first; i < end; i++) {
        uint8_t byte = (uint8_t)s->ids.id[i];
        if (s->ids.id[i] < 256)
            TRY(text_buffer_add(out, &byte, 1));
    }
    return OK;
}

/* Tells whether the end of a character is missing: it is cut, or U+FFFD stands for bytes that make no character yet. */
static int is_cut(const uint8_t *text, size_t n)
{
    size_t back = 0;
    if (n >= 3 && memcmp(text + n - 3, "\xef\xbf\xbd", 3) == 0)
        return 1;
    while (back < 3 && back < n && (text[n - 1 - back] & 0xc0) == 0x80)
        back++;
    if (back == n)
        return 0;
    uint8_t lead = text[n - 1 - back];
    return lead >= 0xc0 && back < (size_t)(lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1);
}

/* Adds the text of the unread ids. The same ids may have other text after other ids, so the ids before them are decoded again
 * with them. last: also adds text that may be cut. */
static enum status read_on(struct stream_text *s, int last)
{
    struct text_buffer old = {0}, all = {0}, repaired = {0};
    int64_t n_repaired = 0;
    enum status st = decode(s, s->before, s->read, &old);
    if (st == OK)
        st = decode(s, s->before, s->ids.n, &all);
    if (st == OK && all.n > old.n && (last || !is_cut(all.data, all.n))) {
        const uint8_t *more = all.data + old.n;
        size_t n = all.n - old.n;
        st = text_repair(more, n, &repaired, &n_repaired);
        if (st == OK)
            st = n_repaired ? text_buffer_add(&s->text, repaired.data, repaired.n) : text_buffer_add(&s->text, more, n);
        s->before = s->read;
        s->read = s->ids.n;
    }
    text_buffer_free(&old);
    text_buffer_free(&all);
    text_buffer_free(&repaired);
    return st;
}

/* Cuts the text at the first of stop_at, searched from the text handed on; else *end is the place where one of them may have
 * begun. */
static void look_for_stops(struct stream_text *s, int last, size_t *end)
{
    *end = s->text.n;
    for (int i = 0; s->stop_at && i < s->stop_at->n; i++) {
        const char *stop = s->stop_at->item[i];
        size_t n = strlen(stop);
        for (size_t at = s->given; at < *end; at++) {
            size_t there = s->text.n - at < n ? s->text.n - at : n;
            if (memcmp(s->text.data + at, stop, there) != 0 || (there < n && last))
                continue;
            if (there == n) {
                s->text.n = at;
                s->stopped = 1;
            }
            *end = at;
        }
    }
    if (s->stopped)
        *end = s->text.n;
}

enum status stream_text_add(struct stream_text *s, int32_t id, size_t *end)
{
    TRY(ids_add(&s->ids, id));
    TRY(read_on(s, 0));
    look_for_stops(s, 0, end);
    return OK;
}

enum status stream_text_end(struct stream_text *s, size_t *end)
{
    if (!s->stopped)
        TRY(read_on(s, 1));
    look_for_stops(s, 1, end);
    return OK;
}
