/* Facts about the regular expressions of published tokenizers. Private to this folder. */
#ifndef LTRAIN_TEXT_KNOWN_H
#define LTRAIN_TEXT_KNOWN_H

#include "text/parts.h"

#define GPT2_PATTERN "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

enum known_pattern known_find(const char *pattern, size_t n);

/* Tells whether the stage certainly ends a piece between a newline that follows ASCII other than space, and an ASCII letter or
 * digit. */
int known_cuts(const struct stage *stage);
/* Tells whether the stage never cuts at such a place, and the pieces on one side do not depend on the text of the other. */
int known_is_blind(const struct stage *stage);

/* Returns the end of the piece that begins at `at`, if the piece is a word of ASCII letters, perhaps after a space, and is
 * followed by ASCII other than an apostrophe. 0: it is not, and the pattern itself must be matched. */
size_t known_piece(enum known_pattern known, const uint8_t *text, size_t n, size_t at);

#endif
