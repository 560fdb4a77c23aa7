/* Sources of documents, packed into sequences, and the order in which they are trained. */
#include "data/corpus.h"

#include "base/num.h"
#include "base/progress.h"
#include "base/sys.h"
#include "data/fingerprint.h"
#include "data/known.h"
#include "data/order.h"
#include "data/stream.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* A sequence as it was read. */
struct kept {
    int source; /* -1: nothing is kept here */
    int64_t number;
    int32_t *tokens, *targets;
};

/* Of the tokenizer; ids 0: none. */
struct tokenizer_print {
    uint64_t hash;
    int64_t ids;
};

/* Files that are packed together. */
struct source {
    struct stream *files;
    struct packing *packing;
    int64_t train_below; /* as the longest sequences hold out what is behind it; 0: nothing is, or nothing is packed yet */
    double weight;
    const char *name; /* as it was given, owned */
};

struct corpus {
    struct tokenizer_print tokenizer;
    struct source *sources, eval; /* eval: of eval_paths, or without files; evaluation sequences, if any, are then the last ones of the sources */
    int n_sources, masked; /* masked: by a chat template */
    struct mixture *mixture;
    enum packing_kind packing;
    enum too_long too_long;
    double eval_fraction;
    int64_t seq_len;
    int64_t longest;  /* seq_len as it was opened */
    int64_t surveyed; /* tokens that the entropy is of */
    int64_t given_window, window; /* given_window: 0 if there is none; window: at most seq_len */
    uint64_t seed;
    struct corpus_report report;
    struct kept *kept; /* the next one is written over first */
    int64_t n_kept, next_kept;
    int32_t *kept_tokens;
};

/* ---- counting ---- */

/* Adds what one source gives. */
static void count_source(struct corpus_report *r, const struct source *s)
{
    const struct stream *d = s->files;
    const struct packing_report *p = packing_get_report(s->packing);
    r->documents += stream_documents(d);
    r->bytes += stream_text_bytes(d);
    r->repaired += stream_repaired(d);
    r->cached &= stream_is_cached(d);
    r->tokens += stream_tokens(d);
    r->packed.tokens_kept += p->tokens_kept;
    r->packed.tokens_dropped += p->tokens_dropped;
    r->packed.tokens_truncated += p->tokens_truncated;
    r->packed.tokens_untrained += p->tokens_untrained;
    r->packed.documents_split += p->documents_split;
    r->packed.documents_dropped += p->documents_dropped;
    r->packed.documents_truncated += p->documents_truncated;
    r->packed.train_tokens += p->train_tokens;
    r->train_sequences += p->train_sequences;
    r->eval_sequences += p->eval_sequences;
}

static double entropy(const int64_t *counts, int64_t ids, int64_t tokens)
{
    double sum = 0.0;
    for (int64_t i = 0; i < ids; i++)
        if (counts[i])
            sum -= (double)counts[i] * log((double)counts[i] / (double)tokens);
    return sum / (double)tokens;
}

/* Tokens of the stream that are trained, those between them that are left out included. */
static int64_t trained_of(const struct corpus *c, const struct source *s)
{
    return c->packing == PACKING_CONCAT ? packing_get_report(s->packing)->train_tokens : packing_train_end(s->packing);
}

