/* Tests documents, packing, counts, the held-out split and the order of sequences. */
#include "base/disk.h"
#include "base/sys.h"
#include "corpora.h"
#include "data/fingerprint.h"
#include "scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/mman.h>
#include <sys/statfs.h>

enum { MAX_SEQ = 64 };

struct arrays {
    int32_t tokens[MAX_SEQ], targets[MAX_SEQ], positions[MAX_SEQ], lo[MAX_SEQ], hi[MAX_SEQ];
};

static struct sequence sequence_of(struct arrays *a)
{
    return (struct sequence){.tokens = a->tokens, .targets = a->targets, .positions = a->positions, .lo = a->lo, .hi = a->hi};
}

static struct corpus_config config_of(const char *const *paths, int n, int64_t seq_len)
{
    return (struct corpus_config){.paths = paths, .n_paths = n, .seq_len = seq_len, .vocab = 256, .seed = 1};
}

/* Takes the training sequence that begins with first_token, in a corpus whose bytes are all different. */
static void take(struct corpus *c, int first_token, struct arrays *a, struct sequence *s)
{
    *s = sequence_of(a);
    for (int64_t i = 0; i < corpus_get_report(c)->train_sequences; i++) {
        assert_int_equal(corpus_train_sequence(c, (uint64_t)i, s), OK);
        if (a->tokens[0] == first_token)
            return;
    }
    fail_msg("no sequence starts with %d", first_token);
}

/* Documents a: 0..9, b: 10..12, c: 13, d: empty, e: 14..24. Sequences of 8 tokens: [0..7] [8..15] [16..23]; token 24 is dropped. */
static void five_documents(void)
{
    unsigned char bytes[25];
    for (int i = 0; i < 25; i++)
        bytes[i] = (unsigned char)i;
    scratch_mkdir("five");
    scratch_mkdir("five/sub");
    scratch_write("five/a", bytes, 10);
    scratch_write("five/b", bytes + 10, 3);
    scratch_write("five/sub/a", bytes + 13, 1);
    scratch_write("five/sub/d", bytes, 0);
    scratch_write("five/sub/e", bytes + 14, 11);
    scratch_write("five/.hidden", bytes, 5);
    scratch_mkdir("five/.git");
    scratch_write("five/.git/x", bytes, 5);
}

static void test_packing(void **state)
{
    (void)state;
    five_documents();
    const char *paths[] = {scratch_path("five")};
    struct corpus_config config = config_of(paths, 1, 8);
    struct corpus *c = open_corpus(&config);
    const struct corpus_report *r = corpus_get_report(c);
    assert_true(r->documents == 4 && r->bytes == 25 && r->packed.tokens_kept == 24 && r->packed.tokens_dropped == 1);
    assert_true(r->packed.documents_split == 2 && r->train_sequences == 3 && r->eval_sequences == 0);
    assert_true(fabs(r->unigram_entropy - log(24.0)) < 1e-12);

    struct arrays a;
    struct sequence s;
    take(c, 0, &a, &s); /* the sequence lies inside one document; its last target is a token of the next sequence */
    for (int i = 0; i < 8; i++)
        assert_true(a.tokens[i] == i && a.targets[i] == i + 1 && a.positions[i] == i && a.lo[i] == 0 && a.hi[i] == i);
    assert_true(s.n_targets == 8 && s.pairs == 36.0);

    static const int32_t targets[] = {9, -1, 11, 12, -1, -1, 15, 16}, positions[] = {0, 1, 0, 1, 2, 0, 0, 1},
                         lo[] = {0, 0, 2, 2, 2, 5, 6, 6};
    take(c, 8, &a, &s); /* contains the end of a, all of b and sub/a, and the start of sub/e */
    for (int i = 0; i < 8; i++)
        assert_true(a.tokens[i] == 8 + i && a.targets[i] == targets[i] && a.positions[i] == positions[i] && a.lo[i] == lo[i] &&
                    a.hi[i] == i);
    assert_true(s.n_targets == 5 && s.pairs == 3.0 + 6.0 + 1.0 + 3.0);

    take(c, 16, &a, &s); /* the last token's target is in the tail that is dropped */
    assert_true(a.targets[7] == 24 && s.n_targets == 8 && a.positions[0] == 0);
    corpus_close(c);

    config.seq_len = 25; /* the last sequence ends exactly where the data end */
    c = open_corpus(&config);
    take(c, 0, &a, &s);
    assert_true(a.targets[24] == -1 && s.n_targets == 21 && corpus_get_report(c)->packed.tokens_dropped == 0);
    corpus_close(c);
    config.seq_len = 1;
    c = open_corpus(&config);
    take(c, 9, &a, &s);
    assert_true(a.targets[0] == -1 && s.n_targets == 0 && s.pairs == 1.0);
    assert_true(corpus_get_report(c)->packed.documents_split == 3);
    corpus_close(c);
}

