/* Finding supervised bytes.
 *
 * With {% generation %} blocks the template itself says which bytes an assistant generates. Without them an assistant's turn is
 * found by the marks of its words, and the turn's bounds in the template's text around these words.
 *
 * The turn begins at the end of a render of the messages before it with the generation prompt, as the model continues there. That
 * render counts only if it is a byte prefix of the whole render, which fails for templates that leave out earlier reasoning. Then
 * the text of the generation prompt is looked for before the words.
 *
 * The turn ends behind the first token after the last word that also ends turns in a short conversation (learn_form), or else
 * behind the last token before the next turn. In templates without such tokens the token that begins the next turn ends this one,
 * and is trained as well. A turn without any such token is counted as unended, and trained up to its last letter. Text behind the
 * end, such as a newline, is not trained. A render of the messages up to this one bounds the search, if it is a byte prefix of
 * the whole render. */
#include "chat/supervise.h"

#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of renders that are compared as prefixes of a conversation in all; a conversation of thousands of turns is searched
 * without prefixes after that. */
enum { PREFIX_BYTES = 64 << 20 };

struct search {
    const struct chat_template *t;
    const struct chat_conversation *c;
    const struct chat_options *options;
    struct chat_text *text;
    const struct jinja_text *whole; /* the render, with its marks */
    size_t messages, rendered;
    struct chat_form form;
    char *prompt; /* the last generation prompt found (learn_prompt), [prompt_n] */
    size_t prompt_n;
};

/* Returns the place of the first special token that begins in bytes [at, end); `end` if there is none. */
static size_t find_special(const struct search *s, const char *bytes, size_t at, size_t end)
{
    while (at < end && chat_special_at(s->t, s->options, bytes, end, at) == 0)
        at++;
    return at;
}

enum prefix { PREFIX_UNKNOWN = -1, PREFIX_NO, PREFIX_YES };

/* Tells whether the render of messages [0, n), with or without generation prompt, is a byte prefix of the whole text. *length:
 * bytes of that render. */
static enum prefix is_prefix(struct search *s, size_t n, int generation_prompt, size_t *length)
{
    struct chat_rendering r;
    if (n == 0 || s->rendered > PREFIX_BYTES || chat_rendering_make(s->t, s->c, s->options, n, generation_prompt, &r) != OK)
        return PREFIX_UNKNOWN;
    enum prefix prefix =
        r.text->n <= s->text->n && memcmp(r.text->bytes, s->text->bytes, r.text->n) == 0 ? PREFIX_YES : PREFIX_NO;
    *length = r.text->n;
    s->rendered += r.text->n;
    chat_rendering_end(&r);
    return prefix;
}

/* Stores in s->prompt the text by which the render of messages [0, n) with the generation prompt continues the render without;
 * stores nothing if it does not continue it. */
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

/* Finds the token behind an answer, and the text between a question and its answer, in a short conversation that is rendered with
 * and without its last question. */
static void learn_ends(struct search *s, const struct jinja_text *two, const struct jinja_text *three)
{
    size_t n = two->n < three->n ? two->n : three->n, said = 0, end = 0, asked = 0, answer = 0;
    while (end < n && two->bytes[end] == three->bytes[end]) {
        const int32_t mark = jinja_mark(two, end);
        asked = (mark & MARK_WORDS) && !(mark & MARK_SAID) ? end + 1 : asked;
        answer = (mark & MARK_SAID) && !answer ? end : answer;
        said = jinja_mark(two, end++) & MARK_SAID ? end : said;
    }
    size_t at = said ? find_special(s, two->bytes, said, end) : end;
    size_t length = at < end ? chat_special_at(s->t, s->options, two->bytes, end, at) : 0;
    if (length < sizeof s->form.end)
        memcpy(s->form.end, two->bytes + at, length);
    s->form.ends_by_next =
        length == 0 && said && two->n == end && chat_special_at(s->t, s->options, three->bytes, three->n, end) > 0;
    while (asked < answer && strchr(" \t\r\n", two->bytes[asked]))
        asked++;
    while (answer > asked && strchr(" \t\r\n", two->bytes[answer - 1]))
        answer--;
    if (answer - asked < sizeof s->form.between)
        memcpy(s->form.between, two->bytes + asked, answer - asked);
}

static void learn_form(struct search *s)
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
            learn_ends(s, two.text, three.text);
            chat_rendering_end(&three);
        }
        chat_rendering_end(&two);
    }
    chat_destroy(c);
}

/* Bytes [first, last) with the words of assistant message i. They end before `foreign`, the first byte of a later message, and
 * before the `limit` of the search (templates repeat a tool's name later). */
struct said {
    size_t first, last, foreign, floor; /* floor: end of the last bytes of other messages before the words */
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
    const enum prefix prefix = is_prefix(s, i, 1, &length);
    if (prefix == PREFIX_YES && length <= said->first && length >= said->floor)
        return length;
    s->text->otherwise += prefix == PREFIX_NO;
    learn_prompt(s, i);
    for (size_t at = said->first; s->prompt_n > 0 && at >= said->floor + s->prompt_n; at--)
        if (memcmp(bytes + at - s->prompt_n, s->prompt, s->prompt_n) == 0)
            return at;
    return said->first;
}

