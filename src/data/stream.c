/* A stream of bytes or of tokens. */
#include "data/stream.h"

#include "base/num.h"
#include "base/progress.h"
#include "base/sys.h"
#include "data/documents.h"
#include "data/token_file.h"
#include "data/tokenize.h"

#include <stdlib.h>
#include <string.h>

struct stream {
    struct documents *d;
    struct token_file *tokens; /* NULL: bytes */
    int64_t ids;
    int cached, masked; /* masked: some tokens are not trained, and have ids from `ids` on */
};

enum status stream_open(const struct stream_config *config, struct stream **out)
{
    enum status st;
    struct stream *s = sys_calloc(1, sizeof *s);
    if (!s)
        return status_fail(ERR_NOMEM, "out of memory: a list of files");
    s->ids = config->tokenizer ? tokenizer_ids(config->tokenizer) : 256;
    TRY_GOTO(documents_open(config->key, config->paths, config->n_paths, &s->d), fail);
    if (config->tokenizer) {
        progress_purpose("tokenizing");
        progress_reading(documents_bytes(s->d));
        st = tokenize_documents(s->d, &(struct tokenize_config){config->tokenizer, config->chats, config->column, config->cache, config->threads},
                                &s->tokens, &s->cached);
        progress_reading(0);
        progress_purpose("reading files, for their checksums");
        TRY_GOTO(st, fail);
        s->masked = token_file_ids(s->tokens) > s->ids;
    }
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
    return documents_bytes(s->d);
}

int64_t stream_repaired(const struct stream *s)
{
    return s->tokens ? token_file_totals(s->tokens)->repaired : 0;
}

int stream_is_cached(const struct stream *s)
{
    return s->cached;
}

int stream_is_masked(const struct stream *s)
{
    return s->masked;
}

int64_t stream_ids(const struct stream *s)
{
    return s->ids;
}

/* How often each byte is in the first `left` bytes. Four tables: equal bytes in a row need not wait for each other. */
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

/* The file of tokens counts all of them: those behind the first n are taken away. */
static enum status count_tokens(const struct stream *s, int64_t n, int64_t *counts)
{
    enum { AT_ONCE = 16384 };
    int32_t id[AT_ONCE];
    const int64_t *all = token_file_counts(s->tokens);
    for (int64_t i = 0; i < s->ids; i++)
        counts[i] = all[i] + (s->masked ? all[s->ids + i] : 0);
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
        counts[b] = h.counts[0][b] + h.counts[1][b] + h.counts[2][b] + h.counts[3][b];
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
    uint8_t *bytes = (uint8_t *)out + 3 * n; /* widened in place: token i is written before byte i + 1 is reached */
    TRY(documents_read(s->d, at, n, bytes, next));
    for (int64_t i = 0; i < n; i++)
        out[i] = bytes[i];
    return OK;
}

enum status stream_check(const struct stream *s, int64_t at, int64_t n)
{
    return s->tokens ? OK : documents_check(s->d, at, n);
}