static void test_windows(void **state)
{
    (void)state;
    const char *paths[] = {scratch_path("five")};
    struct corpus_config config = config_of(paths, 1, 24);
    for (int64_t window = 0; window <= 30; window++) {
        config.window = window;
        struct corpus *c = open_corpus(&config);
        struct arrays a;
        struct sequence s;
        take(c, 0, &a, &s);
        double pairs = 0;
        for (int i = 0; i < 24; i++) {
            int start = i < 10 ? 0 : i < 13 ? 10 : i < 14 ? 13 : 14, first = window ? i - (int)window + 1 : 0;
            assert_int_equal(a.lo[i], first > start ? first : start);
            assert_int_equal(a.hi[i], i);
            assert_int_equal(a.positions[i], i - start); /* positions are those without a window */
            pairs += i - a.lo[i] + 1;
        }
        assert_true(s.pairs == pairs);
        corpus_close(c);
    }
    config.window = -1;
    refuse_corpus(&config, "a sliding window of -1 keys");
}

static void test_spellings(void **state)
{
    (void)state;
    char dotted[256], sub_up[256];
    const char *direct = scratch_path("five"), *slash = scratch_path("five/"), *star = scratch_path("five/*");
    snprintf(dotted, sizeof dotted, "%s/./five", scratch);
    snprintf(sub_up, sizeof sub_up, "%s/five/sub/../a", scratch);
    assert_int_equal(symlink(direct, scratch_path("link")), 0);
    const char *lists[][3] = {{direct},
                              {slash},
                              {dotted},
                              {star},
                              {star, sub_up, direct},
                              {scratch_path("link")},
                              {scratch_path("five/sub"), scratch_path("five/[ab]")}};
    static const int lengths[] = {1, 1, 1, 1, 3, 1, 2};
    struct arrays first = {0}, a = {0};
    for (int i = 0; i < 7; i++) {
        struct corpus_config config = config_of(lists[i], lengths[i], 8);
        struct corpus *c = open_corpus(&config);
        struct sequence s = sequence_of(i ? &a : &first);
        assert_true(corpus_get_report(c)->bytes == 25);
        assert_int_equal(corpus_train_sequence(c, 1, &s), OK);
        if (i)
            assert_memory_equal(&a, &first, sizeof a);
        corpus_close(c);
    }
    /* relative */
    char before[4096];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(scratch), 0);
    const char *relative[] = {"five"};
    struct corpus_config config = config_of(relative, 1, 8);
    struct corpus *c = open_corpus(&config);
    assert_int_equal(chdir(before), 0);
    struct sequence s = sequence_of(&a);
    assert_int_equal(corpus_train_sequence(c, 1, &s), OK); /* files can still be read after the working directory has changed */
    assert_memory_equal(&a, &first, sizeof a);
    corpus_close(c);
}

