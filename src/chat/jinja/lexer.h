/* Splitting templates into tokens, with trim_blocks, lstrip_blocks and the last newline dropped, as transformers configures
 * Jinja. Private to src/chat. */
#ifndef LTRAIN_CHAT_JINJA_LEXER_H
#define LTRAIN_CHAT_JINJA_LEXER_H

#include "chat/jinja/text.h"

enum jinja_token_kind {
    TOKEN_DATA, /* text between tags */
    TOKEN_BLOCK,
    TOKEN_BLOCK_END,
    TOKEN_PRINT,
    TOKEN_PRINT_END,
    TOKEN_NAME,
    TOKEN_STRING,
    TOKEN_INT,
    TOKEN_FLOAT,
    TOKEN_OPERATOR,
    TOKEN_END, /* end of the template */
};

struct jinja_token {
    enum jinja_token_kind kind;
    int line;
    const char *bytes; /* text of DATA, STRING (escapes replaced), NAME and OPERATOR; the last two are 0-terminated */
    size_t n;
    int64_t i;
    double f;
};

struct jinja_tokens {
    struct jinja_token *at;
    size_t n, room;
};

/* Splits a template into tokens, the last of which is TOKEN_END. A source that cannot be split ends the task. */
struct jinja_tokens *jinja_lex(struct jinja_task *task, const char *source, size_t n);

#endif
