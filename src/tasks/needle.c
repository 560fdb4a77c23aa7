/* Tasks with sentences that give a key a number; the numbers of one or several keys are asked for (RULER's niah_single,
 * niah_multiquery, niah_multikey). */
#include "tasks/generators.h"

#include <stdio.h>
#include <string.h>

enum { NEEDLES = 4 };

static void draw_number(struct dice *d, char *out)
{
    number_draw(d, out);
}

static void write_needle(const char *key, const char *number, struct planted *out)
{
    snprintf(out->text, sizeof out->text, "One of the special magic numbers for %s is: %s.", key, number);
}

static enum status begin(int n, struct task_sample *out)
{
    return text_buffer_print(
        &out->prompt,
        "%s hidden within the following text. Make sure to memorize %s. I will quiz you about the number%s afterwards.\n",
        n == 1 ? "A special magic number is" : "Some special magic numbers are", n == 1 ? "it" : "them", n == 1 ? "" : "s");
}

/* Adds item i of n to a list in words: "a", "a, and b", "a, b, and c". */
static enum status add_list(struct text_buffer *out, const char *text, int i, int n)
{
    return text_buffer_print(out, "%s%s", i == 0 ? "" : i == n - 1 ? ", and " : ", ", text);
}

static enum status ask(const char (*key)[KEY_BYTES], int n, struct task_sample *out)
{
    struct text_buffer *q = &out->prompt, *lead = &out->lead;
    TRY(text_buffer_print(q,
                          n == 1 ? "\nWhat is the special magic number for " : "\nWhat are all the special magic numbers for "));
    TRY(text_buffer_print(lead, n == 1 ? " The special magic number for " : " The special magic numbers for "));
    for (int i = 0; i < n; i++) {
        TRY(add_list(q, key[i], i, n));
        TRY(add_list(lead, key[i], i, n));
    }
    TRY(text_buffer_print(q, " mentioned in the provided text?"));
    TRY(text_buffer_print(lead, " mentioned in the provided text %s", n == 1 ? "is" : "are"));
    TRY(text_buffer_print(&out->answer, " "));
    for (int i = 0; i < n; i++)
        TRY(add_list(&out->answer, out->expected[i], i, n));
    return text_buffer_print(&out->answer, ".");
}

static enum status build(const struct task_request *r, struct dice *d, int64_t size, int n, struct task_sample *out)
{
    struct planted needle[NEEDLES];
    char key[NEEDLES][KEY_BYTES], number[NUMBER_BYTES];
    struct keys keys;
    keys_draw(d, n, &keys);
    for (int i = 0; i < n; i++) {
        keys_write(&keys, i, key[i]);
        TRY(task_draw_new(r, d, draw_number, number));
        task_expect(out, number);
        write_needle(key[i], number, &needle[i]);
        needle[i].depth = task_spread(r, i, n);
    }
    TRY(begin(n, out));
    TRY(task_weave(r, d, size, needle, n, out));
    return ask((const char(*)[KEY_BYTES])key, n, out);
}

enum status task_build_needle(const struct task_request *r, struct dice *d, int64_t size, struct task_sample *out)
{
    return build(r, d, size, 1, out);
}

enum status task_build_multi_needle(const struct task_request *r, struct dice *d, int64_t size, struct task_sample *out)
{
    return build(r, d, size, NEEDLES, out);
}

/* Builds a sample whose whole haystack consists of sentences with keys and numbers. */
enum status task_build_multikey(const struct task_request *r, struct dice *d, int64_t size, struct task_sample *out)
{
    const int64_t place = (int64_t)(r->depth / 100 * (double)size + 0.5);
    struct keys keys;
    struct planted needle;
    char key[1][KEY_BYTES], other[KEY_BYTES], wanted[NUMBER_BYTES], number[NUMBER_BYTES];
    keys_draw(d, r->tokens, &keys); /* enough keys for any size: each sentence has more than one token */
    keys_write(&keys, 0, key[0]);
    number_draw(d, wanted);
    task_expect(out, wanted);
    TRY(begin(2, out));
    out->context = out->prompt.n;
    out->depth = size ? 100 * (double)place / (double)size : 0;
    for (int64_t i = 0; i <= size; i++) {
        do
            number_draw(d, number);
        while (strcmp(number, wanted) == 0);
        keys_write(&keys, i < place ? i + 1 : i, other);
        write_needle(i == place ? key[0] : other, i == place ? wanted : number, &needle);
        if (i == place)
            out->planted[out->n_planted++] = out->prompt.n;
        TRY(text_buffer_print(&out->prompt, "%s%s", needle.text, i < size ? "\n" : ""));
    }
    out->end = out->prompt.n;
    return ask((const char(*)[KEY_BYTES])key, 1, out);
}
