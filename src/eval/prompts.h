/* Prompts and ends of answers, for `ltrain sample` and `ltrain eval`. Private to src/eval. */
#ifndef LTRAIN_EVAL_PROMPTS_H
#define LTRAIN_EVAL_PROMPTS_H

#include "data/chats.h"
#include "settings/settings.h"
#include "text/tokenizer.h"

struct prompts {
    struct tokenizer *tokenizer; /* NULL: bytes */
    struct chat_template *chat_template;
    json_t *variables;          /* variables of the template, or NULL */
    struct chat_encoder *chats; /* NULL: no chat has been opened */
};

/* Opens the tokenizer that the settings ask for. */
enum status prompts_open(const struct settings *s, struct prompts *out);
/* Opens the chat template as well. ERR_INVALID: there is no tokenizer, or no template. */
enum status prompts_open_chat(const struct settings *s, struct prompts *p);
void prompts_close(struct prompts *p);

/* Encodes a text as calling the tokenizer does, behind the tokens that the tokenizer's own template puts first. flags: of
 * tokenizer_encode. */
enum status prompts_encode(const struct prompts *p, const struct text_buffer *text, unsigned flags, struct ids *out);
/* Encodes a text that continues one of prompts_encode, without tokens in front. */
enum status prompts_encode_more(const struct prompts *p, const struct text_buffer *text, unsigned flags, struct ids *out);
/* Encodes a list of messages, with the template's begin of an answer. */
enum status prompts_encode_chat(const struct prompts *p, json_t *messages, struct ids *out);

/* Allocates [vocab] with 1 for each token that ends an answer, freed by the caller. These are the tokens of `eos`, and in a chat
 * all special tokens, as any of them may end a turn. */
enum status prompts_ends(const struct prompts *p, const struct ids *eos, int64_t vocab, uint8_t **out);
/* Returns the number of ids that have a token; further rows of a padded vocabulary have none. */
int64_t prompts_ids(const struct prompts *p);

#endif
