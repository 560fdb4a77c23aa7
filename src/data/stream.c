/* A stream of bytes or of tokens. */
#include "data/stream.h"

#include "base/num.h"
#include "base/progress.h"
#include "base/sys.h"
#include "data/documents.h"
#include "data/kinds.h"
#include "data/token_file.h"
#include "data/tokenize.h"

#include <stdlib.h>
#include <string.h>

struct stream {
    struct documents *d;
    struct token_file *tokens; /* NULL: the stream's tokens are the files' bytes */
    int64_t ids;
    int has_ids;           /* 1: ids come from files of ids, and there is no tokenizer */
    unsigned holds;        /* kinds of the files, as bits HOLDS_* */
    int cached, masked;    /* masked: 1: some tokens are not trained; the file of tokens has these as id + `ids` */
    int64_t json_rows;     /* files found in directories that hold rows but are read as whole texts */
    const char *json_path; /* the first of these files */
};

static enum status tokenize(struct stream *s, const struct stream_config *config, const struct file_kind *kinds)
{
    const struct tokenize_config t = {.tokenizer = config->tokenizer,
                                      .chats = config->chats,
                                      .column = config->column,
                                      .dir = config->cache,
                                      .append_eos = config->append_eos,
                                      .vocab = config->vocab,
                                      .token_bytes = config->token_bytes,
                                      .threads = config->threads};
    progress_purpose("tokenizing");
    progress_reading(documents_bytes(s->d));
    enum status st = tokenize_documents(s->d, &t, kinds, &s->tokens, &s->cached);
    progress_reading(0);
    progress_purpose(PROGRESS_FILES);
    return st;
}

/* Finds the bound of ids: 256 for bytes, the tokenizer's, or the vocabulary's for files of ids. The shifted ids of untrained
 * tokens are not counted. */
static void find_ids(struct stream *s, const struct stream_config *config, const struct file_kind *kinds)
{
    enum { BYTES = 256 };
    for (int64_t i = 0; !config->tokenizer && i < documents_count(s->d); i++)
        s->has_ids |= kinds_are_ids(&kinds[i]);
    s->ids = config->tokenizer ? tokenizer_ids(config->tokenizer) : s->has_ids ? config->vocab : BYTES;
}

/* Opens the files and finds the kind of each. */
static enum status look(const struct stream_config *config, struct documents **d, struct file_kind **kinds, unsigned *holds)
{
    int tokens;
    TRY(documents_open(config->key, config->paths, config->n_paths, config->exclude, d));
    TRY(kinds_find(*d, &(struct kinds_config){config->column, config->token_bytes, config->tokenizer != NULL}, kinds, &tokens));
    *holds = tokens ? HOLDS_TOKENS : 0;
    for (int64_t i = 0; i < documents_count(*d); i++) {
        const struct file_kind *k = &(*kinds)[i];
        *holds |= k->lines == LINES_TEXT ? HOLDS_ROWS : k->lines == LINES_CHATS ? HOLDS_CHATS : 0;
        *holds |= kinds_are_text(k) ? HOLDS_TEXTS : 0;
        *holds |= k->ids.format == IDS_PLAIN ? HOLDS_BARE_IDS : 0;
    }
    return OK;
}

enum status stream_look(const struct stream_config *config, unsigned *holds)
{
    struct documents *d = NULL;
    struct file_kind *kinds = NULL;
    enum status st = look(config, &d, &kinds, holds);
    if (kinds)
        kinds_free(kinds, documents_count(d));
    documents_close(d);
    return st;
}

static void count_json_rows(struct stream *s, const struct file_kind *kinds)
{
    for (int64_t i = documents_count(s->d) - 1; i >= 0; i--)
        if (kinds[i].json_rows) {
            s->json_rows++;
            s->json_path = documents_path(s->d, i);
        }
}

