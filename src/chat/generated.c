/* Supervision by {% generation %} blocks. */
#include "chat/supervise.h"

#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

/* A message's turn as found inside {% generation %} blocks. */
struct turn {
    size_t end;  /* end of the message's last part inside a block; 0: there is none */
    int outside; /* 1: some words of the message stand outside of the blocks */
};

/* Bytes [first, end) inside a block, and the message that owns them: the first message with words there. Without words, it is the
 * last message before, if an assistant's, or else the next message of an assistant. */
struct part {
    size_t first, end;
    int64_t owner; /* number of the message; -1: no message */
    int said;      /* 1: the part contains words of its owner */
};

static int is_blank(const char *text, size_t n)
{
    size_t i = 0;
    while (i < n && strchr(" \t\r\n", text[i]))
        i++;
    return i == n;
}

static enum status end_part(const struct part *part, const char *wanted, struct turn *turns, struct chat_text *out)
{
    if (part->end == part->first)
        return OK;
    if (part->owner < 0)
        return chat_add_range(out, part->first, part->end);
    turns[part->owner].end = part->end;
    return wanted[part->owner] ? chat_add_range(out, part->first, part->end) : OK;
}

/* Guesses the owner of a part without words. `last`: the last message that has words before the part; -1: none. */
static int64_t guess_owner(const struct chat_conversation *c, size_t n, int64_t last)
{
    int64_t owner = last < 0 ? 0 : last;
    while (owner < (int64_t)n && !chat_is_assistant(c, (size_t)owner))
        owner++;
    return owner < (int64_t)n ? owner : -1;
}

/* Finds the parts by walking through the spans; a span ends where the origin or the marks change. */
static enum status find_parts(const struct chat_conversation *c, const struct jinja_text *whole, size_t n, const char *wanted,
                              struct turn *turns, struct chat_text *out)
{
    struct part part = {.owner = -1};
    int64_t last = -1;
    for (size_t k = 0; k < out->n_spans; k++) {
        const struct chat_span *span = &out->spans[k];
        const int32_t mark = jinja_mark(whole, span->first);
        const int said = span->origin >= 0 && span->said;
        if (mark & MARK_GENERATED) {
            if (part.end == part.first)
                part = (struct part){.first = span->first, .owner = guess_owner(c, n, last)};
            part.owner = said && !part.said ? span->origin : part.owner;
            part.said |= said;
            part.end = span->end;
            /* adjacent blocks count as one part: if an unwanted message has words in it, that message is the owner */
            if (said && !wanted[span->origin])
                part.owner = span->origin;
        } else {
            TRY(end_part(&part, wanted, turns, out));
            part = (struct part){.owner = -1};
            if (said && span->origin >= last && !is_blank(out->bytes + span->first, span->end - span->first))
                /* skipped if a later message has been seen: these words may be the name of a tool that the template repeats */
                turns[span->origin].outside = 1;
        }
        if (span->origin > last && (mark & MARK_WORDS))
            last = span->origin;
    }
    return end_part(&part, wanted, turns, out);
}

/* Returns the beginning of the special token that ends at *end, after moving *end back over white space; returns *end if no such
 * token ends there. */
static size_t token_before(const struct chat_template *t, const struct chat_options *options, const struct chat_text *text,
                           size_t *end)
{
    enum { LONGEST = 200 };
    while (*end > 0 && strchr(" \t\r\n", text->bytes[*end - 1]))
        --*end;
    for (size_t at = *end > LONGEST ? *end - LONGEST : 0; at < *end; at++)
        if (chat_special_at(t, options, text->bytes, *end, at) == *end - at)
            return at;
    return *end;
}

enum status chat_supervise_generated(const struct chat_template *t, const struct chat_conversation *c,
                                     const struct chat_options *options, const struct jinja_text *whole, size_t n,
                                     const char *wanted, struct chat_text *out)
{
    struct turn *turns = sys_calloc(n + 1, sizeof *turns);
    enum status st = turns ? find_parts(c, whole, n, wanted, turns, out)
                           : status_fail(ERR_NOMEM, "no memory for a conversation of %zu messages", n);
    for (size_t i = 0; i < n && st == OK; i++) {
        size_t end = turns[i].end;
        if (!wanted[i])
            continue;
        out->untrained += turns[i].outside || (end == 0 && chat_says_something(c, i));
        const size_t token = token_before(t, options, out, &end);
        out->unended += turns[i].end > 0 && token == end;
        if (turns[i].end > 0 && token < end)
            st = chat_add_end(out, token, end);
    }
    free(turns);
    return st;
}
