/* Tests packing and mixing: no token is lost, documents stay intact, sources have their shares, and the order depends only on the
 * number of sequences before. */
#include "data/best_fit.h"
#include "data/order.h"

#include "base/rng.h"
#include "corpora.h"
#include "data/stream.h"
#include "scratch.h"

#include <math.h>

enum { MOST_TOKENS = 60000, MOST_SEQ = 512 };

static uint32_t random_below(uint64_t seed, uint64_t i, uint32_t n)
{
    uint32_t word[4];
    rng_block(seed, 5, i, word);
    return word[0] % n;
}

/* ---- bins ---- */

/* The reference implementation of best fit, which looks at every bin for each size. */
static int64_t slow_best_fit(const int32_t *size, int64_t n, int64_t capacity, int32_t *bin)
{
    int64_t bins = 0, room[1000];
    for (int64_t want = capacity; want > 0; want--)
        for (int64_t i = 0; i < n; i++) {
            int64_t best = -1;
            if (size[i] != want)
                continue;
            for (int64_t b = 0; b < bins; b++)
                if (room[b] >= want && (best < 0 || room[b] < room[best]))
                    best = b;
            if (best < 0)
                room[best = bins++] = capacity;
            room[best] -= want;
            bin[i] = (int32_t)best;
        }
    return bins;
}

static void test_best_fit(void **state)
{
    (void)state;
    static const int64_t capacities[] = {1, 2, 7, 63, 64, 65, 300, 4096, 5000};
    int32_t size[1000], bin[1000], slow[1000];
    for (int k = 0; k < 9; k++)
        for (int64_t n = 0; n <= 1000; n = n * 3 + 1) {
            int64_t bins, capacity = capacities[k], room[1000] = {0};
            for (int64_t i = 0; i < n; i++) {
                size[i] = (int32_t)(1 + random_below((uint64_t)k, (uint64_t)i, (uint32_t)capacity));
                size[i] = i % 3 ? size[i] : (size[i] + 3) / 4;
            }
            assert_int_equal(best_fit(size, n, capacity, bin, &bins), OK);
            assert_int_equal(bins, slow_best_fit(size, n, capacity, slow));
            for (int64_t i = 0; i < n; i++)
                assert_in_range(bin[i], 0, bins - 1);
            for (int64_t i = 0; i < n; i++)
                room[bin[i]] += size[i];
            for (int64_t b = 0; b < bins; b++)
                assert_in_range(room[b], 1, capacity);
        }
}

/* A million short documents are packed into long sequences. */
static void test_many(void **state)
{
    (void)state;
    enum { N = 1000000 };
    static const int64_t capacities[] = {2048, 430080};
    int32_t *size = malloc(N * sizeof *size), *bin = malloc(N * sizeof *bin);
    for (int k = 0; k < 2; k++) {
        int64_t bins, sum = 0, *room = calloc(N, sizeof *room);
        for (int64_t i = 0; i < N; i++)
            sum += size[i] = (int32_t)(1 + random_below(9, (uint64_t)i, 600));
        assert_int_equal(best_fit(size, N, capacities[k], bin, &bins), OK);
        for (int64_t i = 0; i < N; i++)
            room[bin[i]] += size[i];
        for (int64_t b = 0; b < bins; b++)
            assert_in_range(room[b], 1, capacities[k]);
        /* with short documents hardly any space is left unused */
        assert_in_range(bins, (sum + capacities[k] - 1) / capacities[k], sum / capacities[k] + 2);
        free(room);
    }
    free(size);
    free(bin);
}

/* ---- documents whose tokens tell their places ---- */

/* Writes a Megatron file whose token i has the id first + i. Documents have random lengths, some longer than a sequence. Returns
 * the number of tokens. */
