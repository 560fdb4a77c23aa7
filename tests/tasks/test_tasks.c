/* Tests generated tasks: the text contains the answer once and in the stated place; samples fit the length; equal requests give
 * equal texts. */
#include "tasks/tasks.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROOM = 40, LONGEST = 128 /* bytes of the haystacks' sentences, and of each other addition */ };

/* Counts a token per byte. */
static enum status count_bytes(void *user, const struct task_sample *s, int64_t *tokens)
{
    (void)user;
    *tokens = (int64_t)(s->prompt.n + s->lead.n) + ROOM;
    return OK;
}

static const struct task_counter counter = {count_bytes, NULL};

/* Makes a text of different paragraphs with two to five sentences. */
static struct haystack *own_text(int paragraphs)
{
    static const char *const who[] = {"A sailor", "The baker", "My aunt", "No clerk", "Some judge", "Each guard", "This child"};
    static const char *const what[] = {"painted", "sold", "lost", "drew", "mended"};
    struct text_buffer text = {.n = 0};
    struct haystack *h;
    for (int p = 0; p < paragraphs; p++) {
        for (int i = 0; i < 2 + p % 4; i++)
            assert_int_equal(text_buffer_print(&text, "%s %s the boat of house number %d, and then %d more boats! ",
                                               who[(p + i) % 7], what[(p + 2 * i) % 5], 100 + p, 5 * p + i),
                             OK);
        assert_int_equal(text_buffer_print(&text, "\n\n"), OK);
    }
    assert_int_equal(haystack_create((const char *)text.data, text.n, &h), OK);
    text_buffer_free(&text);
    return h;
}

static struct haystack *filler(void)
{
    struct haystack *h;
    assert_int_equal(haystack_create(NULL, 0, &h), OK);
    return h;
}

static int times(const char *text, size_t n, const char *what)
{
    int found = 0;
    const size_t length = strlen(what);
    for (size_t at = 0; at + length <= n; at++)
        found += memcmp(text + at, what, length) == 0;
    return found;
}

static const char *context_of(const struct task_sample *s, size_t *n)
{
    *n = s->end - s->context;
    return (const char *)s->prompt.data + s->context;
}

/* ---- promises of each task ---- */

static void check_needle(const struct task_sample *s)
{
    char key[64], number[64];
    size_t n;
    const char *context = context_of(s, &n);
    for (int i = 0; i < s->n_planted; i++) {
        char planted[256];
        snprintf(planted, sizeof planted, "%s", (const char *)s->prompt.data + s->planted[i]);
        assert_int_equal(sscanf(planted, "One of the special magic numbers for %63s is: %63[0-9].", key, number), 2);
        assert_string_equal(number, s->expected[i]);
        assert_int_equal(times(context, n, number), 1);
        assert_int_equal(times(context, n, key), 1);
        assert_int_equal(times((const char *)s->prompt.data + s->end, s->prompt.n - s->end, key),
                         1); /* the question contains the key */
        assert_int_equal(times((const char *)s->lead.data, s->lead.n, key), 1);
    }
}

static void check_tracking(const struct task_sample *s)
{
    char name[16][8], from[16][8], value[8];
    int n = 0, found = 0;
    for (int i = 0; i < s->n_planted; i++, n++) {
        char line[64];
        snprintf(line, sizeof line, "%s", (const char *)s->prompt.data + s->planted[i]);
        assert_true(sscanf(line, "VAR %5s = VAR %7[A-Z].", name[n], from[n]) == 2 ||
                    sscanf(line, "VAR %5s = %7[0-9].", name[n], from[n]) == 2);
    }
    assert_int_equal(n, 10);
    assert_int_equal(sscanf(strstr((const char *)s->prompt.data + s->end, "value"), "value %7[0-9]", value), 1);
    for (int i = 0; i < n; i++) {
        int at = i, steps = 0;
        while (from[at][0] >= 'A' && steps++ < n) /* follows the assignments to the variable before, which is assigned earlier */
            for (int k = 0; k < n; k++)
                if (strcmp(name[k], from[at]) == 0) {
                    assert_true(k < at);
                    at = k;
                    break;
                }
        int expected = 0;
        for (int k = 0; k < s->n_expected; k++)
            expected |= strcmp(s->expected[k], name[i]) == 0;
        assert_int_equal(expected, strcmp(from[at], value) == 0);
        found += expected;
    }
    assert_int_equal(found, s->n_expected);
}

static void check_counting(const struct task_sample *s)
{
    size_t n;
    const char *context = context_of(s, &n);
    assert_int_equal(times(context, n, "The little penguin counted a star."), atoi(s->expected[0]));
    assert_int_equal(s->n_planted, atoi(s->expected[0]));
}

static void check_aggregation(const struct task_sample *s)
{
    size_t n;
    const char *context = context_of(s, &n);
    int least = 1 << 30, next = 0;
    for (int i = 0; i < s->n_expected; i++) {
        const int t = times(context, n, s->expected[i]);
        least = t < least ? t : least;
    }
    for (size_t at = 0; at + 6 <= n; at += 7) {
        char word[8];
        int expected = 0;
        snprintf(word, sizeof word, "%.6s", context + at);
        for (int i = 0; i < s->n_expected; i++)
            expected |= strcmp(word, s->expected[i]) == 0;
        const int t = expected ? 0 : times(context, n, word);
        next = t > next ? t : next;
    }
    assert_true(least > next); /* no other word is equally frequent */
}

