/* The inside of tags. Private to src/chat: for lexer.c. */
#ifndef LTRAIN_CHAT_JINJA_LEXER_TAGS_H
#define LTRAIN_CHAT_JINJA_LEXER_TAGS_H

#include "chat/jinja/lexer.h"

struct jinja_lexer {
    struct jinja_task *task;
    struct jinja_tokens *tokens;
    const char *s; /* [n], ended by a 0 */
    size_t n;
    int line_starting; /* 1: the next text begins a line: the piece before ended in a newline, or nothing was read yet */
    int lines_inside;  /* lines that the tag being read has added to task->line */
};

void jinja_lexer_add(struct jinja_lexer *x, struct jinja_token token);
size_t jinja_skip_space(const struct jinja_lexer *x, size_t at);
int jinja_count_lines(const struct jinja_lexer *x, size_t first, size_t end);
/* Adds the tokens of a tag whose inside starts at `at`, with those of its beginning and end; returns the place from which text
 * goes on. */
size_t jinja_lex_inside(struct jinja_lexer *x, size_t at, int block);

#endif
