/* Turning a conversation and a template into text, origins and supervised bytes. */
#include "chat/chat.h"

#include "base/sys.h"
#include "chat/supervise.h"

#include <stdlib.h>
#include <string.h>

/* Returns the end of the span that begins at `first`: all its bytes have the same marks (origin and flags). */

static size_t span_end(const struct jinja_text *text, size_t first)
{
    size_t end = first;
    if (!text->marks)
        return text->n;
    while (end < text->n && text->marks[end] == text->marks[first])
        end++;
    return end;
}

static enum status take_text(const struct jinja_text *text, struct chat_text *out)
{
    size_t spans = 0, at, i = 0;
    for (at = 0; at < text->n; at = span_end(text, at))
        spans++;
    out->bytes = sys_malloc(text->n + 1);
    out->spans = sys_malloc((spans + 1) * sizeof *out->spans);
    if (!out->bytes || !out->spans)
        return status_fail(ERR_NOMEM, "no memory for %zu bytes of a chat", text->n);
    memcpy(out->bytes, text->bytes, text->n);
    out->bytes[text->n] = 0;
    out->n = text->n;
    for (at = 0; at < text->n; at = out->spans[i++].end) {
        int32_t mark = jinja_mark(text, at), origin = mark & MARK_ORIGIN;
        out->spans[i] = (struct chat_span){.first = at, .end = span_end(text, at), .said = (mark & MARK_SAID) != 0};
        out->spans[i].origin = origin == MARK_TEMPLATE ? CHAT_FROM_TEMPLATE
                               : origin == MARK_DATA   ? CHAT_FROM_DATA
                                                       : origin - MARK_MESSAGE;
    }
    out->n_spans = spans;
    return OK;
}

enum status chat_render(const struct chat_template *t, const struct chat_conversation *c, const struct chat_options *options,
                        struct chat_text *out)
{
    struct chat_rendering r;
    size_t all = (size_t)chat_messages(c),
           n = options->messages > 0 && (size_t)options->messages < all ? (size_t)options->messages : all;
    *out = (struct chat_text){0};
    enum status st = chat_rendering_make(t, c, options, n, options->add_generation_prompt, &r);
    if (st != OK) {
        char why[700];
        strncpy(why, status_message(), sizeof why - 1);
        why[sizeof why - 1] = 0;
        return status_fail(st, "%s:%lld: %s", c->file, (long long)c->line, why);
    }
    st = take_text(r.text, out);
    if (st == OK)
        st = chat_supervise(t, c, options, n, &r, out);
    chat_rendering_end(&r);
    if (st == OK && out->n_supervised == 0 && out->calls_dropped == 0 && !options->add_generation_prompt)
        st =
            status_fail(ERR_INVALID,
                        "%s:%lld: nothing in this conversation is trained: it has no message of an assistant that says something",
                        c->file, (long long)c->line);
    if (st != OK)
        chat_text_destroy(out);
    return st;
}

/* Tells whether the rendered conversation contains the two texts of its parts and none of the parts' keys; *failed: 1 if
 * rendering fails. */
static int writes_parts(const struct chat_template *t, const struct chat_options *options, const char *json, int *failed)
{
    struct chat_conversation *c = NULL;
    struct chat_rendering r;
    int writes = 0;
    *failed = 1;
    if (chat_read(json, strlen(json), "", 1, &c) != OK)
        return 0;
    if (chat_rendering_make(t, c, options, (size_t)chat_messages(c), 0, &r) == OK) {
        *failed = 0;
        writes = memmem(r.text->bytes, r.text->n, "A question", 10) && memmem(r.text->bytes, r.text->n, "An answer", 9) &&
                 !memmem(r.text->bytes, r.text->n, "'type'", 6);
        chat_rendering_end(&r);
    }
    chat_destroy(c);
    return writes;
}

#define PART(role, text) "{\"role\": \"" role "\", \"content\": [{\"type\": \"text\", \"text\": \"" text "\"}]}"

int chat_template_takes_parts(const struct chat_template *t, const struct chat_options *options)
{
    int failed, takes = writes_parts(t, options,
                                     "{\"messages\": [" PART("system", "A rule") ", " PART("user", "A question") ", " PART(
                                         "assistant", "An answer") "]}",
                                     &failed);
    if (failed) /* some templates take no system message: tries again without one */
        takes = writes_parts(t, options, "{\"messages\": [" PART("user", "A question") ", " PART("assistant", "An answer") "]}",
                             &failed);
    return takes;
}

void chat_text_destroy(struct chat_text *text)
{
    free(text->bytes);
    free(text->spans);
    free(text->supervised);
    free(text->ends);
    *text = (struct chat_text){0};
}
