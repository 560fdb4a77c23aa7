/* sentencepiece's precompiled map of characters (`Precompiled`). Private to normal.h. */
#include "text/normal.h"

#include "base/sys.h"
#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* length in bytes from which grapheme clusters are looked up character by character; shorter ones are looked up whole first */
#define WHOLE_BELOW 6

void char_map_free(struct char_map *map)
{
    free(map->units);
    free(map->strings);
    *map = (struct char_map){0};
}

static int sextet(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

static enum status decode(const char *base64, size_t n, struct text_buffer *out)
{
    uint32_t bits = 0;
    int have = 0;
    while (n > 0 && base64[n - 1] == '=')
        n--;
    TRY(text_buffer_reserve(out, n));
    for (size_t i = 0; i < n; i++) {
        int six = sextet(base64[i]);
        if (six < 0)
            return status_fail(ERR_INVALID, "the precompiled map of characters is no base64");
        bits = bits << 6 | (uint32_t)six;
        have += 6;
        if (have >= 8) {
            have -= 8;
            out->data[out->n++] = (uint8_t)(bits >> have);
        }
    }
    return OK;
}

enum status char_map_take(const uint8_t *data, size_t n, struct char_map *out)
{
    uint32_t size = 0;
    if (n >= 4)
        memcpy(&size, data, 4);
    if (n < 4 || size % 4 || size == 0 || size > n - 4)
        return status_fail(ERR_INVALID, "the precompiled map of characters is cut short");
    out->n_units = size / 4;
    out->n_strings = n - 4 - size + 1;
    out->units = sys_malloc(size);
    out->strings = sys_calloc(1, out->n_strings);
    if (!out->units || !out->strings) {
        char_map_free(out);
        return status_fail(ERR_NOMEM, "out of memory: a map of characters");
    }
    memcpy(out->units, data + 4, size);
    memcpy(out->strings, data + 4 + size, out->n_strings - 1);
    return utf8_valid(out->strings, out->n_strings) == out->n_strings
               ? OK
               : status_fail(ERR_INVALID, "the precompiled map of characters has strings that are no valid UTF-8");
}

enum status char_map_read(const char *base64, size_t n, struct char_map *out)
{
    struct text_buffer b = {0};
    enum status st = decode(base64, n, &b);
    if (st == OK)
        st = char_map_take(b.data, b.n, out);
    text_buffer_free(&b);
    return st;
}

static uint32_t offset_of(uint32_t unit)
{
    return unit >> 10 << ((unit & 1u << 9) >> 6);
}

/* Follows a byte from a node of the trie; returns 0 if no string of the map begins like that. *string: replacement of all bytes
 * up to here; NULL: they are no whole string of the map. */
static int step(const struct char_map *map, uint32_t *node, uint8_t byte, const uint8_t **string)
{
    *string = NULL;
    *node ^= byte;
    if (*node >= map->n_units)
        return 0;
    uint32_t unit = map->units[*node];
    if ((unit & (1u << 31 | 0xff)) != byte)
        return 0;
    *node ^= offset_of(unit);
    if (unit >> 8 & 1) {
        uint32_t at = *node < map->n_units ? map->units[*node] & 0x7fffffffu : UINT32_MAX;
        if (at < map->n_strings && (map->strings[at] & 0xc0) != 0x80)
            *string = map->strings + at;
    }
    return 1;
}

/* Returns the replacement of the shortest string of the map with which the text begins, or NULL. */
static const uint8_t *find(const struct char_map *map, const uint8_t *text, size_t n)
{
    uint32_t node = offset_of(map->units[0]);
    const uint8_t *string;
    for (size_t i = 0; i < n && text[i] && step(map, &node, text[i], &string); i++)
        if (string)
            return string;
    return NULL;
}

const uint8_t *char_map_longest(const struct char_map *map, const uint8_t *text, size_t n, size_t *bytes)
{
    uint32_t node = offset_of(map->units[0]);
    const uint8_t *string, *longest = NULL;
    for (size_t i = 0; i < n && text[i] && step(map, &node, text[i], &string); i++)
        if (string) {
            longest = string;
            *bytes = i + 1;
        }
    return longest;
}

int char_map_begins(const struct char_map *map, const uint8_t *text, size_t n)
{
    uint32_t node = offset_of(map->units[0]);
    const uint8_t *string;
    for (size_t i = 0; i < n; i++) {
        if (!step(map, &node, text[i], &string))
            return 0;
        if (string)
            return 1;
    }
    return 1;
}

static enum status add_cluster(const struct char_map *map, const uint8_t *text, size_t n, struct text_buffer *out)
{
    const uint8_t *whole = n < WHOLE_BELOW ? find(map, text, n) : NULL;
    if (whole)
        return text_buffer_add(out, whole, strlen((const char *)whole));
    for (size_t at = 0; at < n;) {
        size_t bytes = utf8_length(text[at]);
        const uint8_t *one = find(map, text + at, bytes);
        TRY(one ? text_buffer_add(out, one, strlen((const char *)one)) : text_buffer_add(out, text + at, bytes));
        at += bytes;
    }
    return OK;
}

enum status char_map_apply(const struct char_map *map, const uint8_t *text, size_t n, struct text_buffer *out)
{
    utf8proc_int32_t state = 0;
    size_t from = 0, bytes;
    uint32_t before = n ? utf8_read(text, &bytes) : 0;
    for (size_t at = n ? bytes : 0; at < n; at += bytes) {
        uint32_t c = utf8_read(text + at, &bytes);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)before, (utf8proc_int32_t)c, &state)) {
            TRY(add_cluster(map, text + from, at - from, out));
            from = at;
        }
        before = c;
    }
    return n > from ? add_cluster(map, text + from, n - from, out) : OK;
}
