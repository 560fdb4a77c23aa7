#include "eval/prompts.h"

#include "base/sys.h"
#include "train/data.h"
#include "train/template.h"

#include <stdio.h>

enum status prompts_open(const struct settings *s, struct prompts *out)
{
    *out = (struct prompts){.tokenizer = NULL};
    return data_open_tokenizer(s, &out->tokenizer);
}

enum status prompts_open_chat(const struct settings *s, struct prompts *p)
{
    struct chat_options options = {.add_generation_prompt = 1};
    if (!p->tokenizer)
        return status_fail(
            ERR_INVALID,
            "a chat needs a tokenizer and a chat template, and %s has none: give --tokenizer DIR, or a prompt without --chat",
            s->model);
    TRY(template_variables(s, &p->variables));
    options.variables = p->variables;
    TRY(template_open(s, p->tokenizer, &p->chat_template));
    return chat_encoder_create(p->tokenizer, p->chat_template, &options, &p->chats);
}

void prompts_close(struct prompts *p)
{
    chat_encoder_destroy(p->chats);
    chat_template_destroy(p->chat_template);
    json_decref(p->variables);
    tokenizer_close(p->tokenizer);
    *p = (struct prompts){.tokenizer = NULL};
}

enum status prompts_encode_more(const struct prompts *p, const struct text_buffer *text, unsigned flags, struct ids *out)
{
    struct encoder *e;
    for (size_t i = 0; !p->tokenizer && i < text->n; i++)
        TRY(ids_add(out, text->data[i]));
    if (!p->tokenizer)
        return OK;
    TRY(encoder_create(p->tokenizer, &e));
    enum status st = tokenizer_encode(e, text->data, text->n, flags, out);
    encoder_free(e);
    return st;
}

enum status prompts_encode(const struct prompts *p, const struct text_buffer *text, unsigned flags, struct ids *out)
{
    const struct ids *before, *behind;
    if (p->tokenizer) {
        tokenizer_template(p->tokenizer, &before, &behind);
        for (size_t i = 0; i < before->n; i++)
            TRY(ids_add(out, before->id[i]));
    }
    return prompts_encode_more(p, text, flags, out);
}

enum status prompts_encode_chat(const struct prompts *p, json_t *messages, struct ids *out)
{
    struct chat_conversation *c;
    struct chat_sample sample;
    json_t *object = json_pack("{s:O}", "messages", messages);
    if (!object)
        return status_fail(ERR_NOMEM, "out of memory for a chat");
    enum status st = chat_from_json(object, "the chat", (int64_t)json_array_size(messages), &c);
    json_decref(object);
    TRY(st);
    st = chat_encode(p->chats, c, &sample);
    chat_destroy(c);
    TRY(st);
    for (size_t i = 0; i < sample.tokens.n && st == OK; i++)
        st = ids_add(out, sample.tokens.id[i]);
    chat_sample_destroy(&sample);
    return st;
}

static void mark(uint8_t *ends, int64_t vocab, int32_t id)
{
    if (id >= 0 && id < vocab)
        ends[id] = 1;
}

enum status prompts_ends(const struct prompts *p, const struct ids *eos, int64_t vocab, uint8_t **out)
{
    const uint8_t *text;
    int64_t at = 0;
    size_t n;
    uint8_t *ends = sys_calloc((size_t)vocab, 1);
    if (!ends)
        return status_fail(ERR_NOMEM, "out of memory for sampling");
    for (size_t i = 0; i < eos->n; i++)
        mark(ends, vocab, eos->id[i]);
    while (p->chats && tokenizer_special(p->tokenizer, &at, &text, &n)) {
        char token[256];
        snprintf(token, sizeof token, "%.*s", (int)n, (const char *)text);
        mark(ends, vocab, tokenizer_find(p->tokenizer, token));
    }
    *out = ends;
    return OK;
}

int64_t prompts_ids(const struct prompts *p)
{
    enum { BYTES = 256 };
    return p->tokenizer ? tokenizer_ids(p->tokenizer) : BYTES;
}
