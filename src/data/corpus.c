/* Opening a corpus: sources of documents, packed into sequences, and the order in which they are trained. */
#include "data/corpus_parts.h"

#include "base/num.h"
#include "base/progress.h"
#include "base/sys.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* ---- counting ---- */

/* Adds one source's counts to the report. */
static void count_source(struct corpus_report *r, const struct source *s)
{
    const struct stream *d = s->files;
    const struct packing_report *p = packing_get_report(s->packing);
    r->documents += stream_documents(d);
    r->bytes += stream_text_bytes(d);
    const char *repaired_path;
    const int64_t repaired = stream_repaired(d, &repaired_path);
    r->repaired_path = !r->repaired_path && repaired > 0 ? repaired_path : r->repaired_path;
    r->repaired += repaired;
    r->cached &= stream_is_cached(d);
    r->tokens += stream_tokens(d);
    r->empty += stream_empty(d);
    r->left_out += stream_left_out(d);
    const char *json_path;
    r->json_rows += stream_json_rows(d, &json_path);
    r->json_path = r->json_path ? r->json_path : json_path;
    const struct chat_counts chats = stream_chats(d);
    chat_counts_add(&r->chats, &chats);
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

/* ---- opening ---- */

static enum status check_config(const struct corpus_config *c)
{
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
    return packing_create(s->files,
                          &(struct packing_config){key, c->n_sources > 1 && s != &c->eval ? s->name : NULL, c->packing,
                                                   c->too_long, c->seq_len, held_out, s->train_below},
                          &s->packing);
}

/* Creates the order of sources from their weights, which are shares of tokens. A source with fewer tokens a sequence than another
 * comes correspondingly more often. */
static enum status mix(struct corpus *c)
{
    double *share = sys_calloc((size_t)c->n_sources, sizeof *share);
    const char **name = sys_calloc((size_t)c->n_sources, sizeof *name);
    enum status st = share && name ? OK : status_fail(ERR_NOMEM, "out of memory: the order of %d sources", c->n_sources);
    for (int i = 0; i < c->n_sources && st == OK; i++) {
        const struct packing_report *r = packing_get_report(c->sources[i].packing);
        name[i] = c->sources[i].name;
        share[i] = c->sources[i].weight * (double)r->train_sequences / (double)r->train_tokens;
    }
    if (st == OK)
        st = mixture_create(share, name, c->n_sources, &c->mixture);
    free(share);
    free(name);
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
        const int64_t trained = c->report.train_sequences, tokens = c->report.packed.train_tokens;
        const int32_t ends = c->report.chats.n_ends;
        TRY(pack_source(c, &c->eval, "--eval-data", 0.0));
        count_source(&c->report, &c->eval);
        c->report.eval_sequences = c->report.train_sequences - trained;
        c->report.train_sequences = trained;
        c->report.packed.train_tokens = tokens;
        /* end tokens of the sources of --data only: conversations that are only evaluated teach no end */
        c->report.chats.n_ends = ends;
    }
    return mix(c);
}

/* Destroys the sequences of all sources and their counts. */
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
    c->report = (struct corpus_report){.unigram_entropy = c->report.unigram_entropy,
                                       .remembered = c->report.remembered,
                                       .read_twice = c->report.read_twice,
                                       .evaluated_too = c->report.evaluated_too,
                                       .foreign_token = c->report.foreign_token};
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

/* Reads files of bytes once, for their fingerprints, and counts the tokens that will be trained. */
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
        st = stream_survey(c->sources[i].files, corpus_trained_of(c, &c->sources[i]), counts);
    if (st == OK && c->eval.files)
        st = stream_survey(c->eval.files, 0, NULL);
    progress_reading(0);
    if (st == OK)
        c->report.unigram_entropy = entropy(counts, ids, corpus_trained_tokens(c));
    free(counts);
    return st;
}

static struct stream_config files_of(const struct corpus_config *c, const char *key, const char *const *paths, int n)
{
    return (struct stream_config){.key = key,
                                  .paths = paths,
                                  .n_paths = n,
                                  .tokenizer = c->tokenizer,
                                  .chats = c->chats,
                                  .cache = c->cache,
                                  .column = c->column,
                                  .append_eos = c->append_eos,
                                  .exclude = c->exclude,
                                  .vocab = c->vocab,
                                  .token_bytes = c->token_bytes,
                                  .threads = c->threads};
}

enum status corpus_look(const struct corpus_config *config, unsigned *holds)
{
    int n = config->weights ? config->n_paths : config->n_paths > 0, each = config->weights ? 1 : config->n_paths;
    *holds = 0;
    for (int i = 0; i <= n; i++) {
        const struct stream_config s = i < n ? files_of(config, "--data", config->paths + i, each)
                                             : files_of(config, "--eval-data", config->eval_paths, config->n_eval_paths);
        unsigned more = 0;
        if (s.n_paths > 0)
            TRY(stream_look(&s, &more));
        *holds |= more;
    }
    return OK;
}

