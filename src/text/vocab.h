/* Tokens by text and by id. Private to this folder. */
#ifndef LTRAIN_TEXT_VOCAB_H
#define LTRAIN_TEXT_VOCAB_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

#define MOST_TOKENS (1 << 24)

struct token_text {
    const uint8_t *data;
    size_t n;
};

struct vocab;

enum status vocab_create(struct vocab **out);
void vocab_free(struct vocab *v);
/* Adds a token; if the vocabulary has the text, it gets the new id. ERR_INVALID: the id is not below MOST_TOKENS. */
enum status vocab_add(struct vocab *v, const void *text, size_t n, int64_t id);
/* Returns a text's id, or -1. */
int32_t vocab_find(const struct vocab *v, const void *text, size_t n);
/* Finds an id's text; returns 0 if no token has that id. */
int vocab_text(const struct vocab *v, int64_t id, struct token_text *out);
int64_t vocab_count(const struct vocab *v); /* number of texts */
int64_t vocab_end(const struct vocab *v);   /* largest id + 1 */

/* Returns the i-th of vocab_count texts with its id. */
struct token_text vocab_at(const struct vocab *v, int64_t i, int32_t *id);

#endif