/* Returns the length of the template's token at `at` that begins the next turn; 0: there is no token, or one with which every
 * text begins. */
static size_t next_token(const struct search *s, size_t at)
{
    const char *bos = chat_template_token(s->t, "bos_token");
    const size_t n = at < s->text->n && !(jinja_mark(s->whole, at) & MARK_WORDS)
                         ? chat_special_at(s->t, s->options, s->text->bytes, s->text->n, at)
                         : 0;
    return bos && strlen(bos) == n && memcmp(bos, s->text->bytes + at, n) == 0 ? 0 : n;
}

/* Returns the end of the last token in bytes [last, limit), which ends the turn; *token: its beginning. Returns 0 if there is
 * none. */
static size_t find_last_token(const struct search *s, size_t last, size_t limit, size_t *token)
{
    const char *bytes = s->text->bytes;
    size_t end = 0, n;
    for (size_t at = last; at<limit; at += n> 0 ? n : 1)
        if ((n = chat_special_at(s->t, s->options, bytes, limit, at)) > 0) {
            *token = at;
            end = at + n;
        }
    if ((end == 0 || s->form.ends_by_next) && (n = next_token(s, limit)) > 0) {
        *token = limit;
        end = limit + n;
    }
    return end;
}

/* Finds the end of the turn whose last word ends at `last`. limit: earliest place at which the next turn may begin; bounded: 1:
 * it begins exactly there. */
static enum status find_end(struct search *s, size_t last, size_t limit, int bounded, size_t *end)
{
    const char *bytes = s->text->bytes;
    size_t usual = strlen(s->form.end), token = limit;
    *end = 0;
    for (size_t at = last; usual > 0 && at + usual <= limit && !*end; at++)
        if (memcmp(bytes + at, s->form.end, usual) == 0) {
            token = at;
            *end = at + usual;
        }
    if (!*end && bounded)
        *end = find_last_token(s, last, limit, &token);
    if (!*end && !bounded && (token = find_special(s, bytes, last, limit)) < limit)
        *end = token + chat_special_at(s->t, s->options, bytes, limit, token);
    if (*end)
        return chat_add_end(s->text, token, *end);
    s->text->unended++;
    for (*end = bounded ? limit : last; *end > last && strchr(" \t\r\n", bytes[*end - 1]);)
        --*end;
    return OK;
}

/* Finds the turn of a message without words, which ends at `limit`. Its beginning is known only if a render of the messages
 * before is a byte prefix. */
static enum status find_empty(struct search *s, size_t i, size_t limit, struct chat_range *out)
{
    const char *bytes = s->text->bytes;
    size_t begin, last = limit;
    if (is_prefix(s, i, 1, &begin) != PREFIX_YES || begin > limit) {
        s->text->untrained++;
        return OK;
    }
    /* finds the last special token, which ends the turn in templates without a usual one */
    for (size_t at = begin; at < limit;) {
        size_t length = chat_special_at(s->t, s->options, bytes, limit, at);
        last = length > 0 ? at : last;
        at += length > 0 ? length : 1;
    }
    out->first = begin;
    return find_end(s, s->form.end[0] || last == limit ? begin : last, limit, 1, &out->end);
}

/* Finds the bytes of message i's turn; *out stays empty if they are not found. */
static enum status find_turn(struct search *s, size_t i, struct chat_range *out)
{
    size_t limit = s->text->n;
    int bounded = i + 1 == s->messages || is_prefix(s, i + 1, 0, &limit) == PREFIX_YES;
    struct said said = find_said(s, i, bounded ? limit : s->text->n);
    *out = (struct chat_range){0, 0};
    if (bounded && !said.found) /* not found before the limit: the template may write the message later */
        said = find_said(s, i, s->text->n);
    if (!said.found && bounded)
        return find_empty(s, i, limit, out);
    if (!said.found) {
        s->text->untrained++;
        return OK;
    }
    bounded = bounded && limit >= said.last;
    out->first = find_begin(s, i, &said);
    return find_end(s, said.last, bounded ? limit : said.foreign, bounded, &out->end);
}

static enum status supervise_turns(struct search *s, const char *wanted)
{
    struct chat_range turn;
    for (size_t i = 0; i < s->messages; i++) {
        if (!wanted[i])
            continue;
        TRY(find_turn(s, i, &turn));
        TRY(chat_add_range(s->text, turn.first, turn.end));
    }
    return OK;
}

/* ---- training all bytes but those of messages marked as not trained ---- */

