/* Tests corpora that a tokenizer reads: ids, documents, parts of large documents, the file of tokens that the next run uses,
 * faults. */
#include "base/rng.h"
#include "base/sys.h"
#include "extent.h"
#include "tokenized.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { SEQ = 1024 };

static struct corpus_config config_of(const char *const *paths, int n)
{
    return (struct corpus_config){.paths = paths,
                                  .n_paths = n,
                                  .seq_len = SEQ,
                                  .vocab = 1000,
                                  .seed = 1,
                                  .tokenizer = tokenizer,
                                  .cache = cache,
                                  .threads = 2};
}

static int count_files(const char *pattern)
{
    glob_t g;
    int n = glob(scratch_path(pattern), 0, NULL, &g) == 0 ? (int)g.gl_pathc : 0;
    globfree(&g);
    return n;
}

static void forget(void)
{
    glob_t g;
    if (glob(scratch_path("cache/*"), 0, NULL, &g) == 0)
        for (size_t i = 0; i < g.gl_pathc; i++)
            unlink(g.gl_pathv[i]);
    globfree(&g);
}

/* Copies a path, so that it stays valid. */
static const char *keep(const char *path)
{
    static char kept[16][256];
    static int n;
    return strcpy(kept[n++ % 16], path);
}

/* Writes lines of words and numbers, with some invalid UTF-8 if asked for. */
static const char *write_text(const char *name, size_t bytes, int broken)
{
    static const char *const words[] = {"In ", "the ",  "beginning ", "God\n", "created", " 1234567",
                                        ".\n", "He'll", " é",         "\n\n",  "中文",    "  \t"};
    char *text = malloc(bytes + 32);
    size_t n = 0;
    for (uint64_t i = 0; n < bytes; i++) {
        uint32_t word[4];
        rng_block(3, bytes, i, word);
        n += (size_t)sprintf(text + n, "%s", words[word[0] % 12]);
        if (broken && word[1] % 1000 == 0)
            text[n++] = (char)0xff;
    }
    const char *path = keep(scratch_write(name, text, n));
    free(text);
    return path;
}

/* Returns the tokens of files, one document each, made directly with the tokenizer. */
static struct ids reference(const char *const *paths, int n, int64_t ends[])
{
    struct ids ids = {0};
    struct encoder *e;
    const struct ids *before, *behind;
    tokenizer_template(tokenizer, &before, &behind);
    assert_int_equal(before->n, 1);
    assert_int_equal(encoder_create(tokenizer, &e), OK);
    for (int i = 0; i < n; i++) {
        struct text_buffer repaired = {0};
        int64_t broken;
        FILE *f = fopen(paths[i], "r");
        fseek(f, 0, SEEK_END);
        size_t bytes = (size_t)ftell(f);
        uint8_t *text = malloc(bytes + 1);
        rewind(f);
        assert_int_equal(fread(text, 1, bytes, f), bytes);
        fclose(f);
        assert_int_equal(text_repair(text, bytes, &repaired, &broken), OK);
        assert_int_equal(ids_add(&ids, before->id[0]), OK);
        assert_int_equal(tokenizer_encode(e, broken ? repaired.data : text, broken ? repaired.n : bytes, 0, &ids), OK);
        ends[i] = (int64_t)ids.n;
        free(text);
        text_buffer_free(&repaired);
    }
    encoder_free(e);
    return ids;
}

static int32_t arrays[5][SEQ];

/* Compares a corpus's tokens with `want`, by its evaluation sequences, which come in the order of the files. */
static void compare_tokens(const struct ids *want, const int64_t ends[], const char *const *paths, int n, int threads,
                           int cached /* < 0: either */)
{
    struct corpus_config config = config_of(paths, n);
    config.eval_paths = paths;
    config.n_eval_paths = n;
    config.threads = threads;
    struct corpus *c = open_corpus(&config);
    const struct corpus_report *r = corpus_get_report(c);
    assert_int_equal(r->documents, 2 * n);
    assert_true(cached < 0 || r->cached == cached);
    assert_int_equal(r->packed.tokens_kept + r->packed.tokens_dropped, 2 * (int64_t)want->n);
    struct sequence s = {arrays[0], arrays[1], arrays[2], arrays[3], arrays[4]};
    int document = 0;
    for (int64_t i = 0; i < r->eval_sequences; i++) {
        assert_int_equal(corpus_eval_sequence(c, i, &s), OK);
        for (int64_t k = 0; k < SEQ; k++) {
            int64_t at = i * SEQ + k, first, target;
            while (at >= ends[document])
                document++;
            first = document ? ends[document - 1] : 0;
            /* the part of a document that continues in a new sequence is a document of its own there */
            first = first > i * SEQ ? first : i * SEQ;
            target = at + 1 < ends[document] ? want->id[at + 1] : -1;
            if (s.tokens[k] != want->id[at] || s.positions[k] != at - first ||
                (at + 1 < (int64_t)want->n && s.targets[k] != target))
                fail_msg("token %lld of sequence %lld is wrong", (long long)k, (long long)i);
        }
    }
    corpus_close(c);
}

