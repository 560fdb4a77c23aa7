/* Normalizers: text is rewritten before it is cut into pieces. Private to this folder. */
#ifndef LTRAIN_TEXT_NORMAL_H
#define LTRAIN_TEXT_NORMAL_H

#include "base/status.h"
#include "text/regex.h"
#include "text/text_buffer.h"

#include <stddef.h>
#include <stdint.h>

enum normal_kind { NORMAL_NFC, NORMAL_NFD, NORMAL_NFKC, NORMAL_NFKD, NORMAL_PREPEND, NORMAL_REPLACE, NORMAL_PRECOMPILED, NORMAL_STRIP };

/* sentencepiece's map of characters: a double-array trie and the strings that its values point to. */
struct char_map {
    uint32_t *units;
    size_t n_units;
    uint8_t *strings; /* each ends with a zero, the last one, too */
    size_t n_strings;
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
};

#define MOST_NORMAL_STEPS 16

struct normal {
    struct normal_step step[MOST_NORMAL_STEPS];
    int n;
};

struct normal_room {
    struct text_buffer text[2];
};

/* Where the text goes on that an earlier part of it began. */
enum text_begin { TEXT_BEGINS, TEXT_CONTINUES };

/* text, n: what is to be rewritten, then what it has become: the same bytes, or bytes in `room`, valid until its next use. */
enum status normal_apply(const struct normal *normal, struct normal_room *room, struct regex_room *matching, enum text_begin begin,
                         const uint8_t **text, size_t *n);
void normal_free(struct normal *normal);
void normal_room_free(struct normal_room *room);

/* base64 of the file -> map. ERR_INVALID. */
enum status char_map_read(const char *base64, size_t n, struct char_map *out);
enum status char_map_apply(const struct char_map *map, const uint8_t *text, size_t n, struct text_buffer *out);
void char_map_free(struct char_map *map);

#endif
