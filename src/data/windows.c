/* Cutting whole texts, or the held-out parts of a corpus, into windows. */
#include "data/windows.h"

#include "base/num.h"
#include "base/sys.h"
#include "data/stream.h"

#include <stdlib.h>

/* Tokens [first, end) of a stream that are evaluated. */
struct range {
    const struct stream *s;
    int64_t first, end;
    int64_t at; /* number of the range's first token when all ranges are counted through */
};

struct windows {
    struct stream *texts;  /* stream of files that are evaluated as a whole; NULL: corpus is set */
    struct corpus *corpus; /* corpus whose held-out parts are evaluated; NULL: texts is set */
    struct range *range;
    int n_ranges;
    int64_t length, stride, attended;
    struct windows_report report;
};

static enum status check(const struct corpus_config *c, int64_t length, int64_t stride)
{
    if (c->tokenizer && tokenizer_ids(c->tokenizer) > c->vocab)
        return status_fail(ERR_INVALID,
                           "%s has ids up to %lld, and the model's embedding has %lld rows: it is another model's tokenizer "
                           "(--tokenizer DIR names one)",
                           tokenizer_path(c->tokenizer), (long long)tokenizer_ids(c->tokenizer) - 1, (long long)c->vocab);
    if (stride < 1 || stride > length)
        return status_fail(ERR_INVALID, "--stride %lld: windows of %lld tokens begin 1 to %lld apart", (long long)stride,
                           (long long)length, (long long)length);
    return OK;
}

/* ---- whole files ---- */

static enum status open_texts(const struct corpus_config *c, struct windows *w)
{
    const struct stream_config config = {.key = "--eval-data",
                                         .paths = c->eval_paths,
                                         .n_paths = c->n_eval_paths,
                                         .tokenizer = c->tokenizer,
                                         .chats = c->chats,
                                         .cache = c->cache,
                                         .column = c->column,
                                         .exclude = c->exclude,
                                         .append_eos = c->append_eos,
                                         .vocab = c->vocab,
                                         .token_bytes = c->token_bytes,
                                         .threads = c->threads};
    TRY(stream_open(&config, &w->texts));
    TRY(exclusion_check(c->exclude));
    TRY(stream_check_bytes(&config, w->texts));
    TRY(stream_survey(w->texts, 0, NULL));
    w->n_ranges = 1;
    w->range[0] = (struct range){w->texts, 0, stream_tokens(w->texts), 0};
    w->report.text_bytes = stream_text_bytes(w->texts);
    w->report.chats = stream_chats(w->texts);
    w->report.left_out = stream_left_out(w->texts);
    return OK;
}

/* ---- what is held out of them ---- */

static enum status open_corpus(const struct corpus_config *c, struct windows *w)
{
    int64_t at = 0;
    TRY(corpus_open(c, &w->corpus));
    for (int i = 0; i < corpus_sources(w->corpus); i++) {
        const struct corpus_source s = corpus_get_source(w->corpus, i);
        w->range[i] = (struct range){s.documents, s.train_end, stream_tokens(s.documents), at};
        at += w->range[i].end - w->range[i].first;
    }
    w->n_ranges = corpus_sources(w->corpus);
    w->report.text_bytes = -1;
    w->report.left_out = corpus_get_report(w->corpus)->left_out;
    return OK;
}

/* ---- either ---- */

/* Returns the tokens of the longest document of a range; a document that reaches beyond the range counts with its part inside. */
static int64_t longest_document(const struct range *g)
{
    int64_t longest = 0;
    for (int64_t at = g->first; at < g->end;) {
        const int64_t end = min_i64(g->end, stream_end(g->s, stream_find(g->s, at)));
        longest = max_i64(longest, end - at);
        at = end;
    }
    return longest;
}

static void summarise(const struct corpus_config *c, struct windows *w)
{
    struct windows_report *r = &w->report;
    w->attended = c->window > 0 ? c->window : w->length;
    r->has_text = 1;
    for (const struct range *g = w->range; g < w->range + w->n_ranges; g++) {
        r->tokens += g->end - g->first;
        r->documents += g->end > g->first ? stream_documents(g->s) - stream_find(g->s, g->first) : 0;
        r->longest = max_i64(r->longest, longest_document(g));
        r->has_text &= !stream_has_ids(g->s);
    }
    r->windows = 1 + ceil_div(max_i64(0, r->tokens - w->length), w->stride);
}

