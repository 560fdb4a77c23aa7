/* Conversations as tokens, and which of them are trained. */
#ifndef LTRAIN_DATA_CHATS_H
#define LTRAIN_DATA_CHATS_H

#include "chat/chat.h"
#include "text/tokenizer.h"

/* Treatment of conversations in which the template rewrites earlier turns: those of Qwen3, DeepSeek R1 and GLM drop the reasoning
 * of earlier turns. */
enum chat_turns {
    /* a sample for each trained turn, which ends with the turn as the model would write it; with CHAT_TRAIN_ALL one sample */
    CHAT_TURNS_SPLIT,
    CHAT_TURNS_WHOLE /* one sample, in which earlier turns are trained as the template writes them there */
};

/* Settings by which a corpus turns conversations into samples. */
struct chat_setup {
    const struct chat_template *chat_template; /* NULL: there is no template, and `missing` says why */
    const char *missing;
    enum chat_turns turns;
    struct chat_options options;
};

/* Returns a hash of everything that decides which tokens a conversation gives. */
uint64_t chat_setup_hash(const struct chat_setup *setup);

/* Finds the first token of the form <|...|> in the template's text that the tokenizer lacks and would split into several tokens.
 * Returns 0 if there is none. */
int chat_foreign_token(const struct chat_setup *setup, const struct tokenizer *tokenizer, char token[64]);

enum { CHAT_MOST_ENDS = 8 };

/* One thread's buffers for encoding conversations. */
struct chat_encoder;

/* Creates an encoder. Template and tokenizer must outlive it; options->specials is ignored. ERR_INVALID: the template names a
 * token that the tokenizer lacks, so it is another model's template. */
enum status chat_encoder_create(const struct tokenizer *tokenizer, const struct chat_template *chat_template,
                                const struct chat_options *options, struct chat_encoder **out);
void chat_encoder_destroy(struct chat_encoder *x);

/* A conversation's tokens, without those that the tokenizer would put before or behind: the template writes such tokens itself.
 * Special tokens typed in a message are plain text. A token is trained if any byte of it is supervised. */
struct chat_sample {
    struct ids tokens;
    uint8_t *trained; /* [tokens.n] */
    int64_t n_trained;
    struct chat_text text;
    int32_t ends[CHAT_MOST_ENDS]; /* distinct special tokens that end trained turns */
    int32_t n_ends;
};

/* Encodes a conversation. ERR_INVALID also: no token is trained, unless the only turns to train are tool calls that the template
 * leaves out. The caller destroys *out, which is empty after an error. */
enum status chat_encode(struct chat_encoder *x, const struct chat_conversation *c, struct chat_sample *out);
void chat_sample_destroy(struct chat_sample *sample);

/* Totals over the conversations that were read. */
struct chat_counts {
    int64_t conversations, samples;
    int64_t split;             /* conversations that became several samples, or one sample without the last messages */
    int64_t reasoning_dropped; /* trained turns whose given reasoning the template leaves out */
    int64_t unended;           /* trained turns after which no token that ends a turn was found */
    int64_t messages_dropped;  /* messages that the template leaves out */
    int64_t calls_dropped;     /* messages whose given tool calls the template leaves out */
    int64_t contents_dropped;  /* assistants' messages whose text is left out, as they have tool calls or reasoning, too */
    int64_t tools_dropped;     /* conversations whose given tools the template leaves out */
    int64_t empty;             /* trained turns with an empty text */
    int64_t other_roles;       /* messages whose role is none of the usual ones */
    int64_t untrained;         /* turns meant to be trained that are wholly or partly not */
    int64_t otherwise;         /* trained turns that do not begin where the template's generation prompt would end */
    int64_t typed;     /* messages that contain special tokens or the template's own text: these are read as plain letters */
    int64_t arguments; /* tool calls whose arguments were given as text and were parsed into objects */
    int32_t ends[CHAT_MOST_ENDS]; /* distinct special tokens that end trained turns, as many as fit, in no order */
    int32_t n_ends;
};

void chat_counts_add(struct chat_counts *to, const struct chat_counts *more);

/* Called with each sample of a conversation. */
typedef enum status chat_visitor(void *user, const struct chat_sample *sample);
/* Visits the samples of a conversation in order, and adds to *counts. Contents that are lists become strings if the template
 * takes no lists.
 *
 * A trained turn belongs to the last sample that has the turn and everything before it unchanged. So there is one sample unless
 * the template rewrites earlier turns. Errors as chat_encode's. */
enum status chat_encode_turns(struct chat_encoder *x, struct chat_conversation *c, enum chat_turns turns, chat_visitor *visit,
                              void *user, struct chat_counts *counts);

#endif
