/* A text that a model reads on: tokens go in, the logits of the next one come out, by the programs of a sampling plan. */
#ifndef LTRAIN_ENGINE_DECODER_H
#define LTRAIN_ENGINE_DECODER_H

#include "engine/session.h"

#include <stdatomic.h>

struct decoder;

/* s: of a plan of plan_sampling, its parameters loaded; outlives the decoder. The text is empty. tokens: the longest text. */
enum status decoder_create(struct session *s, int64_t tokens, struct decoder **out);
void decoder_destroy(struct decoder *d); /* NULL is fine */

int64_t decoder_length(const struct decoder *d);        /* tokens of the text */
int64_t decoder_capacity(const struct decoder *d);      /* that it may have */
const int32_t *decoder_tokens(const struct decoder *d); /* the text, until the next call */

/* Reads n >= 1 further tokens. logits: NULL, or the model's vocab fp32 numbers, of the token after them, as the model's loss
 * takes them: scaled and capped. ERR_INVALID: a token that the model does not have, or more than there is room for, of which none
 * is read. *stop: NULL, or what ends it early once it is not 0, between two programs: ERR_CANCELLED, and the text has what was
 * read. */
enum status decoder_feed(struct decoder *d, const int32_t *token, int64_t n, const atomic_int *stop, float *logits);
/* Forgets the text behind its first n tokens, n at most its length. Where windows have let go of what the tokens before n would
 * need, those are read again by the next feed. */
enum status decoder_truncate(struct decoder *d, int64_t n);
/* Reads what a text has beyond the longest beginning that it shares with the one that was read, its last token in any case. */
enum status decoder_read(struct decoder *d, const int32_t *token, int64_t n, const atomic_int *stop, float *logits);

#endif
