/* Tests archives and files of token ids: their documents, and every way in which such files may be damaged. */
#include "base/sys.h"
#include "build_config.h"
#include "data/stream.h"
#include "tokenized.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/wait.h>
#ifdef HAVE_ZLIB
#include <zlib.h>
#endif
#ifdef HAVE_ZSTD
#include <zstd.h>
#endif

#ifdef __SANITIZE_ADDRESS__
#define MEMORY_IS_OURS 0 /* 0: memory cannot be measured, since sanitizers keep freed memory for a while */
#else
#define MEMORY_IS_OURS 1
#endif

enum { SEQ = 64, VOCAB = 1000, LLMC_HEADER = 256 };

static struct corpus_config config_of(const char *const *path, const struct tokenizer *t)
{
    return (struct corpus_config){.paths = path,
                                  .n_paths = 1,
                                  .seq_len = SEQ,
                                  .vocab = VOCAB,
                                  .tokenizer = t,
                                  .cache = cache,
                                  .threads = 2,
                                  .packing = PACKING_BEST_FIT};
}

/* All tokens of a file in order, as negative numbers if not trained, and the ends of documents. */
struct all {
    int32_t id[20000];
    int64_t n, ends[2000], documents;
};

static void read_with(const struct corpus_config *config, struct all *out)
{
    struct corpus *c = open_corpus(config);
    int32_t next;
    const struct stream *s = corpus_get_source(c, 0).documents;
    memset(out, 0, sizeof *out);
    out->n = stream_tokens(s);
    out->documents = stream_documents(s);
    assert_in_range(out->n, 1, 20000);
    assert_int_equal(stream_read(s, 0, out->n, out->id, &next), OK);
    for (int64_t i = 0; i < out->documents; i++)
        out->ends[i] = stream_end(s, i);
    corpus_close(c);
}

static void read_file(const char *path, const struct tokenizer *t, struct all *out)
{
    const char *paths[] = {path};
    struct corpus_config config = config_of(paths, t);
    read_with(&config, out);
}

static void refuse(const char *path, const struct tokenizer *t, const char *part)
{
    const char *paths[] = {path};
    struct corpus_config config = config_of(paths, t);
    refuse_corpus(&config, part);
}

/* ---- archives ---- */

static const char rows[] =
    "{\"text\": \"In the beginning\"}\n\n{\"text\": \"God created the heaven and the earth.\"}\n{\"text\": \"And\"}";

#ifdef HAVE_ZLIB
/* Adds a member. */
static void write_gzip(const char *name, const char *mode, const void *data, size_t n)
{
    gzFile f = gzopen(scratch_path(name), mode);
    assert_int_equal(gzwrite(f, data, (unsigned)n), n);
    assert_int_equal(gzclose(f), Z_OK);
}
#endif

static size_t file_bytes(const char *path)
{
    struct stat s;
    assert_int_equal(stat(path, &s), 0);
    return (size_t)s.st_size;
}

#ifdef HAVE_ZLIB
static void append(const char *name, const char *data, size_t n)
{
    FILE *f = fopen(scratch_path(name), "ab");
    assert_true(f && fwrite(data, 1, n, f) == n && fclose(f) == 0);
}

/* Checks that n zeros behind the last member are accepted, as gzip does, even if they are more than one read returns, and also
 * before another member. */
static void check_padding(int64_t n)
{
    static struct all got;
    static const char zeros[600000];
    append("rows.jsonl.gz", zeros, 5);
    read_file(scratch_path("rows.jsonl.gz"), NULL, &got);
    assert_int_equal(got.n, n);
    append("rows.jsonl.gz", zeros, sizeof zeros);
    write_gzip("rows.jsonl.gz", "a", rows, sizeof rows - 1);
    read_file(scratch_path("rows.jsonl.gz"), NULL, &got);
    assert_int_equal(got.n, 2 * n);
    append("rows.jsonl.gz", "\0\0n", 3); /* a single byte other than 0: too few for zlib to notice that it is no gzip */
    refuse(scratch_path("rows.jsonl.gz"), NULL, "rows.jsonl.gz is damaged: something that is no gzip follows its last member");
}
#endif