/* Clears `trained` [n], a flag for each byte, at the bytes of message i, which is marked as not trained. */
static enum status exclude(struct search *s, size_t i, char *trained)
{
    struct chat_range turn = {0, 0};
    for (size_t k = 0; k < s->text->n_spans; k++)
        if (s->text->spans[k].origin == (int64_t)i && (jinja_mark(s->whole, s->text->spans[k].first) & MARK_WORDS))
            memset(trained + s->text->spans[k].first, 0, s->text->spans[k].end - s->text->spans[k].first);
    if (chat_is_assistant(s->c, i))
        TRY(find_turn(s, i, &turn));
    memset(trained + turn.first, 0, turn.end - turn.first);
    return OK;
}

/* Trains all bytes except those of messages marked as not trained. */
static enum status supervise_unmarked(struct search *s)
{
    const size_t n = s->text->n;
    int any = 0;
    for (size_t i = 0; i < s->messages; i++)
        any |= s->c->marks[i] == CHAT_MARK_UNTRAINED;
    if (!any)
        return chat_add_range(s->text, 0, n);
    char *trained = sys_malloc(n + 1);
    enum status st = trained ? OK : status_fail(ERR_NOMEM, "no memory for %zu bytes of a chat", n);
    if (st == OK)
        memset(trained, 1, n);
    for (size_t i = 0; i < s->messages && st == OK; i++)
        if (s->c->marks[i] == CHAT_MARK_UNTRAINED)
            st = exclude(s, i, trained);
    for (size_t at = 0, end; at < n && st == OK; at = end) {
        for (end = at + 1; end < n && trained[end] == trained[at];)
            end++;
        if (trained[at])
            st = chat_add_range(s->text, at, end);
    }
    free(trained);
    return st;
}

static enum status supervise_all(struct search *s, const char *wanted)
{
    struct chat_range turn;
    const int64_t unended = s->text->unended, untrained = s->text->untrained, otherwise = s->text->otherwise;
    TRY(supervise_unmarked(s));
    s->text->unended = unended; /* restored: turns that are not trained do not count as unended */
    s->text->n_ends = 0;
    for (size_t i = 0; i < s->messages; i++) {
        if (wanted[i])
            TRY(find_turn(s, i, &turn)); /* called only because find_turn notes the tokens that end turns */
    }
    s->text->untrained = untrained; /* restored: everything is trained, whether or not a turn's beginning was found */
    s->text->otherwise = otherwise;
    return OK;
}

/* ---- the whole ---- */

/* Finds the messages whose turns are trained, wanted [messages]. ERR_INVALID: a message is marked as trained, but is not trained
 * here. */
static enum status find_wanted(const struct search *s, char *wanted)
{
    const enum chat_train train = s->options->train;
    int64_t last = -1;
    for (size_t i = 0; i < s->messages; i++) {
        const int trained = chat_is_trained(s->c, (int64_t)i);
        if (s->c->marks[i] == CHAT_MARK_TRAINED && !trained && train != CHAT_TRAIN_ALL)
            return status_fail(
                ERR_INVALID,
                "%s:%lld: message %zu (%.40s) says that it is trained, and only what assistants answer is: remove its mark (\"train\", "
                "\"weight\", ...), or give --train-on all",
                s->c->file, (long long)s->c->line, i + 1, chat_role(s->c, (int64_t)i));
        wanted[i] =
            (char)(train == CHAT_TRAIN_ALL ? chat_is_assistant(s->c, i) && s->c->marks[i] != CHAT_MARK_UNTRAINED : trained);
        if (wanted[i] && train == CHAT_TRAIN_LAST && last >= 0)
            wanted[last] = 0;
        last = wanted[i] ? (int64_t)i : last;
    }
    return OK;
}

/* Counts the turns trained by {% generation %} blocks before which the text differs from a render of the earlier messages with
 * the generation prompt. */
static void count_otherwise(struct search *s, const char *wanted)
{
    size_t length;
    for (size_t i = 0; i < s->messages; i++)
        s->text->otherwise += wanted[i] && is_prefix(s, i, 1, &length) == PREFIX_NO;
}

static enum status supervise(struct search *s, char *wanted)
{
    const int generated = s->t->generations > 0;
    TRY(find_wanted(s, wanted));
    learn_form(s);
    TRY(chat_count_left_out(s->t, s->c, s->options, s->whole, &s->form, s->messages, wanted, s->text));
    if (s->options->train == CHAT_TRAIN_ALL)
        return supervise_all(s, wanted);
    if (!generated)
        return supervise_turns(s, wanted);
    count_otherwise(s, wanted);
    return chat_supervise_generated(s->t, s->c, s->options, s->whole, s->messages, wanted, s->text);
}

enum status chat_supervise(const struct chat_template *t, const struct chat_conversation *c, const struct chat_options *options,
                           size_t n, const struct chat_rendering *whole, struct chat_text *out)
{
    struct search s = {.t = t, .c = c, .options = options, .text = out, .whole = whole->text, .messages = n};
    char *wanted = sys_calloc(n + 1, 1);
    if (!wanted)
        return status_fail(ERR_NOMEM, "no memory for a conversation of %zu messages", n);
    out->from_generation = t->generations > 0 && options->train != CHAT_TRAIN_ALL;
    enum status st = supervise(&s, wanted);
    free(wanted);
    free(s.prompt);
    return st;
}
