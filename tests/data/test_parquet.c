/* Tests that rows of Parquet files are those of the same rows as .jsonl, and every way in which such files may be damaged. */
#include "base/sys.h"
#include "build_config.h"
#include "data/input.h"
#include "data/lines.h"
#include "data/stream.h"
#include "parquet/delta.h"
#include "parquet/schema.h"
#include "tokenized.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/resource.h>
#include <sys/wait.h>

#ifdef __SANITIZE_ADDRESS__
#define MEMORY_IS_OURS 0 /* 0: memory cannot be measured, since sanitizers keep freed memory for a while */
#else
#define MEMORY_IS_OURS 1
#endif

/* Conversations, as files of each codec, both forms of pages, and each encoding of texts. */
static const char *const chats[] = {
    "chats-none-1-plain.parquet",   "chats-none-2-dictionary.parquet", "chats-snappy-1-dictionary.parquet",
    "chats-snappy-2-delta.parquet", "chats-gzip-2-dictionary.parquet", "chats-zstd-1-delta.parquet",
    "chats-lz4-1-plain.parquet",    "chats-lz4-2-delta.parquet",       "chats-brotli-2-dictionary.parquet"};
static const char *const ids[] = {"ids-plain.parquet", "ids-delta.parquet", "ids-byte.parquet", "ids-dictionary.parquet"};

enum { LARGEST = 1 << 16 };

static const char *golden(const char *name)
{
    static char path[4][600];
    static int next;
    const char *root = getenv("LTRAIN_SOURCE_ROOT");
    char *p = path[next++ % 4];
    snprintf(p, sizeof path[0], "%s/tests/golden/parquet/%s", root ? root : ".", name);
    return p;
}

/* Tells whether this program can decompress the file; the codec stands in its name. */
static int can_read(const char *name)
{
#ifndef HAVE_ZLIB
    if (strstr(name, "gzip"))
        return 0;
#endif
#ifndef HAVE_ZSTD
    if (strstr(name, "zstd") || strcmp(name, "types-2.parquet") == 0 || strncmp(name, "ids-", 4) == 0)
        return strcmp(name, "ids-dictionary.parquet") == 0;
#endif
    return !strstr(name, "brotli") || dlopen("libbrotlidec.so.1", RTLD_NOW);
}

/* Reads all that comes out of a file; *n: number of bytes. */
static enum status read_all(const char *path, char *to, size_t room, size_t *n)
{
    struct input *in;
    TRY(input_open(path, NULL, &in));
    enum status st = input_read(in, (uint8_t *)to, room - 1, n);
    input_close(in);
    to[st == OK ? *n : 0] = 0;
    return st;
}

/* Checks that the rows of a file are those of a .jsonl. */
static void check_rows(const char *name, const char *jsonl)
{
    static char got[LARGEST], want[LARGEST];
    size_t n;
    if (!can_read(name))
        return;
    if (read_all(golden(name), got, sizeof got, &n) != OK)
        fail_msg("%s: %s", name, status_message());
    assert_int_equal(read_all(golden(jsonl), want, sizeof want, &n), OK);
    char *a = got, *b = want;
    for (int line = 1; *a || *b; line++) {
        json_error_t error;
        json_t *x = json_loads(a, JSON_DISABLE_EOF_CHECK | JSON_REJECT_DUPLICATES, &error),
               *y = json_loads(b, JSON_DISABLE_EOF_CHECK, NULL);
        if (!x || !json_equal(x, y))
            fail_msg("%s:%d: %.300s", name, line, a);
        json_decref(x);
        json_decref(y);
        a = strchr(a, '\n') + 1;
        b = strchr(b, '\n') + 1;
    }
}

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof chats / sizeof *chats; i++)
        check_rows(chats[i], "chats.jsonl");
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        check_rows(ids[i], "ids.jsonl");
    check_rows("types.parquet", "types.jsonl");
    check_rows("types-2.parquet", "types.jsonl");
    /* a shard that has a group of rows without rows */
    char none[8];
    size_t n;
    assert_int_equal(read_all(golden("empty.parquet"), none, sizeof none, &n), OK);
    assert_int_equal(n, 0);
}

/* ---- tokens ---- */

/* All tokens of a file in order, as negative numbers if not trained, and the ends of documents. */
struct all {
    int32_t id[40000];
    int64_t n, ends[2000], documents;
};

