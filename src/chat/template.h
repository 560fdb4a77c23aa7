/* A parsed template. Private to this folder. */
#ifndef LTRAIN_CHAT_TEMPLATE_H
#define LTRAIN_CHAT_TEMPLATE_H

#include "chat/chat.h"
#include "chat/jinja/node.h"

enum { CHAT_MAX_TOKENS = 16 };

struct chat_template {
    struct jinja_task task; /* owns the tree and the names */
    const char *name;
    const char *source;
    size_t n;
    struct jinja_names names;
    struct jinja_node *first;
    int generations; /* {% generation %} blocks */
    struct {
        char *variable, *token;
    } tokens[CHAT_MAX_TOKENS];
    size_t n_tokens;
    char *tools_error;               /* reason why that one cannot be read, owned, or NULL */
    struct chat_template *for_tools; /* template of conversations with tools, owned; NULL: this one is */
};

#endif
