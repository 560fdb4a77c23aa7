/* A parsed template. Private to this folder. */
#ifndef LTRAIN_CHAT_TEMPLATE_H
#define LTRAIN_CHAT_TEMPLATE_H

#include "chat/chat.h"
#include "chat/jinja/node.h"

enum { CHAT_MAX_TOKENS = 16 };

struct chat_template {
    struct jinja_task task; /* task whose memory has the tree and the names */
    const char *name;
    const char *source;
    size_t n;
    struct jinja_names names;
    struct jinja_node *first;
    int generations; /* number of {% generation %} blocks */
    struct {
        char *variable, *token;
    } tokens[CHAT_MAX_TOKENS];
    size_t n_tokens;
    char *tools_error;               /* reason why the template for conversations with tools cannot be read, owned; NULL: none */
    struct chat_template *for_tools; /* separate template for conversations with tools, owned; NULL: there is none */
};

#endif
