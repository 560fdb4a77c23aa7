/* Packing documents into sequences, and the order in which they are trained. */
#include "data/corpus.h"

#include "base/num.h"
#include "base/progress.h"
#include "base/rng.h"
#include "base/sys.h"
#include "data/documents.h"
#include "data/known.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A sequence as it was read. */
struct kept {
    int64_t first; /* byte of the stream; -1: nothing is kept here */
    int32_t next;
    uint8_t *bytes;
};

struct corpus {
    struct documents *files, *eval_files; /* eval_files NULL: evaluation sequences, if any, are the last ones of files */
    int64_t seq_len;
    int64_t train_end; /* training reads bytes of `files` below this, targets included */
    int64_t window;    /* seq_len if there is none */
    uint64_t seed;
    struct corpus_report report;
    struct kept *kept; /* the next one is written over first */
    int64_t n_kept, next_kept;
    uint8_t *kept_bytes;
};

/* ---- counting ---- */

/* Adds what one list of documents gives when cut into n sequences. */
static void count_stream(struct corpus_report *r, const struct documents *d, int64_t n, int64_t seq_len)
{
    r->documents += documents_count(d);
    r->bytes += documents_bytes(d);
    r->tokens_kept += n * seq_len;
    r->tokens_dropped += documents_bytes(d) - n * seq_len;
    for (int64_t i = 0; i < documents_count(d); i++) {
        int64_t cut = documents_first(d, i) / seq_len + 1; /* the first sequence that starts inside or behind it */
        r->documents_split += cut < n && cut * seq_len < documents_end(d, i);
    }
}

static enum status count_sequences(const char *key, const struct documents *d, int64_t seq_len, int64_t *n)
{
    *n = documents_bytes(d) / seq_len;
    if (*n == 0)
        return status_fail(ERR_INVALID, "%s: all files together have %lld tokens and a sequence needs %lld (--seq-len)", key,
                           (long long)documents_bytes(d), (long long)seq_len);
    return OK;
}

/* How often each byte is in the first `left` bytes of the stream. Four tables: equal bytes in a row need not wait for each other. */
struct histogram {
    int64_t left;
    int64_t counts[4][256];
};

static enum status count_bytes(void *user, const uint8_t *data, int64_t n)
{
    struct histogram *h = user;
    n = min_i64(n, h->left);
    h->left -= n;
    for (int64_t i = 0; i < n; i++)
        h->counts[i & 3][data[i]]++;
    return OK;
}

static double entropy(const struct histogram *h, int64_t tokens)
{
    double sum = 0.0;
    for (int b = 0; b < 256; b++) {
        int64_t n = h->counts[0][b] + h->counts[1][b] + h->counts[2][b] + h->counts[3][b];
        if (n)
            sum -= (double)n * log((double)n / (double)tokens);
    }
    return sum / (double)tokens;
}

/* ---- opening ---- */

static enum status check_config(const struct corpus_config *c)
{
    if (c->vocab < 256)
        return status_fail(ERR_INVALID, "--data: byte-level tokens need a vocabulary of at least 256, the model has %lld",
                           (long long)c->vocab);
    if (c->seq_len < 1 || c->seq_len > INT32_MAX)
        return status_fail(ERR_INVALID, "--seq-len: %lld is not between 1 and %d", (long long)c->seq_len, INT32_MAX);
    if (!(c->eval_fraction >= 0.0 && c->eval_fraction < 1.0))
        return status_fail(ERR_INVALID, "--eval-fraction: %g is not between 0 and 1", c->eval_fraction);
    if (c->window < 0)
        return status_fail(ERR_INVALID, "a sliding window of %lld keys must be 1 or more, or 0 for none", (long long)c->window);
    if (c->eval_fraction > 0.0 && c->n_eval_paths > 0)
        return status_fail(ERR_INVALID, "--eval-data and --eval-fraction: give one of them");
    return OK;
}

static enum status split_sequences(struct corpus *c, const struct corpus_config *config)
{
    int64_t n, n_eval = 0;
    TRY(count_sequences("--data", c->files, c->seq_len, &n));
    count_stream(&c->report, c->files, n, c->seq_len);
    c->train_end = documents_bytes(c->files);
    if (c->eval_files) {
        TRY(count_sequences("--eval-data", c->eval_files, c->seq_len, &n_eval));
        count_stream(&c->report, c->eval_files, n_eval, c->seq_len);
    } else if (config->eval_fraction > 0.0) {
        n_eval = max_i64(1, (int64_t)(config->eval_fraction * (double)n));
        n -= n_eval;
        if (n < 1)
            return status_fail(ERR_INVALID, "--eval-fraction: the data has one sequence, nothing would be left to train");
        c->train_end = n * c->seq_len;
    }
    c->report.train_sequences = n;
    c->report.eval_sequences = n_eval;
    return OK;
}

#define KNOWN "ltrain data 1\ntokens %lld entropy %la\n"