static struct corpus_config config_of(const char *const *path, const struct chat_setup *setup)
{
    return (struct corpus_config){.paths = path,
                                  .n_paths = 1,
                                  .seq_len = 32,
                                  .vocab = 1000,
                                  .tokenizer = tokenizer,
                                  .chats = setup,
                                  .cache = cache,
                                  .threads = 2};
}

static void read_file(const char *path, struct all *out)
{
    static const char source[] = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.tool_calls %}"
                                 "{{ m.tool_calls | tojson }}{% endif %}</end>{% endfor %}";
    struct chat_template *t = NULL;
    int32_t next;
    assert_int_equal(chat_template_parse(source, strlen(source), "t", &t), OK);
    struct chat_setup setup = {.chat_template = t};
    struct corpus_config config = config_of(&path, &setup);
    struct corpus *c = open_corpus(&config);
    const struct stream *s = corpus_get_source(c, 0).documents;
    memset(out, 0, sizeof *out);
    out->n = stream_tokens(s);
    out->documents = stream_documents(s);
    assert_in_range(out->n, 1, sizeof out->id / sizeof *out->id);
    assert_int_equal(stream_read(s, 0, out->n, out->id, &next), OK);
    for (int64_t i = 0; i < out->documents; i++)
        out->ends[i] = stream_end(s, i);
    corpus_close(c);
    chat_template_destroy(t);
}

static void check_tokens(const char *const *names, size_t n, const char *jsonl)
{
    static struct all got, want;
    int untrained = 0;
    read_file(golden(jsonl), &want);
    for (int64_t i = 0; i < want.n; i++)
        untrained += want.id[i] < 0;
    assert_true(untrained > 0 && untrained < want.n);
    for (size_t i = 0; i < n; i++)
        if (can_read(names[i])) {
            read_file(golden(names[i]), &got);
            assert_memory_equal(&got, &want, sizeof got);
        }
}

static void test_tokens(void **state)
{
    (void)state;
    check_tokens(chats, sizeof chats / sizeof *chats, "chats.jsonl");
    check_tokens(ids, sizeof ids / sizeof *ids, "ids.jsonl");
}

static void copy(const char *name, const char *to)
{
    static char bytes[LARGEST];
    FILE *f = fopen(golden(name), "rb");
    const size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    scratch_write(to, bytes, n);
}

/* The shards of a directory are read in the order of their names, and one may be left out. */
static void test_shards(void **state)
{
    (void)state;
    static struct all got, one;
    scratch_mkdir("shards");
    copy("types.parquet", "shards/train-00000-of-00002.parquet");
    copy("types.parquet", "shards/train-00001-of-00002.parquet");
    read_file(scratch_path("shards"), &got);
    read_file(scratch_path("shards/train-00001-of-00002.parquet"), &one);
    assert_int_equal(got.n, 2 * one.n);
    assert_int_equal(got.documents, 2 * one.documents);
    assert_memory_equal(got.id, one.id, (size_t)one.n * sizeof *one.id);
    assert_memory_equal(got.id + one.n, one.id, (size_t)one.n * sizeof *one.id);
}

/* Names in capitals, as some systems write them, are names of rows, too. */
static void test_capitals(void **state)
{
    (void)state;
    static struct all got, want;
    copy("types.parquet", "ROWS.PARQUET");
    read_file(golden("types.parquet"), &want);
    read_file(scratch_path("ROWS.PARQUET"), &got);
    assert_memory_equal(&got, &want, sizeof got);
}

/* Columns that nobody asks for are left out, and their pages are not read. */
static void test_columns(void **state)
{
    (void)state;
    static char got[LARGEST];
    char want[200] = "";
    size_t n;
    int reads[2];
    struct input *in;
    for (int selects = 0; selects < 2; selects++) {
        const int before = sys_count(SYS_PREAD);
        assert_int_equal(input_open(golden("types.parquet"), NULL, &in), OK);
        if (selects)
            lines_select(in, LINES_TEXT, NULL);
        assert_int_equal(input_read(in, (uint8_t *)got, sizeof got, &n), OK);
        input_close(in);
        reads[selects] = sys_count(SYS_PREAD) - before;
    }
    for (int i = 0; i < 9; i++)
        snprintf(want + strlen(want), sizeof want - strlen(want), "{\"text\":\"row %d\"}\n", i);
    assert_int_equal(n, strlen(want));
    assert_memory_equal(got, want, n);
    if (reads[1] * 4 > reads[0])
        fail_msg("%d reads of %d", reads[1], reads[0]);
}

