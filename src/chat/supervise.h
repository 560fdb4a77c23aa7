/* Which bytes of a render are trained. Private to this folder. */
#ifndef LTRAIN_CHAT_SUPERVISE_H
#define LTRAIN_CHAT_SUPERVISE_H

#include "chat/rendering.h"

/* Fills out->supervised (allocated) and the counts behind it; out has bytes and spans of messages [0, n) already, whose render
 * is `whole`. */
enum status chat_supervise(const struct chat_template *t, const struct chat_conversation *c, const struct chat_options *options,
                           size_t n, const struct chat_rendering *whole, struct chat_text *out);

/* A token that ends turns, at bytes[at]: its length, or 0. */
size_t chat_special_at(const struct chat_template *t, const struct chat_options *options, const char *bytes, size_t n, size_t at);

#endif