enum status stream_open(const struct stream_config *config, struct stream **out)
{
    enum status st;
    struct file_kind *kinds = NULL;
    struct stream *s = sys_calloc(1, sizeof *s);
    if (!s)
        return status_fail(ERR_NOMEM, "out of memory: a list of files");
    TRY_GOTO(look(config, &s->d, &kinds, &s->holds), fail);
    find_ids(s, config, kinds);
    count_json_rows(s, kinds);
    st = s->holds & HOLDS_TOKENS ? tokenize(s, config, kinds) : OK;
    kinds_free(kinds, documents_count(s->d));
    TRY_GOTO(st, fail);
    s->masked = s->tokens && token_file_ids(s->tokens) > s->ids;
    *out = s;
    return OK;
fail:
    stream_close(s);
    return st;
}

void stream_close(struct stream *s)
{
    if (!s)
        return;
    token_file_close(s->tokens);
    documents_close(s->d);
    free(s);
}

int64_t stream_documents(const struct stream *s)
{
    return s->tokens ? token_file_totals(s->tokens)->documents : documents_count(s->d);
}

int64_t stream_tokens(const struct stream *s)
{
    return s->tokens ? token_file_totals(s->tokens)->tokens : documents_bytes(s->d);
}

int64_t stream_text_bytes(const struct stream *s)
{
    return s->tokens ? token_file_totals(s->tokens)->text_bytes : documents_bytes(s->d);
}

int64_t stream_repaired(const struct stream *s, const char **most)
{
    *most = documents_path(s->d, s->tokens ? token_file_totals(s->tokens)->repaired_file : 0);
    return s->tokens ? token_file_totals(s->tokens)->repaired : 0;
}

int64_t stream_empty(const struct stream *s)
{
    return documents_empty(s->d) + (s->tokens ? token_file_totals(s->tokens)->empty : 0);
}

int64_t stream_left_out(const struct stream *s)
{
    return documents_left_out(s->d);
}

int64_t stream_json_rows(const struct stream *s, const char **first)
{
    *first = s->json_path;
    return s->json_rows;
}

struct chat_counts stream_chats(const struct stream *s)
{
    return s->tokens ? token_file_totals(s->tokens)->chats : (struct chat_counts){.samples = 0};
}

int stream_is_cached(const struct stream *s)
{
    return s->cached;
}

int stream_is_masked(const struct stream *s)
{
    return s->masked;
}

int stream_is_bytes(const struct stream *s)
{
    return !s->tokens;
}

unsigned stream_holds(const struct stream *s)
{
    return s->holds;
}

int stream_has_ids(const struct stream *s)
{
    return s->has_ids;
}

enum status stream_check_bytes(const struct stream_config *config, const struct stream *s)
{
    if (config->tokenizer || s->has_ids || config->vocab >= 256)
        return OK;
    return status_fail(ERR_INVALID, "%s: byte-level tokens need a vocabulary of at least 256, the model has %lld", config->key,
                       (long long)config->vocab);
}

int64_t stream_ids(const struct stream *s)
{
    return s->ids;
}

/* Counts of each byte among the first `left` bytes. Four tables in turn, as counting equal bytes one after the other in one table
 * would wait each time. */
struct histogram {
    int64_t left;
    int64_t counts[4][256];
};

static enum status count_bytes(void *user, const uint8_t *data, int64_t n)
{
    struct histogram *h = user;
    n = min_i64(n, h->left);
    h->left -= n;
    const int64_t whole = n - n % 4;
    for (int64_t i = 0; i < whole; i += 4) { /* unrolled by hand: 3 instructions a byte, where the index i & 3 took 9 */
        h->counts[0][data[i]]++;
        h->counts[1][data[i + 1]]++;
        h->counts[2][data[i + 2]]++;
        h->counts[3][data[i + 3]]++;
    }
    for (int64_t i = whole; i < n; i++)
        h->counts[0][data[i]]++;
    return OK;
}

/* Counts how often each id is among the first n tokens: takes the counts in the file of tokens, and subtracts the tokens from
 * number n on. */
