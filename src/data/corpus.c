/* Packing documents into sequences, and the order in which they are trained. */
#include "data/corpus.h"

#include "base/num.h"
#include "base/progress.h"
#include "base/rng.h"
#include "base/sys.h"
#include "data/fingerprint.h"
#include "data/known.h"
#include "data/stream.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* A sequence as it was read. */
struct kept {
    int64_t first; /* token of the stream; -1: nothing is kept here */
    int32_t next;
    int32_t *tokens;
};

/* Of the tokenizer; ids 0: bytes. */
struct tokenizer_print {
    uint64_t hash;
    int64_t ids;
};

struct corpus {
    struct tokenizer_print tokenizer;
    struct stream *files, *eval_files; /* eval_files NULL: evaluation sequences, if any, are the last ones of files */
    int64_t seq_len;
    int64_t train_end; /* training reads tokens of `files` below this, targets included */
    int64_t window;    /* seq_len if there is none */
    uint64_t seed;
    struct corpus_report report;
    struct kept *kept; /* the next one is written over first */
    int64_t n_kept, next_kept;
    int32_t *kept_tokens;
};

/* ---- counting ---- */

/* Adds what one list of documents gives when cut into n sequences. */
static void count_stream(struct corpus_report *r, const struct stream *d, int64_t n, int64_t seq_len)
{
    r->documents += stream_documents(d);
    r->bytes += stream_text_bytes(d);
    r->repaired += stream_repaired(d);
    r->cached &= stream_is_cached(d);
    r->tokens_kept += n * seq_len;
    r->tokens_dropped += stream_tokens(d) - n * seq_len;
    for (int64_t i = 0; i < stream_documents(d); i++) {
        int64_t cut = stream_first(d, i) / seq_len + 1; /* the first sequence that starts inside or behind it */
        r->documents_split += cut < n && cut * seq_len < stream_end(d, i);
    }
}

static enum status count_sequences(const char *key, const struct stream *d, int64_t seq_len, int64_t *n)
{
    *n = stream_tokens(d) / seq_len;
    if (*n == 0)
        return status_fail(ERR_INVALID, "%s: all files together have %lld tokens and a sequence needs %lld (--seq-len)", key,
                           (long long)stream_tokens(d), (long long)seq_len);
    return OK;
}

static double entropy(const int64_t *counts, int64_t ids, int64_t tokens)
{
    double sum = 0.0;
    for (int64_t i = 0; i < ids; i++)
        if (counts[i])
            sum -= (double)counts[i] * log((double)counts[i] / (double)tokens);
    return sum / (double)tokens;
}

/* ---- opening ---- */

static enum status check_config(const struct corpus_config *c)
{
    if (!c->tokenizer && c->vocab < 256)
        return status_fail(ERR_INVALID, "--data: byte-level tokens need a vocabulary of at least 256, the model has %lld",
                           (long long)c->vocab);
    if (c->tokenizer && tokenizer_ids(c->tokenizer) > c->vocab)
        return status_fail(ERR_INVALID,
                           "%s has ids up to %lld, and the model's embedding has %lld rows: it is another model's tokenizer "
                           "(--tokenizer DIR names one)",
                           tokenizer_path(c->tokenizer), (long long)tokenizer_ids(c->tokenizer) - 1, (long long)c->vocab);
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
    c->report.cached = 1;
    count_stream(&c->report, c->files, n, c->seq_len);
    c->train_end = stream_tokens(c->files);
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
    if (!stream_recall(c->files, "data", &text) || (c->eval_files && !stream_recall(c->eval_files, "eval-data", &text)) || *text)
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
    if (c->tokenizer.ids) /* the file of tokens knows */
        return OK;
    FILE *f = open_memstream(&text, &bytes);
    int settled = 0;
    if (f) {
        fprintf(f, KNOWN, (long long)(c->report.train_sequences * c->seq_len), c->report.unigram_entropy);
        settled = stream_write_known(c->files, "data", f) &&
                  (!c->eval_files || stream_write_known(c->eval_files, "eval-data", f));
    }
    if (!f || fclose(f) != 0) {
        free(text);
        return status_fail(ERR_NOMEM, "out of memory: the list of the data's files");
    }
    enum status st = settled ? known_write(path, text, bytes) : OK;
    free(text);
    return st;
}