static int64_t trained_tokens(const struct corpus *c)
{
    int64_t n = 0;
    for (int i = 0; i < c->n_sources; i++)
        n += trained_of(c, &c->sources[i]);
    return n;
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

static enum status pack_source(const struct corpus *c, struct source *s, const char *key, double held_out)
{
    return packing_create(s->files, &(struct packing_config){key, c->packing, c->too_long, c->seq_len, held_out, s->train_below}, &s->packing);
}

/* Weights are shares of tokens; a source whose sequences hold fewer of them than another's comes more often. */
static enum status mix(struct corpus *c)
{
    double *share = sys_calloc((size_t)c->n_sources, sizeof *share);
    if (!share)
        return status_fail(ERR_NOMEM, "out of memory: the order of %d sources", c->n_sources);
    for (int i = 0; i < c->n_sources; i++) {
        const struct packing_report *r = packing_get_report(c->sources[i].packing);
        share[i] = c->sources[i].weight * (double)r->train_sequences / (double)r->train_tokens;
    }
    enum status st = mixture_create(share, c->n_sources, &c->mixture);
    free(share);
    return st;
}

static enum status pack_sources(struct corpus *c)
{
    c->window = c->given_window > 0 ? min_i64(c->given_window, c->seq_len) : c->seq_len;
    c->report.cached = 1;
    for (int i = 0; i < c->n_sources; i++) {
        TRY(pack_source(c, &c->sources[i], "--data", c->eval_fraction));
        count_source(&c->report, &c->sources[i]);
    }
    if (c->eval.files) {
        int64_t trained = c->report.train_sequences, tokens = c->report.packed.train_tokens;
        TRY(pack_source(c, &c->eval, "--eval-data", 0.0));
        count_source(&c->report, &c->eval);
        c->report.eval_sequences = c->report.train_sequences - trained;
        c->report.train_sequences = trained;
        c->report.packed.train_tokens = tokens;
    }
    return mix(c);
}

/* Sequences of all sources go, and what was counted of them. */
static void unpack_sources(struct corpus *c)
{
    for (int i = 0; i < c->n_sources; i++) {
        packing_destroy(c->sources[i].packing);
        c->sources[i].packing = NULL;
    }
    packing_destroy(c->eval.packing);
    c->eval.packing = NULL;
    mixture_destroy(c->mixture);
    c->mixture = NULL;
    c->report = (struct corpus_report){.unigram_entropy = c->report.unigram_entropy, .remembered = c->report.remembered};
    for (int64_t i = 0; i < c->n_kept; i++)
        c->kept[i].source = -1;
}

enum status corpus_cut(struct corpus *c, int64_t seq_len)
{
    if (seq_len == c->seq_len)
        return OK;
    for (int i = 0; i < c->n_sources && c->seq_len == c->longest && c->eval_fraction > 0.0; i++)
        c->sources[i].train_below = packing_train_end(c->sources[i].packing);
    unpack_sources(c);
    c->seq_len = seq_len;
    return pack_sources(c);
}

int64_t corpus_get_length(const struct corpus *c)
{
    return c->seq_len;
}

#define KNOWN "ltrain data 1\ntokens %lld entropy %la\n"

static int recall_sources(struct corpus *c, const char *text)
{
    for (int i = 0; i < c->n_sources; i++)
        if (!stream_recall(c->sources[i].files, "data", &text))
            return 0;
    return (!c->eval.files || stream_recall(c->eval.files, "eval-data", &text)) && !*text;
}

/* 1 if the text is of these files, of which none was touched since, and of as many tokens. */
static int recall(struct corpus *c, const char *text)
{
    long long tokens;
    double known_entropy;
    if (sscanf(text, KNOWN, &tokens, &known_entropy) != 2 || tokens != c->surveyed)
        return 0;
    for (int lines = 0; lines < 2; lines++)
        text = strchr(text, '\n') + 1;
    if (!recall_sources(c, text))
        return 0;
    c->report.unigram_entropy = known_entropy;
    c->report.remembered = 1;
    return 1;
}

/* Files of tokens know what they are of. */
static int is_bytes(const struct corpus *c)
{
    int bytes = !c->eval.files || stream_is_bytes(c->eval.files);
    for (int i = 0; i < c->n_sources; i++)
        bytes &= stream_is_bytes(c->sources[i].files);
    return bytes;
}

static int is_remembered(struct corpus *c, const char *path)
{
    char *text = path && is_bytes(c) ? known_read(path) : NULL;
    int known = text && recall(c, text);
    free(text);
    return known;
}

static int write_known(const struct corpus *c, FILE *f)
{
    fprintf(f, KNOWN, (long long)c->surveyed, c->report.unigram_entropy);
    for (int i = 0; i < c->n_sources; i++)
        if (!stream_write_known(c->sources[i].files, "data", f))
            return 0;
    return !c->eval.files || stream_write_known(c->eval.files, "eval-data", f);
}

enum status corpus_remember(const struct corpus *c, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    if (!is_bytes(c))
        return OK;
    FILE *f = open_memstream(&text, &bytes);
    int settled = f && write_known(c, f);
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
    int64_t ids = 0;
    enum status st = OK;
    for (int i = 0; i < c->n_sources; i++)
        ids = max_i64(ids, stream_ids(c->sources[i].files));
    int64_t *counts = sys_calloc((size_t)ids, sizeof *counts);
    if (!counts)
        return status_fail(ERR_NOMEM, "out of memory: counts of %lld tokens", (long long)ids);
    progress_reading(c->report.bytes);
    for (int i = 0; i < c->n_sources && st == OK; i++)
        st = stream_survey(c->sources[i].files, trained_of(c, &c->sources[i]), counts);
    if (st == OK && c->eval.files)
        st = stream_survey(c->eval.files, 0, NULL);
    progress_reading(0);
    if (st == OK)
        c->report.unigram_entropy = entropy(counts, ids, trained_tokens(c));
    free(counts);
    return st;
}

static enum status open_source(struct corpus *c, const struct corpus_config *config, const char *key, const char *const *paths, int n,
                               struct source *out)
{
    const struct stream_config s = {.key = key, .paths = paths, .n_paths = n, .tokenizer = config->tokenizer, .chats = config->chats,
                                    .cache = config->cache, .column = config->column, .vocab = config->vocab,
                                    .token_bytes = config->token_bytes, .threads = config->threads};
    TRY(stream_open(&s, &out->files));
    if (stream_is_masked(out->files) && config->chats)
        c->masked = 1;
    out->name = strdup(paths[0]);
    return out->name ? OK : status_fail(ERR_NOMEM, "out of memory: a list of files");
}

/* With weights each path is a source of its own. */
static enum status open_sources(struct corpus *c, const struct corpus_config *config)
{
    int n = config->weights ? config->n_paths : 1, each = config->weights ? 1 : config->n_paths;
    c->sources = sys_calloc((size_t)n, sizeof *c->sources);
    if (!c->sources)
        return status_fail(ERR_NOMEM, "out of memory: the corpus's description");
    c->n_sources = n;
    for (int i = 0; i < n; i++) {
        c->sources[i].weight = config->weights ? config->weights[i] : 1.0;
        if (!(c->sources[i].weight > 0.0 && isfinite(c->sources[i].weight)))
            return status_fail(ERR_INVALID, "--data: the weight %g of %s is not above 0", c->sources[i].weight, config->paths[i]);
        TRY(open_source(c, config, "--data", config->paths + (config->weights ? i : 0), each, &c->sources[i]));
    }
    return config->n_eval_paths > 0 ? open_source(c, config, "--eval-data", config->eval_paths, config->n_eval_paths, &c->eval) : OK;
}

enum status corpus_open(const struct corpus_config *config, struct corpus **out)
{
    enum status st;
    TRY(check_config(config));
    struct corpus *c = sys_calloc(1, sizeof *c);
    if (!c)
        return status_fail(ERR_NOMEM, "out of memory: the corpus's description");
    c->seq_len = c->longest = config->seq_len;
    c->eval_fraction = config->eval_fraction;
    c->packing = config->packing;
    c->too_long = config->too_long;
    c->given_window = config->window;
    c->seed = config->seed;
    if (config->tokenizer)
        c->tokenizer = (struct tokenizer_print){tokenizer_hash(config->tokenizer), tokenizer_ids(config->tokenizer)};
    TRY_GOTO(open_sources(c, config), fail);
    if (c->masked)
        c->tokenizer.hash ^= chat_setup_hash(config->chats); /* another template makes other tokens, too */
    if (config->tokenizer && config->column)
        c->tokenizer.hash ^= XXH3_64bits(config->column, strlen(config->column));
    TRY_GOTO(pack_sources(c), fail);
    c->surveyed = trained_tokens(c);
    if (!is_remembered(c, config->known))
        TRY_GOTO(survey(c), fail);
    *out = c;
    return OK;
fail:
    corpus_close(c);
    return st;
}

static void close_source(struct source *s)
{
    packing_destroy(s->packing);
    stream_close(s->files);
    free((char *)s->name);
}

void corpus_close(struct corpus *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->n_sources; i++)
        close_source(&c->sources[i]);
    close_source(&c->eval);
    mixture_destroy(c->mixture);
    free(c->sources);
    free(c->kept);
    free(c->kept_tokens);
    free(c);
}