static void test_gzip(void **state)
{
    (void)state;
#ifdef HAVE_ZLIB
    static struct all want, got;
    read_file(scratch_write("rows.jsonl", rows, sizeof rows - 1), tokenizer, &want);
    assert_int_equal(want.documents, 3);
    write_gzip("rows.jsonl.gz", "w", rows, 30); /* two members, the first of which ends inside a row */
    write_gzip("rows.jsonl.gz", "a", rows + 30, sizeof rows - 1 - 30);
    read_file(scratch_path("rows.jsonl.gz"), tokenizer, &got);
    assert_memory_equal(&want, &got, sizeof got);
    read_file(scratch_path("rows.jsonl"), NULL, &want); /* bytes */
    read_file(scratch_path("rows.jsonl.gz"), NULL, &got);
    assert_memory_equal(&want, &got, sizeof got);
    check_padding(got.n);
    write_gzip("rows.jsonl.gz", "w", rows, 30);
    write_gzip("rows.jsonl.gz", "a", rows + 30, sizeof rows - 1 - 30);
    size_t n = file_bytes(scratch_path("rows.jsonl.gz"));
    for (size_t cut = 1; cut < n; cut++) { /* cuts the file at every place except between the two members */
        struct corpus *c = NULL;
        const char *paths[] = {scratch_path("rows.jsonl.gz")};
        struct corpus_config config = config_of(paths, tokenizer);
        assert_int_equal(truncate(paths[0], (off_t)(n - cut)), 0);
        enum status st = corpus_open(&config, &c);
        if (st == OK)
            assert_true(corpus_get_report(c)->documents < 3);
        else
            assert_true(strstr(status_message(), "rows.jsonl.gz is cut off") ||
                        strstr(status_message(), "rows.jsonl.gz:1: broken JSON"));
        corpus_close(c);
    }
    scratch_text("wrong.gz", "this is no archive");
    refuse(scratch_path("wrong.gz"), tokenizer, "wrong.gz is damaged: incorrect header check");
    write_gzip("bytes.gz", "w", rows, sizeof rows - 1);
    assert_int_equal(rename(scratch_path("bytes.gz"), scratch_path("unnamed")), 0);
    refuse(scratch_path("unnamed"), tokenizer, "compressed by gzip and not named .gz, which is not read as it is: mv");
#else
    refuse(scratch_write("rows.jsonl.gz", rows, sizeof rows - 1), tokenizer, "built without zlib");
#endif
}

static void test_zstd(void **state)
{
    (void)state;
#ifdef HAVE_ZSTD
    static struct all want, got;
    char packed[2][1024];
    read_file(scratch_write("z.jsonl", rows, sizeof rows - 1), tokenizer, &want);
    size_t n[2] = {ZSTD_compress(packed[0], 1024, rows, 30, 3),
                   ZSTD_compress(packed[1], 1024, rows + 30, sizeof rows - 1 - 30, 3)};
    memcpy(packed[0] + n[0], packed[1], n[1]);
    const char *path = scratch_write("z.jsonl.zst", packed[0], n[0] + n[1]);
    read_file(path, tokenizer, &got);
    assert_memory_equal(&want, &got, sizeof got);
    for (size_t cut = 1; cut < n[1]; cut++) {
        assert_int_equal(truncate(path, (off_t)(n[0] + n[1] - cut)), 0);
        refuse(path, tokenizer, "z.jsonl.zst is cut off: its last frame does not end");
    }
    packed[0][0] ^= 1;
    refuse(scratch_write("damaged.zst", packed[0], n[0]), tokenizer, "damaged.zst is damaged: ");
#else
    refuse(scratch_write("rows.jsonl.zst", rows, sizeof rows - 1), tokenizer, "built without libzstd");
#endif
}

/* A small archive that unpacks to a huge text which cannot be split is refused; running it in another process shows that memory
 * is bounded. */
static void test_bomb(void **state)
{
    (void)state;
#ifdef HAVE_ZSTD
    enum { PIECE = 1 << 20, PIECES = 4096 };
    static char zeros[PIECE];
    char *packed = malloc(PIECE);
    ZSTD_CCtx *z = ZSTD_createCCtx();
    ZSTD_outBuffer to = {packed, PIECE, 0};
    for (int i = 0; i < PIECES; i++) {
        ZSTD_inBuffer from = {zeros, PIECE, 0};
        ZSTD_compressStream2(z, &to, &from, i + 1 < PIECES ? ZSTD_e_continue : ZSTD_e_end);
    }
    const char *path = scratch_write("bomb.jsonl.zst", packed, to.pos);
    ZSTD_freeCCtx(z);
    free(packed);
    pid_t child = fork();
    if (child == 0) {
        refuse(path, tokenizer, "bomb.jsonl.zst:1: more than 256 MiB come out of the archive");
        _exit(0);
    }
    int code;
    struct rusage use;
    assert_int_equal(wait4(child, &code, 0, &use), child);
    assert_int_equal(code, 0);
    assert_true(!MEMORY_IS_OURS || use.ru_maxrss < 1200 * 1024l); /* KiB; the archive unpacks to 4 GiB */
#endif
}

