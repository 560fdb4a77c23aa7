/* A conversation as templates see it. Private to this folder. */
#ifndef LTRAIN_CHAT_CONVERSATION_H
#define LTRAIN_CHAT_CONVERSATION_H

#include "chat/chat.h"

/* How a message says of itself that it is trained. */
enum chat_mark { CHAT_MARK_NONE, CHAT_MARK_TRAINED, CHAT_MARK_UNTRAINED };

struct chat_conversation {
    char *file; /* where it stands */
    int64_t line;
    json_t *messages;  /* an array of objects with a role */
    json_t *tools;     /* an array, or NULL */
    json_t *variables; /* an object, or NULL */
    char *untrained;   /* [messages]: whose turns are only read */
    char *marks;       /* [messages]: enum chat_mark */
};

int chat_is_assistant(const struct chat_conversation *c, size_t message);
/* system, developer, user, assistant or tool. */
int chat_is_usual(const char *role);
/* Whether a message says anything: content or tool calls, or reasoning. */
int chat_says_something(const struct chat_conversation *c, size_t message);
/* Whether its content has more than reasoning. */
int chat_answers(const struct chat_conversation *c, size_t message);
/* Whether all that it says are calls of tools. */
int chat_only_calls(const struct chat_conversation *c, size_t message);
/* Whether reasoning comes with a message: as a member of its own, or in its content. */
int chat_reasons(const struct chat_conversation *c, size_t message);
/* Reasoning within a content, between <think> (or its beginning) and </think>: bytes [*first, *end); 0: there is none, or only white space. */
int chat_find_reasoning(const json_t *content, size_t *first, size_t *end);
/* The calls of tools that a message makes. */
size_t chat_calls(const struct chat_conversation *c, size_t message);

#endif
