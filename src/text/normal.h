/* Normalizers, which rewrite text before it is cut into pieces. Private to this folder. */
#ifndef LTRAIN_TEXT_NORMAL_H
#define LTRAIN_TEXT_NORMAL_H

#include "base/status.h"
#include "text/regex.h"
#include "text/text_buffer.h"
#include "text/trie.h"

#include <stddef.h>
#include <stdint.h>

enum normal_kind {
    NORMAL_NFC,
    NORMAL_NFD,
    NORMAL_NFKC,
    NORMAL_NFKD,
    NORMAL_PREPEND,
    NORMAL_REPLACE,
    NORMAL_PRECOMPILED,
    NORMAL_STRIP,
    NORMAL_SENTENCEPIECE
};

/* sentencepiece's map of characters: a double-array trie and the strings that its values point to. */
struct char_map {
    uint32_t *units;
    size_t n_units;
    uint8_t *strings; /* each ends with a zero, the last one, too */
    size_t n_strings;
};

/* All rules by which sentencepiece normalises a text. */
struct sp_rules {
    struct char_map map;        /* map of characters; no `units`: there is no map */
    const struct trie *defined; /* user-defined pieces, which are left alone; NULL: none */
    /* dummy_prefix: 1: a space is put in front of a text; only_first: 1: only at a document's beginning, not behind added tokens */
    int dummy_prefix, only_first;
    int as_suffix; /* 1: the space of dummy_prefix comes at the end instead */
    int removes_spaces, escapes_spaces;
    int looks_on;       /* 1: a byte is plain only if ASCII, or the text's end, follows */
    uint8_t plain[256]; /* 1: bytes that stay as they are */
};

struct normal_step {
    enum normal_kind kind;
    uint8_t *text; /* prefix or replacement; owned */
    size_t n;
    struct regex *pattern;
    int single;      /* the ASCII character that is the whole pattern; -1: another pattern */
    int spaces;      /* 1: the pattern matches spaces only */
    int left, right; /* 1: white space is stripped on that side */
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
    /* bytes at the result's beginning that come from the document's first character; Metaspace's "first" needs this */
    size_t zero;
};

/* Place of a text: at its document's beginning; where a document was cut; behind an added token. */
enum text_begin { TEXT_BEGINS, TEXT_CONTINUES, TEXT_FOLLOWS };

/* Rewrites text[0 .. n-1]. Sets text and n to the result, which is the same bytes, or bytes in `room` that are valid until its
 * next use. */
enum status normal_apply(const struct normal *normal, struct normal_room *room, struct regex_room *matching,
                         enum text_begin begin, const uint8_t **text, size_t *n);
void normal_free(struct normal *normal);
void normal_room_free(struct normal_room *room);

/* Reads a map from base64 (char_map_read) or from bytes (char_map_take). ERR_INVALID. */
enum status char_map_read(const char *base64, size_t n, struct char_map *out);
enum status char_map_take(const uint8_t *data, size_t n, struct char_map *out);
enum status char_map_apply(const struct char_map *map, const uint8_t *text, size_t n, struct text_buffer *out);
/* Returns the replacement of the longest string of the map with which the text begins, and that string's length in *bytes; NULL:
 * there is none. */
const uint8_t *char_map_longest(const struct char_map *map, const uint8_t *text, size_t n, size_t *bytes);
/* Tells whether a string of the map begins with the text, or the text begins with a string of the map. */
int char_map_begins(const struct char_map *map, const uint8_t *text, size_t n);
void char_map_free(struct char_map *map);

/* Fills in `plain`, the bytes that stay as they are; called once the map and the user-defined pieces are set. */
void sp_find_plain(struct sp_rules *r);
enum status sp_normalize(const struct sp_rules *r, enum text_begin begin, const uint8_t *text, size_t n, struct text_buffer *out);

#endif
