/* Turning the text of a chat into tokens, and marking the tokens that are trained. */
#include "data/chats.h"

#include "base/num.h"
#include "base/sys.h"
#include "text/zones.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* A template, and how conversations are prepared for that template. */
struct reading {
    const struct chat_template *chat_template; /* template; NULL: there is no separate template for conversations with tools */
    struct zone_encoder *zones;
    int joins;          /* 1: contents of messages that are lists are joined to strings */
    unsigned arguments; /* forms of tool calls' arguments that the template takes: CHAT_ARGUMENTS_* */
};

struct chat_encoder {
    const struct tokenizer *tokenizer;
    struct reading plain, tools, *now; /* now: plain or tools, whichever the present conversation is read by */
    struct chat_options options;
    char **specials; /* texts of special tokens, ended by NULL */
    struct encoder *encoder;
    struct token_places places;
};

/* Lists the tokens that may end turns: the special ones, and those that the template's directory names. */
static enum status list_specials(struct chat_encoder *x, const struct chat_template *t)
{
    static const char *const variables[] = {"bos_token", "eos_token", "pad_token", "unk_token"};
    enum { VARIABLES = sizeof variables / sizeof *variables };
    size_t n = 0, length;
    const uint8_t *text;
    for (int64_t at = 0; tokenizer_special(x->tokenizer, &at, &text, &length);)
        n++;
    x->specials = sys_calloc(n + VARIABLES + 1, sizeof *x->specials);
    if (!x->specials)
        return status_fail(ERR_NOMEM, "out of memory: a tokenizer");
    n = 0;
    for (int64_t at = 0; tokenizer_special(x->tokenizer, &at, &text, &length); n++)
        if (!(x->specials[n] = strndup((const char *)text, length)))
            return status_fail(ERR_NOMEM, "out of memory: a tokenizer");
    for (size_t i = 0; i < VARIABLES; i++) {
        const char *token = chat_template_token(t, variables[i]);
        if (token && tokenizer_find(x->tokenizer, token) >= 0 && !(x->specials[n++] = strdup(token)))
            return status_fail(ERR_NOMEM, "out of memory: a tokenizer");
    }
    x->options.specials = (const char *const *)x->specials;
    return OK;
}

/* Refuses a template whose directory names tokens that this tokenizer lacks. */
static enum status check_tokens(const struct chat_encoder *x, const struct chat_template *t)
{
    static const char *const variables[] = {"bos_token", "eos_token"};
    size_t n;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *token = chat_template_token(t, variables[i]);
        if (token && tokenizer_find(x->tokenizer, token) < 0 && strstr(chat_template_source(t, &n), variables[i]))
            return status_fail(ERR_INVALID, "the chat template's %s, '%.60s', is no token of %s: it is another model's template",
                               variables[i], token, tokenizer_path(x->tokenizer));
    }
    return OK;
}

/* Returns the bytes of a <|...|> that begins at text; 0: none does. */
static size_t token_length(const char *text, size_t n)
{
    enum { MOST = 60 };
    size_t i = 2;
    if (n < 5 || memcmp(text, "<|", 2) != 0)
        return 0;
    while (i < n && i < MOST && (isalnum((unsigned char)text[i]) || strchr("_-.", text[i])))
        i++;
    return i > 2 && i + 2 <= n && memcmp(text + i, "|>", 2) == 0 ? i + 2 : 0;
}

static int finds_foreign(const struct chat_template *t, const struct tokenizer *tokenizer, char token[64])
{
    size_t n, length;
    const char *source = chat_template_source(t, &n);
    for (size_t at = 0; at < n; at++)
        if ((length = token_length(source + at, n - at)) > 0) {
            snprintf(token, 64, "%.*s", (int)length, source + at);
            if (tokenizer_find(tokenizer, token) < 0)
                return 1;
        }
    return 0;
}

int chat_foreign_token(const struct chat_setup *setup, const struct tokenizer *tokenizer, char token[64])
{
    const struct chat_template *tools = chat_template_for_tools(setup->chat_template);
    return finds_foreign(setup->chat_template, tokenizer, token) || (tools && finds_foreign(tools, tokenizer, token));
}

static enum status open_reading(struct chat_encoder *x, const struct chat_template *t, struct reading *out)
{
    size_t n;
    if (!t)
        return OK;
    const char *source = chat_template_source(t, &n);
    out->chat_template = t;
    TRY(check_tokens(x, t));
    TRY(zone_encoder_create(x->encoder, (const uint8_t *)source, n, &out->zones));
    out->joins = !chat_template_takes_parts(t, &x->options);
    out->arguments = chat_template_takes_arguments(t, &x->options);
    return OK;
}

