/* The tasks by name, fitting samples to a number of tokens, and scoring answers. */
#include "tasks/tasks.h"

#include "base/mix.h"
#include "base/num.h"
#include "tasks/generators.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_SIZE = 16, MOST_TRIES = 12 };

static const struct {
    const char *name;
    task_builder *build;
    int has_depth, needs_text;
} tasks[TASKS] = {
    [TASK_NEEDLE] = {"needle", task_build_needle, 1, 0},
    [TASK_MULTI_NEEDLE] = {"multi-needle", task_build_multi_needle, 1, 0},
    [TASK_MULTIKEY] = {"multikey", task_build_multikey, 1, 0},
    [TASK_TRACKING] = {"tracking", task_build_tracking, 1, 0},
    [TASK_COUNTING] = {"counting", task_build_counting, 1, 0},
    [TASK_AGGREGATION] = {"aggregation", task_build_aggregation, 0, 0},
    [TASK_SHUFFLED] = {"shuffled", task_build_shuffled, 1, 1},
};

const char *task_name(enum task t)
{
    return tasks[t].name;
}

enum task task_find(const char *name)
{
    int t = 0;
    while (t < TASKS && strcmp(tasks[t].name, name) != 0)
        t++;
    return (enum task)t;
}

int task_has_depth(enum task t)
{
    return tasks[t].has_depth;
}

/* ---- fitting ---- */

void task_sample_destroy(struct task_sample *s)
{
    text_buffer_free(&s->prompt);
    text_buffer_free(&s->lead);
    text_buffer_free(&s->answer);
    *s = (struct task_sample){.n_expected = 0};
}

/* Returns the number of the random stream from which a sample is drawn. */
static uint64_t stream_of(const struct task_request *r)
{
    uint64_t h = mix_text(0, tasks[r->task].name);
    h = mix(h, (uint64_t)r->tokens);
    h = mix_double(h, tasks[r->task].has_depth ? r->depth : 0);
    return mix(h, (uint64_t)r->number);
}

struct fit {
    const struct task_request *r;
    const struct task_counter *counter;
    int64_t low, high; /* low: largest size known to fit; high: smallest size known not to fit */
    int64_t low_tokens;
};

static enum status build(const struct fit *x, int64_t size, struct task_sample *out)
{
    struct dice dice = {.seed = x->r->seed, .stream = stream_of(x->r)};
    task_sample_destroy(out);
    out->size = size;
    enum status st = tasks[x->r->task].build(x->r, &dice, size, out);
    if (st != OK)
        task_sample_destroy(out);
    return st;
}

static enum status try_size(struct fit *x, int64_t size, struct task_sample *out, int64_t *tokens)
{
    TRY(build(x, size, out));
    enum status st = x->counter->count(x->counter->user, out, tokens);
    if (st != OK)
        task_sample_destroy(out);
    else if (*tokens <= x->r->tokens && size > x->low) {
        x->low = size;
        x->low_tokens = *tokens;
    } else if (*tokens > x->r->tokens)
        x->high = min_i64(x->high, size);
    return st;
}

/* Finds nearly the largest size that fits; each size tried follows from the tokens that a unit (a sentence, say) has taken so far. */
static enum status grow(struct fit *x, int64_t question, struct task_sample *out)
{
    int64_t size = FIRST_SIZE, tokens;
    for (int i = 0; i < MOST_TRIES && x->high - x->low > 1; i++) {
        size = max_i64(x->low + 1, min_i64(x->high - 1, size));
        TRY(try_size(x, size, out, &tokens));
        const double each = fmax((double)(tokens - question) / (double)size, 0.01);
        const int64_t more = (int64_t)floor((double)(x->r->tokens - tokens) / each);
        if (more == 0 && size == x->low)
            break;
        size += more;
    }
    return OK;
}

/* Refuses a text with too few paragraphs, which may not repeat: the answer would then be in two places. */
static enum status check_paragraphs(const struct fit *x, int64_t question)
{
    const int64_t n = haystack_paragraphs(x->r->haystack);
    if (x->r->task != TASK_SHUFFLED || x->low + TASK_PARAGRAPHS < n ||
        x->low_tokens + (x->low_tokens - question) / n > x->r->tokens)
        return OK;
    return status_fail(
        ERR_INVALID,
        "--tasks shuffled: the text has %lld paragraphs of some length, which fill %lld of %lld tokens: give more text, or shorter --lengths",
        (long long)n, (long long)x->low_tokens, (long long)x->r->tokens);
}

enum status task_generate(const struct task_request *r, const struct task_counter *counter, struct task_sample *out)
{
    struct fit x = {.r = r, .counter = counter, .low = -1, .high = INT32_MAX};
    if (r->task == TASK_SHUFFLED)
        x.high = haystack_paragraphs(r->haystack) - TASK_PARAGRAPHS + 1;
    int64_t question;
    *out = (struct task_sample){.n_expected = 0};
    if (tasks[r->task].needs_text && !haystack_is_given(r->haystack))
        return status_fail(ERR_INVALID, "--tasks %s asks about a text of yours: give --data PATH", tasks[r->task].name);
    TRY(try_size(&x, 0, out, &question));
    if (x.low < 0) {
        task_sample_destroy(out);
        return status_fail(ERR_INVALID,
                           "--lengths: %lld tokens are too few for --tasks %s: its question and the answer take %lld",
                           (long long)r->tokens, tasks[r->task].name, (long long)question);
    }
    enum status st = grow(&x, question, out);
    if (st == OK)
        st = check_paragraphs(&x, question);
    if (st == OK && out->size != x.low)
        st = build(&x, x.low, out);
    if (st != OK)
        task_sample_destroy(out);
    return st;
}

/* ---- scoring ---- */

static int is_word(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static int contains(const char *text, size_t n, const char *word)
{
    const size_t length = strlen(word);
    for (size_t at = 0; at + length <= n; at++) {
        size_t same = 0;
        while (same < length && lower(text[at + same]) == lower(word[same]))
            same++;
        if (same == length && (at == 0 || !is_word(text[at - 1])) && (at + length == n || !is_word(text[at + length])))
            return 1;
    }
    return 0;
}

static int first_number_is(const char *text, size_t n, const char *number)
{
    size_t at = 0, length = 0;
    while (at < n && (text[at] < '0' || text[at] > '9'))
        at++;
    while (at + length < n && text[at + length] >= '0' && text[at + length] <= '9')
        length++;
    return length == strlen(number) && memcmp(text + at, number, length) == 0;
}

double task_score(const struct task_sample *s, const char *answer, size_t n)
{
    int found = 0;
    if (s->is_number)
        return first_number_is(answer, n, s->expected[0]);
    for (int i = 0; i < s->n_expected; i++)
        found += contains(answer, n, s->expected[i]);
    return (double)found / s->n_expected;
}
