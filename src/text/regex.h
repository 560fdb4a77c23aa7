/* Regular expressions of tokenizer files: Ruby's syntax as Oniguruma reads it, matched by PCRE2. Private to this folder. */
#ifndef LTRAIN_TEXT_REGEX_H
#define LTRAIN_TEXT_REGEX_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct regex;

/* Rewrites an expression in Ruby's syntax as PCRE2's, with properties of Unicode 16; the caller frees *out. ERR_INVALID names a
 * construct that is not known. */
enum status regex_translate(const char *pattern, size_t n, char **out);

enum status regex_compile(const char *pattern, size_t n, struct regex **out);
/* Compiles an expression that finds the given string literally. */
enum status regex_compile_literal(const char *text, size_t n, struct regex **out);
void regex_free(struct regex *r);

/* Working memory of a thread for matching. */
struct regex_room;
enum status regex_room_create(struct regex_room **out);
void regex_room_free(struct regex_room *room);

struct regex_match {
    size_t start, end; /* start > n: no match */
};

/* Finds the first match that begins at or after `from`, in valid UTF-8. */
enum status regex_find(const struct regex *r, struct regex_room *room, const uint8_t *text, size_t n, size_t from,
                       struct regex_match *out);

/* A scan over all matches, as Oniguruma's bindings give them: an empty match directly behind another match is skipped. */
struct regex_scan {
    size_t from, last_end;
    int any;
};
enum status regex_next(const struct regex *r, struct regex_room *room, const uint8_t *text, size_t n, struct regex_scan *scan,
                       struct regex_match *out);

#endif
