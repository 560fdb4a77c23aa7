/* A conversation as templates see it. Private to this folder. */
#ifndef LTRAIN_CHAT_CONVERSATION_H
#define LTRAIN_CHAT_CONVERSATION_H

#include "chat/chat.h"

/* A message's own mark of being trained or not. */
enum chat_mark { CHAT_MARK_NONE, CHAT_MARK_TRAINED, CHAT_MARK_UNTRAINED };

struct chat_conversation {
    char *file; /* file and line of its row */
    int64_t line;
    json_t *messages;  /* an array of objects with a role */
    json_t *tools;     /* an array, or NULL */
    json_t *variables; /* an object, or NULL */
    char *untrained;   /* [messages]: 1: the turn is only read */
    char *marks;       /* [messages]: enum chat_mark */
};

int chat_is_assistant(const struct chat_conversation *c, size_t message);
/* Tells whether the role is system, developer, user, assistant or tool. */
int chat_is_usual(const char *role);
/* Tells whether a message has content, tool calls or reasoning. */
int chat_says_something(const struct chat_conversation *c, size_t message);
/* Tells whether a message's content has more than reasoning. */
int chat_answers(const struct chat_conversation *c, size_t message);
/* Tells whether a message consists of tool calls only. */
int chat_only_calls(const struct chat_conversation *c, size_t message);
/* Tells whether a message has reasoning: as a member of its own, or in its content. */
int chat_reasons(const struct chat_conversation *c, size_t message);
/* Finds reasoning within a content, between <think> (or the content's beginning) and </think>: bytes [*first, *end). Returns 0 if
 * there is none, or only white space. */
int chat_find_reasoning(const json_t *content, size_t *first, size_t *end);
/* Counts the tool calls of a message. */
size_t chat_calls(const struct chat_conversation *c, size_t message);

#endif