/* Returns the peak memory in KiB of a process that tokenizes and packs a corpus, half of which is text and half rows. */
static long peak_of(const char *name, int64_t bytes)
{
    static const char line[] = "In the beginning was the word, and so it went on for 12 days or more.\n";
    char path[64];
    FILE *f;
    snprintf(path, sizeof path, "%s/text", name);
    scratch_mkdir(name);
    f = fopen(scratch_path(path), "w");
    for (int64_t n = 0; n < bytes / 2; n += (int64_t)sizeof line - 1)
        fputs(line, f);
    fclose(f);
    snprintf(path, sizeof path, "%s/rows.jsonl", name);
    f = fopen(scratch_path(path), "w");
    for (int64_t n = 0; n < bytes / 2; n += 1000 * ((int64_t)sizeof line - 2)) { /* rows of 70 KB */
        fputs("{\"text\": \"", f);
        for (int i = 0; i < 1000; i++)
            fprintf(f, "%.*s", (int)sizeof line - 2, line);
        fputs("\"}\n", f);
    }
    fclose(f);
    pid_t child = fork();
    if (child == 0) {
        const char *paths[] = {scratch_path(name)};
        struct corpus_config config = config_of(paths, tokenizer);
        struct corpus *c = NULL;
        config.seq_len = 4096;
        _exit(corpus_open(&config, &c) != OK);
    }
    int code;
    struct rusage use;
    assert_int_equal(wait4(child, &code, 0, &use), child);
    assert_int_equal(code, 0);
    return use.ru_maxrss;
}

/* Memory does not grow with the corpus; bench/perf/corpus.py checks that with gigabytes. */
static void test_memory(void **state)
{
    (void)state;
    enum { MIB = 1024 };
    long small = peak_of("small", 8 << 20), large = peak_of("large", 32 << 20);
    assert_true(!MEMORY_IS_OURS || (small < 160 * MIB && large < 160 * MIB));
    assert_true(!MEMORY_IS_OURS || large - small < 12 * MIB); /* half of the 24 MiB by which the text is larger */
}

/* ---- files of ids ---- */

static const char *write_llmc(const char *name, int32_t magic, int32_t version, int32_t tokens, const void *id, size_t bytes)
{
    char file[LLMC_HEADER * 4 + 4096];
    int32_t header[LLMC_HEADER] = {magic, version, tokens};
    memcpy(file, header, sizeof header);
    memcpy(file + sizeof header, id, bytes);
    return scratch_write(name, file, sizeof header + bytes);
}

static void test_llmc(void **state)
{
    (void)state;
    static struct all got;
    const uint16_t narrow[] = {50256, 5, 6, 7, 50256, 8, 9, 50256, 10};
    const uint32_t wide[] = {128000, 5, 6, 7, 128000, 8, 9, 128000, 10};
    for (int k = 0; k < 2; k++) {
        const char *paths[] = {k ? write_llmc("l3.bin", 20240801, 7, 9, wide, sizeof wide)
                                 : write_llmc("g2.bin", 20240520, 1, 9, narrow, sizeof narrow)};
        struct corpus_config config = config_of(paths, NULL);
        config.vocab = 128256;
        read_with(&config, &got);
        assert_true(got.n == 9 && got.documents == 3 && got.ends[0] == 4 && got.ends[1] == 7);
        assert_true(got.id[4] == (k ? 128000 : 50256) && got.id[8] == 10);
    }
    refuse(scratch_path("g2.bin"), NULL, "g2.bin: token 0 is 50256, and ids of the vocabulary end at 999");
    refuse(write_llmc("v.bin", 20240520, 2, 9, narrow, sizeof narrow), NULL,
           "a file of llm.c of version 2; known are version 1 of 20240520");
    refuse(write_llmc("cut.bin", 20240520, 1, 10, narrow, sizeof narrow), NULL,
           "cut.bin has 1042 bytes, and 10 tokens of 2 bytes");
}