static enum status open_source(struct corpus *c, const struct corpus_config *config, const char *key, const char *const *paths,
                               int n, struct source *out)
{
    const struct stream_config s = files_of(config, key, paths, n);
    TRY(stream_open(&s, &out->files));
    TRY(stream_check_bytes(&s, out->files));
    c->holds |= stream_holds(out->files);
    out->name = strdup(paths[0]);
    return out->name ? OK : status_fail(ERR_NOMEM, "out of memory: a list of files");
}

/* Refuses a file given twice, which might be meant to count twice: files count once. */
static enum status check_repeated(const struct corpus_config *config)
{
    for (int i = 0; i < config->n_paths; i++)
        for (int k = 0; k < i; k++)
            if (strcmp(config->paths[k], config->paths[i]) == 0)
                return status_fail(ERR_INVALID, "--data: %s is given twice: give it once, with %s", config->paths[i],
                                   config->weights ? "both weights together"
                                                   : "a weight if it is to count for more (books=2,chats=1)");
    return OK;
}

/* Opens the sources; with weights each path is a source of its own. */
static enum status open_sources(struct corpus *c, const struct corpus_config *config)
{
    int n = config->weights ? config->n_paths : 1, each = config->weights ? 1 : config->n_paths;
    c->sources = sys_calloc((size_t)n, sizeof *c->sources);
    if (!c->sources)
        return status_fail(ERR_NOMEM, "out of memory: the corpus's description");
    c->n_sources = n;
    TRY(check_repeated(config));
    for (int i = 0; i < n; i++) {
        c->sources[i].weight = config->weights ? config->weights[i] : 1.0;
        if (!(c->sources[i].weight > 0.0 && isfinite(c->sources[i].weight)))
            return status_fail(ERR_INVALID, "--data: the weight %g of %s is not above 0", c->sources[i].weight, config->paths[i]);
        TRY(open_source(c, config, "--data", config->paths + i, each, &c->sources[i]));
    }
    return config->n_eval_paths > 0 ? open_source(c, config, "--eval-data", config->eval_paths, config->n_eval_paths, &c->eval)
                                    : OK;
}

/* Refuses ids in files beside texts read as bytes: these are different vocabularies. */
static enum status check_vocabularies(const struct corpus *c)
{
    const struct source *first = &c->sources[0];
    for (int i = 1; i <= c->n_sources; i++) {
        const struct source *s = i < c->n_sources ? &c->sources[i] : &c->eval;
        if (s->files && stream_has_ids(s->files) != stream_has_ids(first->files))
            return status_fail(ERR_INVALID,
                               "one of %s and %s holds token ids and the other texts, which would be read as bytes: "
                               "--tokenizer DIR names the tokenizer of both",
                               first->name, s->name);
    }
    return OK;
}

/* Finds a file that two sources have, and one that is both trained and evaluated. */
static void find_common(struct corpus *c)
{
    for (int i = 0; i < c->n_sources; i++) {
        for (int k = 0; k < i && !c->report.read_twice; k++)
            c->report.read_twice = stream_common(c->sources[k].files, c->sources[i].files);
        if (c->eval.files && !c->report.evaluated_too)
            c->report.evaluated_too = stream_common(c->sources[i].files, c->eval.files);
    }
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
        c->tokenizer = (struct tokenizer_print){tokenizer_hash(config->tokenizer), tokenizer_ids(config->tokenizer),
                                                tokenizer_file_name(tokenizer_path(config->tokenizer))};
    TRY_GOTO(open_sources(c, config), fail);
    TRY_GOTO(exclusion_check(config->exclude), fail);
    TRY_GOTO(check_vocabularies(c), fail);
    if (c->holds & HOLDS_BARE_IDS)
        c->bare_bytes = config->token_bytes;
    if ((c->holds & HOLDS_CHATS) && chat_foreign_token(config->chats, config->tokenizer, c->foreign))
        c->report.foreign_token = c->foreign;
    if (c->holds & HOLDS_CHATS)
        c->tokenizer.hash ^= chat_setup_hash(config->chats); /* another template makes other tokens, too */
    if ((c->holds & HOLDS_ROWS) && config->column)
        c->tokenizer.hash ^= XXH3_64bits(config->column, strlen(config->column));
    if ((c->holds & HOLDS_TEXTS) && config->append_eos)
        c->tokenizer.hash = XXH3_64bits_withSeed("append-eos", strlen("append-eos"),
                                                 c->tokenizer.hash ^ (uint64_t)tokenizer_eos(config->tokenizer));
    TRY_GOTO(pack_sources(c), fail);
    find_common(c);
    c->surveyed = corpus_trained_tokens(c);
    if (!corpus_is_remembered(c, config->known))
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
    return (struct corpus_source){s->name, s->weight, s->files, packing_get_report(s->packing), packing_train_end(s->packing)};
}

struct corpus_source corpus_get_held_out(const struct corpus *c)
{
    const struct source *s = &c->eval;
    return s->files ? (struct corpus_source){s->name, 0.0, s->files, packing_get_report(s->packing), 0}
                    : (struct corpus_source){.name = NULL};
}

double corpus_epochs(const struct corpus *c, int source, uint64_t cursor)
{
    return (double)mixture_count(c->mixture, cursor, source) /
           (double)packing_get_report(c->sources[source].packing)->train_sequences;
}