/* Checks a corpus's tokens against those of its files, tokenized here. */
static void check_tokens(const char *const *paths, int n, int threads, int cached /* < 0: either */)
{
    int64_t ends[8] = {0};
    struct ids want = reference(paths, n, ends);
    compare_tokens(&want, ends, paths, n, threads, cached);
    free(want.id);
}

static void test_documents(void **state)
{
    (void)state;
    const char *paths[] = {write_text("a", 10000, 0), write_text("b", 5000000, 1), write_text("c", 300, 0)};
    int64_t ends[8] = {0};
    struct ids want = reference(paths, 3, ends);
    for (int threads = 1; threads <= 4; threads *= extent(4, 2, 2)) {
        forget();
        compare_tokens(&want, ends, paths, 3, threads, 0);
        assert_int_equal(count_files("cache/*"), 1);
    }
    compare_tokens(&want, ends, paths, 3, 1, 1);
    free(want.id);
}

static void test_repaired(void **state)
{
    (void)state;
    char text[5000];
    memset(text, 'x', sizeof text);
    text[100] = text[101] = (char)0xff;
    const char *paths[3] = {NULL, keep(scratch_write("broken", text, sizeof text)), NULL};
    text[100] = 'x';
    paths[0] = keep(scratch_write("a", text, sizeof text)); /* intact texts before and after the broken one */
    paths[2] = keep(scratch_write("c", text, sizeof text));
    struct corpus_config config = config_of(paths, 3);
    config.seq_len = 16;
    struct corpus *c = open_corpus(&config);
    assert_int_equal(corpus_get_report(c)->repaired, 4);
    assert_non_null(strstr(corpus_get_report(c)->repaired_path, "/broken"));
    corpus_close(c);
}

/* If only a file's times changed, tokens are taken from the cache. Changed files are read again, and so are all files if the file
 * of tokens was cut short. */
static void test_cache(void **state)
{
    (void)state;
    const char *path = write_text("d", 20000, 0);
    char text[30000];
    glob_t g;
    forget();
    check_tokens(&path, 1, 2, 0);
    FILE *f = fopen(path, "r+");
    size_t n = fread(text, 1, sizeof text, f);
    rewind(f);
    fwrite(text, 1, n, f); /* the same bytes */
    fclose(f);
    check_tokens(&path, 1, 2, 1);
    f = fopen(path, "r+");
    fputc('?', f);
    fclose(f);
    check_tokens(&path, 1, 2, 0);
    assert_int_equal(glob(scratch_path("cache/*.tokens"), 0, NULL, &g), 0);
    assert_int_equal(g.gl_pathc, 1);
    assert_int_equal(truncate(g.gl_pathv[0], 6000), 0);
    check_tokens(&path, 1, 2, 0);
    f = fopen(g.gl_pathv[0], "r+"); /* of the tables */
    fseek(f, -10, SEEK_END);
    fputc(77, f);
    fclose(f);
    check_tokens(&path, 1, 2, 0);
    f = fopen(g.gl_pathv[0], "r+"); /* damages tokens, which is noticed when they are read */
    fseek(f, 5000, SEEK_SET);
    fputc(255, f);
    fputc(255, f);
    fclose(f);
    struct corpus_config config = config_of(&path, 1);
    struct corpus *c = NULL;
    struct sequence s = {arrays[0], arrays[1], arrays[2], arrays[3], arrays[4]};
    enum status st = corpus_open(&config, &c);
    for (int64_t i = 0; st == OK && i < corpus_get_report(c)->train_sequences; i++)
        st = corpus_train_sequence(c, (uint64_t)i, &s);
    assert_int_equal(st, ERR_CORRUPT);
    assert_non_null(strstr(status_message(), "remove the file"));
    corpus_close(c);
    globfree(&g);
}

/* Several processes that make the same file of tokens at once each get the right tokens, and one file is left. */
static void test_together(void **state)
{
    (void)state;
    const char *path = write_text("e", 3000000, 0);
    pid_t child[4];
    int64_t ends[8] = {0};
    struct ids want = reference(&path, 1, ends);
    for (int turn = 0; turn < extent(1, 3, 3); turn++) {
        forget();
        for (int i = 0; i < 4; i++) {
            child[i] = fork();
            if (child[i] == 0) {
                struct corpus_config config = config_of(&path, 1);
                struct corpus *c;
                _exit(corpus_open(&config, &c) != OK);
            }
        }
        for (int i = 0; i < 4; i++) {
            int code;
            assert_int_equal(waitpid(child[i], &code, 0), child[i]);
            assert_int_equal(code, 0);
        }
        assert_int_equal(count_files("cache/*"), 1);
        compare_tokens(&want, ends, &path, 1, 2, 1);
    }
    free(want.id);
}

