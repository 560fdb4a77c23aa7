/* Taking sequences from a corpus: which one comes next, its tokens, its documents. */
#include "data/corpus_parts.h"

#include "base/num.h"
#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

/* ---- sequences that are taken again ---- */

enum status corpus_keep(struct corpus *c, int64_t n)
{
    if (c->n_kept == n) /* the sequences are kept already: `check` starts two runs over one corpus */
        return OK;
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

static void copy(const struct corpus *c, int32_t *tokens, int32_t *targets, const int32_t *from_tokens,
                 const int32_t *from_targets)
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

/* Reads tokens of adjacent parts in one go. The last token gets the token behind it as its target if its document goes on and
 * training may see that token. */
static enum status read_run(const struct source *s, int64_t first, int64_t n, int64_t end, int64_t at, struct sequence *out)
{
    int32_t next = -1;
    TRY(stream_read(s->files, first, n, out->tokens + at, &next));
    if (next >= 0 && first + n < end && packing_goes_on(s->packing))
        out->targets[at + n - 1] = next;
    return OK;
}

/* Reads tokens and targets of a source's sequence. Tokens from `end` on are never used, not even as a target. */
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
            out->targets[i] = out->tokens[i + 1] < 0 ? -1 : out->tokens[i + 1]; /* a negative id is a token that is not trained */
    for (int64_t i = 0; i < at; i++)
        out->tokens[i] = out->tokens[i] < 0 ? -1 - out->tokens[i] : out->tokens[i];
    return OK;
}

/* Lays out tokens [start, stop) as one document. */
static void lay_document(const struct corpus *c, int64_t start, int64_t stop, struct sequence *out)
{
    for (int64_t at = start; at < stop; at++) {
        out->n_targets += out->targets[at] >= 0;
        out->positions[at] = (int32_t)(at - start);
        out->lo[at] = (int32_t)max_i64(start, at - c->window + 1);
        out->hi[at] = (int32_t)at;
    }
    /* full: queries that attend to a whole window; rising: the queries before them, which attend to 1, 2, ... keys */
    int64_t full = max_i64(0, stop - start - c->window), rising = stop - start - full;
    out->pairs += 0.5 * (double)rising * (double)(rising + 1) + (double)full * (double)c->window;
}

/* Lays out everything but tokens and targets. */
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
    /* by source, so that sources with equal numbers of sequences are permuted differently */
    uint64_t seed = c->seed ^ (uint64_t)source * 0x9e3779b97f4a7c15u;
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
