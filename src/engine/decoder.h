/* A text that a model continues: tokens go in, logits of the next token come out, by the programs of a sampling plan. */
#ifndef LTRAIN_ENGINE_DECODER_H
#define LTRAIN_ENGINE_DECODER_H

#include "engine/session.h"

#include <stdatomic.h>

struct decoder;

/* Creates a decoder with an empty text. s: a session of a plan from plan_sampling, parameters loaded; it outlives the decoder.
 * tokens: length of the longest text. */
enum status decoder_create(struct session *s, int64_t tokens, struct decoder **out);
void decoder_destroy(struct decoder *d); /* NULL is fine */

int64_t decoder_length(const struct decoder *d);        /* tokens of the text */
int64_t decoder_capacity(const struct decoder *d);      /* most tokens that the text may have */
const int32_t *decoder_tokens(const struct decoder *d); /* valid until the next call */

/* Experts of a model that are kept on the device, if they do not all fit there (plan/sampling.h): slots of each layer and the number of
 * its experts; hits: choices of an expert that was there, misses: that was brought. slots 0: there are no slots. */
struct decoder_experts {
    int64_t slots, experts, hits, misses;
};
/* Counts the choices so far of programs that take experts from slots: those of single tokens, and of prompts if there are slots for all
 * that these can choose. Other prompts take whole layers. */
enum status decoder_experts(const struct decoder *d, struct decoder_experts *out);

/* Returns the tokens at the text's beginning that the next feed does not read again. */
int64_t decoder_ready(const struct decoder *d);

/* Reads n >= 1 further tokens. logits: NULL, or the model's vocab fp32 logits of the token after them, scaled and capped as for
 * the loss.
 *
 * ERR_INVALID: a token that the model does not have, or more than fit; then none is read. stop: NULL, or a flag that ends the
 * call between two programs once it is not 0 (ERR_CANCELLED); the text then has what was read. */
enum status decoder_feed(struct decoder *d, const int32_t *token, int64_t n, const atomic_int *stop, float *logits);
/* Forgets the text behind its first n tokens, n at most its length. The next feed reads tokens before n again where sliding
 * windows have dropped their keys, and with recurrences those behind the last copy of their states: before the last token of the
 * last feed of several, or at the last two turns of blocks. */
enum status decoder_truncate(struct decoder *d, int64_t n);
/* Makes `token` the text: keeps the longest beginning shared with the text so far and reads the rest, at least the last token. */
enum status decoder_read(struct decoder *d, const int32_t *token, int64_t n, const atomic_int *stop, float *logits);

#endif
