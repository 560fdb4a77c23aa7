/* Conversations in their several shapes, turned into messages. Private to this folder. */
#ifndef LTRAIN_CHAT_SHAPES_H
#define LTRAIN_CHAT_SHAPES_H

#include "chat/conversation.h"

/* Returns ERR_INVALID with the message "FILE:LINE: ...". */
enum status chat_refuse(const struct chat_conversation *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Makes a new array of messages, not yet checked. *prompt: number of first messages that are a prompt, and not trained. */
enum status chat_shape(const struct chat_conversation *c, const json_t *object, json_t **messages, size_t *prompt);

/* Takes a system prompt that stands beside the messages as the first message. Refuses other members whose content belongs to the
 * conversation but is not in its messages: texts, pictures. */
enum status chat_take_beside(const struct chat_conversation *c, const json_t *object, json_t *messages, size_t *prompt);

#endif