static void test_order(void **state)
{
    (void)state;
    unsigned char bytes[200];
    for (int i = 0; i < 200; i++)
        bytes[i] = (unsigned char)i;
    const char *paths[] = {scratch_write("order", bytes, 200)};
    for (int n = 1; n <= 200; n += n < 20 ? 1 : 60) {
        struct corpus_config config = config_of(paths, 1, 200 / n);
        if (config.seq_len > MAX_SEQ)
            continue;
        struct corpus *c = open_corpus(&config);
        int64_t sequences = corpus_get_report(c)->train_sequences;
        struct arrays a;
        struct sequence s = sequence_of(&a);
        int order[2][200], same = 0, in_place = 0;
        for (int epoch = 0; epoch < 2; epoch++) {
            int seen[200] = {0};
            for (int64_t i = 0; i < sequences; i++) {
                assert_int_equal(corpus_train_sequence(c, (uint64_t)(epoch * sequences + i), &s), OK);
                order[epoch][i] = a.tokens[0];
                assert_int_equal(seen[a.tokens[0]]++, 0);
                in_place += a.tokens[0] == i * config.seq_len;
            }
        }
        for (int64_t i = 0; i < sequences; i++)
            same += order[0][i] == order[1][i];
        if (sequences > 30) /* for random permutations, both counts are 1 per epoch on average */
            assert_true(same < 8 && in_place < 16);
        corpus_close(c);

        struct corpus *again = open_corpus(&config);
        config.seed = 2;
        struct corpus *other = open_corpus(&config);
        int differs = 0;
        /* only the cursor determines a sequence, whatever the order in which sequences are requested */
        for (int64_t i = sequences; i-- > 0;) {
            assert_int_equal(corpus_train_sequence(again, (uint64_t)i, &s), OK);
            assert_int_equal(a.tokens[0], order[0][i]);
            assert_int_equal(corpus_train_sequence(other, (uint64_t)i, &s), OK);
            differs += a.tokens[0] != order[0][i];
        }
        if (sequences > 30)
            assert_true(differs > sequences / 2);
        corpus_close(again);
        corpus_close(other);
    }
}

static void test_eval_split(void **state)
{
    (void)state;
    unsigned char bytes[200];
    for (int i = 0; i < 200; i++)
        bytes[i] = (unsigned char)i;
    const char *paths[] = {scratch_write("split", bytes, 200)}, *five[] = {scratch_path("five")};
    struct corpus_config config = config_of(paths, 1, 9); /* 22 sequences, 2 tokens dropped */
    config.eval_fraction = 0.25;
    struct corpus *c = open_corpus(&config);
    const struct corpus_report *r = corpus_get_report(c);
    assert_true(r->train_sequences == 17 && r->eval_sequences == 5 && r->packed.tokens_kept == 198 &&
                r->packed.tokens_dropped == 2 && r->bytes == 200);
    assert_true(fabs(r->unigram_entropy - log(17.0 * 9.0)) < 1e-12);
    struct arrays a;
    struct sequence s = sequence_of(&a);
    int ends = 0;
    for (uint64_t i = 0; i < 17; i++) { /* no held-out token is an input or a target of training */
        assert_int_equal(corpus_train_sequence(c, i, &s), OK);
        for (int j = 0; j < 9; j++)
            assert_true(a.tokens[j] < 17 * 9 && a.targets[j] < 17 * 9);
        ends += a.targets[8] == -1;
    }
    assert_int_equal(ends, 1);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(corpus_eval_sequence(c, i, &s), OK);
        assert_true(a.tokens[0] == (17 + i) * 9 && a.targets[8] == (18 + i) * 9);
    }
    assert_int_equal(corpus_eval_sequence(c, 5, &s), ERR_INVALID);
    assert_int_equal(corpus_eval_sequence(c, -1, &s), ERR_INVALID);
    corpus_close(c);

    config.eval_fraction = 0.001; /* at least one sequence is held out */
    c = open_corpus(&config);
    assert_true(corpus_get_report(c)->eval_sequences == 1);
    corpus_close(c);

    config.eval_fraction = 0; /* evaluation uses other files */
    config.eval_paths = five;
    config.n_eval_paths = 1;
    c = open_corpus(&config);
    r = corpus_get_report(c);
    assert_true(r->train_sequences == 22 && r->eval_sequences == 2 && r->documents == 5 && r->bytes == 225);
    assert_true(r->packed.tokens_kept + r->packed.tokens_dropped == r->bytes);
    assert_int_equal(corpus_eval_sequence(c, 1, &s), OK);
    assert_true(a.tokens[0] == 9 && a.targets[0] == -1 && a.lo[1] == 1);
    corpus_close(c);
    config.eval_fraction = 0.5;
    refuse_corpus(&config, "give one of them");
    config.eval_fraction = 0;
    config.seq_len = 26;
    refuse_corpus(&config, "--eval-data: all files together have 25 tokens and a sequence needs 26 (--seq-len)");
}