static int64_t write_counting(const char *name, int64_t tokens, int32_t first, int64_t most, int64_t ends[], int64_t *n_ends)
{
    char path[64];
    snprintf(path, sizeof path, "%s.bin", name);
    int32_t *id = malloc((size_t)tokens * sizeof *id), length[20000];
    for (int64_t i = 0; i < tokens; i++)
        id[i] = (int32_t)i + first;
    scratch_write(path, id, (size_t)tokens * sizeof *id);
    int64_t n = 0, at = 0;
    while (at < tokens) {
        int64_t more = 1 + random_below(77, (uint64_t)n, (uint32_t)(n % 50 ? most : 4 * most));
        more = more < tokens - at ? more : tokens - at;
        length[n] = (int32_t)more;
        at += more;
        ends[n++] = at;
    }
    *n_ends = n;
    snprintf(path, sizeof path, "%s.idx", name);
    FILE *f = fopen(scratch_path(path), "w");
    const uint64_t version = 1, sequences = (uint64_t)n, documents = (uint64_t)n + 1;
    fwrite("MMIDIDX\0\0", 1, 9, f);
    fwrite(&version, 8, 1, f);
    fputc(4, f); /* type 4: int32 */
    fwrite(&sequences, 8, 1, f);
    fwrite(&documents, 8, 1, f);
    fwrite(length, 4, (size_t)n, f);
    for (int64_t i = 0; i < n; i++) {
        int64_t offset = 4 * (ends[i] - length[i]);
        fwrite(&offset, 8, 1, f);
    }
    for (int64_t i = 0; i <= n; i++)
        fwrite(&i, 8, 1, f);
    fclose(f);
    free(id);
    return tokens;
}

static int32_t arrays[5][MOST_SEQ];
static struct sequence sequence = {arrays[0], arrays[1], arrays[2], arrays[3], arrays[4]};
static int64_t ends[20000], n_ends;
static char cache[256];

static struct corpus_config config_of(const char *const *paths, int n, int64_t seq_len)
{
    snprintf(cache, sizeof cache, "%s/cache", scratch);
    return (struct corpus_config){.paths = paths,
                                  .n_paths = n,
                                  .seq_len = seq_len,
                                  .vocab = 2 * MOST_TOKENS,
                                  .seed = 3,
                                  .cache = cache,
                                  .threads = 2,
                                  .packing = PACKING_BEST_FIT};
}

static int64_t document_of(int64_t at)
{
    int64_t i = 0;
    while (ends[i] <= at)
        i++;
    return i;
}

/* Checks everything about a sequence that follows from its tokens' positions in the stream. Counts each token in `seen`. */
static void check_sequence(int64_t seq_len, enum too_long too_long, int64_t train_end, uint8_t *seen)
{
    int64_t targets = 0, start = 0;
    double pairs = 0;
    for (int64_t i = 0; i < sequence.n_tokens; i++) {
        int64_t at = sequence.tokens[i], document = document_of(at), end = ends[document],
                first = document ? ends[document - 1] : 0;
        int is_start = i == 0 || at != sequence.tokens[i - 1] + 1 || at == first;
        start = is_start ? i : start;
        assert_int_equal(seen[at]++, 0);
        assert_int_equal(sequence.positions[i], i - start);
        assert_int_equal(sequence.lo[i], start);
        assert_int_equal(sequence.hi[i], i);
        pairs += (double)(i - start + 1);
        if (is_start) /* at a document's beginning, or where a long one was split */
            assert_int_equal((at - first) % seq_len, 0);
        int cut = too_long == TOO_LONG_TRUNCATE && at - first == seq_len - 1;
        int64_t want = at + 1 == end || cut || at + 1 >= train_end ? -1 : at + 1;
        assert_int_equal(sequence.targets[i], want);
        targets += want >= 0;
    }
    assert_int_equal(sequence.n_targets, targets);
    assert_true(sequence.pairs == pairs);
    for (int64_t i = sequence.n_tokens; i < seq_len; i++)
        assert_true(sequence.targets[i] == -1 && sequence.lo[i] == i && sequence.hi[i] == i && sequence.positions[i] == 0 &&
                    sequence.tokens[i] == 0);
}

