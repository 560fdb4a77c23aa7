/* Task: the user's paragraphs in random order, with numbers, and some words of one; the number of the paragraph with these words
 * is asked for. */
#include "tasks/generators.h"

#include "base/num.h"
#include "base/sys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { QUOTED = 8 /* words in a quotation */, MOST_QUOTES = 16, MOST_PARAGRAPHS = 64 /* paragraphs tried as the answer */ };

static int is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
}

/* Adds text with each run of blanks replaced by a single blank. */
static enum status add_plain(struct text_buffer *out, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!is_blank(text[i]))
            TRY(text_buffer_add(out, &text[i], 1));
        else if (i > 0 && !is_blank(text[i - 1]))
            TRY(text_buffer_add(out, " ", 1));
    return OK;
}

/* Finds words [from, from + QUOTED) of a paragraph, whose words have single blanks between them; returns 0 if it has fewer words. */
static int quote(const struct text_buffer *p, size_t at, int from, size_t *first, size_t *end)
{
    size_t i = at;
    for (int word = 0; word < from + QUOTED; word++) {
        if (i >= p->n)
            return 0;
        if (word == from)
            *first = i;
        while (i < p->n && p->data[i] != ' ')
            i++;
        *end = i++;
    }
    return 1;
}

static int is_once(const struct text_buffer *text, size_t context, size_t end, const uint8_t *words, size_t n)
{
    const uint8_t *begin = text->data + context, *stop = text->data + end;
    const uint8_t *once = memmem(begin, (size_t)(stop - begin), words, n);
    return once && !memmem(once + 1, (size_t)(stop - once - 1), words, n);
}

/* Chooses consecutive words of the paragraph [at, end) that occur nowhere else in the sample; `words` is empty if there are none. */
static enum status choose_words(struct dice *d, struct task_sample *s, size_t at, size_t end, struct text_buffer *words)
{
    const struct text_buffer p = {.data = s->prompt.data, .n = end};
    int n = 0;
    size_t first = 0, stop = 0;
    while (quote(&p, at, n, &first, &stop))
        n++;
    for (int i = 0; i < MOST_QUOTES && n > 0 && words->n == 0; i++) {
        if (quote(&p, at, (int)dice_roll(d, (uint64_t)n), &first, &stop) &&
            is_once(&s->prompt, s->context, s->end, s->prompt.data + first, stop - first))
            TRY(text_buffer_add(words, s->prompt.data + first, stop - first));
    }
    return OK;
}

/* Shuffles the numbers 0 .. n - 1. */
static void shuffle(struct dice *d, int64_t *order, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t j = (int64_t)dice_roll(d, (uint64_t)i + 1);
        order[i] = order[j];
        order[j] = i;
    }
}

/* Writes the first `size` paragraphs of the order. The very first of them is put at `place`, and becomes prompt[*at, *end). */
static enum status write_paragraphs(const struct task_request *r, const int64_t *order, int64_t size, int64_t place,
                                    struct task_sample *out, size_t *at, size_t *end)
{
    TRY(text_buffer_print(&out->prompt,
                          "Read the following paragraphs. I will quiz you about where some words stand afterwards.\n\n"));
    out->context = out->prompt.n;
    for (int64_t i = 0; i < size; i++) {
        size_t n;
        const char *text = haystack_paragraph(r->haystack, order[i == place ? 0 : i < place ? i + 1 : i], &n);
        TRY(text_buffer_print(&out->prompt, "%sParagraph %lld: ", i ? "\n\n" : "", (long long)i + 1));
        *at = i == place ? out->prompt.n : *at;
        TRY(add_plain(&out->prompt, text, n));
        *end = i == place ? out->prompt.n : *end;
    }
    out->end = out->prompt.n;
    out->planted[0] = *at;
    out->n_planted = 1;
    return OK;
}

static enum status ask(const struct text_buffer *words, int64_t place, struct task_sample *out)
{
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)place + 1);
    task_expect(out, number);
    out->is_number = 1;
    TRY(text_buffer_print(&out->prompt, "\n\nIn which paragraph do these words stand: \"%.*s\"?", (int)words->n,
                          (const char *)words->data));
    TRY(text_buffer_print(&out->lead, " These words stand in paragraph"));
    return text_buffer_print(&out->answer, " %s.", number);
}

/* Tries one paragraph after the other as the answer, until one has words that no other has. */
static enum status write(const struct task_request *r, struct dice *d, int64_t *order, int64_t n, int64_t size,
                         struct task_sample *out)
{
    const int64_t place = (int64_t)(r->depth / 100 * (double)(size - 1) + 0.5);
    struct text_buffer words = {.n = 0};
    enum status st = OK;
    shuffle(d, order, n);
    out->depth = size > 1 ? 100 * (double)place / (double)(size - 1) : 0;
    for (int64_t i = 0; i < min_i64(n, MOST_PARAGRAPHS) && st == OK && words.n == 0; i++) {
        size_t at = 0, end = 0;
        const int64_t first = order[0];
        order[0] = order[i];
        order[i] = first;
        out->prompt.n = 0;
        st = write_paragraphs(r, order, size, place, out, &at, &end);
        if (st == OK)
            st = choose_words(d, out, at, end, &words);
    }
    if (st == OK && words.n == 0)
        st = status_fail(ERR_INVALID, "--tasks shuffled: the text's paragraphs have no %d words that stand only once", QUOTED);
    if (st == OK)
        st = ask(&words, place, out);
    text_buffer_free(&words);
    return st;
}

enum status task_build_shuffled(const struct task_request *r, struct dice *d, int64_t size, struct task_sample *out)
{
    const int64_t n = haystack_paragraphs(r->haystack);
    size += TASK_PARAGRAPHS;
    if (n < size)
        return status_fail(
            ERR_INVALID,
            "--tasks shuffled: the text has %lld paragraph%s of eight words or more, and at least %d are shuffled: give more text",
            (long long)n, n == 1 ? "" : "s", TASK_PARAGRAPHS);
    int64_t *order = sys_malloc((size_t)n * sizeof *order);
    if (!order)
        return status_fail(ERR_NOMEM, "out of memory: %lld paragraphs", (long long)n);
    enum status st = write(r, d, order, n, size, out);
    free(order);
    return st;
}
