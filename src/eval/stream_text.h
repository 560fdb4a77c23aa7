/* Turning token ids into text as they come; text that may still change is held back. Private to src/eval. */
#ifndef LTRAIN_EVAL_STREAM_TEXT_H
#define LTRAIN_EVAL_STREAM_TEXT_H

#include "settings/settings.h"
#include "text/tokenizer.h"

struct stream_text {
    const struct tokenizer *tokenizer; /* NULL: ids are bytes */
    const struct string_list *stop_at; /* texts that end the output */
    struct ids ids;
    size_t before, read;     /* ids[before, read) are in the text; they decide how the text of later ids begins */
    struct text_buffer text; /* whole characters */
    size_t given;            /* bytes of the text handed on */
    int stopped;             /* 1: the text ends where one of stop_at was found */
};

void stream_text_free(struct stream_text *s);
/* Adds a token. The bytes [s->given, *end) of the text are final and may be handed on; the caller moves s->given. */
enum status stream_text_add(struct stream_text *s, int32_t id, size_t *end);
/* Ends the text: the part held back becomes final. */
enum status stream_text_end(struct stream_text *s, size_t *end);

#endif
