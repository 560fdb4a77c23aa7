/* The chat template that settings ask for. Private to src/train. */
#ifndef LTRAIN_TRAIN_TEMPLATE_H
#define LTRAIN_TRAIN_TEMPLATE_H

#include "chat/chat.h"
#include "settings/settings.h"
#include "text/tokenizer.h"

/* That of --chat-template, or the one that lies beside the tokenizer. ERR_INVALID: there is none; *out is to be destroyed all the same. */
enum status template_open(const struct settings *s, const struct tokenizer *t, struct chat_template **out);
/* The variables of --template-var, an object to be given back; *out NULL: there are none. ERR_INVALID: one is no NAME=VALUE. */
enum status template_variables(const struct settings *s, json_t **out);
/* Adds the text that renders as `used` does for whoever reads it with the tokenizer's files of a directory; a 0 is behind it. */
enum status template_text(const struct chat_template *used, const char *dir, struct text_buffer *out);

#endif
