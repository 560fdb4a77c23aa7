/* The shapes in which conversations come, turned into messages. Private to this folder. */
#ifndef LTRAIN_CHAT_SHAPES_H
#define LTRAIN_CHAT_SHAPES_H

#include "chat/conversation.h"

/* "FILE:LINE: ...". */
enum status chat_refuse(const struct chat_conversation *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A new array of messages, not yet checked; *prompt of them, the first, are a prompt. */
enum status chat_shape(const struct chat_conversation *c, const json_t *object, json_t **messages, size_t *prompt);

/* Takes the system prompt that a row has beside its messages as the first of them. Refuses what else belongs to the conversation and
 * is not in the messages: what other keys say, pictures. */
enum status chat_take_beside(const struct chat_conversation *c, const json_t *object, json_t *messages, size_t *prompt);

#endif