static void test_nothing_is_lost(void **state)
{
    (void)state;
    static const int64_t lengths[] = {2, 64, 100, 512};
    static uint8_t seen[MOST_TOKENS];
    write_counting("counting", 20000, 0, 90, ends, &n_ends);
    char path[256];
    strcpy(path, scratch_path("counting.bin"));
    const char *paths[] = {path};
    for (int k = 0; k < 4; k++)
        for (int too_long = TOO_LONG_SPLIT; too_long <= TOO_LONG_TRUNCATE; too_long++)
            for (int held_out = 0; held_out < 2; held_out++) {
                struct corpus_config config = config_of(paths, 1, lengths[k]);
                config.too_long = (enum too_long)too_long;
                config.eval_fraction = held_out ? 0.2 : 0;
                struct corpus *c = open_corpus(&config);
                const struct corpus_report *r = corpus_get_report(c);
                const struct packing_report *p = &r->packed;
                assert_int_equal(r->tokens, 20000);
                assert_int_equal(r->documents, n_ends);
                assert_int_equal(p->tokens_kept + p->tokens_dropped + p->tokens_truncated + p->tokens_untrained, 20000);
                assert_true((p->tokens_dropped > 0) == (too_long == TOO_LONG_DROP && p->documents_dropped > 0));
                assert_true((p->tokens_truncated > 0) == (too_long == TOO_LONG_TRUNCATE && p->documents_truncated > 0));
                memset(seen, 0, sizeof seen);
                int64_t trained = 0, end = 0, count = 0;
                for (int64_t i = 0; i < r->train_sequences; i++) {
                    assert_int_equal(corpus_train_sequence(c, (uint64_t)i, &sequence), OK);
                    trained += sequence.n_tokens;
                    for (int64_t t = 0; t < sequence.n_tokens; t++)
                        end = sequence.tokens[t] >= end ? sequence.tokens[t] + 1 : end;
                }
                assert_int_equal(trained, p->train_tokens);
                for (int64_t i = 0; i < r->train_sequences; i++) {
                    assert_int_equal(corpus_train_sequence(c, (uint64_t)i, &sequence), OK);
                    check_sequence(lengths[k], config.too_long, held_out ? end : 20000, seen);
                }
                for (int64_t i = 0; i < r->eval_sequences; i++) {
                    assert_int_equal(corpus_eval_sequence(c, i, &sequence), OK);
                    check_sequence(lengths[k], config.too_long, 20000, seen);
                    assert_true(sequence.tokens[0] >= end);
                }
                assert_true((r->eval_sequences > 0) == held_out);
                for (int64_t i = 0; i < 20000; i++)
                    count += seen[i];
                assert_int_equal(count, p->tokens_kept);
                corpus_close(c);
            }
    struct corpus_config config = config_of(paths, 1, 64);
    config.too_long = TOO_LONG_REFUSE;
    refuse_corpus(&config, "counting.bin has ");
}

/* A sequence taken again from memory equals the one that was read. */
static void test_kept(void **state)
{
    (void)state;
    char path[256];
    strcpy(path, scratch_path("counting.bin"));
    const char *paths[] = {path};
    struct corpus_config config = config_of(paths, 1, 100);
    struct corpus *c = open_corpus(&config);
    int32_t first[5][100];
    assert_int_equal(corpus_keep(c, 3), OK);
    for (int turn = 0; turn < 2; turn++)
        for (uint64_t i = 0; i < 3; i++) {
            assert_int_equal(corpus_train_sequence(c, i, &sequence), OK);
            for (int a = 0; a < 5 && i == 1; a++) {
                if (turn == 0)
                    memcpy(first[a], arrays[a], sizeof first[a]);
                else
                    assert_memory_equal(first[a], arrays[a], sizeof first[a]);
            }
        }
    corpus_close(c);
}

