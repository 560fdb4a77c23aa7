/* Hiding things in a haystack. */
#include "tasks/generators.h"

#include "base/num.h"

#include <stdio.h>
#include <string.h>

enum { MOST_DRAWS = 64 };

double task_spread(const struct task_request *r, int i, int n)
{
    return r->depth + (100 - r->depth) * i / n;
}

enum status task_draw_new(const struct task_request *r, struct dice *d, void (*draw)(struct dice *d, char *out), char *out)
{
    for (int i = 0; i < MOST_DRAWS; i++) {
        draw(d, out);
        if (!haystack_has(r->haystack, out))
            return OK;
    }
    return status_fail(ERR_INVALID,
                       "the haystack has all words that were drawn to be hidden in it, such as %s: give another text", out);
}

void task_expect(struct task_sample *out, const char *text)
{
    snprintf(out->expected[out->n_expected++], TASK_EXPECTED_BYTES, "%s", text);
}

/* Returns the number of the first sentence used: a random one if the haystack is longer than needed, so that samples have
 * different text. */
static int64_t first_sentence(const struct task_request *r, struct dice *d, int64_t size)
{
    const int64_t n = haystack_sentences(r->haystack), most = r->tokens; /* a sentence has at least one token */
    if (!haystack_is_given(r->haystack) || size >= n)
        return 0;
    return min_i64((int64_t)dice_roll(d, (uint64_t)(n - min_i64(most, n / 2))), n - size);
}

static int ends_blank(const struct text_buffer *b)
{
    return b->n == 0 || strchr(" \n\t\r", b->data[b->n - 1]) != NULL;
}

static enum status plant(const char *text, struct task_sample *out)
{
    if (!ends_blank(&out->prompt))
        TRY(text_buffer_add(&out->prompt, " ", 1));
    out->planted[out->n_planted++] = out->prompt.n;
    TRY(text_buffer_add(&out->prompt, text, strlen(text)));
    return text_buffer_add(&out->prompt, " ", 1);
}

enum status task_weave(const struct task_request *r, struct dice *d, int64_t size, const struct planted *planted, int n,
                       struct task_sample *out)
{
    const int64_t first = first_sentence(r, d, size);
    size_t all = 0, before = 0, length = 0;
    int next = 0;
    for (int64_t i = 0; i < size; i++) {
        haystack_sentence(r->haystack, first + i, &length);
        all += length;
    }
    out->context = out->prompt.n;
    out->repeats = haystack_is_given(r->haystack) && size > haystack_sentences(r->haystack);
    for (int64_t i = 0; i <= size; i++) {
        const char *sentence = haystack_sentence(r->haystack, first + i, &length);
        /* the thing comes before or behind the sentence in which its depth lies, whichever is nearer */
        while (next < n && (i == size || (double)before + (double)length / 2 > planted[next].depth / 100 * (double)all)) {
            if (next == 0)
                out->depth = all ? 100 * (double)before / (double)all : 0;
            TRY(plant(planted[next++].text, out));
        }
        if (i < size)
            TRY(text_buffer_add(&out->prompt, sentence, length));
        before += length;
    }
    while (out->prompt.n > out->context && ends_blank(&out->prompt))
        out->prompt.n--;
    out->end = out->prompt.n;
    return OK;
}
