/* sentencepiece's normalizer: maps characters, replaces spaces by marks, removes superfluous spaces, and puts a space in front. */
#include "text/normal.h"

#include "text/unicode.h"

#include <string.h>

#define MARK "\xe2\x96\x81"

struct prefix {
    const uint8_t *text; /* replacement */
    size_t n;
    size_t bytes;
};

/* Returns the bytes of the longest user-defined piece that the text begins with; 0: none. */
static size_t defined_at(const struct sp_rules *r, const uint8_t *text, size_t n)
{
    size_t longest = 0;
    uint32_t node = 0;
    for (size_t i = 0; r->defined && i < n && (node = trie_step(r->defined, node, text[i])) != 0; i++)
        longest = r->defined->values[node] >= 0 ? i + 1 : longest;
    return longest;
}

static struct prefix prefix_of(const struct sp_rules *r, const uint8_t *text, size_t n)
{
    size_t bytes = defined_at(r, text, n);
    if (bytes)
        return (struct prefix){text, bytes, bytes};
    const uint8_t *mapped = r->map.units ? char_map_longest(&r->map, text, n, &bytes) : NULL;
    if (mapped)
        return (struct prefix){mapped, strlen((const char *)mapped), bytes};
    bytes = utf8_length(text[0]);
    return (struct prefix){text, bytes, bytes};
}

/* Tells whether a byte always stays as it is. A character with which a longer string of the map or a user-defined piece begins
 * is not plain. */
static int is_plain(const struct sp_rules *r, uint8_t c)
{
    uint8_t text[2] = {c, 0};
    if (c == ' ' || (c >= 0x80 && r->looks_on) || (r->defined && trie_step(r->defined, 0, c)))
        return 0;
    for (int next = 1; next < 0x80 && r->map.units; next++) {
        text[1] = (uint8_t)next;
        if (char_map_begins(&r->map, text, 2))
            return 0;
    }
    return 1;
}

void sp_find_plain(struct sp_rules *r)
{
    r->looks_on = r->map.units || r->defined;
    for (int c = 0; c < 256; c++)
        r->plain[c] = (uint8_t)is_plain(r, (uint8_t)c);
}

static size_t plain_end(const struct sp_rules *r, const uint8_t *text, size_t n, size_t at)
{
    while (at < n && r->plain[text[at]] && (!r->looks_on || at + 1 == n || text[at + 1] < 0x80))
        at++;
    return at;
}

static enum status add_space(const struct sp_rules *r, struct text_buffer *out)
{
    return r->escapes_spaces ? text_buffer_add(out, MARK, strlen(MARK)) : text_buffer_add(out, " ", 1);
}

static enum status add_text(const struct sp_rules *r, const uint8_t *text, size_t n, struct text_buffer *out)
{
    const uint8_t *end = text + n;
    while (text < end) {
        const uint8_t *space = memchr(text, ' ', (size_t)(end - text));
        TRY(text_buffer_add(out, text, (size_t)((space ? space : end) - text)));
        if (!space)
            break;
        TRY(add_space(r, out));
        text = space + 1;
    }
    return OK;
}

static int is_space(struct prefix p)
{
    return p.n == 1 && p.text[0] == ' ';
}

static void strip_end(const struct sp_rules *r, struct text_buffer *out)
{
    const char *space = r->escapes_spaces ? MARK : " ";
    size_t n = strlen(space);
    while (out->n >= n && memcmp(out->data + out->n - n, space, n) == 0)
        out->n -= n;
}

enum status sp_normalize(const struct sp_rules *r, enum text_begin begin, const uint8_t *text, size_t n, struct text_buffer *out)
{
    struct prefix p;
    size_t at = 0;
    int opens = begin != TEXT_CONTINUES, prefixed = r->dummy_prefix && (begin == TEXT_BEGINS || (opens && !r->only_first));
    while (r->removes_spaces && opens && at < n && is_space(p = prefix_of(r, text + at, n - at)))
        at += p.bytes;
    if (at == n)
        return OK;
    if (prefixed && !r->as_suffix)
        TRY(add_space(r, out));
    for (int after_space = r->removes_spaces && opens; at < n;) {
        size_t end = plain_end(r, text, n, at);
        if (end > at) {
            TRY(text_buffer_add(out, text + at, end - at));
            at = end;
            after_space = 0;
            continue;
        }
        p = prefix_of(r, text + at, n - at);
        at += p.bytes;
        for (; after_space && p.n > 0 && p.text[0] == ' '; p.text++)
            p.n--;
        if (p.n == 0)
            continue;
        TRY(add_text(r, p.text, p.n, out));
        after_space = r->removes_spaces && p.text[p.n - 1] == ' ';
    }
    if (r->removes_spaces)
        strip_end(r, out);
    return prefixed && r->as_suffix ? add_space(r, out) : OK;
}