/* The held-out part stays the same at every length, and shorter sequences have the same tokens. */
static void other_lengths(enum packing_kind packing)
{
    unsigned char bytes[200];
    for (int i = 0; i < 200; i++)
        bytes[i] = (unsigned char)i;
    const char *paths[] = {scratch_write("lengths", bytes, 200)};
    struct corpus_config config = config_of(paths, 1, 20); /* 10 sequences */
    config.eval_fraction = 0.3;
    config.packing = packing;
    struct corpus *c = open_corpus(&config);
    const struct corpus_report *r = corpus_get_report(c);
    const double entropy = r->unigram_entropy;
    struct arrays a;
    struct sequence s = sequence_of(&a);
    static const int lengths[] = {20, 7, 20, 3};
    const int rest = packing == PACKING_BEST_FIT; /* 1: a sequence that is not full is padded; 0: it is dropped */
    assert_int_equal(corpus_keep(c, 2), OK);
    for (int k = 0; k < 4; k++) {
        const int n = lengths[k], trained = (140 + rest * (n - 1)) / n, held_out = (60 + rest * (n - 1)) / n;
        uint8_t seen[200] = {0};
        int tokens = 0;
        assert_int_equal(corpus_cut(c, n), OK);
        assert_true(corpus_get_length(c) == n && r->train_sequences == trained && r->eval_sequences == held_out);
        assert_true(r->bytes == 200 && r->packed.tokens_kept + r->packed.tokens_dropped == 200 && r->unigram_entropy == entropy);
        for (int i = 0; i < trained + held_out; i++) {
            assert_int_equal(i < trained ? corpus_train_sequence(c, (uint64_t)i, &s) : corpus_eval_sequence(c, i - trained, &s),
                             OK);
            for (int j = 0; j < s.n_tokens; j++) {
                assert_true((a.tokens[j] < 140) == (i < trained) && !seen[a.tokens[j]]);
                assert_true(a.targets[j] == -1 || (a.targets[j] == a.tokens[j] + 1 && (a.targets[j] < 140) == (i < trained)));
                seen[a.tokens[j]] = 1;
                tokens++;
            }
        }
        assert_int_equal(tokens, r->packed.tokens_kept);
    }
    corpus_close(c);
}

static void test_other_lengths(void **state)
{
    (void)state;
    other_lengths(PACKING_CONCAT);
    other_lengths(PACKING_BEST_FIT);
}

static void test_directories_with_others(void **state)
{
    (void)state;
    scratch_mkdir("mixed");
    scratch_text("mixed/text", "a text that is long enough");
    const char *fifo = scratch_path("mixed/fifo"), *mixed[] = {scratch_path("mixed")};
    struct corpus_config config = config_of(mixed, 1, 8);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    refuse_corpus(&config, "/mixed/fifo: it is a FIFO, not a regular file");
    assert_int_equal(unlink(fifo) + symlink("nowhere", fifo), 0);
    refuse_corpus(&config, "/mixed/fifo: it is a link to 'nowhere', which is not there: remove it");
}

/* `**` stands for any number of directories, also none, but never for a hidden directory. */
static void test_deep_patterns(void **state)
{
    (void)state;
    static const char *const files[] = {"deep/a.c", "deep/b.txt", "deep/x/c.c", "deep/x/y/d.c", "deep/.git/e.c"};
    scratch_mkdir("deep");
    scratch_mkdir("deep/x");
    scratch_mkdir("deep/x/y");
    scratch_mkdir("deep/.git");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        scratch_text(files[i], "int x;\n");
    assert_int_equal(symlink("nowhere", scratch_path("deep/link.txt")),
                     0); /* a dangling link whose name does not match the pattern */
    const char *all[] = {scratch_path("deep/**/*.c")}, *none[] = {scratch_path("deep/**/*.h")},
               *odd[] = {scratch_path("deep/**/y/*.c")};
    const char *absent[] = {scratch_path("nowhere/**/*.c")};
    struct corpus_config config = config_of(all, 1, 4);
    struct corpus *c = open_corpus(&config);
    assert_int_equal(corpus_get_report(c)->documents, 3);
    corpus_close(c);
    config = config_of(none, 1, 4);
    refuse_corpus(&config, "deep/**/*.h: nothing matches it");
    config = config_of(odd, 1, 4);
    refuse_corpus(&config, "`**` stands between a directory and the pattern of a name");
    config = config_of(absent, 1, 4);
    refuse_corpus(&config, "/nowhere/: no such directory");
}

