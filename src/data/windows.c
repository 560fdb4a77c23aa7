#include "data/windows.h"

#include "base/num.h"
#include "base/sys.h"
#include "data/stream.h"

#include <stdlib.h>

struct windows {
    struct stream *texts;
    int64_t length, stride, attended;
    struct windows_report report;
};

static enum status check(const struct corpus_config *c, int64_t stride)
{
    if (c->tokenizer && tokenizer_ids(c->tokenizer) > c->vocab)
        return status_fail(ERR_INVALID,
                           "%s has ids up to %lld, and the model's embedding has %lld rows: it is another model's tokenizer "
                           "(--tokenizer DIR names one)",
                           tokenizer_path(c->tokenizer), (long long)tokenizer_ids(c->tokenizer) - 1, (long long)c->vocab);
    if (stride < 1 || stride > c->seq_len)
        return status_fail(ERR_INVALID, "--stride %lld: windows of %lld tokens begin 1 to %lld apart", (long long)stride,
                           (long long)c->seq_len, (long long)c->seq_len);
    return OK;
}

enum status windows_open(const struct corpus_config *c, int64_t stride, struct windows **out)
{
    TRY(check(c, stride));
    struct windows *w = sys_calloc(1, sizeof *w);
    if (!w)
        return status_fail(ERR_NOMEM, "out of memory: windows of texts");
    const struct stream_config config = {.key = "--eval-data",
                                         .paths = c->eval_paths,
                                         .n_paths = c->n_eval_paths,
                                         .tokenizer = c->tokenizer,
                                         .chats = c->chats,
                                         .cache = c->cache,
                                         .column = c->column,
                                         .vocab = c->vocab,
                                         .token_bytes = c->token_bytes,
                                         .threads = c->threads};
    enum status st = stream_open(&config, &w->texts);
    if (st == OK)
        st = stream_check_bytes(&config, w->texts);
    if (st == OK)
        st = stream_survey(w->texts, 0, NULL);
    if (st != OK) {
        windows_close(w);
        return st;
    }
    w->length = c->seq_len;
    w->stride = stride;
    w->attended = c->window > 0 ? c->window : c->seq_len;
    const int64_t tokens = stream_tokens(w->texts);
    w->report = (struct windows_report){.windows = 1 + ceil_div(max_i64(0, tokens - w->length), stride),
                                        .documents = stream_documents(w->texts),
                                        .tokens = tokens,
                                        .text_bytes = stream_text_bytes(w->texts),
                                        .has_text = !stream_has_ids(w->texts),
                                        .chats = stream_chats(w->texts)};
    *out = w;
    return OK;
}

void windows_close(struct windows *w)
{
    if (!w)
        return;
    stream_close(w->texts);
    free(w);
}

const struct windows_report *windows_get_report(const struct windows *w)
{
    return &w->report;
}

/* Tokens [at, stop) of the window, which are one document's. */
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

enum status windows_take(const struct windows *w, int64_t index, struct sequence *q, int64_t *used)
{
    const int64_t first = index * w->stride, n = min_i64(w->length, w->report.tokens - first);
    int32_t next = -1;
    TRY(stream_read(w->texts, first, n, q->tokens, &next));
    q->pairs = 0;
    for (int64_t at = 0, stop, d = stream_find(w->texts, first); at < n; at = stop, d++) {
        stop = min_i64(n, stream_end(w->texts, d) - first);
        lay_out(w, at, stop, q);
    }
    if (next >= 0)
        q->targets[n - 1] = next;
    for (int64_t i = 0; index > 0 && i < min_i64(n, w->length - w->stride); i++) /* the window before has them */
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
