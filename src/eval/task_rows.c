#include "eval/task_rows.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

enum { IGNORED = -100 }; /* label of tokens that are not trained, as in transformers */

/* Returns the given beginning of the answer. In a chat a leading blank is left out, since assistants' texts begin without one. */
static struct text_buffer lead_of(const struct prompts *p, const struct task_sample *s)
{
    struct text_buffer lead = s->lead;
    const size_t blanks = p->chats && lead.n > 0 && lead.data[0] == ' ';
    lead.data += blanks;
    lead.n -= blanks;
    return lead;
}

static enum status encode_chat(const struct prompts *p, const struct task_sample *s, struct ids *out)
{
    json_t *messages = json_pack("[{s:s, s:s%}]", "role", "user", "content", s->prompt.data, s->prompt.n);
    if (!messages)
        return status_fail(ERR_NOMEM, "out of memory for a chat");
    enum status st = prompts_encode_chat(p, messages, out);
    json_decref(messages);
    const struct text_buffer lead = lead_of(p, s);
    return st == OK ? prompts_encode_more(p, &lead, ENCODE_PLAIN | ENCODE_CONTINUES, out) : st;
}

static enum status encode_plain(const struct prompts *p, const struct task_sample *s, struct ids *out)
{
    struct text_buffer all = {.n = 0};
    enum status st = text_buffer_add(&all, s->prompt.data, s->prompt.n);
    if (st == OK)
        st = text_buffer_add(&all, s->lead.data, s->lead.n);
    if (st == OK)
        st = prompts_encode(p, &all, ENCODE_PLAIN, out);
    text_buffer_free(&all);
    return st;
}

enum status task_rows_encode(const struct prompts *p, const struct task_sample *s, struct ids *prompt, struct ids *answer)
{
    TRY(p->chats ? encode_chat(p, s, prompt) : encode_plain(p, s, prompt));
    return prompts_encode_more(p, &s->answer, ENCODE_PLAIN | ENCODE_CONTINUES, answer);
}

static json_t *chat_row(const struct prompts *p, const struct task_sample *s)
{
    const struct text_buffer lead = lead_of(p, s);
    json_t *said = json_sprintf("%.*s%.*s", (int)lead.n, (const char *)lead.data, (int)s->answer.n, (const char *)s->answer.data);
    return json_pack("{s:[{s:s, s:s%}, {s:s, s:o}]}", "messages", "role", "user", "content", s->prompt.data, s->prompt.n, "role",
                     "assistant", "content", said);
}

static void add_tokens(json_t *ids, json_t *labels, const struct ids *from, size_t n, int trained)
{
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(ids, json_integer(from->id[i]));
        json_array_append_new(labels, json_integer(trained ? from->id[i] : IGNORED));
    }
}

static json_t *token_row(const struct ids *prompt, const struct ids *answer, const struct ids *eos, int all)
{
    json_t *ids = json_array(), *labels = json_array();
    add_tokens(ids, labels, prompt, prompt->n, all);
    add_tokens(ids, labels, answer, answer->n, 1);
    add_tokens(ids, labels, eos, eos->n > 0, 1);
    return json_pack("{s:o, s:o}", "input_ids", ids, "labels", labels);
}

enum status task_rows_write(const struct prompts *p, const struct ids *eos, const struct task_sample *s,
                            const struct task_cell *c, int all, FILE *f)
{
    struct ids prompt = {.n = 0}, answer = {.n = 0};
    enum status st = task_rows_encode(p, s, &prompt, &answer);
    json_t *row = NULL;
    if (st == OK)
        row = p->chats ? chat_row(p, s) : token_row(&prompt, &answer, eos, all);
    if (st == OK && row) {
        json_object_set_new(row, "task", json_string(task_name(c->task)));
        json_object_set_new(row, "length", json_integer(c->length));
        if (!isnan(c->depth))
            json_object_set_new(row, "depth", json_real(c->depth));
        json_dumpf(row, f, JSON_COMPACT);
        fputc('\n', f);
    } else if (st == OK) {
        st = status_fail(ERR_NOMEM, "out of memory: a sample");
    }
    json_decref(row);
    free(prompt.id);
    free(answer.id);
    return st;
}