static void test_refusals(void **state)
{
    (void)state;
    const char *five[] = {scratch_path("five")}, *missing[] = {scratch_path("five"), scratch_path("absent.txt")};
    const char *glob_none[] = {scratch_path("five/*.txt")}, *empty[] = {scratch_path("five/sub/d")}, *device[] = {"/dev/null"};
    scratch_mkdir("nothing");
    const char *no_files[] = {scratch_path("nothing")};
    struct corpus_config config = config_of(missing, 2, 8);
    refuse_corpus(&config, "--data: ");
    refuse_corpus(&config, "absent.txt: no such file");
    config = config_of(glob_none, 1, 8);
    refuse_corpus(&config, "*.txt");
    config = config_of(empty, 1, 8);
    refuse_corpus(&config, "all files are empty");
    config = config_of(no_files, 1, 8);
    refuse_corpus(&config, "has no files");
    config = config_of(device, 1, 8);
    refuse_corpus(&config, "not a regular file");
    config = config_of(NULL, 0, 8);
    refuse_corpus(&config, "no files are given");
    config = config_of(five, 1, 26);
    refuse_corpus(&config, "--data: all files together have 25 tokens and a sequence needs 26 (--seq-len)");
    config.seq_len = 0;
    refuse_corpus(&config, "--seq-len: 0");
    config = config_of(five, 1, 8);
    config.vocab = 255;
    refuse_corpus(&config, "at least 256, the model has 255");
    config = config_of(five, 1, 25);
    config.eval_fraction = 0.5;
    refuse_corpus(&config, "nothing would be left to train");
    config.eval_fraction = 1.0;
    refuse_corpus(&config, "--eval-fraction: 1");
    config.eval_fraction = NAN;
    refuse_corpus(&config, "eval-fraction");
}

/* Each system call may fail: the error is returned, and nothing leaks (which ASan checks). */
static void test_faults(void **state)
{
    (void)state;
    static const enum sys_call calls[] = {SYS_OPEN, SYS_PREAD, SYS_MALLOC};
    const char *five[] = {scratch_path("five")};
    struct corpus_config config = config_of(five, 1, 8);
    for (int k = 0; k < 3; k++) {
        sys_inject_clear();
        corpus_close(open_corpus(&config));
        long n = sys_count(calls[k]);
        assert_true(n > 0);
        for (int i = 1; i <= n; i++) {
            struct corpus *c = NULL;
            sys_inject(calls[k], i, calls[k] == SYS_MALLOC ? ENOMEM : EIO);
            assert_int_not_equal(corpus_open(&config, &c), OK);
            assert_null(c);
        }
    }
    sys_inject(SYS_PREAD, 2, SYS_SHORT); /* a transfer of half the bytes is no error */
    struct corpus *c = open_corpus(&config);
    sys_inject_clear();
    struct arrays a;
    struct sequence s = sequence_of(&a);
    scratch_text("five/a", "short"); /* the file shrank */
    scratch_text("five/b", "");
    enum status worst = OK;
    for (uint64_t i = 0; i < 3; i++) {
        enum status st = corpus_train_sequence(c, i, &s);
        worst = st != OK ? st : worst;
    }
    assert_int_equal(worst, ERR_CORRUPT);
    corpus_close(c);
}

/* Reads every sequence of the corpus; returns the worst status. */
static enum status read_all(struct corpus *c)
{
    struct arrays a;
    struct sequence s = sequence_of(&a);
    for (int64_t i = 0; i < corpus_get_report(c)->train_sequences; i++)
        if (corpus_train_sequence(c, (uint64_t)i, &s) != OK)
            return ERR_CORRUPT;
    return OK;
}

/* Replaces a file by another one with the same bytes. */
static void replace(const char *name, const char *text)
{
    scratch_text("new", text);
    assert_int_equal(rename(scratch_path("new"), scratch_path(name)), 0);
}

/* A file that changes during a run is noticed even if its size or its times stay the same; if only its times changed, the run
 * goes on. */