void corpus_tell(struct corpus *c, const struct rereading *r)
{
    for (int i = 0; i < c->n_sources; i++)
        stream_tell(c->sources[i].files, r);
    if (c->eval.files)
        stream_tell(c->eval.files, r);
}

const struct corpus_report *corpus_get_report(const struct corpus *c)
{
    return &c->report;
}

int corpus_sources(const struct corpus *c)
{
    return c->n_sources;
}

struct corpus_source corpus_get_source(const struct corpus *c, int i)
{
    const struct source *s = &c->sources[i];
    return (struct corpus_source){s->name, s->weight, s->files, packing_get_report(s->packing)};
}

const struct packing_report *corpus_get_held_out(const struct corpus *c)
{
    return c->eval.files ? packing_get_report(c->eval.packing) : NULL;
}

double corpus_epochs(const struct corpus *c, int source, uint64_t cursor)
{
    return (double)mixture_count(c->mixture, cursor, source) /
           (double)packing_get_report(c->sources[source].packing)->train_sequences;
}

/* ---- as text ---- */

#define LAYOUT "sequences of %lld tokens: %lld to train, %lld held out\n"
#define BELOW "\ntrained below token %lld\n"

static void print_packing(const struct corpus *c, FILE *f)
{
    static const char *const kinds[] = {"concat", "best-fit"}, *const longer[] = {"split", "drop", "truncate", "refuse"};
    int64_t end = 0;
    fprintf(f, "packing %s, longer documents: %s", kinds[c->packing], longer[c->too_long]);
    for (int i = 0; i < c->n_sources; i++)
        end += packing_train_end(c->sources[i].packing);
    for (int i = 0; i < c->n_sources && c->n_sources > 1; i++)
        fprintf(f, "%s %.17g", i ? "" : ", weights", c->sources[i].weight);
    fprintf(f, BELOW, (long long)end);
}

