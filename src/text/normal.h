/* Normalizers: text is rewritten before it is cut into pieces. Private to this folder. */
#ifndef LTRAIN_TEXT_NORMAL_H
#define LTRAIN_TEXT_NORMAL_H

#include "base/status.h"
#include "text/regex.h"
#include "text/text_buffer.h"
#include "text/trie.h"

#include <stddef.h>
#include <stdint.h>

enum normal_kind { NORMAL_NFC, NORMAL_NFD, NORMAL_NFKC, NORMAL_NFKD, NORMAL_PREPEND, NORMAL_REPLACE, NORMAL_PRECOMPILED, NORMAL_STRIP, NORMAL_SENTENCEPIECE };

/* sentencepiece's map of characters: a double-array trie and the strings that its values point to. */
struct char_map {
    uint32_t *units;
    size_t n_units;
    uint8_t *strings; /* each ends with a zero, the last one, too */
    size_t n_strings;
};

/* All that sentencepiece does to a text. */
struct sp_rules {
    struct char_map map;        /* without units: there is none */
    const struct trie *defined; /* user-defined pieces, which are left alone; NULL: there are none */
    int dummy_prefix, only_first; /* a space in front; only_first: of a document, not of each text behind an added token */
    int as_suffix;              /* that space comes behind */
    int removes_spaces, escapes_spaces;
    int looks_on;               /* whether a plain byte is one only with ASCII or nothing behind it */
    uint8_t plain[256];         /* bytes that stay what they are */
};

struct normal_step {
    enum normal_kind kind;
    uint8_t *text; /* what is prepended or put in place; owned */
    size_t n;
    struct regex *pattern;
    int single;    /* the pattern is this ASCII character; -1: it is not one */
    int spaces;    /* the pattern takes spaces only */
    int left, right; /* which sides are stripped */
    struct char_map map;
    struct sp_rules sp;
};

#define MOST_NORMAL_STEPS 16

struct normal {
    struct normal_step step[MOST_NORMAL_STEPS];
    int n;
};

struct normal_room {
    struct text_buffer text[2];
    size_t zero; /* bytes at the result's beginning that have come of the document's first character, as Metaspace's "first" has it */
};

/* What a text is of its document: the beginning; what follows a cut, where it goes on; what follows an added token. */
enum text_begin { TEXT_BEGINS, TEXT_CONTINUES, TEXT_FOLLOWS };

/* text, n: what is to be rewritten, then what it has become: the same bytes, or bytes in `room`, valid until its next use. */
enum status normal_apply(const struct normal *normal, struct normal_room *room, struct regex_room *matching, enum text_begin begin,
                         const uint8_t **text, size_t *n);
void normal_free(struct normal *normal);
void normal_room_free(struct normal_room *room);

/* base64 of the file, or its bytes -> map. ERR_INVALID. */
enum status char_map_read(const char *base64, size_t n, struct char_map *out);
enum status char_map_take(const uint8_t *data, size_t n, struct char_map *out);
enum status char_map_apply(const struct char_map *map, const uint8_t *text, size_t n, struct text_buffer *out);
/* The string that stands for the longest known beginning of the text, which has *bytes; NULL: nothing does. */
const uint8_t *char_map_longest(const struct char_map *map, const uint8_t *text, size_t n, size_t *bytes);
/* Whether a string is known that begins with the text, or that the text begins with. */
int char_map_begins(const struct char_map *map, const uint8_t *text, size_t n);
void char_map_free(struct char_map *map);

/* Once the map and the user-defined pieces are there. */
void sp_find_plain(struct sp_rules *r);
enum status sp_normalize(const struct sp_rules *r, enum text_begin begin, const uint8_t *text, size_t n, struct text_buffer *out);

#endif
