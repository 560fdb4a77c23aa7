/* Which bytes of a render are trained. Private to this folder. */
#ifndef LTRAIN_CHAT_SUPERVISE_H
#define LTRAIN_CHAT_SUPERVISE_H

#include "chat/rendering.h"

/* How a template writes turns, as a short conversation shows it. */
struct chat_form {
    char end[80];      /* the token that ends an answer, or "" */
    char between[160]; /* the template's text between a question and its answer, without white space around it, or "" */
    int ends_by_next;  /* an answer is ended by the token with which the next turn begins */
};

/* Fills out->supervised (allocated) and the counts behind it; out has bytes and spans of messages [0, n) already, whose render
 * is `whole`. */
enum status chat_supervise(const struct chat_template *t, const struct chat_conversation *c, const struct chat_options *options,
                           size_t n, const struct chat_rendering *whole, struct chat_text *out);

/* The parts of it: bytes that are trained, in order; the token that ends a trained turn. */
enum status chat_add_range(struct chat_text *text, size_t first, size_t end);
enum status chat_add_end(struct chat_text *text, size_t first, size_t end);
/* Trains what {% generation %} blocks gave, of messages [0, n) that are wanted, and counts what of those they leave out. */
enum status chat_supervise_generated(const struct chat_template *t, const struct chat_conversation *c, const struct chat_options *options,
                                     const struct jinja_text *whole, size_t n, const char *wanted, struct chat_text *out);
/* Counts what is given and not in the text, and what stands there as text that the template has as tokens. wanted[i] is cleared where all
 * that message i says are calls of tools that the text has not: an empty turn would teach to say nothing. */
enum status chat_count_left_out(const struct chat_template *t, const struct chat_conversation *c, const struct chat_options *options,
                                const struct jinja_text *whole, const struct chat_form *form, size_t n, char *wanted, struct chat_text *out);

/* A token that ends turns, at bytes[at]: its length, or 0. */
size_t chat_special_at(const struct chat_template *t, const struct chat_options *options, const char *bytes, size_t n, size_t at);

#endif