/* Files that are read as bytes are read once: their fingerprints, and the tokens that will be trained, counted. */
static enum status survey(struct corpus *c)
{
    int64_t tokens = c->report.train_sequences * c->seq_len, ids = stream_ids(c->files);
    int64_t *counts = sys_calloc((size_t)ids, sizeof *counts);
    if (!counts)
        return status_fail(ERR_NOMEM, "out of memory: counts of %lld tokens", (long long)ids);
    progress_reading(c->report.bytes);
    enum status st = stream_survey(c->files, tokens, counts);
    if (st == OK && c->eval_files)
        st = stream_survey(c->eval_files, 0, NULL);
    progress_reading(0);
    if (st == OK)
        c->report.unigram_entropy = entropy(counts, ids, tokens);
    free(counts);
    return st;
}

static enum status open_stream(const struct corpus_config *config, const char *key, const char *const *paths, int n, struct stream **out)
{
    return stream_open(&(struct stream_config){.key = key, .paths = paths, .n_paths = n, .tokenizer = config->tokenizer, .chats = config->chats,
                                               .cache = config->cache, .column = config->column, .threads = config->threads}, out);
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
    if (config->tokenizer)
        c->tokenizer = (struct tokenizer_print){tokenizer_hash(config->tokenizer), tokenizer_ids(config->tokenizer)};
    TRY_GOTO(open_stream(config, "--data", config->paths, config->n_paths, &c->files), fail);
    if (config->n_eval_paths > 0)
        TRY_GOTO(open_stream(config, "--eval-data", config->eval_paths, config->n_eval_paths, &c->eval_files), fail);
    if (stream_is_masked(c->files) || (c->eval_files && stream_is_masked(c->eval_files)))
        c->tokenizer.hash ^= chat_setup_hash(config->chats); /* another template makes other tokens, too */
    if (config->tokenizer && config->column)
        c->tokenizer.hash ^= XXH3_64bits(config->column, strlen(config->column));
    TRY_GOTO(split_sequences(c, config), fail);
    if (c->tokenizer.ids || !is_remembered(c, config->known))
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
    stream_close(c->files);
    stream_close(c->eval_files);
    free(c->kept);
    free(c->kept_tokens);
    free(c);
}

void corpus_tell(struct corpus *c, const struct rereading *r)
{
    stream_tell(c->files, r);
    if (c->eval_files)
        stream_tell(c->eval_files, r);
}

const struct stream *corpus_documents(const struct corpus *c)
{
    return c->files;
}

const struct corpus_report *corpus_get_report(const struct corpus *c)
{
    return &c->report;
}

#define LAYOUT "sequences of %lld tokens: %lld to train, %lld held out\n"

enum status corpus_write_contents(const struct corpus *c, FILE *f)
{
    fprintf(f, LAYOUT, (long long)c->seq_len, (long long)c->report.train_sequences, (long long)c->report.eval_sequences);
    if (c->tokenizer.ids)
        fingerprint_print(f, "tokenizer", &(struct fingerprint){.xxh3 = c->tokenizer.hash, .bytes = c->tokenizer.ids}, "tokenizer.json");
    stream_print(c->files, "data", f);
    if (c->eval_files)
        stream_print(c->eval_files, "eval-data", f);
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
    c->kept_tokens = sys_malloc((size_t)(n * c->seq_len) * sizeof *c->kept_tokens);
    if (!c->kept || !c->kept_tokens)
        return status_fail(ERR_NOMEM, "out of memory: %lld sequences of a step", (long long)n);
    for (int64_t i = 0; i < n; i++)
        c->kept[i] = (struct kept){.first = -1, .tokens = c->kept_tokens + i * c->seq_len};
    c->n_kept = n;
    return OK;
}

