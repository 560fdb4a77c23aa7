/* A template applied to the first messages of a conversation. Private to this folder. */
#ifndef LTRAIN_CHAT_RENDERING_H
#define LTRAIN_CHAT_RENDERING_H

#include "chat/conversation.h"
#include "chat/template.h"

struct chat_rendering {
    struct jinja_task task; /* task whose memory has the text */
    const struct jinja_text *text;
};

/* Renders messages [0, n). After an error chat_rendering_end need not be called. */
enum status chat_rendering_make(const struct chat_template *t, const struct chat_conversation *c,
                                const struct chat_options *options, size_t n, int generation_prompt, struct chat_rendering *out);
void chat_rendering_end(struct chat_rendering *r);

#endif