/* ---- mixing ---- */

static void test_shares(void **state)
{
    (void)state;
    static const double share[] = {0.7, 0.05, 0.2497, 0.0003};
    struct mixture *m;
    assert_int_equal(mixture_create(share, (const char *const[]){"a", "b", "c", "d"}, 4, &m), OK);
    uint64_t count[4] = {0}, before;
    for (uint64_t t = 0; t < 200000; t++) {
        int source = mixture_at(m, t, &before);
        assert_int_equal(before, count[source]++);
        if (t % 997 == 0)
            for (int i = 0; i < 4; i++) {
                assert_int_equal(mixture_count(m, t + 1, i), count[i]);
                assert_true(fabs((double)count[i] - share[i] * (double)(t + 1)) < 4.0);
            }
    }
    mixture_destroy(m);
    assert_int_equal(mixture_create((const double[]){1.0, 1e-6}, (const char *const[]){"much", "little"}, 2, &m), ERR_INVALID);
    assert_non_null(strstr(status_message(), "little has less than"));
}

static void test_mixing(void **state)
{
    (void)state;
    static int64_t other_ends[20000], n_other;
    static int32_t order[6000];
    char path[2][256];
    write_counting("a", 30000, 0, 90, ends, &n_ends);
    write_counting("b", 10000, 50000, 20, other_ends, &n_other);
    strcpy(path[0], scratch_path("a.bin"));
    strcpy(path[1], scratch_path("b.bin"));
    const char *paths[] = {path[0], path[1]};
    const double weights[] = {1, 3};
    struct corpus_config config = config_of(paths, 2, 100);
    config.weights = weights;
    struct corpus *c = open_corpus(&config);
    assert_int_equal(corpus_sources(c), 2);
    int64_t n[2], tokens[2] = {0}, seen[2] = {0};
    for (int i = 0; i < 2; i++)
        n[i] = corpus_get_source(c, i).packed->train_sequences;
    static uint8_t taken[2][MOST_TOKENS];
    for (int64_t i = 0; i < 2000; i++) {
        assert_int_equal(corpus_train_sequence(c, (uint64_t)i, &sequence), OK);
        int b = sequence.tokens[0] >= 50000;
        order[i] = sequence.tokens[0];
        tokens[b] += sequence.n_tokens;
        if (seen[b]++ < n[b]) /* one epoch */
            assert_int_equal(taken[b][sequence.tokens[0] % 50000]++, 0);
        for (int64_t t = 0; t < sequence.n_tokens; t++)
            assert_int_equal(sequence.tokens[t] >= 50000, b);
    }
    assert_true(fabs((double)tokens[1] / (double)(tokens[0] + tokens[1]) - 0.75) < 0.01);
    for (int i = 0; i < 2; i++)
        assert_true(fabs(corpus_epochs(c, i, 2000) - (double)seen[i] / (double)n[i]) < 1e-12);
    assert_true(corpus_epochs(c, 1, 2000) > 2);
    corpus_close(c);
    c = open_corpus(&config); /* whatever sequences were taken before */
    for (int64_t i = 1999; i >= 0; i -= 7) {
        assert_int_equal(corpus_train_sequence(c, (uint64_t)i, &sequence), OK);
        assert_int_equal(sequence.tokens[0], order[i]);
    }
    corpus_close(c);
    config.weights = (const double[]){1, 0};
    assert_int_equal(corpus_open(&config, &c), ERR_INVALID);
    assert_non_null(strstr(status_message(), "the weight 0 of"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best_fit), cmocka_unit_test(test_many),   cmocka_unit_test(test_nothing_is_lost),
        cmocka_unit_test(test_kept),     cmocka_unit_test(test_shares), cmocka_unit_test(test_mixing),
    };
    return cmocka_run_group_tests(tests, scratch_create, scratch_destroy);
}
