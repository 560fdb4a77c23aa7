/* Knowledge about the patterns of published tokenizers. Private to this folder. */
#ifndef LTRAIN_TEXT_KNOWN_H
#define LTRAIN_TEXT_KNOWN_H

#include "text/parts.h"

#define GPT2_PATTERN "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

enum known_pattern known_find(const char *pattern, size_t n);

/* Tells whether a piece surely ends between a newline behind ASCII that is no space and an ASCII letter or digit. */
int known_cuts(const struct stage *stage);
/* Tells whether the stage cuts nothing there, and does not look across. */
int known_is_blind(const struct stage *stage);

/* Returns the end of the piece at `at` if the piece is a word of ASCII letters, optionally after a space, and ASCII other than an
 * apostrophe follows; 0: the pattern itself must be matched. */
size_t known_piece(enum known_pattern known, const uint8_t *text, size_t n, size_t at);

#endif
