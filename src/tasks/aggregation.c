/* Task: finding the three most frequent among coded words, whose frequencies follow Zipf's law (RULER's frequent words
 * extraction). */
#include "tasks/generators.h"

#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

enum { ASKED = 3, LEAST = 40 /* words: with fewer, the third and the fourth most frequent would be equally frequent */ };

#define ZETA_2 1.6449340668482264 /* sum of 1 / i^2 */

/* Draws words in random order, each as its rank by frequency (0: most frequent); returns the number of ranks. */
static int64_t draw_ranks(struct dice *d, int32_t *rank, int64_t n)
{
    int64_t at = 0, ranks = 0;
    while (at < n) {
        const double square = (double)((ranks + 1) * (ranks + 1));
        int64_t times = (int64_t)((double)n / ZETA_2 / square);
        for (times = times < 1 ? 1 : times; times > 0 && at < n; times--)
            rank[at++] = (int32_t)ranks;
        ranks++;
    }
    for (int64_t i = n - 1; i > 0; i--) {
        const int64_t j = (int64_t)dice_roll(d, (uint64_t)i + 1);
        const int32_t other = rank[j];
        rank[j] = rank[i];
        rank[i] = other;
    }
    return ranks;
}

static enum status draw_words(struct dice *d, char (*word)[CODED_BYTES], int64_t n)
{
    for (int64_t i = 0; i < n; i++) { /* words that are asked for differ from all others; the rest may be equal */
        int again;
        do {
            coded_draw(d, word[i]);
            again = 0;
            for (int64_t j = 0; j < i && j <= ASKED; j++)
                again |= strcmp(word[i], word[j]) == 0;
        } while (again);
    }
    return OK;
}

static enum status write(struct dice *d, int64_t n, int32_t *rank, char (*word)[CODED_BYTES], struct task_sample *out)
{
    TRY(draw_words(d, word, draw_ranks(d, rank, n)));
    TRY(text_buffer_print(&out->prompt,
                          "Read the following coded text and track the frequency of each coded word. Find the three most "
                          "frequently appeared coded words.\n"));
    out->context = out->prompt.n;
    for (int64_t i = 0; i < n; i++)
        TRY(text_buffer_print(&out->prompt, "%s%s", i ? " " : "", word[rank[i]]));
    out->end = out->prompt.n;
    TRY(text_buffer_print(&out->prompt,
                          "\nQuestion: Do not provide any explanation. What are the three most frequently appeared words in the "
                          "above coded text?"));
    TRY(text_buffer_print(&out->lead,
                          " Answer: According to the coded text above, the three most frequently appeared words are:"));
    for (int i = 0; i < ASKED; i++) {
        task_expect(out, word[i]);
        TRY(text_buffer_print(&out->answer, "%s %s", i ? "," : "", word[i]));
    }
    return text_buffer_print(&out->answer, ".");
}

enum status task_build_aggregation(const struct task_request *r, struct dice *d, int64_t size, struct task_sample *out)
{
    (void)r;
    const int64_t n = size + LEAST;
    int32_t *rank = sys_malloc((size_t)n * sizeof *rank);
    char(*word)[CODED_BYTES] = sys_malloc((size_t)n * sizeof *word);
    enum status st =
        rank && word ? write(d, n, rank, word, out) : status_fail(ERR_NOMEM, "out of memory: %lld coded words", (long long)n);
    free(rank);
    free(word);
    return st;
}