enum status corpus_write_contents(const struct corpus *c, FILE *f)
{
    fprintf(f, LAYOUT, (long long)c->seq_len, (long long)c->report.train_sequences, (long long)c->report.eval_sequences);
    print_packing(c, f);
    if (c->tokenizer.ids)
        fingerprint_print(f, "tokenizer", &(struct fingerprint){.xxh3 = c->tokenizer.hash, .bytes = c->tokenizer.ids}, "tokenizer.json");
    for (int i = 0; i < c->n_sources; i++)
        stream_print(c->sources[i].files, "data", f);
    if (c->eval.files)
        stream_print(c->eval.files, "eval-data", f);
    return ferror(f) ? status_fail(ERR_NOMEM, "out of memory: the list of the data's files") : OK;
}

int corpus_read_layout(const char *text, struct corpus_layout *out)
{
    const char *packing = strstr(text, "\npacking ");
    out->packing[0] = 0;
    if (packing)
        snprintf(out->packing, sizeof out->packing, "%.*s", (int)strcspn(packing + 1, "\n"), packing + 1);
    const char *below = strstr(text, "\ntrained below ");
    if (!below || sscanf(below, BELOW, &out->trained_below) != 1)
        return 0;
    return sscanf(text, LAYOUT, &out->seq_len, &out->train_sequences, &out->eval_sequences) == 3;
}

/* ---- sequences that are taken again ---- */

enum status corpus_keep(struct corpus *c, int64_t n)
{
    c->kept = sys_calloc((size_t)n, sizeof *c->kept);
    c->kept_tokens = sys_malloc((size_t)(2 * n * c->longest) * sizeof *c->kept_tokens);
    if (!c->kept || !c->kept_tokens)
        return status_fail(ERR_NOMEM, "out of memory: %lld sequences of a step", (long long)n);
    for (int64_t i = 0; i < n; i++) {
        int32_t *tokens = c->kept_tokens + 2 * i * c->longest;
        c->kept[i] = (struct kept){.source = -1, .tokens = tokens, .targets = tokens + c->longest};
    }
    c->n_kept = n;
    return OK;
}

static void copy(const struct corpus *c, int32_t *tokens, int32_t *targets, const int32_t *from_tokens, const int32_t *from_targets)
{
    memcpy(tokens, from_tokens, (size_t)c->seq_len * sizeof *tokens);
    memcpy(targets, from_targets, (size_t)c->seq_len * sizeof *targets);
}

static int take_kept(const struct corpus *c, int source, int64_t number, struct sequence *out)
{
    for (int64_t i = 0; i < c->n_kept; i++)
        if (c->kept[i].source == source && c->kept[i].number == number) {
            copy(c, out->tokens, out->targets, c->kept[i].tokens, c->kept[i].targets);
            return 1;
        }
    return 0;
}

static void keep(struct corpus *c, int source, int64_t number, const struct sequence *s)
{
    if (c->n_kept == 0)
        return;
    struct kept *k = &c->kept[c->next_kept];
    copy(c, k->tokens, k->targets, s->tokens, s->targets);
    k->source = source;
    k->number = number;
    c->next_kept = (c->next_kept + 1) % c->n_kept;
}

/* ---- reading ---- */

/* Parts that touch, read as one; the last target is that of a document that goes on, if training may see it. */
static enum status read_run(const struct source *s, int64_t first, int64_t n, int64_t end, int64_t at, struct sequence *out)
{
    int32_t next = -1;
    TRY(stream_read(s->files, first, n, out->tokens + at, &next));
    if (next >= 0 && first + n < end && packing_goes_on(s->packing))
        out->targets[at + n - 1] = next;
    return OK;
}