static void test_plain(void **state)
{
    (void)state;
    static struct all got;
    const uint16_t narrow[] = {3, 4, 5, 999};
    const char *paths[] = {scratch_write("plain.bin", narrow, sizeof narrow)};
    struct corpus_config config = config_of(paths, tokenizer);
    refuse(paths[0], tokenizer, "plain.bin has neither llm.c's header nor Megatron's index");
    config.token_bytes = 2;
    config.tokenizer = NULL;
    read_with(&config, &got);
    assert_true(got.n == 4 && got.documents == 1 && got.id[3] == 999);
    config.token_bytes = 4;
    refuse_corpus(&config, "plain.bin: token 0 is 262147, and ids of the vocabulary end at 999");
    scratch_write("plain.bin", narrow, 6);
    refuse_corpus(&config, "plain.bin has 6 bytes, no multiple of 4 (--token-type)");
    scratch_mkdir("mixed");
    scratch_write("mixed/a.bin", narrow, 8);
    scratch_text("mixed/b.txt", "a text");
    paths[0] = scratch_path("mixed");
    config.token_bytes = 2;
    refuse_corpus(&config, "mixed/a.bin holds token ids and ");
    config.tokenizer = tokenizer;
    const uint16_t small[] = {3, 4, 5, 6};
    scratch_write("mixed/a.bin", small, 8);
    read_with(&config, &got);
    assert_int_equal(got.documents, 2);
    assert_memory_equal(got.id, ((int32_t[]){3, 4, 5, 6}), 16);
}

/* Writes two documents: one of two sequences, with 2 and 1 tokens, and one of a sequence with 3 tokens. */
static void write_megatron(const char *name, int type, int width, int64_t damage)
{
    char path[64];
    const int64_t id[] = {1, 2, 3, 4, 5, 6}, offset[] = {0, 2 * width + (damage == 1), 3 * width},
                  document[] = {0, 2, damage == 2 ? 7 : 3};
    const uint64_t header[] = {1, 3, 3};
    const int32_t length[] = {2, 1, 3};
    uint8_t file[200], *at = file;
    for (int i = 0; i < 6; i++)
        memcpy(at + i * width, &id[i], (size_t)width);
    snprintf(path, sizeof path, "%s.bin", name);
    scratch_write(path, file, (size_t)(6 * width) - (damage == 3));
    memcpy(at, "MMIDIDX\0\0", 9);
    memcpy(at + 9, &header[0], 8);
    at[17] = (uint8_t)type;
    memcpy(at + 18, &header[1], 16);
    memcpy(at + 34, length, 12);
    memcpy(at + 46, offset, 24);
    memcpy(at + 70, document, 24);
    snprintf(path, sizeof path, "%s.idx", name);
    scratch_write(path, file, damage == 4 ? 80 : 94);
}

static void test_megatron(void **state)
{
    (void)state;
    static const int type[] = {1, 3, 4, 5, 8}, width[] = {1, 2, 4, 8, 2};
    static struct all got;
    for (int k = 0; k < 5; k++)
        for (int by = 0; by < 2; by++) {
            write_megatron("mg", type[k], width[k], 0);
            read_file(scratch_path(by ? "mg.idx" : "mg.bin"), tokenizer, &got);
            assert_true(got.n == 6 && got.documents == 2 && got.ends[0] == 3 && got.id[0] == 1 && got.id[5] == 6);
        }
    static const char *const says[] = {"mg.idx: sequence 1 is not behind the one before it",
                                       "mg.idx is damaged: document 2 begins at no sequence",
                                       "mg.bin has 23 bytes, and 6 tokens of 4 bytes", "mg.idx is cut off: it has 80 bytes"};
    for (int damage = 1; damage <= 4; damage++) {
        write_megatron("mg", 4, 4, damage);
        refuse(scratch_path("mg.bin"), tokenizer, says[damage - 1]);
    }
    write_megatron("mg", 6, 8, 0);
    refuse(scratch_path("mg.bin"), tokenizer, "mg.idx: its tokens have the type 6, which is none of whole numbers");
    write_megatron("mg", 4, 4, 0);
    unlink(scratch_path("mg.bin"));
    refuse(scratch_path("mg.idx"), tokenizer, "mg.bin, which is not there");
}

