/* Counting the parts of messages that the rendered text lacks, and special tokens that somebody typed. */
#include "chat/supervise.h"

#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

/* Bits of a message beside its marks. ANSWERED: words that are neither calls nor reasoning; TYPED: special tokens typed as text. */
enum { ANSWERED = 1, TYPED = 2 };

struct account {
    const struct chat_template *t;
    const struct chat_conversation *c;
    const struct chat_options *options;
    const struct chat_form *form;
    struct chat_text *text;
    char begins[256]; /* 1 for each byte with which some special token begins */
};

/* Counts the parts of message i that the text lacks. marks: all marks of the message's bytes in the text, or'ed. */
static enum status count_message(const struct account *x, size_t i, int32_t marks, char *wanted)
{
    struct chat_text *text = x->text;
    text->empty += *wanted && !chat_says_something(x->c, i);
    text->other_roles += !chat_is_usual(chat_role(x->c, (int64_t)i));
    text->typed += (marks & TYPED) != 0;
    if (marks & MARK_WORDS) {
        text->reasoning_dropped += *wanted && chat_reasons(x->c, i) && !(marks & MARK_REASONING);
        text->calls_dropped += chat_calls(x->c, i) > 0 && !(marks & MARK_CALLS);
        text->contents_dropped += chat_is_assistant(x->c, i) && chat_answers(x->c, i) && !(marks & ANSWERED);
        return OK;
    }
    if (!chat_says_something(x->c, i))
        return OK;
    if (chat_only_calls(x->c, i)) {
        text->calls_dropped++;
        *wanted = 0;
        return OK;
    }
    if (*wanted && (x->options->strict || (x->options->train != CHAT_TRAIN_ALL && x->t->generations == 0)))
        return status_fail(ERR_INVALID,
                           "%s:%lld: the chat template %s leaves out message %zu, of an assistant: it may be another model's",
                           x->c->file, (long long)x->c->line, x->t->name, i + 1);
    text->messages_dropped++;
    return OK;
}

/* Tells whether a message's words contain a special token, or the template's text between a question and its answer: the message
 * was made of a rendered text. */
static int has_tokens(const struct account *x, const char *bytes, size_t n)
{
    enum { BY_CHANCE = 6 };
    const size_t between = strlen(x->form->between);
    if (!x->options->specials)
        return 0;
    if (between >= BY_CHANCE && memmem(bytes, n, x->form->between, between))
        return 1;
    for (size_t at = 0; at < n; at++)
        if (x->begins[(unsigned char)bytes[at]] && chat_special_at(x->t, x->options, bytes, n, at) > 0)
            return 1;
    return 0;
}

static int32_t look_at(const struct account *x, const struct jinja_text *whole, const struct chat_span *span)
{
    const int32_t mark = jinja_mark(whole, span->first) & ~MARK_ORIGIN;
    const int answers = (mark & (MARK_WORDS | MARK_CALLS | MARK_REASONING)) == MARK_WORDS;
    const int typed = (mark & MARK_WORDS) && has_tokens(x, x->text->bytes + span->first, span->end - span->first);
    return mark | (answers ? ANSWERED : 0) | (typed ? TYPED : 0);
}

static void learn_beginnings(struct account *x)
{
    const char *const *specials = x->options->specials;
    for (size_t i = 0; specials && specials[i]; i++)
        x->begins[(unsigned char)specials[i][0]] = 1;
    for (size_t i = 0; i < x->t->n_tokens; i++)
        x->begins[(unsigned char)x->t->tokens[i].token[0]] = 1;
}

enum status chat_count_left_out(const struct chat_template *t, const struct chat_conversation *c,
                                const struct chat_options *options, const struct jinja_text *whole, const struct chat_form *form,
                                size_t n, char *wanted, struct chat_text *out)
{
    struct account x = {.t = t, .c = c, .options = options, .form = form, .text = out};
    int32_t *marks = sys_calloc(n + 1, sizeof *marks);
    int data = 0;
    enum status st = marks ? OK : status_fail(ERR_NOMEM, "no memory for a conversation of %zu messages", n);
    learn_beginnings(&x);
    for (size_t k = 0; k < out->n_spans && st == OK; k++) {
        data |= out->spans[k].origin == CHAT_FROM_DATA;
        if (out->spans[k].origin >= 0)
            marks[out->spans[k].origin] |= look_at(&x, whole, &out->spans[k]);
    }
    for (size_t i = 0; i < n && st == OK; i++)
        st = count_message(&x, i, marks[i], &wanted[i]);
    out->tools_dropped = c->tools && !data;
    free(marks);
    return st;
}