/* Tokens and targets of a source's sequence; tokens at and beyond `end` are not looked at, not even as a target. */
static enum status read_tokens(const struct corpus *c, const struct source *s, int64_t number, int64_t end, struct sequence *out)
{
    struct part part, run = {0, 0};
    int64_t at = 0, place = 0;
    memset(out->targets, 0xff, (size_t)c->seq_len * sizeof *out->targets);
    while (packing_next(s->packing, number, &place, &part)) {
        if (run.n > 0 && run.first + run.n != part.first) {
            TRY(read_run(s, run.first, run.n, end, at, out));
            at += run.n;
            run.n = 0;
        }
        run = (struct part){run.n ? run.first : part.first, run.n + part.n};
    }
    TRY(read_run(s, run.first, run.n, end, at, out));
    at += run.n;
    memset(out->tokens + at, 0, (size_t)(c->seq_len - at) * sizeof *out->tokens);
    for (int64_t start = place = 0; packing_next(s->packing, number, &place, &part); start += part.n)
        for (int64_t i = start; i + 1 < start + part.n; i++)
            out->targets[i] = out->tokens[i + 1] < 0 ? -1 : out->tokens[i + 1]; /* one that is not trained */
    for (int64_t i = 0; i < at; i++)
        out->tokens[i] = out->tokens[i] < 0 ? -1 - out->tokens[i] : out->tokens[i];
    return OK;
}

/* Tokens [start, stop) are a document. */
static void lay_document(const struct corpus *c, int64_t start, int64_t stop, struct sequence *out)
{
    for (int64_t at = start; at < stop; at++) {
        out->n_targets += out->targets[at] >= 0;
        out->positions[at] = (int32_t)(at - start);
        out->lo[at] = (int32_t)max_i64(start, at - c->window + 1);
        out->hi[at] = (int32_t)at;
    }
    int64_t full = max_i64(0, stop - start - c->window), rising = stop - start - full; /* queries with a whole window; those before */
    out->pairs += 0.5 * (double)rising * (double)(rising + 1) + (double)full * (double)c->window;
}

/* Everything but tokens and targets. */
static void lay_out(const struct corpus *c, const struct source *s, int64_t number, struct sequence *out)
{
    struct part part;
    int64_t at = 0, place = 0;
    out->n_targets = 0;
    out->pairs = 0.0;
    while (packing_next(s->packing, number, &place, &part)) {
        lay_document(c, at, at + part.n, out);
        at += part.n;
    }
    out->n_tokens = at;
    for (; at < c->seq_len; at++) { /* padding attends to itself alone */
        out->positions[at] = 0;
        out->lo[at] = out->hi[at] = (int32_t)at;
    }
}

enum status corpus_train_sequence(struct corpus *c, uint64_t cursor, struct sequence *out)
{
    uint64_t before;
    int source = mixture_at(c->mixture, cursor, &before);
    const struct source *s = &c->sources[source];
    uint64_t n = (uint64_t)packing_get_report(s->packing)->train_sequences;
    uint64_t seed = c->seed ^ (uint64_t)source * 0x9e3779b97f4a7c15u; /* sources of as many sequences have orders of their own */
    int64_t number = (int64_t)order_permute(seed, before / n, before % n, n);
    if (!take_kept(c, source, number, out)) {
        TRY(read_tokens(c, s, number, packing_train_end(s->packing), out));
        keep(c, source, number, out);
    }
    lay_out(c, s, number, out);
    return OK;
}

enum status corpus_check_eval(const struct corpus *c)
{
    if (c->report.eval_sequences == 0)
        return OK;
    if (c->eval.files)
        return stream_check(c->eval.files, 0, stream_tokens(c->eval.files));
    for (int i = 0; i < c->n_sources; i++) {
        const struct stream *d = c->sources[i].files;
        int64_t first = packing_train_end(c->sources[i].packing);
        TRY(stream_check(d, first, stream_tokens(d) - first));
    }
    return OK;
}

enum status corpus_eval_sequence(const struct corpus *c, int64_t index, struct sequence *out)
{
    const struct source *s = &c->eval;
    int64_t number = index;
    if (index < 0 || index >= c->report.eval_sequences)
        return status_fail(ERR_INVALID, "evaluation sequence %lld of %lld", (long long)index,
                           (long long)c->report.eval_sequences);
    if (!c->eval.files) {
        for (s = c->sources; number >= packing_get_report(s->packing)->eval_sequences; s++)
            number -= packing_get_report(s->packing)->eval_sequences;
        number += packing_get_report(s->packing)->train_sequences;
    }
    TRY(read_tokens(c, s, number, stream_tokens(s->files), out));
    lay_out(c, s, number, out);
    return OK;
}