/* A map that has keys alone, a set, is a column that is not read: it hinders nobody who does not ask for it. */
static void test_sets(void **state)
{
    (void)state;
    struct footer_element all[] = {
        {.name = "rows", .stored = PARQUET_GROUP, .children = 1},
        {.name = "tags", .stored = PARQUET_GROUP, .meaning = MEANS_MAP, .repetition = PARQUET_OPTIONAL, .children = 1},
        {.name = "key_value", .stored = PARQUET_GROUP, .repetition = PARQUET_REPEATED, .children = 1},
        {.name = "key", .stored = PARQUET_BYTES, .meaning = MEANS_TEXT},
        {.name = "value", .stored = PARQUET_BYTES, .meaning = MEANS_TEXT}};
    struct schema made;
    char name[40];
    assert_int_equal(schema_make("f", &(struct footer){.element = all, .n_elements = 4, .n_leaves = 1}, &made), OK);
    assert_string_equal(schema_unread(made.nodes->child, name, sizeof name), "a map without values");
    assert_string_equal(name, "tags");
    schema_free(&made);
    all[2].children = 2;
    assert_int_equal(schema_make("f", &(struct footer){.element = all, .n_elements = 5, .n_leaves = 2}, &made), OK);
    assert_null(schema_unread(made.nodes->child, name, sizeof name));
    schema_free(&made);
    all[2].children = 3;
    assert_int_equal(schema_make("f", &(struct footer){.element = all, .n_elements = 5, .n_leaves = 2}, &made), ERR_INVALID);
}

/* A block of 4 KiB that says that it has 2^32 differences, all of them the same, is passed over at once. */
static void test_many_differences(void **state)
{
    (void)state;
    enum { MINIS = 4096 };
    static const uint8_t header[] = {0x80,
                                     0x80,
                                     0x80,
                                     0x80,
                                     0x10 /* numbers of a block */,
                                     0x80,
                                     0x20 /* its miniblocks */,
                                     0x81,
                                     0x80,
                                     0x80,
                                     0x80,
                                     0x10 /* all numbers */,
                                     6 /* the first one, 3 */,
                                     4 /* least, 2 */};
    static uint8_t text[sizeof header + MINIS];
    struct delta d;
    int64_t x;
    memcpy(text, header, sizeof header);
    assert_true(delta_begin(&d, text, sizeof text));
    assert_int_equal(d.left, (1LL << 32) + 1);
    assert_ptr_equal(delta_end(&d), text + sizeof text);
    for (int i = 0; i < 1000; i++) {
        assert_true(delta_next(&d, &x));
        assert_int_equal(x, 3 + 2 * i);
    }
    assert_true(delta_begin(&d, text, sizeof text - 1));
    assert_null(delta_end(&d));
}

/* ---- what is refused ---- */

static void refuse(const char *path, const char *part)
{
    struct chat_setup setup = {.missing = "because"};
    struct corpus_config config = config_of(&path, &setup);
    refuse_corpus(&config, part);
}

static void test_refusals(void **state)
{
    (void)state;
    refuse(golden("time.parquet"), "time.parquet: its column text is a timestamp, which is not read");
    refuse(golden("nested-time.parquet"), "nested-time.parquet: its column messages.at is a timestamp, which is not read");
    refuse(scratch_text("a.parquet", "{\"text\": \"a\"}\n"), "a.parquet is no Parquet file: it does not begin with PAR1");
    refuse(scratch_text("b.parquet", "PAR"), "b.parquet is no Parquet file: it has 3 bytes");
    refuse(scratch_text("c.parquet", "PAR1PAR1"), "c.parquet is cut off, or was not written to its end");
    refuse(scratch_text("d.parquet", "PAR1PAR1zzzPAR1"), "d.parquet is damaged: its footer has ");
    refuse(scratch_write("e.parquet", "PAR1\0\0\0\0PARE", 12), "e.parquet is encrypted");
    refuse(scratch_text("f.pq", "PAR1...."), "is a Parquet file and not named .parquet, which is not read as it is: mv ");
    const char *path = golden("types.parquet");
    struct corpus_config config = config_of(&path, NULL);
    config.column = "price";
    refuse_corpus(&config, "its column price is a decimal number");
    config.column = "absent";
    refuse_corpus(&config, "types.parquet:1: it has no \"absent\"");
    config.tokenizer = NULL;
    refuse_corpus(&config, "types.parquet has texts or chats, of which --tokenizer DIR makes tokens");
}