static void test_changes(void **state)
{
    (void)state;
    scratch_mkdir("changing");
    scratch_text("changing/a", "it was the best of times");
    scratch_text("changing/b", "it was the worst of times");
    const char *paths[] = {scratch_path("changing")};
    struct corpus_config config = config_of(paths, 1, 8);
    struct corpus *c = open_corpus(&config);
    struct timespec then[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    assert_int_equal(read_all(c), OK);
    assert_int_equal(utimensat(AT_FDCWD, scratch_path("changing/a"), then, 0), 0);
    assert_int_equal(read_all(c), OK);
    replace("changing/a", "it was the best of times");
    assert_int_equal(read_all(c), OK);
    scratch_text("changing/a", "it was the rest of times"); /* one byte */
    assert_int_equal(utimensat(AT_FDCWD, scratch_path("changing/a"), then, 0), 0);
    assert_int_equal(read_all(c), ERR_CORRUPT);
    assert_non_null(strstr(status_message(), "changing/a has changed since"));
    scratch_text("changing/a", "it was the best of times, and more");
    assert_int_equal(read_all(c), ERR_CORRUPT);
    scratch_text("changing/a", "it was the best of times"); /* with the old text, the corpus can be read again */
    assert_int_equal(read_all(c), OK);
    unlink(scratch_path("changing/b"));
    assert_int_equal(read_all(c), ERR_CORRUPT);
    assert_non_null(strstr(status_message(), "changing/b"));
    corpus_close(c);
}

/* Sequences that are kept in memory and taken again equal those that were read first, even if the files have changed. */
static void test_kept(void **state)
{
    (void)state;
    struct arrays a, b;
    struct sequence s = sequence_of(&a), t = sequence_of(&b);
    const char *paths[] = {scratch_text("kept", "in the beginning there was some text")};
    struct corpus_config config = config_of(paths, 1, 8);
    struct corpus *c = open_corpus(&config);
    assert_int_equal(corpus_keep(c, 2), OK);
    assert_int_equal(corpus_train_sequence(c, 0, &s), OK);
    assert_int_equal(corpus_train_sequence(c, 1, &t), OK);
    scratch_text("kept", "in the end there was no more of it..");
    assert_int_equal(corpus_train_sequence(c, 0, &t), OK);
    assert_memory_equal(a.tokens, b.tokens, 8 * sizeof *a.tokens);
    assert_memory_equal(a.targets, b.targets, 8 * sizeof *a.targets);
    assert_int_equal(corpus_train_sequence(c, 1, &t), OK);
    assert_int_equal(corpus_train_sequence(c, 2, &t), ERR_CORRUPT);
    corpus_close(c);
}

static char *list_of(const char *const *paths, int n)
{
    char *text;
    size_t size;
    struct corpus_config config = config_of(paths, n, 2);
    struct corpus *c = open_corpus(&config);
    FILE *f = open_memstream(&text, &size);
    assert_int_equal(corpus_write_contents(c, f), OK);
    fclose(f);
    corpus_close(c);
    return text;
}

/* Digests of lists of files differ if bytes, number or order of the files differ; paths do not matter. */
static void test_lists(void **state)
{
    (void)state;
    const char *one[] = {scratch_text("l1", "abc"), scratch_text("l2", "defg"), scratch_text("l3\n\\x", "hi")};
    const char *moved[] = {scratch_text("m1", "abc"), scratch_text("m2", "defg"), scratch_text("m3", "hi")};
    char *a = list_of(one, 3), *b = list_of(moved, 3), *fewer = list_of(one, 2);
    scratch_text("m2", "defG");
    char *c = list_of(moved, 3);
    struct fingerprint_difference d;
    assert_non_null(strstr(a, "data 78af5f94892f3950 3 ")); /* XXH3 of abc by the reference tool, xxhsum */
    assert_false(fingerprint_lists_differ(a, b, "data", &d));
    assert_true(fingerprint_lists_differ(a, c, "data", &d));
    assert_true(d.unequal == 1 && d.files[0] == 3 && d.files[1] == 3 && !d.reordered);
    assert_string_equal(d.first[0].path, one[1]);
    assert_string_equal(d.first[1].path, moved[1]);
    assert_true(fingerprint_lists_differ(fewer, a, "data", &d));
    assert_true(d.files[0] == 2 && d.files[1] == 3 && !d.first[0].there && d.first[1].there);
    assert_string_equal(d.first[1].path, one[2]);
    assert_true(fingerprint_lists_differ("data 01 5 /x\ndata 02 5 /y\n", "data 02 5 /x\ndata 01 5 /y\n", "data", &d));
    assert_true(d.reordered && d.unequal == 2);
    assert_false(fingerprint_lists_differ("data 01 5 /x\neval-data 02 5 /y\n", "data 01 5 /x\n", "data", &d));
    free(a), free(b), free(c), free(fewer);
}

/* ---- results that are remembered ---- */

static void settled_times(void **state)
{
    (void)state;
    const int64_t s = 1000000000;
    const struct timespec t = {.tv_sec = 1000, .tv_nsec = 500}, whole = {.tv_sec = 1000};
    assert_false(fingerprint_is_settled(&t, 1000 * s + 500, 0));
    assert_false(fingerprint_is_settled(&t, 1000 * s + 20000000, 0)); /* two ticks */
    assert_true(fingerprint_is_settled(&t, 1001 * s, 0));
    assert_false(fingerprint_is_settled(&t, 990 * s, 0)); /* the clock was set back */
    assert_false(fingerprint_is_settled(&whole, 1002 * s, 0));
    assert_true(fingerprint_is_settled(&whole, 1004 * s, 0));
    assert_false(fingerprint_is_settled(&t, 1030 * s, 1));
    assert_true(fingerprint_is_settled(&t, 1100 * s, 1));
}

/* Counts the reads when a corpus of two large files is opened; checks that the corpus is the same in any case. */
static int64_t calls_to_open(const struct corpus_config *config, int remembered)
{
    char *text[2];
    size_t bytes[2];
    struct corpus_config anew = *config;
    anew.known = NULL;
    sys_inject_clear();
    struct corpus *c = open_corpus(config);
    int64_t calls = sys_count(SYS_PREAD);
    struct corpus *reference = open_corpus(&anew);
    for (int i = 0; i < 2; i++) {
        FILE *f = open_memstream(&text[i], &bytes[i]);
        assert_int_equal(corpus_write_contents(i ? reference : c, f), OK);
        fclose(f);
    }
    assert_string_equal(text[0], text[1]);
    assert_true(corpus_get_report(c)->unigram_entropy == corpus_get_report(reference)->unigram_entropy);
    assert_int_equal(corpus_get_report(c)->remembered, remembered);
    struct arrays a[2];
    struct sequence s[2] = {sequence_of(&a[0]), sequence_of(&a[1])};
    assert_int_equal(corpus_train_sequence(c, 7, &s[0]) | corpus_train_sequence(reference, 7, &s[1]), OK);
    assert_memory_equal(a[0].tokens, a[1].tokens, 16 * sizeof(int32_t));
    for (int i = 0; i < 2; i++)
        free(text[i]);
    corpus_close(c);
    corpus_close(reference);
    return calls;
}

static void fill_file(const char *path, int seed, size_t n)
{
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    for (size_t i = 0; i < n; i++)
        putc((int)(i * (size_t)(seed + 2) % 251), f);
    assert_int_equal(fclose(f), 0);
}

/* Changes a file's content but not its length and times, as a copying program that keeps times might do. */
static void change_unseen(const char *path)
{
    struct stat s;
    assert_int_equal(stat(path, &s), 0);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "#", 1, 1000), 1);
    const struct timespec times[2] = {s.st_atim, s.st_mtim};
    assert_int_equal(futimens(fd, times) | close(fd), 0);
}

