/* A conversation as templates see it. Private to this folder. */
#ifndef LTRAIN_CHAT_CONVERSATION_H
#define LTRAIN_CHAT_CONVERSATION_H

#include "chat/chat.h"

/* A message's mark that says whether the message is trained. */
enum chat_mark { CHAT_MARK_NONE, CHAT_MARK_TRAINED, CHAT_MARK_UNTRAINED };

struct chat_conversation {
    char *file; /* file and line of the conversation's row */
    int64_t line;
    json_t *messages;  /* array of objects, each with a role */
    json_t *tools;     /* array, or NULL */
    json_t *variables; /* object of variables for the template (chat_template_kwargs), or NULL */
    char *untrained;   /* [messages]: 1: the message is only read, not trained */
    char *marks;       /* [messages]: enum chat_mark */
};

int chat_is_assistant(const struct chat_conversation *c, size_t message);
/* Tells whether the role is system, developer, user, assistant or tool. */
int chat_is_usual(const char *role);
/* Tells whether a message has content, tool calls or reasoning. */
int chat_says_something(const struct chat_conversation *c, size_t message);
/* Tells whether a message's content has text besides its reasoning. */
int chat_answers(const struct chat_conversation *c, size_t message);
/* Tells whether a message has tool calls and nothing else. */
int chat_only_calls(const struct chat_conversation *c, size_t message);
/* Tells whether a message has reasoning: as a member of its own, or in its content. */
int chat_reasons(const struct chat_conversation *c, size_t message);
/* Finds reasoning within a content: bytes [*first, *end) between <think>, or else the content's beginning, and </think>. Returns
 * 0 if there is none, or only white space. */
int chat_find_reasoning(const json_t *content, size_t *first, size_t *end);
/* Counts the tool calls of a message. */
size_t chat_calls(const struct chat_conversation *c, size_t message);

#endif
