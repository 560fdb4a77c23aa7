/* Supervised bytes.
 *
 * With {% generation %} blocks the template says itself what an assistant generates. Without, an assistant's turn is found by
 * the marks of what it said, and its ends are found in the text of the template around that:
 *
 *   begin  where the render of the messages before it, with the generation prompt, ends: the model continues there. That render
 *          is compared with the whole one and counts only if it is a byte prefix of it (templates that leave out earlier
 *          reasoning are not). Else the generation prompt's own text is looked for before what was said.
 *   end    behind the first token that ends turns after the last thing said, which is the one that a short conversation shows
 *          (find_usual_end), or else the first token there and those that touch it. What lies beyond it, a newline, is not
 *          trained. The render of the messages up to this one bounds the search, where it is a byte prefix. */
#include "chat/supervise.h"

#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

enum { PREFIX_BYTES = 64 << 20 }; /* rendered for comparison, at most: conversations of thousands of turns go on without */

struct search {
    const struct chat_template *t;
    const struct chat_conversation *c;
    const struct chat_options *options;
    struct chat_text *text;
    size_t messages, rendered;
    char usual_end[80]; /* the token that ends turns, or "" */
    char *prompt;       /* the generation prompt seen last, [prompt_n] */
    size_t prompt_n;
};

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
    for (size_t i = 0; i < t->n_tokens; i++) {
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

/* The first special token in bytes [at, end), or end. */
static size_t find_special(const struct search *s, const char *bytes, size_t at, size_t end)
{
    while (at < end && chat_special_at(s->t, s->options, bytes, end, at) == 0)
        at++;
    return at;
}

/* Renders messages [0, n); 1: they are a byte prefix of the whole text, whose length is *length. */
static int is_prefix(struct search *s, size_t n, int generation_prompt, size_t *length)
{
    struct chat_rendering r;
    if (n == 0 || s->rendered > PREFIX_BYTES || chat_rendering_make(s->t, s->c, s->options, n, generation_prompt, &r) != OK)
        return 0;
    int prefix = r.text->n <= s->text->n && memcmp(r.text->bytes, s->text->bytes, r.text->n) == 0;
    *length = r.text->n;
    s->rendered += r.text->n;
    chat_rendering_end(&r);
    return prefix;
}

/* The generation prompt behind messages [0, n) is kept in s->prompt, if the render with it continues the one without it. */
static void learn_prompt(struct search *s, size_t n)
{
    struct chat_rendering with, without;
    if (n == 0 || s->rendered > PREFIX_BYTES || chat_rendering_make(s->t, s->c, s->options, n, 1, &with) != OK)
        return;
    if (chat_rendering_make(s->t, s->c, s->options, n, 0, &without) == OK) {
        size_t a = with.text->n, b = without.text->n;
        char *copy = a > b && memcmp(with.text->bytes, without.text->bytes, b) == 0 ? sys_malloc(a - b) : NULL;
        if (copy) {
            memcpy(copy, with.text->bytes + b, a - b);
            free(s->prompt);
            s->prompt = copy;
            s->prompt_n = a - b;
        }
        s->rendered += a + b;
        chat_rendering_end(&without);
    }
    chat_rendering_end(&with);
}

/* The token between an answer and the next question, in a short conversation of the template's own. */
static void find_usual_end(struct search *s)
{
    static const char short_chat[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", \"content\": "
        "\"A\"}, {\"role\": \"user\", \"content\": \"R\"}]}";
    struct chat_conversation *c = NULL;
    struct chat_rendering two, three;
    if (chat_read(short_chat, sizeof short_chat - 1, "", 1, &c) != OK)
        return;
    if (chat_rendering_make(s->t, c, s->options, 2, 0, &two) == OK) {
        if (chat_rendering_make(s->t, c, s->options, 3, 0, &three) == OK) {
            size_t n = two.text->n < three.text->n ? two.text->n : three.text->n, said = 0, end = 0;
            while (end < n && two.text->bytes[end] == three.text->bytes[end])
                said = jinja_mark(two.text, end++) & MARK_SAID ? end : said;
            size_t at = said ? find_special(s, two.text->bytes, said, end) : end;
            size_t length = at < end ? chat_special_at(s->t, s->options, two.text->bytes, end, at) : 0;
            if (length < sizeof s->usual_end)
                memcpy(s->usual_end, two.text->bytes + at, length);
            chat_rendering_end(&three);
        }
        chat_rendering_end(&two);
    }
    chat_destroy(c);
}

/* What an assistant said of message i: bytes [first, last), before the first byte of a later message, `foreign`, and before
 * `limit` (templates repeat a tool's name in what follows). */
struct said {
    size_t first, last, foreign, floor; /* floor: the end of what other messages have before it */
    int found;
};

static struct said find_said(const struct search *s, size_t i, size_t limit)
{
    struct said out = {.foreign = limit};
    for (size_t k = 0; k < s->text->n_spans && s->text->spans[k].first < limit; k++) {
        const struct chat_span *span = &s->text->spans[k];
        if (span->origin == (int64_t)i && span->said) {
            out.first = out.found ? out.first : span->first;
            out.last = span->end < limit ? span->end : limit;
            out.found = 1;
        } else if (!out.found && span->origin != CHAT_FROM_TEMPLATE && span->origin != (int64_t)i) {
            out.floor = span->end;
        } else if (out.found && span->origin > (int64_t)i) {
            out.foreign = span->first;
            break;
        }
    }
    return out;
}

static size_t find_begin(struct search *s, size_t i, const struct said *said)
{
    const char *bytes = s->text->bytes;
    size_t length;
    if (is_prefix(s, i, 1, &length) && length <= said->first && length >= said->floor)
        return length;
    learn_prompt(s, i);
    for (size_t at = said->first; s->prompt_n > 0 && at >= said->floor + s->prompt_n; at--)
        if (memcmp(bytes + at - s->prompt_n, s->prompt, s->prompt_n) == 0)
            return at;
    return said->first;
}

/* Where the turn ends whose last word ends at `last`; the next turn begins at or after `limit`. */
static size_t find_end(struct search *s, size_t last, size_t limit, int bounded)
{
    const char *bytes = s->text->bytes;
    size_t usual = strlen(s->usual_end);
    for (size_t at = last; usual > 0 && at + usual <= limit; at++)
        if (memcmp(bytes + at, s->usual_end, usual) == 0)
            return at + usual;
    size_t at = find_special(s, bytes, last, limit), length;
    if (at == limit) {
        s->text->unended++;
        return last;
    }
    at += chat_special_at(s->t, s->options, bytes, limit, at);
    while (bounded && at < limit && (length = chat_special_at(s->t, s->options, bytes, limit, at)) > 0)
        at += length;
    return at;
}

static enum status add_range(struct chat_text *text, size_t first, size_t end)
{
    struct chat_range *last = text->n_supervised > 0 ? &text->supervised[text->n_supervised - 1] : NULL;
    if (end <= first)
        return OK;
    if (last && first <= last->end) {
        last->end = end > last->end ? end : last->end;
        return OK;
    }
    if ((text->n_supervised & (text->n_supervised - 1)) == 0) { /* full at powers of two */
        size_t room = text->n_supervised ? 2 * text->n_supervised : 1;
        struct chat_range *more = realloc(text->supervised, room * sizeof *more);
        if (!more)
            return status_fail(ERR_NOMEM, "no memory for %zu supervised ranges", room);
        text->supervised = more;
    }
    text->supervised[text->n_supervised++] = (struct chat_range){first, end};
    return OK;
}

/* An empty message: its place is known by the renders around it only, [.., limit). */
static enum status supervise_empty(struct search *s, size_t i, size_t limit)
{
    const char *bytes = s->text->bytes;
    size_t begin, end = limit, last = limit;
    if (!is_prefix(s, i, 1, &begin) || begin > limit)
        return OK;
    for (size_t at = begin; at < limit;) { /* the last token there, unless it is the usual one */
        size_t length = chat_special_at(s->t, s->options, bytes, limit, at);
        last = length > 0 ? at : last;
        at += length > 0 ? length : 1;
    }
    end = s->usual_end[0] || last == limit ? find_end(s, begin, limit, 1) : find_end(s, last, limit, 1);
    return add_range(s->text, begin, end);
}

static enum status supervise_turn(struct search *s, size_t i)
{
    size_t limit = s->text->n;
    int bounded = i + 1 == s->messages || is_prefix(s, i + 1, 0, &limit);
    struct said said = find_said(s, i, bounded ? limit : s->text->n);
    if (bounded && !said.found) /* it may stand behind */
        said = find_said(s, i, s->text->n);
    if (!said.found)
        return bounded ? supervise_empty(s, i, limit) : OK;
    bounded = bounded && limit >= said.last;
    size_t begin = find_begin(s, i, &said);
    return add_range(s->text, begin, find_end(s, said.last, bounded ? limit : said.foreign, bounded));
}

/* The parts that {% generation %} blocks gave, of messages that are trained. */
static enum status supervise_generated(struct search *s, const struct jinja_text *whole, const char *wanted)
{
    for (size_t k = 0, first = 0, any = 0, keep = 0; k <= s->text->n_spans; k++) {
        const struct chat_span *span = k < s->text->n_spans ? &s->text->spans[k] : NULL;
        int generated = span && (jinja_mark(whole, span->first) & MARK_GENERATED);
        if (!generated) {
            if (any && keep)
                TRY(add_range(s->text, first, s->text->spans[k - 1].end));
            any = 0;
            continue;
        }
        first = any ? first : span->first;
        keep = any ? keep : 1;
        any = 1;
        if (span->origin >= 0 && span->said && !wanted[span->origin])
            keep = 0;
    }
    return OK;
}

/* ---- what is left out ---- */

enum { ANSWERED = 1 }; /* beside the bits of marks: words that are neither calls nor reasoning */

/* Of message i, of which the text has what `marks` say, all of them together. *wanted is cleared where all that it says are calls of
 * tools that the text has not: an empty turn would teach to say nothing. */
static enum status count_message(struct search *s, size_t i, int32_t marks, char *wanted)
{
    struct chat_text *text = s->text;
    text->empty += *wanted && !chat_says_something(s->c, i);
    text->other_roles += !chat_is_usual(chat_role(s->c, (int64_t)i));
    if (marks & MARK_WORDS) {
        text->reasoning_dropped += *wanted && chat_reasons(s->c, i) && !(marks & MARK_REASONING);
        text->calls_dropped += chat_calls(s->c, i) > 0 && !(marks & MARK_CALLS);
        text->contents_dropped += chat_is_assistant(s->c, i) && chat_answers(s->c, i) && !(marks & ANSWERED);
        return OK;
    }
    if (!chat_says_something(s->c, i))
        return OK;
    if (chat_only_calls(s->c, i)) {
        text->calls_dropped++;
        *wanted = 0;
        return OK;
    }
    if (*wanted && (s->options->strict || (s->options->train != CHAT_TRAIN_ALL && s->t->generations == 0)))
        return status_fail(ERR_INVALID,
                           "%s:%lld: the chat template %s leaves out message %zu, of an assistant: it may be another model's",
                           s->c->file, (long long)s->c->line, s->t->name, i + 1);
    text->messages_dropped++;
    return OK;
}

/* What is given and not in the text. */
static enum status count_left_out(struct search *s, const struct jinja_text *whole, char *wanted)
{
    int32_t *marks = sys_calloc(s->messages + 1, sizeof *marks);
    int data = 0;
    enum status st = marks ? OK : status_fail(ERR_NOMEM, "no memory for a conversation of %zu messages", s->messages);
    for (size_t k = 0; k < s->text->n_spans && st == OK; k++) {
        const struct chat_span *span = &s->text->spans[k];
        data |= span->origin == CHAT_FROM_DATA;
        if (span->origin < 0)
            continue;
        const int32_t mark = jinja_mark(whole, span->first) & ~MARK_ORIGIN;
        marks[span->origin] |= mark | ((mark & (MARK_WORDS | MARK_CALLS | MARK_REASONING)) == MARK_WORDS ? ANSWERED : 0);
    }
    for (size_t i = 0; i < s->messages && st == OK; i++)
        st = count_message(s, i, marks[i], &wanted[i]);
    s->text->tools_dropped = s->c->tools && !data;
    free(marks);
    return st;
}

/* Which messages' turns are trained, [messages]. */
static char *wanted_turns(const struct search *s)
{
    char *wanted = sys_calloc(s->messages + 1, 1);
    int64_t last = -1;
    for (size_t i = 0; wanted && i < s->messages; i++) {
        wanted[i] = (char)(s->options->train == CHAT_TRAIN_ALL ? chat_is_assistant(s->c, i) : chat_is_trained(s->c, (int64_t)i));
        if (wanted[i] && s->options->train == CHAT_TRAIN_LAST && last >= 0)
            wanted[last] = 0;
        last = wanted[i] ? (int64_t)i : last;
    }
    return wanted;
}

enum status chat_supervise(const struct chat_template *t, const struct chat_conversation *c, const struct chat_options *options,
                           size_t n, const struct chat_rendering *whole, struct chat_text *out)
{
    struct search s = {.t = t, .c = c, .options = options, .text = out, .messages = n};
    char *wanted = wanted_turns(&s);
    if (!wanted)
        return status_fail(ERR_NOMEM, "no memory for a conversation of %zu messages", n);
    out->from_generation = t->generations > 0 && options->train != CHAT_TRAIN_ALL;
    enum status st = count_left_out(&s, whole->text, wanted);
    if (st == OK && options->train == CHAT_TRAIN_ALL) {
        st = add_range(out, 0, out->n);
    } else if (st == OK && t->generations > 0) {
        st = supervise_generated(&s, whole->text, wanted);
    } else if (st == OK) {
        find_usual_end(&s);
        for (size_t i = 0; i < n && st == OK; i++)
            if (wanted[i])
                st = supervise_turn(&s, i);
    }
    free(wanted);
    free(s.prompt);
    return st;
}
