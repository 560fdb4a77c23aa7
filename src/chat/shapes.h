/* Conversations in their several shapes, turned into messages. Private to this folder. */
#ifndef LTRAIN_CHAT_SHAPES_H
#define LTRAIN_CHAT_SHAPES_H

#include "chat/conversation.h"

/* Fails with "FILE:LINE: ...". */
enum status chat_refuse(const struct chat_conversation *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Makes a new array of messages, not yet checked; the first *prompt of them are a prompt. */
enum status chat_shape(const struct chat_conversation *c, const json_t *object, json_t **messages, size_t *prompt);

/* Takes a system prompt beside the messages as the first message. Refuses members that belong to the conversation and are not in
 * its messages: other texts, pictures. */
enum status chat_take_beside(const struct chat_conversation *c, const json_t *object, json_t *messages, size_t *prompt);

#endif
