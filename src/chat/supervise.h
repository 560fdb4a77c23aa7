/* Finding the bytes of a render that are trained. Private to this folder. */
#ifndef LTRAIN_CHAT_SUPERVISE_H
#define LTRAIN_CHAT_SUPERVISE_H

#include "chat/rendering.h"

/* A template's form of turns, learned from renders of a short conversation. */
struct chat_form {
    char end[80];      /* the token that ends an answer, or "" */
    char between[160]; /* the template's text between a question and its answer, without white space around it, or "" */
    int ends_by_next;  /* 1: the token that begins the next turn also ends an answer */
};

/* Fills out->supervised (allocated) and the counts declared after it. `whole` is the render of messages [0, n), whose bytes and
 * spans are in *out already. */
enum status chat_supervise(const struct chat_template *t, const struct chat_conversation *c, const struct chat_options *options,
                           size_t n, const struct chat_rendering *whole, struct chat_text *out);

/* Adds a range of bytes that are trained (chat_add_range), in order, or the token that ends a trained turn (chat_add_end). */
enum status chat_add_range(struct chat_text *text, size_t first, size_t end);
enum status chat_add_end(struct chat_text *text, size_t first, size_t end);
/* Trains the bytes inside {% generation %} blocks that belong to wanted messages of [0, n), and counts parts of these messages
 * outside of the blocks. */
enum status chat_supervise_generated(const struct chat_template *t, const struct chat_conversation *c,
                                     const struct chat_options *options, const struct jinja_text *whole, size_t n,
                                     const char *wanted, struct chat_text *out);
/* Counts members of messages that the text lacks, and special tokens typed as text. Clears wanted[i] if message i has only tool
 * calls and the text lacks them: training the empty turn would teach to say nothing. */
enum status chat_count_left_out(const struct chat_template *t, const struct chat_conversation *c,
                                const struct chat_options *options, const struct jinja_text *whole, const struct chat_form *form,
                                size_t n, char *wanted, struct chat_text *out);

/* Returns the length of the special token at bytes[at]; 0: there is none. */
size_t chat_special_at(const struct chat_template *t, const struct chat_options *options, const char *bytes, size_t n, size_t at);

#endif
