/* Helpers for the tokenizers' tests: 500 hostile strings, checksums, cuts. */
#ifndef LTRAIN_TESTS_TEXT_TOKENIZER_TEST_H
#define LTRAIN_TESTS_TEXT_TOKENIZER_TEST_H

#include "text/parts.h"
#include "text/tokenizer.h"

#include "base/rng.h"
#include "tests/data/scratch.h"

#include <dirent.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { STRINGS = 500 };

static struct text {
    uint8_t *data;
    size_t n;
} strings[STRINGS];

static inline const char *source(const char *name)
{
    static char path[4][512];
    static int next;
    const char *root = getenv("LTRAIN_SOURCE_ROOT");
    char *p = path[next++ % 4];
    snprintf(p, sizeof path[0], "%s/tests/text/%s", root ? root : ".", name);
    return p;
}

static inline void *copy_of(const void *data, size_t n)
{
    void *out = malloc(n + 1);
    if (!out)
        abort();
    memcpy(out, data, n);
    return out;
}

static inline int set_up(void **state)
{
    FILE *f = fopen(source("strings.jsonl"), "r");
    char *line = NULL;
    size_t room = 0;
    for (int i = 0; i < STRINGS; i++) {
        json_error_t error;
        if (!f || getline(&line, &room, f) < 0)
            return -1;
        json_t *s = json_loads(line, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
        strings[i].n = json_string_length(s);
        strings[i].data = copy_of(json_string_value(s), strings[i].n);
        json_decref(s);
    }
    free(line);
    fclose(f);
    return scratch_create(state);
}

static inline int tear_down(void **state)
{
    for (int i = 0; i < STRINGS; i++)
        free(strings[i].data);
    return scratch_destroy(state);
}

static inline unsigned checksum(const uint8_t *data, size_t n)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ data[i]) * 16777619u;
    return (h >> 16 ^ h) & 0xffff;
}

static inline unsigned checksum_of_ids(const struct ids *ids)
{
    char *text = malloc(16 * ids->n + 1);
    size_t n = 0;
    for (size_t i = 0; i < ids->n; i++)
        n += (size_t)sprintf(text + n, i ? ",%d" : "%d", ids->id[i]);
    unsigned sum = checksum((uint8_t *)text, n);
    free(text);
    return sum;
}

static inline void add_all(struct ids *out, const struct ids *more)
{
    for (size_t i = 0; i < more->n; i++)
        assert_int_equal(ids_add(out, more->id[i]), OK);
}

/* Checks that a text encoded in parts has the ids of the whole. */
static inline void check_cuts_of(const char *name, const struct tokenizer *t, struct encoder *e, const uint8_t *text, size_t n)
{
    struct ids whole = {0}, parts = {0};
    assert_int_equal(tokenizer_encode(e, text, n, 0, &whole), OK);
    for (int turn = 0; turn < 4 && t->can_cut; turn++) {
        size_t from = 0, cuts = 0;
        parts.n = 0;
        while (from < n) {
            uint32_t word[4];
            rng_block(34, (uint64_t)turn, from, word);
            size_t length = 1 + word[0] % (turn ? 3000 : 200), cut = 0;
            for (; cut == 0 && from + length < n; length += 100)
                cut = tokenizer_cut(t, text + from, length);
            cut = cut ? cut : n - from;
            assert_int_equal(tokenizer_encode(e, text + from, cut, from ? ENCODE_CONTINUES : 0, &parts), OK);
            from += cut;
            cuts++;
        }
        assert_true(cuts > 1);
        if (parts.n != whole.n || memcmp(parts.id, whole.id, whole.n * sizeof *whole.id) != 0)
            fail_msg("%s: other ids in %zu parts", name, cuts);
    }
    free(whole.id);
    free(parts.id);
}

/* Joins all strings in random order, mostly as lines. A line in plain ASCII follows each, so that there are places to cut at. */
static inline void mix_strings(struct text_buffer *text)
{
    static const char *const lines[] = {"word\nAbc", ".\n1234567 ", "the end\nThe", "x\n",
                                        "(a)\nb  ",  "\n\n",        " \n a\n",      "don't\n's"};
    for (uint64_t i = 0; i < 1500; i++) {
        uint32_t word[4];
        rng_block(1, 2, i, word);
        const struct text *s = &strings[word[0] % STRINGS];
        const char *line = lines[word[1] % 8];
        assert_int_equal(text_buffer_add(text, s->data, s->n), OK);
        assert_int_equal(text_buffer_add(text, line, strlen(line)), OK);
    }
}

static inline uint32_t draw(uint64_t *turn, uint32_t below)
{
    uint32_t word[4];
    rng_block(7, 7, (*turn)++, word);
    return word[0] % below;
}

/* Opens bytes that may not be a tokenizer: checks that there is either an error with a message, or a tokenizer that encodes every
 * `step`-th string without harm. */
static inline void try_tokenizer(const char *file, const char *data, size_t n, int step)
{
    struct tokenizer *t;
    struct encoder *e;
    struct ids ids = {0};
    struct text_buffer out = {0};
    if (tokenizer_open(scratch_write(file, data, n), &t) != OK) {
        assert_true(status_message()[0]);
        return;
    }
    assert_int_equal(encoder_create(t, &e), OK);
    for (int s = 0; s < STRINGS; s += step)
        if (tokenizer_encode(e, strings[s].data, strings[s].n, 0, &ids) != OK)
            break;
    (void)tokenizer_decode(t, ids.id, ids.n, 1, &out);
    free(ids.id);
    text_buffer_free(&out);
    encoder_free(e);
    tokenizer_close(t);
}

#endif