/* Reads a damaged file; if it is refused, then by its name. */
static int is_refused(const char *name, const char *bytes, size_t n)
{
    static char got[LARGEST];
    size_t ignored;
    const char *path = scratch_write(name, bytes, n);
    const enum status st = read_all(path, got, sizeof got, &ignored);
    if (st != OK && (st != ERR_INVALID || !strstr(status_message(), name)))
        fail_msg("%s", status_message());
    return st != OK;
}

/* A file that is cut off anywhere is refused; one with other bits anywhere is refused or read, and nothing else happens. */
static void test_damage(void **state)
{
    (void)state;
    static const char *const names[] = {"chats-snappy-1-dictionary.parquet", "chats-lz4-2-delta.parquet", "types-2.parquet",
                                        "ids-delta.parquet", "types.parquet"};
    static char bytes[LARGEST];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!can_read(names[i]))
            continue;
        FILE *f = fopen(golden(names[i]), "rb");
        const size_t n = fread(bytes, 1, sizeof bytes, f);
        int flips = 0;
        fclose(f);
        for (size_t cut = 0; cut < n; cut += 1 + cut / 16)
            assert_true(is_refused("cut.parquet", bytes, cut));
        for (size_t at = 0; at < n; at += 3) {
            bytes[at] ^= (char)(1 << at / 3 % 8);
            flips += is_refused("flipped.parquet", bytes, n);
            bytes[at] ^= (char)(1 << at / 3 % 8);
        }
        assert_true(flips > (int)n / 30);
    }
}

#ifdef HAVE_ZLIB
/* Each byte of a page with a checksum counts. */
static void test_checksums(void **state)
{
    (void)state;
    static char bytes[LARGEST];
    FILE *f = fopen(golden("chats-lz4-2-delta.parquet"), "rb");
    const size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    char *name = memmem(bytes, n, "look", 4); /* within a page's values */
    assert_non_null(name);
    *name ^= 1;
    assert_true(is_refused("sum.parquet", bytes, n));
    assert_non_null(strstr(status_message(), "a page's bytes have another checksum"));
}
#endif

/* Whichever call fails, there is an error with a message, or the rows are right. */
static void test_faults(void **state)
{
    (void)state;
    static const enum sys_call calls[] = {SYS_OPEN, SYS_PREAD, SYS_MALLOC};
    static char got[LARGEST], want[LARGEST];
    size_t n, m;
    const char *path = golden("chats-snappy-2-delta.parquet");
    assert_int_equal(read_all(path, want, sizeof want, &m), OK);
    for (size_t k = 0; k < sizeof calls / sizeof *calls; k++)
        for (int nth = 1, done = 0; !done; nth++) {
            const long before = sys_count(calls[k]);
            sys_inject(calls[k], nth, EIO);
            const enum status st = read_all(path, got, sizeof got, &n);
            done = sys_count(calls[k]) - before < nth;
            sys_inject_clear();
            assert_true(st == OK ? n == m && memcmp(got, want, n) == 0 : status_message()[0] != 0);
        }
}

#ifdef HAVE_ZSTD
/* Memory does not grow with a group of rows: 65,536 rows of 1 KB are one. */
static void test_memory(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        static uint8_t piece[1 << 16];
        struct input *in;
        size_t got = sizeof piece, all = 0;
        assert_int_equal(input_open(golden("long.parquet"), NULL, &in), OK);
        for (; got == sizeof piece; all += got)
            assert_int_equal(input_read(in, piece, sizeof piece, &got), OK);
        input_close(in);
        _exit(all > (size_t)64 << 20 ? 0 : 1);
    }
    int code;
    struct rusage before, use;
    getrusage(RUSAGE_SELF, &before);
    assert_int_equal(wait4(child, &code, 0, &use), child);
    assert_int_equal(code, 0);
    assert_true(!MEMORY_IS_OURS || use.ru_maxrss < before.ru_maxrss + 16 * 1024l); /* KiB */
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),      cmocka_unit_test(test_columns),
        cmocka_unit_test(test_tokens),    cmocka_unit_test(test_shards),
        cmocka_unit_test(test_refusals),  cmocka_unit_test(test_damage),
        cmocka_unit_test(test_faults),    cmocka_unit_test(test_capitals),
        cmocka_unit_test(test_sets),      cmocka_unit_test(test_many_differences),
#ifdef HAVE_ZLIB
        cmocka_unit_test(test_checksums),
#endif
#ifdef HAVE_ZSTD
        cmocka_unit_test(test_memory),
#endif
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