/* Tokens of the stream, from what is kept if they are there; else they are kept. */
static enum status read_training(struct corpus *c, int64_t first, int32_t *tokens, int32_t *next)
{
    for (int64_t i = 0; i < c->n_kept; i++)
        if (c->kept[i].first == first) {
            memcpy(tokens, c->kept[i].tokens, (size_t)c->seq_len * sizeof *tokens);
            *next = c->kept[i].next;
            return OK;
        }
    TRY(stream_read(c->files, first, c->seq_len, tokens, next));
    if (c->n_kept > 0) {
        struct kept *k = &c->kept[c->next_kept];
        memcpy(k->tokens, tokens, (size_t)c->seq_len * sizeof *tokens);
        k->first = first;
        k->next = *next;
        c->next_kept = (c->next_kept + 1) % c->n_kept;
    }
    return OK;
}

/* ---- packing ---- */

/* Sequence from token `first`, whose tokens are in place; those at and beyond `end` are not looked at, not even as a target. next:
 * the one behind them, of the same document, or -1. */
static void pack(const struct corpus *c, const struct stream *d, int64_t first, int64_t end, int32_t next,
                 struct sequence *out)
{
    int64_t seq_len = c->seq_len;
    out->n_targets = 0;
    out->pairs = 0.0;
    int64_t at = 0;
    for (int64_t f = stream_find(d, first); at < seq_len; f++) {
        int64_t stop = min_i64(seq_len, stream_end(d, f) - first), start = at;
        for (; at < stop; at++) {
            int32_t target = at + 1 < stop ? out->tokens[at + 1] : -1;
            out->targets[at] = target < 0 ? -1 : target; /* the last one, or one that is not trained */
            out->n_targets += target >= 0;
            out->positions[at] = (int32_t)(at - start);
            out->lo[at] = (int32_t)max_i64(start, at - c->window + 1);
            out->hi[at] = (int32_t)at;
        }
        int64_t full = max_i64(0, stop - start - c->window),
                rising = stop - start - full; /* queries with a whole window; those before */
        out->pairs += 0.5 * (double)rising * (double)(rising + 1) + (double)full * (double)c->window;
    }
    if (next >= 0 && first + seq_len < end) {
        out->targets[seq_len - 1] = next;
        out->n_targets++;
    }
    for (int64_t i = 0; i < seq_len; i++)
        out->tokens[i] = out->tokens[i] < 0 ? -1 - out->tokens[i] : out->tokens[i];
}

enum status corpus_train_sequence(struct corpus *c, uint64_t cursor, struct sequence *out)
{
    uint64_t n = (uint64_t)c->report.train_sequences;
    int64_t first = (int64_t)permute(c->seed, cursor / n, cursor % n, n) * c->seq_len;
    int32_t next = -1;
    TRY(read_training(c, first, out->tokens, &next));
    pack(c, c->files, first, c->train_end, next, out);
    return OK;
}

/* Where evaluation reads: *first, *end: tokens of the stream that is returned. */
static const struct stream *held_out(const struct corpus *c, int64_t *first, int64_t *end)
{
    const struct stream *d = c->eval_files ? c->eval_files : c->files;
    *first = c->eval_files ? 0 : c->report.train_sequences * c->seq_len;
    *end = stream_tokens(d);
    return d;
}

enum status corpus_check_eval(const struct corpus *c)
{
    int64_t first, end;
    const struct stream *d = held_out(c, &first, &end);
    return c->report.eval_sequences > 0 ? stream_check(d, first, end - first) : OK;
}

enum status corpus_eval_sequence(const struct corpus *c, int64_t index, struct sequence *out)
{
    int64_t first, end;
    int32_t next = -1;
    const struct stream *d = held_out(c, &first, &end);
    if (index < 0 || index >= c->report.eval_sequences)
        return status_fail(ERR_INVALID, "evaluation sequence %lld of %lld", (long long)index,
                           (long long)c->report.eval_sequences);
    first += index * c->seq_len;
    TRY(stream_read(d, first, c->seq_len, out->tokens, &next));
    pack(c, d, first, end, next, out);
    return OK;
}