static void check_shuffled(const struct task_sample *s)
{
    char words[256], number[64];
    size_t n;
    const char *context = context_of(s, &n), *quoted = strchr((const char *)s->prompt.data + s->end, '"');
    assert_int_equal(sscanf(quoted, "\"%255[^\"]\"", words), 1);
    assert_int_equal(times(context, n, words), 1);
    const char *at = memmem(context, n, words, strlen(words)), *label = at;
    while (memcmp(label, "Paragraph ", 10) != 0)
        label--;
    snprintf(number, sizeof number, "Paragraph %s: ", s->expected[0]);
    assert_memory_equal(label, number, strlen(number));
    assert_int_equal(times(context, n, number), 1);
    assert_ptr_equal(label + strlen(number), s->prompt.data + s->planted[0]);
}

static void check_promises(enum task t, const struct task_sample *s)
{
    static void (*const check[TASKS])(const struct task_sample *) = {
        check_needle, check_needle, check_needle, check_tracking, check_counting, check_aggregation, check_shuffled};
    size_t n;
    const char *context = context_of(s, &n);
    assert_true(s->context < s->end && s->end < s->prompt.n);
    assert_int_equal(task_score(s, (const char *)s->answer.data, s->answer.n) * 1000, 1000);
    assert_int_equal(task_score(s, "I do not know.", 14) * 1000, 0);
    for (int i = 0; i + 1 < s->n_planted; i++)
        assert_true(s->planted[i] < s->planted[i + 1]);
    for (int i = 0; i < s->n_planted; i++)
        assert_true(s->planted[i] >= s->context && s->planted[i] < s->end);
    (void)context;
    check[t](s);
}

/* ---- sweeps ---- */

static enum status generate(enum task t, int64_t tokens, double depth, uint64_t seed, int64_t number, const struct haystack *h,
                            struct task_sample *out)
{
    return task_generate(&(struct task_request){t, tokens, depth, seed, number, h}, &counter, out);
}

/* Checks the depth of the first planted thing by computing it from the places. */
static void check_depth(enum task t, const struct task_sample *s, double wanted)
{
    const double other = (double)(s->end - s->context), slack = 100 * LONGEST / other;
    if (!task_has_depth(t))
        return;
    assert_true(fabs(s->depth - wanted) <= fmax(slack, 51.0 / (double)(s->size + 1)));
    if (wanted == 0)
        assert_true(s->planted[0] - s->context <= 16); /* "Paragraph 1: " comes before it */
    if (s->n_planted == 1 && t != TASK_SHUFFLED) {
        const double place = 100 * (double)(s->planted[0] - s->context) / other;
        assert_true(fabs(place - wanted) <= 2 * slack);
    }
}

static void test_samples(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1500, 2048, 5000, 20000};
    static const double depths[] = {0, 10, 50, 100};
    struct haystack *stacks[] = {filler(), own_text(120)};
    for (int t = 0; t < TASKS; t++)
        for (int h = t == TASK_SHUFFLED; h < 2; h++) /* which needs a text of the user */
            for (int l = 0; l < 4; l++)
                for (int d = 0; d < 4; d++) {
                    struct task_sample s, again, other;
                    int64_t tokens;
                    assert_int_equal(generate((enum task)t, lengths[l], depths[d], 7, 3, stacks[h], &s), OK);
                    count_bytes(NULL, &s, &tokens);
                    assert_true(tokens <= lengths[l]);
                    assert_true(tokens > lengths[l] - (t == TASK_SHUFFLED ? 5 * LONGEST : LONGEST));
                    check_promises((enum task)t, &s);
                    check_depth((enum task)t, &s, depths[d]);
                    assert_int_equal(generate((enum task)t, lengths[l], depths[d], 7, 3, stacks[h], &again), OK);
                    assert_int_equal(again.prompt.n, s.prompt.n);
                    assert_memory_equal(again.prompt.data, s.prompt.data, s.prompt.n);
                    assert_int_equal(
                        generate((enum task)t, lengths[l], depths[d], d % 2 ? 8 : 7, d % 2 ? 3 : 4, stacks[h], &other), OK);
                    const int is_fixed = t == TASK_COUNTING && h == 0 && depths[d] == 100; /* only the number differs */
                    assert_true(is_fixed || other.prompt.n != s.prompt.n ||
                                memcmp(other.prompt.data, s.prompt.data, s.prompt.n) != 0);
                    task_sample_destroy(&s);
                    task_sample_destroy(&again);
                    task_sample_destroy(&other);
                }
    haystack_destroy(stacks[0]);
    haystack_destroy(stacks[1]);
}