/* 1 if the text is of these files, of which none was touched since, and of as many tokens. */
static int recall(struct corpus *c, const char *text)
{
    long long tokens;
    double known_entropy;
    if (sscanf(text, KNOWN, &tokens, &known_entropy) != 2 || tokens != c->report.train_sequences * c->seq_len)
        return 0;
    for (int lines = 0; lines < 2; lines++)
        text = strchr(text, '\n') + 1;
    if (!documents_recall(c->files, "data", &text) || (c->eval_files && !documents_recall(c->eval_files, "eval-data", &text)) || *text)
        return 0;
    c->report.unigram_entropy = known_entropy;
    c->report.remembered = 1;
    return 1;
}

static int is_remembered(struct corpus *c, const char *path)
{
    char *text = path ? known_read(path) : NULL;
    int known = text && recall(c, text);
    free(text);
    return known;
}

enum status corpus_remember(const struct corpus *c, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    int settled = 0;
    if (f) {
        fprintf(f, KNOWN, (long long)(c->report.train_sequences * c->seq_len), c->report.unigram_entropy);
        settled = documents_write_known(c->files, "data", f) &&
                  (!c->eval_files || documents_write_known(c->eval_files, "eval-data", f));
    }
    if (!f || fclose(f) != 0) {
        free(text);
        return status_fail(ERR_NOMEM, "out of memory: the list of the data's files");
    }
    enum status st = settled ? known_write(path, text, bytes) : OK;
    free(text);
    return st;
}

/* All files are read once: their fingerprints, and the bytes that will be trained, counted. */
static enum status survey(struct corpus *c)
{
    int64_t tokens = c->report.train_sequences * c->seq_len;
    struct histogram h = {.left = tokens};
    progress_reading(c->report.bytes);
    enum status st = documents_survey(c->files, count_bytes, &h);
    if (st == OK && c->eval_files)
        st = documents_survey(c->eval_files, NULL, NULL);
    progress_reading(0);
    TRY(st);
    c->report.unigram_entropy = entropy(&h, tokens);
    return OK;
}

enum status corpus_open(const struct corpus_config *config, struct corpus **out)
{
    enum status st;
    TRY(check_config(config));
    struct corpus *c = sys_calloc(1, sizeof *c);
    if (!c)
        return status_fail(ERR_NOMEM, "out of memory: the corpus's description");
    c->seq_len = config->seq_len;
    c->window = config->window > 0 ? min_i64(config->window, config->seq_len) : config->seq_len;
    c->seed = config->seed;
    TRY_GOTO(documents_open("--data", config->paths, config->n_paths, &c->files), fail);
    if (config->n_eval_paths > 0)
        TRY_GOTO(documents_open("--eval-data", config->eval_paths, config->n_eval_paths, &c->eval_files), fail);
    TRY_GOTO(split_sequences(c, config), fail);
    if (!is_remembered(c, config->known))
        TRY_GOTO(survey(c), fail);
    *out = c;
    return OK;
fail:
    corpus_close(c);
    return st;
}

void corpus_close(struct corpus *c)
{
    if (!c)
        return;
    documents_close(c->files);
    documents_close(c->eval_files);
    free(c->kept);
    free(c->kept_bytes);
    free(c);
}

void corpus_tell(struct corpus *c, const struct rereading *r)
{
    documents_tell(c->files, r);
    if (c->eval_files)
        documents_tell(c->eval_files, r);
}

const struct corpus_report *corpus_get_report(const struct corpus *c)
{
    return &c->report;
}

#define LAYOUT "sequences of %lld tokens: %lld to train, %lld held out\n"

enum status corpus_write_contents(const struct corpus *c, FILE *f)
{
    fprintf(f, LAYOUT, (long long)c->seq_len, (long long)c->report.train_sequences, (long long)c->report.eval_sequences);
    documents_print(c->files, "data", f);
    if (c->eval_files)
        documents_print(c->eval_files, "eval-data", f);
    return ferror(f) ? status_fail(ERR_NOMEM, "out of memory: the list of the data's files") : OK;
}

int corpus_read_layout(const char *text, struct corpus_layout *out)
{
    return sscanf(text, LAYOUT, &out->seq_len, &out->train_sequences, &out->eval_sequences) == 3;
}

/* ---- order ---- */

/* Place `i` of a seeded permutation of 0 .. n-1 without storing it: a Feistel network over the next larger even number of bits,
 * walked until it lands below n (Black and Rogaway 2002, "Ciphers with arbitrary finite domains"). At least 8 bits, so that few
 * sequences are mixed well, too. */