static enum status open_windows(const struct corpus_config *c, int64_t length, int64_t stride,
                                enum status fill(const struct corpus_config *, struct windows *), struct windows **out)
{
    TRY(check(c, length, stride));
    struct windows *w = sys_calloc(1, sizeof *w);
    if (!w)
        return status_fail(ERR_NOMEM, "out of memory: windows of texts");
    w->length = length;
    w->stride = stride;
    w->range = sys_calloc((size_t)max_i64(1, c->n_paths), sizeof *w->range);
    enum status st = w->range ? fill(c, w) : status_fail(ERR_NOMEM, "out of memory: windows of texts");
    if (st != OK) {
        windows_close(w);
        return st;
    }
    summarise(c, w);
    *out = w;
    return OK;
}

enum status windows_open(const struct corpus_config *c, int64_t stride, struct windows **out)
{
    return open_windows(c, c->seq_len, stride, open_texts, out);
}

enum status windows_open_held_out(const struct corpus_config *c, int64_t length, int64_t stride, struct windows **out)
{
    return open_windows(c, length, stride, open_corpus, out);
}

void windows_close(struct windows *w)
{
    if (!w)
        return;
    stream_close(w->texts);
    corpus_close(w->corpus);
    free(w->range);
    free(w);
}

enum status windows_write_contents(const struct windows *w, FILE *f)
{
    if (w->corpus)
        return corpus_write_contents(w->corpus, f);
    stream_print(w->texts, "eval-data", f);
    return ferror(f) ? status_fail(ERR_NOMEM, "out of memory: the list of the data's files") : OK;
}

const struct windows_report *windows_get_report(const struct windows *w)
{
    return &w->report;
}

/* Lays out tokens [at, stop) of the window, which belong to one document. */
static void lay_out(const struct windows *w, int64_t at, int64_t stop, struct sequence *q)
{
    for (int64_t i = at; i < stop; i++) {
        q->targets[i] = i + 1 < stop && q->tokens[i + 1] >= 0 ? q->tokens[i + 1] : -1;
        q->positions[i] = (int32_t)(i - at);
        q->lo[i] = (int32_t)max_i64(at, i - w->attended + 1);
        q->hi[i] = (int32_t)i;
        q->pairs += (double)(q->hi[i] - q->lo[i] + 1);
    }
}

/* Reads tokens [at, stop) of the window from a range; `first`: number of token `at` in the range's stream. */
static enum status take_range(const struct windows *w, const struct range *g, int64_t first, int64_t at, int64_t stop,
                              struct sequence *q)
{
    int32_t next = -1;
    TRY(stream_read(g->s, first, stop - at, q->tokens + at, &next));
    const int64_t zero = first - at; /* number in the stream that the window's token 0 would have */
    for (int64_t end, d = stream_find(g->s, first); at < stop; at = end, d++) {
        end = min_i64(stop, stream_end(g->s, d) - zero);
        lay_out(w, at, end, q);
    }
    if (next >= 0)
        q->targets[stop - 1] = next;
    return OK;
}

enum status windows_take(const struct windows *w, int64_t index, struct sequence *q, int64_t *used)
{
    const int64_t first = index * w->stride, n = min_i64(w->length, w->report.tokens - first);
    q->pairs = 0;
    for (const struct range *g = w->range; g < w->range + w->n_ranges; g++) {
        const int64_t tokens = g->end - g->first, from = max_i64(g->at, first), to = min_i64(g->at + tokens, first + n);
        if (from < to)
            TRY(take_range(w, g, g->first + from - g->at, from - first, to - first, q));
    }
    /* targets that the window before has predicted already are taken out */
    for (int64_t i = 0; index > 0 && i < min_i64(n, w->length - w->stride); i++)
        q->targets[i] = -1;
    q->n_targets = 0;
    q->n_tokens = n;
    for (int64_t i = 0; i < n; i++) {
        q->n_targets += q->targets[i] >= 0;
        q->tokens[i] = q->tokens[i] < 0 ? -1 - q->tokens[i] : q->tokens[i];
    }
    *used = n;
    return OK;
}
