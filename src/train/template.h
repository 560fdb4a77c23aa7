/* The chat template that settings ask for. */
#ifndef LTRAIN_TRAIN_TEMPLATE_H
#define LTRAIN_TRAIN_TEMPLATE_H

#include "chat/chat.h"
#include "settings/settings.h"
#include "text/tokenizer.h"

/* Opens --chat-template, or the one beside the tokenizer. ERR_INVALID: there is none; *out must be destroyed even then. */
enum status template_open(const struct settings *s, const struct tokenizer *t, struct chat_template **out);
/* Reads the variables of --template-var into an object that the caller frees; *out NULL: there are none. ERR_INVALID: one is no
 * NAME=VALUE. */
enum status template_variables(const struct settings *s, json_t **out);
/* Adds a template text that renders as `used` does when read with the tokenizer's files of a directory; a 0 follows it. */
enum status template_text(const struct chat_template *used, const char *dir, struct text_buffer *out);

#endif