/* The shortest sufficient lengths are accepted; shorter ones are refused. */
static void test_short(void **state)
{
    (void)state;
    struct haystack *h = own_text(120);
    for (int t = 0; t < TASKS; t++) {
        struct task_sample s;
        int64_t needs = 0;
        assert_int_equal(generate((enum task)t, 20, 50, 1, 0, h, &s), ERR_INVALID);
        assert_non_null(strstr(status_message(), "are too few"));
        assert_null(s.prompt.data);
        assert_int_equal(sscanf(strstr(status_message(), "take"), "take %ld", &needs), 1);
        assert_int_equal(generate((enum task)t, needs + 4 * LONGEST, 50, 1, 0, h, &s), OK);
        check_promises((enum task)t, &s);
        task_sample_destroy(&s);
    }
    haystack_destroy(h);
}

static void test_texts(void **state)
{
    (void)state;
    struct haystack *few = own_text(6), *one = own_text(1), *none;
    struct task_sample s;
    assert_int_equal(generate(TASK_NEEDLE, 9000, 50, 1, 0, few, &s), OK); /* repeated */
    assert_true(s.repeats);
    task_sample_destroy(&s);
    assert_int_equal(generate(TASK_NEEDLE, 1200, 50, 1, 0, few, &s), OK);
    assert_false(s.repeats);
    task_sample_destroy(&s);
    assert_int_equal(generate(TASK_SHUFFLED, 9000, 50, 1, 0, few, &s), ERR_INVALID);
    assert_non_null(strstr(status_message(), "6 paragraphs"));
    assert_int_equal(generate(TASK_SHUFFLED, 1000, 50, 1, 0, few, &s), OK);
    task_sample_destroy(&s);
    assert_int_equal(generate(TASK_SHUFFLED, 1000, 50, 1, 0, one, &s), ERR_INVALID);
    assert_non_null(strstr(status_message(), "1 paragraph of eight words"));
    haystack_destroy(few);
    haystack_destroy(one);
    assert_int_equal(haystack_create(" \n\n ", 4, &none), ERR_INVALID);
    one = filler();
    assert_int_equal(generate(TASK_SHUFFLED, 1000, 50, 1, 0, one, &s), ERR_INVALID);
    haystack_destroy(one);
    assert_int_equal(haystack_create("This one is new. The little penguin counted a star. So it is.", 61, &one), OK);
    assert_int_equal(generate(TASK_COUNTING, 2000, 50, 1, 0, one, &s), ERR_INVALID);
    haystack_destroy(one);
}

static void test_sentences(void **state)
{
    (void)state;
    static const char text[] =
        "He said \"Stop.\" Then (it is 3.14 or so) nobody did!  What?\n\nA title\nOne more one with e.g. dots";
    static const char *const want[] = {"He said \"Stop.\" ",
                                       "Then (it is 3.14 or so) nobody did!  ",
                                       "What?\n\n",
                                       "A title\n",
                                       "One more one with e.g. ",
                                       "dots\n"};
    struct haystack *h;
    size_t n, all = 0;
    assert_int_equal(haystack_create(text, strlen(text), &h), OK);
    assert_int_equal(haystack_sentences(h), 6);
    for (int i = 0; i < 6; i++) {
        const char *is = haystack_sentence(h, i, &n);
        assert_int_equal(n, strlen(want[i]));
        assert_memory_equal(is, want[i], n);
        all += n;
    }
    assert_int_equal(all, strlen(text) + 1);
    assert_int_equal(haystack_paragraphs(h), 2);
    haystack_destroy(h);
    /* without blanks and stops: pieces of whole characters */
    struct text_buffer long_one = {.n = 0};
    for (int i = 0; i < 2000; i++)
        assert_int_equal(text_buffer_add(&long_one, "\xc3\xa9", 2), OK);
    assert_int_equal(haystack_create((const char *)long_one.data, long_one.n, &h), OK);
    assert_true(haystack_sentences(h) > 2);
    for (int i = 0; i < haystack_sentences(h); i++)
        assert_int_equal((uint8_t)*haystack_sentence(h, i, &n), 0xc3);
    haystack_destroy(h);
    text_buffer_free(&long_one);
}

static double score(struct task_sample *s, const char *answer)
{
    return 100 * task_score(s, answer, strlen(answer));
}

static void test_scores(void **state)
{
    (void)state;
    struct task_sample s = {.expected = {"1234567", "Abcde"}, .n_expected = 2};
    assert_true(score(&s, " 1234567, and ABCDE.") == 100);
    assert_true(score(&s, "abcde") == 50);
    assert_true(score(&s, "12345678 abcdef xabcde 01234567") == 0);
    assert_true(score(&s, "**1234567**") == 50);
    assert_true(score(&s, "") == 0);
    s = (struct task_sample){.expected = {"7"}, .n_expected = 1, .is_number = 1};
    assert_true(score(&s, " 7.") == 100);
    assert_true(score(&s, " it is 7 of 9") == 100);
    assert_true(score(&s, " 6, no, 7") == 0);
    assert_true(score(&s, " 17") == 0);
    assert_true(score(&s, " 77") == 0);
    assert_true(score(&s, "seven") == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_samples), cmocka_unit_test(test_short), cmocka_unit_test(test_texts),
                                       cmocka_unit_test(test_sentences), cmocka_unit_test(test_scores)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