static void test_rows_of_ids(void **state)
{
    (void)state;
    static struct all got;
    static const char text[] = "{\"input_ids\": [1, 2, 3, 4], \"labels\": [-100, -100, 3, 4]}\n"
                               "{\"input_ids\": [5, 6, 7], \"loss_mask\": [0, 1, 1], \"attention_mask\": [1, 1, 0]}\n"
                               "{\"input_ids\": [8, 9], \"labels\": null}\n";
    scratch_write("ids.jsonl", text, sizeof text - 1);
    for (int k = 0; k < 2; k++) {
        read_file(scratch_path("ids.jsonl"), k ? tokenizer : NULL, &got);
        assert_true(got.n == 8 && got.documents == 3 && got.ends[0] == 4 && got.ends[1] == 6);
        assert_memory_equal(got.id, ((int32_t[]){-2, -3, 3, 4, -6, 6, 8, 9}), 32);
    }
    static const char *const bad[][2] = {
        {"{\"input_ids\": [1, 2000]}", ":1: place 2 of its input_ids is 2000, and ids of the vocabulary end at 999"},
        {"{\"input_ids\": [1, -1]}", ":1: place 2 of its input_ids is -1"},
        {"{\"input_ids\": [1, 2]}\n{\"input_ids\": [1, 2.5]}", ":2: place 2 of its \"input_ids\" is no whole number"},
        {"{\"input_ids\": [1, 2], \"labels\": [1]}", ":1: its \"labels\" is no list of 2 numbers"},
        {"{\"input_ids\": [1, 2], \"labels\": [2, -100]}",
         ":1: place 1 of its labels is 2; it has to be the id there, 1, or -100"},
        {"{\"input_ids\": [1, 2]}\n{\"text\": \"a\"}", ":2: it has no list \"input_ids\""},
        {"{\"input_ids\": [1, 2]}\n{\"input_ids\": [1,", ":2: broken JSON"},
        {"{\"input_ids\": [1, 2], \"mask\": [0, 0]}", "nothing can be trained"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refuse(scratch_write("bad.jsonl", bad[i][0], strlen(bad[i][0])), NULL, bad[i][1]);
}

/* Whichever system call fails, either there is an error with a message and no file is left, or the result is right. */
static void test_faults(void **state)
{
    (void)state;
    static const enum sys_call calls[] = {SYS_OPEN, SYS_PREAD, SYS_MALLOC};
    scratch_mkdir("faults");
#ifdef HAVE_ZLIB
    write_gzip("faults/rows.jsonl.gz", "w", rows, sizeof rows - 1);
#endif
    write_megatron("faults/m", 4, 4, 0);
    static const char ids[] = "{\"input_ids\": [1, 2, 3]}\n";
    scratch_write("faults/ids.jsonl", ids, sizeof ids - 1);
    const char *paths[] = {scratch_path("faults")};
    struct corpus_config config = config_of(paths, tokenizer);
    for (size_t k = 0; k < sizeof calls / sizeof *calls; k++)
        for (int nth = 1, done = 0; !done; nth++) {
            struct corpus *c = NULL;
            char forgotten[300];
            snprintf(forgotten, sizeof forgotten, "%s/none %d", cache,
                     nth); /* a new directory each time, so that no tokens are taken from the cache */
            config.cache = forgotten;
            long before = sys_count(calls[k]);
            sys_inject(calls[k], nth, EIO);
            enum status st = corpus_open(&config, &c);
            done = sys_count(calls[k]) - before < nth;
            sys_inject_clear();
            assert_true(st == OK || (status_message()[0] && c == NULL));
            corpus_close(c);
        }
}

/* ---- files that are not read ---- */

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *name, *bytes;
        size_t n; /* 0: up to the file's end */
        const char *says;
    } files[] = {
        {"x.feather", "ARROW1..", 8, "is an Arrow file, which is not read as it is: python3 -c"},
        {"x.arrow", "\377\377\377\377....", 8, "is an Arrow stream"},
        {"x.npy", "\223NUMPY..", 8, "is a NumPy array"},
        {"x.zip", "PK\003\004....", 8, "is a ZIP archive"},
        {"x.xz", "\3757zXZ\0..", 8, "is compressed by xz"},
        {"list.json", "[\n  {\"instruction\": \"a\", \"output\": \"b\"}]", 0,
         "list.json is a JSON list; rows are read one a line, of files named .jsonl: jq -c"},
        {"rows.json", "{\"text\": \"a\"}\n{\"text\": \"b\"}", 0,
         "rows.json holds rows, which are read of files named .jsonl: mv '"},
        {"table.csv", "text,label\nfirst,1\n", 0,
         "table.csv is a table, and rows are read of files named .jsonl: python3 -c \"import pandas; pandas.read_csv('"},
        {"x.txt", "", 0, "all files are empty"},
        {"one.jsonl", "{\"text\": \"\"}", 0, "nothing can be trained"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        refuse(scratch_write(files[i].name, files[i].bytes, files[i].n ? files[i].n : strlen(files[i].bytes)), tokenizer,
               files[i].says);
    static struct all got;
    read_file(scratch_text("package.json", "{\n  \"name\": \"a text as others\",\n  \"text\": 1\n}"), tokenizer, &got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gzip),        cmocka_unit_test(test_zstd),     cmocka_unit_test(test_bomb),
        cmocka_unit_test(test_llmc),        cmocka_unit_test(test_plain),    cmocka_unit_test(test_megatron),
        cmocka_unit_test(test_rows_of_ids), cmocka_unit_test(test_refusals), cmocka_unit_test(test_memory),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