static void test_refusals(void **state)
{
    (void)state;
    const char *path = write_text("f", 5000, 0);
    struct corpus_config config = config_of(&path, 1);
    struct corpus *c = NULL;
    config.vocab = 300;
    assert_int_equal(corpus_open(&config, &c), ERR_INVALID);
    assert_non_null(strstr(status_message(), "the model's embedding has 300 rows"));
    config = config_of(&path, 1);
    config.seq_len = 100000;
    assert_int_equal(corpus_open(&config, &c), ERR_INVALID);
    assert_non_null(strstr(status_message(), "a sequence needs 100000"));
    config = config_of(&path, 1);
    config.cache = "/proc/nothing";
    assert_int_equal(corpus_open(&config, &c), ERR_IO);
}

/* Rows of a .jsonl file are the same documents as files with the same texts; there are more rows than a chunk holds. */
static void test_rows(void **state)
{
    (void)state;
    enum { ROWS = 30000 };
    const char *plain[] = {write_text("h", 3000, 0), write_text("i", 70, 0)};
    char *rows = malloc((size_t)ROWS * 128), text[2][4000];
    int64_t ends[2];
    struct ids want = reference(plain, 2, ends);
    size_t n = 0, length[2];
    for (int i = 0; i < 2; i++) {
        FILE *f = fopen(plain[i], "r");
        length[i] = fread(text[i], 1, sizeof text[i], f);
        fclose(f);
    }
    for (int i = 0; i < ROWS; i++) { /* the short text, and the long one at last */
        const char *from = text[i + 1 < ROWS];
        n += (size_t)sprintf(rows + n, i % 2 ? "{\"id\": 7, \"body\": \"" : "\n  {\"body\":\"");
        for (size_t k = 0; k < length[i + 1 < ROWS]; k++) {
            char c = from[k];
            n += (size_t)sprintf(rows + n, c == '\n' ? "\\n" : c == '\t' ? "\\t" : "%c", c);
        }
        n += (size_t)sprintf(rows + n, i + 1 < ROWS ? "\"}\n" : "\"}");
    }
    const char *path = keep(scratch_write("rows.jsonl", rows, n));
    struct corpus_config config = config_of(&path, 1);
    config.column = "body";
    struct corpus *c = open_corpus(&config);
    const struct corpus_report *r = corpus_get_report(c);
    assert_int_equal(r->documents, ROWS);
    assert_int_equal(r->packed.tokens_kept + r->packed.tokens_dropped, (ROWS - 1) * (ends[1] - ends[0]) + ends[0]);
    struct sequence s = {arrays[0], arrays[1], arrays[2], arrays[3], arrays[4]};
    assert_int_equal(corpus_train_sequence(c, 0, &s), OK);
    int64_t short_n = ends[1] - ends[0], start = 0;
    while (s.positions[start] != 0 || start == 0)
        start++;
    for (int64_t k = start; k < SEQ - short_n; k++)
        assert_int_equal(s.tokens[k], want.id[ends[0] + (k - start) % short_n]);
    corpus_close(c);
    free(rows);
    free(want.id);
}

static void refuse_rows(const char *rows, const char *column, const char *part)
{
    const char *path = keep(scratch_write("bad.jsonl", rows, strlen(rows)));
    struct corpus_config config = config_of(&path, 1);
    config.column = column;
    refuse_corpus(&config, part);
}

static void test_bad_rows(void **state)
{
    (void)state;
    refuse_rows("{\"text\": \"a\"}\n\n{\"text\": \"b}\n", NULL, "bad.jsonl:3: broken JSON");
    refuse_rows("{\"text\": \"a\"}\n[1]\n", NULL, "bad.jsonl:2: it is no JSON object");
    refuse_rows("{\"text\": 7}\n", NULL, ":1: its \"text\" is no string");
    refuse_rows("{\"text\": \"a\"}\n{\"messages\": []}\n", NULL, ":2: it is a conversation, and the file's first row is a text");
    refuse_rows(
        "{\"body\": \"a\"}\n", NULL,
        ":1: it has no \"text\" (its first member is \"body\"; --text-column NAME names the one that is the text; rows of chats have messages, or prompt and completion)");
    refuse_rows("{\"text\": \"a\"}\n{\"body\": \"a\"}\n", "body", ":1: it has no \"body\"");
    refuse_rows("{}\n", NULL, ":1: it has no \"text\"");
    refuse_rows("text\n", NULL, ":1: broken JSON");
    refuse_rows("\n\n", NULL, "are empty: there is no token");
}

