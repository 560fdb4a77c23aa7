/* Characters: UTF-8, and their properties in the `tokenizers` library (unicode_tables.inc). Private to this folder. */
#ifndef LTRAIN_TEXT_UNICODE_H
#define LTRAIN_TEXT_UNICODE_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

#define UNICODE_END 0x110000u

struct code_range {
    uint32_t first, last;
};

enum general_category {
    LU,
    LL,
    LT,
    LM,
    LO,
    MN,
    MC,
    ME,
    ND,
    NL,
    NO,
    PC,
    PD,
    PS,
    PE,
    PI,
    PF,
    PO,
    SM,
    SC,
    SK,
    SO,
    ZS,
    ZL,
    ZP,
    CC,
    CF,
    CS,
    CO,
    CN,
    CATEGORIES
};

/* Returns the bytes of the character that begins with this byte, in valid UTF-8. */
static inline size_t utf8_length(uint8_t lead)
{
    return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

/* Reads the character at p, in valid UTF-8; *n: its bytes. */
static inline uint32_t utf8_read(const uint8_t *p, size_t *n)
{
    if (p[0] < 0x80)
        return *n = 1, p[0];
    if (p[0] < 0xe0)
        return *n = 2, (uint32_t)(p[0] & 0x1f) << 6 | (p[1] & 0x3f);
    if (p[0] < 0xf0)
        return *n = 3, (uint32_t)(p[0] & 0x0f) << 12 | (uint32_t)(p[1] & 0x3f) << 6 | (p[2] & 0x3f);
    return *n = 4, (uint32_t)(p[0] & 7) << 18 | (uint32_t)(p[1] & 0x3f) << 12 | (uint32_t)(p[2] & 0x3f) << 6 | (p[3] & 0x3f);
}

/* Returns the beginning of the character that ends before `end`; end > 0. */
static inline size_t utf8_before(const uint8_t *text, size_t end)
{
    do
        end--;
    while (end > 0 && (text[end] & 0xc0) == 0x80);
    return end;
}

/* Writes a character and returns its bytes, at most 4. */
size_t utf8_write(uint32_t c, uint8_t *out);
/* Returns the bytes of valid UTF-8 at the beginning of the text; n if all are valid. */
size_t utf8_valid(const uint8_t *text, size_t n);
/* Returns the length of the longest broken beginning of a character at `text`, which a single U+FFFD replaces; at least 1. */
size_t utf8_broken(const uint8_t *text, size_t n);

int unicode_is_space(uint32_t c);
int unicode_is_numeric(uint32_t c);     /* 1: the pre-tokenizer Digits takes the character */
int unicode_is_punctuation(uint32_t c); /* 1: the pre-tokenizer Punctuation takes the character */
int unicode_is_word(uint32_t c);        /* 1: a `single_word` token does not match next to the character */
int unicode_is_inert(uint32_t c);       /* 1: normal forms leave the character as it is */

/* ---- sets of characters, for regular expressions ---- */

struct code_set {
    struct code_range *ranges; /* ascending, disjoint */
    size_t n, room;
};

enum status code_set_add(struct code_set *s, uint32_t first, uint32_t last); /* ranges may come in any order */
void code_set_sort(struct code_set *s);                                      /* must follow the last code_set_add */
void code_set_free(struct code_set *s);

/* Characters that a property stands for: a category (L, Lu, ...), a script, or the characters of an escape ("\\w"; "[\\w]" for \w
 * within brackets). */
struct property {
    const char *pcre;               /* PCRE2's expression, whose Unicode may be older; NULL: PCRE2 has none that fits */
    uint32_t categories;            /* bits of general categories that belong to the property */
    const struct code_range *table; /* the characters, if not given by categories */
    size_t n;
    int beyond_latin_1; /* 1: characters of the table that `pcre` lacks count only from U+0100 on */
};

/* Finds a property; NULL: unknown. Names are compared as Unicode does: without case, spaces, hyphens and underscores. */
const struct property *property_find(const char *name, size_t n);
/* Adds the property's characters to a set: all, or with lacking_only just those that `pcre`, used beside the set, lacks. */
enum status property_add(const struct property *p, int lacking_only, struct code_set *out);

#endif
