/* A conversation as templates see it. Private to this folder. */
#ifndef LTRAIN_CHAT_CONVERSATION_H
#define LTRAIN_CHAT_CONVERSATION_H

#include "chat/chat.h"

struct chat_conversation {
    char *file; /* where it stands */
    int64_t line;
    json_t *messages;  /* an array of objects with a role */
    json_t *tools;     /* an array, or NULL */
    json_t *variables; /* an object, or NULL */
    char *untrained;   /* [messages]: whose turns are only read */
};

int chat_is_assistant(const struct chat_conversation *c, size_t message);
/* Whether a message says anything: content or tool calls, or reasoning. */
int chat_says_something(const struct chat_conversation *c, size_t message);
/* The reasoning that comes with a message, or NULL. */
const json_t *chat_reasoning(const struct chat_conversation *c, size_t message);

#endif