static enum status count_tokens(const struct stream *s, int64_t n, int64_t *counts)
{
    enum { AT_ONCE = 16384 };
    int32_t id[AT_ONCE];
    const int64_t *all = token_file_counts(s->tokens);
    for (int64_t i = 0; i < s->ids; i++)
        counts[i] += all[i] + (s->masked ? all[s->ids + i] : 0);
    for (int64_t at = n, part; at < stream_tokens(s); at += part) {
        part = min_i64(AT_ONCE, stream_tokens(s) - at);
        TRY(token_file_read(s->tokens, at, part, id));
        for (int64_t i = 0; i < part; i++)
            counts[id[i] % s->ids]--;
    }
    return OK;
}

enum status stream_survey(struct stream *s, int64_t n, int64_t *counts)
{
    struct histogram h = {.left = n};
    if (s->tokens)
        return counts ? count_tokens(s, n, counts) : OK;
    TRY(documents_survey(s->d, counts ? count_bytes : NULL, &h));
    for (int b = 0; b < 256 && counts; b++)
        counts[b] += h.counts[0][b] + h.counts[1][b] + h.counts[2][b] + h.counts[3][b];
    return OK;
}

int stream_recall(struct stream *s, const char *kind, const char **text)
{
    return documents_recall(s->d, kind, text);
}

int stream_write_known(const struct stream *s, const char *kind, FILE *f)
{
    return documents_write_known(s->d, kind, f);
}

void stream_tell(struct stream *s, const struct rereading *r)
{
    documents_tell(s->d, r);
}

void stream_print(const struct stream *s, const char *kind, FILE *f)
{
    documents_print(s->d, kind, f);
}

const char *stream_common(const struct stream *a, const struct stream *b)
{
    for (int64_t i = 0, k = 0; i < documents_count(a->d) && k < documents_count(b->d);) { /* both lists are sorted */
        int order = strcmp(documents_path(a->d, i), documents_path(b->d, k));
        if (order == 0)
            return documents_path(a->d, i);
        i += order < 0;
        k += order > 0;
    }
    return NULL;
}

int64_t stream_find(const struct stream *s, int64_t at)
{
    if (!s->tokens)
        return documents_find(s->d, at);
    const int64_t *end = token_file_ends(s->tokens);
    int64_t low = 0, high = stream_documents(s) - 1;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (end[middle] <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int64_t stream_first(const struct stream *s, int64_t i)
{
    return !s->tokens ? documents_first(s->d, i) : i ? token_file_ends(s->tokens)[i - 1] : 0;
}

int64_t stream_end(const struct stream *s, int64_t i)
{
    return s->tokens ? token_file_ends(s->tokens)[i] : documents_end(s->d, i);
}

const char *stream_where(const struct stream *s, int64_t i, int64_t *number)
{
    int64_t file = s->tokens ? 0 : i, first = i;
    const int64_t *ends = s->tokens ? token_file_file_ends(s->tokens) : NULL;
    if (ends)
        for (first = 0; ends[file] <= i; file++)
            first = ends[file];
    *number = i - first + 1;
    return documents_path(s->d, file);
}

static int32_t unmask(const struct stream *s, int32_t id)
{
    return id < s->ids ? id : -1 - (id - (int32_t)s->ids);
}

static enum status read_tokens(const struct stream *s, int64_t at, int64_t n, int32_t *out, int32_t *next)
{
    int64_t last = stream_find(s, at + n - 1);
    TRY(token_file_read(s->tokens, at, n, out));
    *next = -1;
    if (at + n < stream_end(s, last))
        TRY(token_file_read(s->tokens, at + n, 1, next));
    for (int64_t i = 0; i < n && s->masked; i++)
        out[i] = unmask(s, out[i]);
    *next = unmask(s, *next);
    return OK;
}

enum status stream_read(const struct stream *s, int64_t at, int64_t n, int32_t *out, int32_t *next)
{
    if (s->tokens)
        return read_tokens(s, at, n, out, next);
    /* bytes at the end of `out`, widened in place: token i ends before byte i + 1, which is not read yet */
    uint8_t *bytes = (uint8_t *)out + 3 * n;
    TRY(documents_read(s->d, at, n, bytes, next));
    for (int64_t i = 0; i < n; i++)
        out[i] = bytes[i];
    return OK;
}

enum status stream_check(const struct stream *s, int64_t at, int64_t n)
{
    return s->tokens ? OK : documents_check(s->d, at, n);
}