/* Chooses the template of a conversation: the one for tools, or the plain one. */
static enum status choose(struct chat_encoder *x, const struct chat_conversation *c)
{
    const char *error = chat_template_tools_error(x->plain.chat_template);
    if (chat_has_tools(c) && error)
        return status_fail(
            ERR_INVALID, "%.900s (the template of conversations with tools; --chat-template default reads them by the other one)",
            error);
    x->now = chat_has_tools(c) && x->tools.chat_template ? &x->tools : &x->plain;
    return OK;
}

enum status chat_encoder_create(const struct tokenizer *tokenizer, const struct chat_template *chat_template,
                                const struct chat_options *options, struct chat_encoder **out)
{
    enum status st;
    struct chat_encoder *x = sys_calloc(1, sizeof *x);
    if (!x)
        return status_fail(ERR_NOMEM, "out of memory: a tokenizer");
    *x = (struct chat_encoder){.tokenizer = tokenizer, .options = *options};
    TRY_GOTO(list_specials(x, chat_template), fail);
    TRY_GOTO(encoder_create(tokenizer, &x->encoder), fail);
    TRY_GOTO(open_reading(x, chat_template, &x->plain), fail);
    TRY_GOTO(open_reading(x, chat_template_for_tools(chat_template), &x->tools), fail);
    *out = x;
    return OK;
fail:
    chat_encoder_destroy(x);
    return st;
}

void chat_encoder_destroy(struct chat_encoder *x)
{
    if (!x)
        return;
    for (size_t i = 0; x->specials && x->specials[i]; i++)
        free(x->specials[i]);
    free(x->specials);
    zone_encoder_free(x->plain.zones);
    zone_encoder_free(x->tools.zones);
    encoder_free(x->encoder);
    token_places_free(&x->places);
    free(x);
}

/* Makes the zones of a text: all added tokens are recognised in the template's own text, all but special ones (so <think> is) in
 * assistants' text, and in others' text none that is special or in the template. */
static enum status make_zones(const struct chat_text *text, struct zone **out)
{
    struct zone *zones = sys_malloc((text->n_spans + 1) * sizeof *zones);
    if (!zones)
        return status_fail(ERR_NOMEM, "out of memory: %zu parts of a chat", text->n_spans);
    for (size_t i = 0; i < text->n_spans; i++) {
        const struct chat_span *s = &text->spans[i];
        zones[i] = (struct zone){s->end, s->origin == CHAT_FROM_TEMPLATE ? ZONE_ALL : s->said ? ZONE_NO_SPECIAL : ZONE_PLAIN};
    }
    *out = zones;
    return OK;
}

static enum status mark_trained(const struct chat_encoder *x, struct chat_sample *s)
{
    const struct chat_text *text = &s->text;
    s->trained = sys_calloc(s->tokens.n + 1, 1);
    if (!s->trained)
        return status_fail(ERR_NOMEM, "out of memory: %zu tokens of a chat", s->tokens.n);
    for (size_t i = 0, k = 0; i < s->tokens.n; i++) { /* places and ranges are in order */
        const struct token_place *p = &x->places.at[i];
        while (k < text->n_supervised && text->supervised[k].end <= p->first)
            k++;
        /* the last byte, or the place of a token without bytes: a space put in front of the next token */
        const size_t last = p->end > p->first ? p->end - 1 : p->first;
        s->trained[i] = k < text->n_supervised && text->supervised[k].first <= last;
        s->n_trained += s->trained[i];
    }
    return OK;
}

static void add_end(int32_t *ends, int32_t *n, int32_t id)
{
    for (int32_t i = 0; i < *n; i++)
        if (ends[i] == id)
            return;
    if (*n < CHAT_MOST_ENDS)
        ends[(*n)++] = id;
}

