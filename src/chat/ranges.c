/* Finding special tokens in a text, and collecting ranges of bytes. */
#include "chat/supervise.h"

#include <stdlib.h>
#include <string.h>

size_t chat_special_at(const struct chat_template *t, const struct chat_options *options, const char *bytes, size_t n, size_t at)
{
    static const char *const known[] = {"</s>", "<end_of_turn>", "<eos>", "<turn|>", "<|eot|>", "<EOT>"};
    static const char *const brackets[][2] = {{"<|", "|>"}, {"<\xEF\xBD\x9C", "\xEF\xBD\x9C>"}};
    size_t best = 0, left = n - at;
    for (size_t i = 0; options->specials && options->specials[i]; i++) {
        size_t length = strlen(options->specials[i]);
        if (length > best && length <= left && memcmp(bytes + at, options->specials[i], length) == 0)
            best = length;
    }
    for (size_t i = 0; i < t->n_tokens && !options->specials; i++) {
        size_t length = strlen(t->tokens[i].token);
        if (length > best && length <= left && memcmp(bytes + at, t->tokens[i].token, length) == 0)
            best = length;
    }
    if (best > 0 || options->specials)
        return best;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i]) <= left && memcmp(bytes + at, known[i], strlen(known[i])) == 0)
            return strlen(known[i]);
    for (size_t i = 0; i < sizeof brackets / sizeof *brackets; i++) {
        size_t open = strlen(brackets[i][0]), close = strlen(brackets[i][1]);
        if (left < open || memcmp(bytes + at, brackets[i][0], open) != 0)
            continue;
        for (size_t j = open; j + close <= left && j < 64 && !strchr(" \t\r\n", bytes[at + j]); j++)
            if (memcmp(bytes + at + j, brackets[i][1], close) == 0)
                return j + close;
    }
    return 0;
}

/* Makes room for another range behind the n there; the array is full whenever n is a power of two. */
static enum status grow(struct chat_range **at, size_t n)
{
    if ((n & (n - 1)) != 0)
        return OK;
    struct chat_range *more = realloc(*at, (n ? 2 * n : 1) * sizeof *more);
    if (!more)
        return status_fail(ERR_NOMEM, "no memory for %zu supervised ranges", n + 1);
    *at = more;
    return OK;
}

enum status chat_add_end(struct chat_text *text, size_t first, size_t end)
{
    TRY(grow(&text->ends, text->n_ends));
    text->ends[text->n_ends++] = (struct chat_range){first, end};
    return OK;
}

enum status chat_add_range(struct chat_text *text, size_t first, size_t end)
{
    struct chat_range *last = text->n_supervised > 0 ? &text->supervised[text->n_supervised - 1] : NULL;
    if (end <= first)
        return OK;
    if (last && first <= last->end) {
        last->end = end > last->end ? end : last->end;
        return OK;
    }
    TRY(grow(&text->supervised, text->n_supervised));
    text->supervised[text->n_supervised++] = (struct chat_range){first, end};
    return OK;
}