static uint64_t permute(uint64_t seed, uint64_t epoch, uint64_t i, uint64_t n)
{
    enum { ROUNDS = 8 };
    int half = 4;
    while ((n - 1) >> (2 * half))
        half++;
    uint64_t mask = ((uint64_t)1 << half) - 1, stream = rng_stream("corpus order") + epoch;
    do {
        uint64_t left = i >> half, right = i & mask;
        for (int round = 0; round < ROUNDS; round++) {
            uint32_t word[4];
            rng_block(seed, stream, (uint64_t)round << 56 | right, word);
            uint64_t mixed = left ^ (word[0] & mask);
            left = right;
            right = mixed;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}

/* ---- sequences that are taken again ---- */

enum status corpus_keep(struct corpus *c, int64_t n)
{
    c->kept = sys_calloc((size_t)n, sizeof *c->kept);
    c->kept_bytes = sys_malloc((size_t)(n * c->seq_len));
    if (!c->kept || !c->kept_bytes)
        return status_fail(ERR_NOMEM, "out of memory: %lld sequences of a step", (long long)n);
    for (int64_t i = 0; i < n; i++)
        c->kept[i] = (struct kept){.first = -1, .bytes = c->kept_bytes + i * c->seq_len};
    c->n_kept = n;
    return OK;
}

/* Bytes of the stream, from what is kept if they are there; else they are kept. */
static enum status read_training(struct corpus *c, int64_t first, uint8_t *bytes, int32_t *next)
{
    for (int64_t i = 0; i < c->n_kept; i++)
        if (c->kept[i].first == first) {
            memcpy(bytes, c->kept[i].bytes, (size_t)c->seq_len);
            *next = c->kept[i].next;
            return OK;
        }
    TRY(documents_read(c->files, first, c->seq_len, bytes, next));
    if (c->n_kept > 0) {
        struct kept *k = &c->kept[c->next_kept];
        memcpy(k->bytes, bytes, (size_t)c->seq_len);
        k->first = first;
        k->next = *next;
        c->next_kept = (c->next_kept + 1) % c->n_kept;
    }
    return OK;
}

/* ---- packing ---- */

/* Where a sequence's bytes go first: they are widened in place, token i is written before byte i + 1 is reached. */
static uint8_t *bytes_of(const struct corpus *c, struct sequence *s)
{
    return (uint8_t *)s->tokens + 3 * c->seq_len;
}

/* Sequence from byte `first`, whose bytes are in place; those at and beyond `end` are not looked at, not even as a target. next:
 * the byte behind them, of the same document, or -1. */
static void pack(const struct corpus *c, const struct documents *d, int64_t first, int64_t end, int32_t next,
                 struct sequence *out)
{
    int64_t seq_len = c->seq_len;
    const uint8_t *bytes = bytes_of(c, out);
    for (int64_t i = 0; i < seq_len; i++)
        out->tokens[i] = bytes[i];
    out->n_targets = 0;
    out->pairs = 0.0;
    int64_t at = 0;
    for (int64_t f = documents_find(d, first); at < seq_len; f++) {
        int64_t stop = min_i64(seq_len, documents_end(d, f) - first), start = at;
        for (; at < stop; at++) {
            out->targets[at] = at + 1 < stop ? out->tokens[at + 1] : -1;
            out->positions[at] = (int32_t)(at - start);
            out->lo[at] = (int32_t)max_i64(start, at - c->window + 1);
            out->hi[at] = (int32_t)at;
        }
        out->n_targets += stop - start - 1;
        int64_t full = max_i64(0, stop - start - c->window),
                rising = stop - start - full; /* queries with a whole window; those before */
        out->pairs += 0.5 * (double)rising * (double)(rising + 1) + (double)full * (double)c->window;
    }
    if (next >= 0 && first + seq_len < end) {
        out->targets[seq_len - 1] = next;
        out->n_targets++;
    }
}

enum status corpus_train_sequence(struct corpus *c, uint64_t cursor, struct sequence *out)
{
    uint64_t n = (uint64_t)c->report.train_sequences;
    int64_t first = (int64_t)permute(c->seed, cursor / n, cursor % n, n) * c->seq_len;
    int32_t next = -1;
    TRY(read_training(c, first, bytes_of(c, out), &next));
    pack(c, c->files, first, c->train_end, next, out);
    return OK;
}

/* Where evaluation reads: *first, *end: bytes of the stream that is returned. */
static const struct documents *held_out(const struct corpus *c, int64_t *first, int64_t *end)
{
    const struct documents *d = c->eval_files ? c->eval_files : c->files;
    *first = c->eval_files ? 0 : c->report.train_sequences * c->seq_len;
    *end = documents_bytes(d);
    return d;
}

enum status corpus_check_eval(const struct corpus *c)
{
    int64_t first, end;
    const struct documents *d = held_out(c, &first, &end);
    return c->report.eval_sequences > 0 ? documents_check(d, first, end - first) : OK;
}

enum status corpus_eval_sequence(const struct corpus *c, int64_t index, struct sequence *out)
{
    int64_t first, end;
    int32_t next = -1;
    const struct documents *d = held_out(c, &first, &end);
    if (index < 0 || index >= c->report.eval_sequences)
        return status_fail(ERR_INVALID, "evaluation sequence %lld of %lld", (long long)index,
                           (long long)c->report.eval_sequences);
    first += index * c->seq_len;
    TRY(documents_read(d, first, c->seq_len, bytes_of(c, out), &next));
    pack(c, d, first, end, next, out);
    return OK;
}