/* A row of some megabytes whose values would take a gigabyte of memory is refused before it is parsed, in every kind of row and
 * at every place. */
static void test_rows_of_many_values(void **state)
{
    (void)state;
    enum { N = 1500000 };
    static const char *const begin[] = {"{\"text\": \"a\", \"x\": [", "{\"messages\": [", "{\"input_ids\": ["};
    static const char *const before[] = {"{\"text\": \"a\"}\n", "", "{\"input_ids\": [1]}\n"};
    char *rows = malloc(3 * N + 256);
    for (int kind = 0; kind < 3; kind++) {
        size_t n = (size_t)sprintf(rows, "%s%s", before[kind], begin[kind]);
        for (int i = 0; i < N; i++, n += 3)
            memcpy(rows + n, "{},", 3);
        strcpy(rows + n, "{}]}\n");
        refuse_rows(rows, NULL,
                    kind == 1 ? "bad.jsonl:1: reading the values of this row would take"
                              : "bad.jsonl:2: reading the values of this row would take");
    }
    size_t n = (size_t)sprintf(rows, "{\"text\": \""); /* a row with one long text is not refused */
    memset(rows + n, '{', 3 * N);
    strcpy(rows + n + 3 * N, "\"}\n");
    const char *path = keep(scratch_write("long.jsonl", rows, strlen(rows)));
    struct corpus_config config = config_of(&path, 1);
    corpus_close(open_corpus(&config));
    free(rows);
}

/* Whichever system call fails, either the result is an error and no file is left, or everything is right. */
static void test_faults(void **state)
{
    (void)state;
    static const enum sys_call calls[] = {SYS_OPEN, SYS_PREAD, SYS_PWRITE, SYS_FSYNC, SYS_RENAME, SYS_MALLOC, SYS_THREAD};
    static const char rows[] = "\n{\"text\": \"In the beginning\"}\n{\"text\": \"God created\"}\n";
    const char *path = write_text("g", 60000, 0), *both[] = {path, keep(scratch_write("g.jsonl", rows, sizeof rows - 1))};
    for (size_t k = 0; k < sizeof calls / sizeof *calls; k++)
        for (int nth = 1, done = 0; !done; nth++) {
            struct corpus_config config = config_of(both, 2);
            struct corpus *c = NULL;
            forget();
            long before = sys_count(calls[k]);
            sys_inject(calls[k], nth, ENOSPC);
            enum status st = corpus_open(&config, &c);
            done = sys_count(calls[k]) - before < nth;
            sys_inject_clear();
            assert_true(st == OK || (status_message()[0] && c == NULL));
            assert_true(st == OK || calls[k] != SYS_PWRITE || strstr(status_message(), "--token-cache DIR"));
            if (st == OK)
                corpus_close(c);
            else
                assert_int_equal(count_files("cache/*.part"), 0);
            check_tokens(&path, 1, 1, -1);
        }
}

/* In a cache shared by users, another user may have planted KEY.part: a link, a second name of a file, or a file of his own. */
static void test_planted(void **state)
{
    (void)state;
    const char *path = write_text("h", 30000, 0), *victim = keep(scratch_write("victim", "kept", 4));
    glob_t g;
    for (int kind = 0; kind < 4; kind++) {
        char part[512], text[8] = "";
        forget();
        check_tokens(&path, 1, 1, 0);
        assert_int_equal(glob(scratch_path("cache/*.tokens"), 0, NULL, &g), 0);
        assert_true(g.gl_pathc == 1 && strlen(g.gl_pathv[0]) < sizeof part);
        strcpy(part, g.gl_pathv[0]);
        globfree(&g);
        assert_int_equal(unlink(part), 0);
        strcpy(strrchr(part, '.'), ".part");
        if (kind < 2)
            assert_int_equal(kind ? link(victim, part) : symlink(victim, part), 0);
        else
            assert_int_equal(kind == 2 ? mkfifo(part, 0600) : symlink("nowhere", part), 0);
        check_tokens(&path, 1, 1, 0);
        check_tokens(&path, 1, 1, 1);
        FILE *f = fopen(victim, "r");
        assert_true(f && fread(text, 1, sizeof text - 1, f) == 4 && fclose(f) == 0);
        assert_string_equal(text, "kept");
        assert_int_equal(access(scratch_path("cache/nowhere"), F_OK), -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_documents), cmocka_unit_test(test_repaired),
        cmocka_unit_test(test_cache),     cmocka_unit_test(test_together),
        cmocka_unit_test(test_refusals),  cmocka_unit_test(test_faults),
        cmocka_unit_test(test_planted),   cmocka_unit_test(test_rows_of_many_values),
        cmocka_unit_test(test_rows),      cmocka_unit_test(test_bad_rows),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