/* Returns the number of the token that begins at byte `at`, or of the first one behind if none begins there. */
static size_t token_at(const struct token_places *places, size_t at)
{
    size_t low = 0, high = places->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (places->at[middle].first < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Collects the special tokens that end trained turns. */
static void find_ends(const struct chat_encoder *x, struct chat_sample *s)
{
    for (size_t k = 0; k < s->text.n_ends; k++) {
        const struct chat_range *end = &s->text.ends[k];
        const size_t i = token_at(&x->places, end->first);
        if (i < s->tokens.n && x->places.at[i].first == end->first && x->places.at[i].end == end->end && s->trained[i])
            add_end(s->ends, &s->n_ends, s->tokens.id[i]);
    }
}

static enum status encode(struct chat_encoder *x, struct chat_sample *out)
{
    struct zone *zones = NULL;
    x->places.n = 0;
    TRY(make_zones(&out->text, &zones));
    enum status st = zone_encode(x->now->zones, (const uint8_t *)out->text.bytes, out->text.n, zones, out->text.n_spans,
                                 &out->tokens, &x->places);
    free(zones);
    TRY(st);
    TRY(mark_trained(x, out));
    find_ends(x, out);
    return OK;
}

enum status chat_encode(struct chat_encoder *x, const struct chat_conversation *c, struct chat_sample *out)
{
    *out = (struct chat_sample){.n_trained = 0};
    TRY(choose(x, c));
    TRY(chat_render(x->now->chat_template, c, &x->options, &out->text));
    enum status st = encode(x, out);
    if (st != OK)
        chat_sample_destroy(out);
    return st;
}

void chat_counts_add(struct chat_counts *to, const struct chat_counts *more)
{
    to->conversations += more->conversations;
    to->samples += more->samples;
    to->split += more->split;
    to->reasoning_dropped += more->reasoning_dropped;
    to->unended += more->unended;
    to->messages_dropped += more->messages_dropped;
    to->calls_dropped += more->calls_dropped;
    to->contents_dropped += more->contents_dropped;
    to->tools_dropped += more->tools_dropped;
    to->empty += more->empty;
    to->other_roles += more->other_roles;
    to->untrained += more->untrained;
    to->otherwise += more->otherwise;
    to->typed += more->typed;
    to->arguments += more->arguments;
    for (int32_t i = 0; i < more->n_ends; i++)
        add_end(to->ends, &to->n_ends, more->ends[i]);
}

static enum status visit_and_destroy(struct chat_sample *s, chat_visitor *visit, void *user, struct chat_counts *counts)
{
    enum status st = visit(user, s);
    counts->samples++;
    counts->reasoning_dropped += s->text.reasoning_dropped;
    counts->unended += s->text.unended;
    counts->empty += s->text.empty;
    counts->untrained += s->text.untrained;
    counts->otherwise += s->text.otherwise;
    for (int32_t i = 0; i < s->n_ends; i++)
        add_end(counts->ends, &counts->n_ends, s->ends[i]);
    chat_sample_destroy(s);
    return st;
}

static enum status add_ends(const struct chat_text *beginning, struct chat_text *text)
{
    if (beginning->n_ends == 0)
        return OK;
    struct chat_range *all = sys_realloc(text->ends, (beginning->n_ends + text->n_ends) * sizeof *all);
    if (!all)
        return status_fail(ERR_NOMEM, "out of memory: %zu turns of a chat", beginning->n_ends + text->n_ends);
    memcpy(all + text->n_ends, beginning->ends, beginning->n_ends * sizeof *all);
    text->ends = all;
    text->n_ends += beginning->n_ends;
    return OK;
}

/* Adds the supervised ranges, the turns' ends and the counts of a text to another text that begins with the first one's bytes. */
static enum status add_ranges(const struct chat_text *beginning, struct chat_text *text)
{
    size_t n = 0;
    struct chat_range *all = sys_malloc((beginning->n_supervised + text->n_supervised + 1) * sizeof *all);
    if (!all)
        return status_fail(ERR_NOMEM, "out of memory: %zu supervised ranges", beginning->n_supervised + text->n_supervised);
    for (size_t i = 0; i < beginning->n_supervised; i++)
        all[n++] = beginning->supervised[i];
    for (size_t i = 0; i < text->n_supervised; i++)
        all[n++] = text->supervised[i];
    free(text->supervised);
    text->supervised = all;
    text->n_supervised = n;
    text->reasoning_dropped += beginning->reasoning_dropped;
    text->unended += beginning->unended;
    text->empty += beginning->empty;
    text->untrained += beginning->untrained;
    text->otherwise += beginning->otherwise;
    return add_ends(beginning, text);
}

/* Renders the conversation up to message i, whose turn alone is trained. If the text begins with the bytes of `before`, the turns
 * trained in `before` are trained here, too, and `before` is emptied. */
static enum status render_turn(const struct chat_encoder *x, const struct chat_conversation *c, int64_t i,
                               struct chat_text *before, struct chat_text *out)
{
    struct chat_options options = x->options;
    options.train = CHAT_TRAIN_LAST;
    options.messages = i + 1;
    TRY(chat_render(x->now->chat_template, c, &options, out));
    if (before->n == 0 || before->n > out->n || memcmp(before->bytes, out->bytes, before->n) != 0)
        return OK;
    enum status st = add_ranges(before, out);
    chat_text_destroy(before);
    if (st != OK)
        chat_text_destroy(out);
    return st;
}

/* Encodes a text, which the function takes over and frees, and visits the sample. */
static enum status visit_text(struct chat_encoder *x, struct chat_text *text, chat_visitor *visit, void *user,
                              struct chat_counts *counts)
{
    struct chat_sample s = {.text = *text};
    *text = (struct chat_text){.n = 0};
    enum status st = encode(x, &s);
    if (st == OK)
        return visit_and_destroy(&s, visit, user, counts);
    chat_sample_destroy(&s);
    return st;
}

/* Visits a sample for each trained turn, with the messages before the turn, rendered as if the conversation ended with that turn.
 * *last_bytes: bytes of the last sample's text. */
static enum status visit_turns(struct chat_encoder *x, const struct chat_conversation *c, chat_visitor *visit, void *user,
                               struct chat_counts *counts, size_t *last_bytes)
{
    struct chat_text before = {.n = 0}, next;
    enum status st = OK;
    const int64_t last = x->options.train == CHAT_TRAIN_LAST ? chat_last_trained(c) : -1;
    for (int64_t i = 0; i < chat_messages(c) && st == OK; i++) {
        if (!chat_is_trained(c, i) || (last >= 0 && i != last))
            continue;
        st = render_turn(x, c, i, &before, &next);
        if (st == OK && before.n > 0)
            st = visit_text(x, &before, visit, user, counts);
        if (st == OK)
            before = next;
    }
    *last_bytes = before.n;
    if (st == OK && before.n > 0)
        return visit_text(x, &before, visit, user, counts);
    chat_text_destroy(&before);
    return st;
}

enum status chat_encode_turns(struct chat_encoder *x, struct chat_conversation *c, enum chat_turns turns, chat_visitor *visit,
                              void *user, struct chat_counts *counts)
{
    struct chat_sample whole;
    int64_t changed;
    TRY(choose(x, c));
    if (x->now->joins)
        TRY(chat_join_parts(c));
    TRY(chat_take_arguments(c, x->now->arguments, &changed));
    TRY(chat_encode(x, c, &whole));
    counts->conversations++;
    counts->arguments += changed;
    counts->typed += whole.text.typed;
    counts->messages_dropped += whole.text.messages_dropped;
    counts->calls_dropped += whole.text.calls_dropped;
    counts->contents_dropped += whole.text.contents_dropped;
    counts->tools_dropped += whole.text.tools_dropped;
    counts->other_roles += whole.text.other_roles;
    if (turns == CHAT_TURNS_WHOLE || x->options.train == CHAT_TRAIN_ALL ||
        (whole.text.reasoning_dropped == 0 && whole.text.otherwise == 0))
        return visit_and_destroy(&whole, visit, user, counts);
    const size_t bytes = whole.text.n;
    const int64_t before = counts->samples;
    size_t last;
    chat_sample_destroy(&whole);
    TRY(visit_turns(x, c, visit, user, counts, &last));
    counts->split += counts->samples - before > 1 || last != bytes; /* a single sample of the whole text is no split */
    return OK;
}

void chat_sample_destroy(struct chat_sample *sample)
{
    free(sample->tokens.id);
    free(sample->trained);
    chat_text_destroy(&sample->text);
    *sample = (struct chat_sample){.n_trained = 0};
}

uint64_t chat_setup_hash(const struct chat_setup *setup)
{
    enum { FORMAT = 7 }; /* version of the encoding: raised whenever the same template and rows would give another text or mask */
    size_t n;
    const char *source = chat_template_source(setup->chat_template, &n),
               *bos = chat_template_token(setup->chat_template, "bos_token"),
               *eos = chat_template_token(setup->chat_template, "eos_token");
    char *variables = setup->options.variables ? json_dumps(setup->options.variables, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    const uint64_t facts[] = {FORMAT,
                              XXH3_64bits(source, n),
                              bos ? XXH3_64bits(bos, strlen(bos)) : 0,
                              eos ? XXH3_64bits(eos, strlen(eos)) : 0,
                              variables ? XXH3_64bits(variables, strlen(variables)) : 0,
                              (uint64_t)setup->options.train,
                              (uint64_t)setup->turns,
                              (uint64_t)setup->options.now};
    free(variables);
    const struct chat_template *tools = chat_template_for_tools(setup->chat_template);
    const char *error = chat_template_tools_error(setup->chat_template), *its = tools ? chat_template_source(tools, &n) : error;
    n = tools || !error ? n : strlen(error);
    return XXH3_64bits_withSeed(facts, sizeof facts, its ? XXH3_64bits(its, n) : 0);
}
