/* Conversations as tokens, and which of them are trained. */
#ifndef LTRAIN_DATA_CHATS_H
#define LTRAIN_DATA_CHATS_H

#include "chat/chat.h"
#include "text/tokenizer.h"

/* Treatment of conversations whose earlier turns the template rewrites, as those of Qwen3, DeepSeek R1 and GLM leave out earlier
 * reasoning. */
enum chat_turns {
    CHAT_TURNS_SPLIT, /* a sample for each trained turn, ending with it as the model would write it; one sample if CHAT_TRAIN_ALL */
    CHAT_TURNS_WHOLE /* one sample, in which earlier turns are trained as the template writes them there */
};

/* Settings of how a corpus reads its conversations. */
struct chat_setup {
    const struct chat_template *chat_template; /* NULL: there is none, and `missing` says why */
    const char *missing;
    enum chat_turns turns;
    struct chat_options options;
};

/* Returns a hash of everything that decides which tokens a conversation gives. */
uint64_t chat_setup_hash(const struct chat_setup *setup);

/* Finds the first token of the form <|...|> in the template's text that the tokenizer lacks, and would read as several tokens.
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

/* A conversation's tokens, without any that the tokenizer would put before or behind: the template writes its own. Special tokens
 * typed in a message are plain text. A token is trained if any byte of it is supervised. */
struct chat_sample {
    struct ids tokens;
    uint8_t *trained; /* [tokens.n] */
    int64_t n_trained;
    struct chat_text text;
    int32_t ends[CHAT_MOST_ENDS]; /* tokens that end its turns */
    int32_t n_ends;
};

/* Encodes a conversation. ERR_INVALID also: no token is trained, unless the only turns to train are tool calls that the template
 * leaves out. The caller destroys *out, which is empty after an error. */
enum status chat_encode(struct chat_encoder *x, const struct chat_conversation *c, struct chat_sample *out);
void chat_sample_destroy(struct chat_sample *sample);

/* Totals over the conversations that were read. */
struct chat_counts {
    int64_t conversations, samples;
    int64_t split;             /* conversations that became several samples, or one that ends earlier */
    int64_t reasoning_dropped; /* trained turns without the reasoning that was given */
    int64_t unended;           /* trained turns after which no token that ends a turn was found */
    int64_t messages_dropped;  /* messages that the template leaves out */
    int64_t calls_dropped;     /* messages without the calls of tools that were given */
    int64_t contents_dropped;  /* messages of assistants that lose their text beside calls or reasoning */
    int64_t tools_dropped;     /* conversations without the tools that were given */
    int64_t empty;             /* trained turns that say nothing */
    int64_t other_roles;       /* messages of no usual role */
    int64_t untrained;         /* turns meant to be trained that are wholly or partly not */
    int64_t otherwise;         /* trained turns that begin elsewhere than a generation prompt ends */
    int64_t typed;     /* messages in which somebody wrote special tokens or the template's own text: they are read as letters */
    int64_t arguments; /* calls whose arguments were text and became objects */
    int32_t ends[CHAT_MOST_ENDS]; /* first of the tokens that end trained turns, in no order */
    int32_t n_ends;
};

void chat_counts_add(struct chat_counts *to, const struct chat_counts *more);

/* Called with each sample of a conversation. */
typedef enum status chat_visitor(void *user, const struct chat_sample *sample);
/* Visits the samples of a conversation in order, and adds to *counts. Contents that are lists become strings if the template
 * takes no lists. A turn that a later sample has unchanged, the bytes before it included, is trained there: there is one sample
 * unless the template rewrites earlier turns. Errors as of chat_encode. */
enum status chat_encode_turns(struct chat_encoder *x, struct chat_conversation *c, enum chat_turns turns, chat_visitor *visit,
                              void *user, struct chat_counts *counts);

#endif