static void flip(const char *path, off_t at)
{
    char c;
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, &c, 1, at), 1);
    c ^= 1;
    assert_int_equal(pwrite(fd, &c, 1, at), 1);
    close(fd);
}

/* Later writes to a mapped page that was written before are noticed, although they need not change the file's times. */
static void writes_to_mapped_pages_are_seen(void **state)
{
    (void)state;
    char path[256], known[256];
    const char *paths[] = {path};
    struct disk disk;
    strcpy(path, scratch_path("mapped"));
    strcpy(known, scratch_path("known of mapped"));
    fill_file(path, 0, 1 << 16);
    if (disk_look(path, &disk) != 0 || disk.shared)
        skip();
    int fd = open(path, O_RDWR);
    char *page = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(page, MAP_FAILED);
    page[100] = '!';
    usleep(200000);
    struct corpus_config config = config_of(paths, 1, 16);
    config.known = known;
    struct corpus *c = open_corpus(&config);
    assert_int_equal(corpus_remember(c, known), OK);
    corpus_close(c);
    page[101] = '!';
    calls_to_open(&config, 0);
    munmap(page, 1 << 16);
    close(fd);
    unlink(known);
}

/* On file systems in memory, where writes to mapped pages never change a file's times, files are read again each time. */
static void files_in_memory_are_read_again(void **state)
{
    (void)state;
    char path[64], known[256];
    const char *paths[] = {path};
    struct statfs fs;
    if (statfs("/dev/shm", &fs) != 0 || fs.f_type != 0x01021994)
        skip();
    snprintf(path, sizeof path, "/dev/shm/ltrain-test-%d", (int)getpid());
    strcpy(known, scratch_path("known of memory"));
    fill_file(path, 0, 1 << 16);
    usleep(200000);
    struct corpus_config config = config_of(paths, 1, 16);
    config.known = known;
    struct corpus *c = open_corpus(&config);
    enum status st = corpus_remember(c, known);
    corpus_close(c);
    calls_to_open(&config, 0);
    unlink(path);
    assert_int_equal(st, OK);
}

