/* Tests readers with damaged files: each of tests/fuzz/corpus/TARGET as it is, which must be read, then mutations of them drawn from
 * a seed. A reader gives a result or an error with one sentence; sanitizers see the rest. With LTRAIN_LONG=1 there are a hundred times as many, and
 * `test_fuzz TARGET NUMBER` repeats one. tools/fuzz.sh searches by coverage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "fuzz/targets.h"

#include "base/rng.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 1000, LONG_FACTOR = 100, MOST_SEEDS = 400, MOST_BYTES = 1 << 16, BATCH = 100 };

struct seeds {
    uint8_t *data[MOST_SEEDS];
    size_t bytes[MOST_SEEDS];
    int n;
};

/* The draws of one run. */
struct draws {
    uint64_t run, n;
};

static size_t below(struct draws *d, size_t n)
{
    return n ? (size_t)rng_below(20261130, d->run, d->n++, n) : 0;
}

static void add_seed(struct seeds *s, const char *path)
{
    FILE *f = fopen(path, "re");
    if (!f || s->n == MOST_SEEDS)
        fail_msg("%s: cannot be read, or there are more than %d", path, MOST_SEEDS);
    uint8_t *data = malloc(MOST_BYTES);
    assert_non_null(data);
    s->bytes[s->n] = fread(data, 1, MOST_BYTES, f);
    s->data[s->n++] = data;
    fclose(f);
}

static void load(const char *target, struct seeds *s)
{
    const char *root = getenv("LTRAIN_SOURCE_ROOT");
    char folder[512], path[1024];
    struct dirent **entries;
    snprintf(folder, sizeof folder, "%s/tests/fuzz/corpus/%s", root ? root : ".", target);
    const int n = scandir(folder, &entries, NULL, alphasort);
    s->n = 0;
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.')
            add_seed(s, path);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    if (s->n == 0)
        fail_msg("%s has no files", folder);
}

static void unload(struct seeds *s)
{
    for (int i = 0; i < s->n; i++)
        free(s->data[i]);
}

/* Words that readers of numbers and of JSON stumble over. */
static const char *const words[] = {"-1",
                                    "0",
                                    "1e308",
                                    "1e-320",
                                    "0.5",
                                    "2147483648",
                                    "9223372036854775807",
                                    "-9223372036854775808",
                                    "18446744073709551616",
                                    "null",
                                    "true",
                                    "\"\"",
                                    "[]",
                                    "{}",
                                    "[[",
                                    "{\"a\":",
                                    "\\u0000",
                                    "\\ud800",
                                    "\xff\xfe",
                                    "\xef\xbb\xbf",
                                    "../",
                                    "/",
                                    "\n",
                                    ",",
                                    ":"};

static size_t replace(uint8_t *data, size_t n, size_t at, size_t removed, const uint8_t *by, size_t added)
{
    if (n - removed + added > MOST_BYTES)
        return n;
    memmove(data + at + added, data + at + removed, n - at - removed);
    memcpy(data + at, by, added);
    return n - removed + added;
}

/* Changes data[0 .. n) in one of seven ways, and returns its new length. */
static size_t mutate(struct draws *d, const struct seeds *s, uint8_t *data, size_t n)
{
    static const uint8_t extremes[] = {0, 1, 0x7f, 0x80, 0xff, '"', '{', '-', '9'};
    const size_t at = below(d, n), some = below(d, 40) % (n - at + 1);
    const char *word = words[below(d, sizeof words / sizeof *words)];
    const int other = (int)below(d, (size_t)s->n);
    const size_t from = below(d, s->bytes[other]), length = below(d, 80) % (s->bytes[other] - from + 1);
    uint8_t copy[40];
    switch (below(d, 7)) {
    case 0:
        if (n)
            data[at] ^= (uint8_t)(1u << below(d, 8));
        return n;
    case 1:
        if (n)
            data[at] = extremes[below(d, sizeof extremes)];
        return n;
    case 2:
        return replace(data, n, at, below(d, 12) % (n - at + 1), (const uint8_t *)word, strlen(word));
    case 3: /* a part of another file, in place of some bytes */
        return replace(data, n, at, some, s->data[other] + from, length);
    case 4:
        return replace(data, n, at, some, copy, 0);
    case 5: /* some bytes twice */
        memcpy(copy, data + at, some);
        return replace(data, n, at, 0, copy, some);
    default:
        return below(d, n + 1);
    }
}

/* Runs number i: the files themselves first, then mutations. */
static void run(const struct fuzz_target *t, const struct seeds *s, int64_t i)
{
    static uint8_t data[MOST_BYTES + 1];
    struct draws d = {.run = (uint64_t)i};
    const size_t seed = i < s->n ? (size_t)i : below(&d, (size_t)s->n);
    size_t n = s->bytes[seed];
    memcpy(data, s->data[seed], n);
    for (size_t k = i < s->n ? 0 : 1 + below(&d, 4); k > 0; k--)
        n = mutate(&d, s, data, n);
    uint8_t *exact = malloc(n ? n : 1); /* so that a read beyond the end is seen */
    assert_non_null(exact);
    memcpy(exact, data, n);
    const enum status st = fuzz_once(t, exact, n);
    if (i < s->n && st != OK)
        fail_msg("%s: file %lld of the corpus is refused: %s", t->name, (long long)i, status_message());
    free(exact);
}

static const char *only;
static int64_t only_run;

static void damaged_files(void **state)
{
    (void)state;
    static struct seeds s;
    const int64_t runs = getenv("LTRAIN_LONG") ? (int64_t)RUNS * LONG_FACTOR : RUNS;
    for (int k = 0; k < fuzz_n_targets; k++) {
        const struct fuzz_target *t = &fuzz_targets[k];
        if (only && strcmp(only, t->name) != 0)
            continue;
        load(t->name, &s);
        for (int64_t i = only ? only_run : 0; i < (only ? only_run + 1 : s.n + runs); i++) {
            if (i % BATCH == 0) {
                printf("%s: from %lld on\n", t->name, (long long)i);
                fflush(stdout); /* says where it was, if a sanitizer ends the program */
            }
            run(t, &s, i);
        }
        unload(&s);
        fuzz_clear();
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(damaged_files)};
    if (argc == 3) {
        only = argv[1];
        only_run = strtoll(argv[2], NULL, 10);
    }
    fuzz_begin();
    const int failed = cmocka_run_group_tests_name("fuzz", tests, NULL, NULL);
    fuzz_end();
    return failed;
}
