/* What a model reads as a prompt, and what ends its answer: for `ltrain sample` and `ltrain eval`. Private to src/train. */
#ifndef LTRAIN_TRAIN_PROMPTS_H
#define LTRAIN_TRAIN_PROMPTS_H

#include "data/chats.h"
#include "settings/settings.h"
#include "text/tokenizer.h"

struct prompts {
    struct tokenizer *tokenizer; /* NULL: bytes */
    struct chat_template *chat_template;
    json_t *variables; /* of the template, or NULL */
    struct chat_encoder *chats; /* NULL: no chat has been opened */
};

/* The tokenizer that the settings ask for. */
enum status prompts_open(const struct settings *s, struct prompts *out);
/* The chat template as well. ERR_INVALID: there is no tokenizer, or no template. */
enum status prompts_open_chat(const struct settings *s, struct prompts *p);
void prompts_close(struct prompts *p);

/* As a tokenizer's call has it: with what its template puts before. flags: of tokenizer_encode. */
enum status prompts_encode(const struct prompts *p, const struct text_buffer *text, unsigned flags, struct ids *out);
/* What goes on behind such a text, without anything before. */
enum status prompts_encode_more(const struct prompts *p, const struct text_buffer *text, unsigned flags, struct ids *out);
/* A list of messages, as the template begins an answer to them. */
enum status prompts_encode_chat(const struct prompts *p, json_t *messages, struct ids *out);

/* [vocab], the caller's: 1 for each token that ends an answer: those of eos, and in a chat all special ones, as a turn ends at
 * whichever comes. */
enum status prompts_ends(const struct prompts *p, const struct ids *eos, int64_t vocab, uint8_t **out);
/* Ids below it have a token: rows of a vocabulary that was padded have none. */
int64_t prompts_ids(const struct prompts *p);

#endif