static void files_are_remembered(void **state)
{
    (void)state;
    enum { FILE_BYTES = 1 << 20, CHUNKS = 2 * FILE_BYTES >> 16 };
    char path[2][256], known[256];
    const char *paths[] = {path[0], path[1]};
    struct disk disk;
    for (int i = 0; i < 2; i++) {
        strcpy(path[i], scratch_path(i ? "large 2\n" : "large1"));
        fill_file(path[i], i, FILE_BYTES);
    }
    strcpy(known, scratch_path("known"));
    if (disk_look(path[0], &disk) != 0 || disk.shared)
        skip(); /* the times come from another host's clock, and are not trusted so soon */
    struct corpus_config config = config_of(paths, 2, 16);
    config.known = known;
    usleep(200000); /* longer than a tick of the clock for files' times */
    struct corpus *c = open_corpus(&config);
    assert_false(corpus_get_report(c)->remembered); /* nothing is remembered yet */
    assert_int_equal(corpus_remember(c, known), OK);
    corpus_close(c);
    assert_true(calls_to_open(&config, 1) <= 4); /* reads of the remembered results and of the beginning of each file */
    config.seq_len = 32;                         /* the same number of tokens */
    assert_true(calls_to_open(&config, 1) <= 4); /* reads of the remembered results and of the beginning of each file */
    config.eval_fraction = 0.5;                  /* fewer */
    assert_true(calls_to_open(&config, 0) >= CHUNKS);
    config.eval_fraction = 0;
    config.n_paths = 1;
    assert_true(calls_to_open(&config, 0) >= CHUNKS / 2);
    config.n_paths = 2;
    change_unseen(path[1]);
    assert_true(calls_to_open(&config, 0) >= CHUNKS);
    usleep(200000);
    c = open_corpus(&config);
    assert_int_equal(corpus_remember(c, known), OK);
    corpus_close(c);
    assert_true(calls_to_open(&config, 1) <= 4); /* reads of the remembered results and of the beginning of each file */
    flip(known, 60);                             /* a damaged file of remembered results is ignored */
    assert_true(calls_to_open(&config, 0) >= CHUNKS);
    flip(known, 60);
    assert_true(calls_to_open(&config, 1) <= 4); /* reads of the remembered results and of the beginning of each file */
    assert_int_equal(utimensat(AT_FDCWD, path[0], NULL, 0), 0); /* touched */
    assert_true(calls_to_open(&config, 0) >= CHUNKS);
    unlink(known);
    sys_inject_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packing),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_spellings),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_eval_split),
        cmocka_unit_test(test_other_lengths),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_changes),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(settled_times),
        cmocka_unit_test(files_are_remembered),
        cmocka_unit_test(writes_to_mapped_pages_are_seen),
        cmocka_unit_test(files_in_memory_are_read_again),
        cmocka_unit_test(test_kept),
        cmocka_unit_test(test_directories_with_others),
        cmocka_unit_test(test_deep_patterns),
    };
    return cmocka_run_group_tests(tests, scratch_create, scratch_destroy);
}
