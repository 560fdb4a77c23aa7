/* Patterns that published tokenizers have: what is known of them. Private to this folder. */
#ifndef LTRAIN_TEXT_KNOWN_H
#define LTRAIN_TEXT_KNOWN_H

#include "text/parts.h"

#define GPT2_PATTERN "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

enum known_pattern known_find(const char *pattern, size_t n);

/* Whether a piece surely ends between a newline, which ASCII that is no space stands before, and a letter or digit of ASCII. */
int known_cuts(const struct stage *stage);
/* Whether the stage cuts nothing there, and does not look across. */
int known_is_blind(const struct stage *stage);

/* The end of the piece that begins at `at`, where that is a word of ASCII letters with an optional space before it and ASCII that is
 * no apostrophe behind it; 0: the pattern itself must say. */
size_t known_piece(enum known_pattern known, const uint8_t *text, size_t n, size_t at);

#endif
