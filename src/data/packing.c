/* Cutting documents into parts, and parts into sequences. */
#include "data/packing.h"

#include "base/num.h"
#include "base/sys.h"
#include "data/best_fit.h"
#include "data/stream.h"

#include <stdlib.h>
#include <string.h>

struct packing {
    const struct stream *s;
    struct packing_config config;
    struct packing_report report;
    int64_t train_end;
    /* best fit only: parts of documents, while they are collected in the order of the stream, then in that of the sequences */
    struct part *parts;
    int64_t n, room;
    int64_t *first; /* best fit only: [sequences + 1]: number of the first part of each sequence */
};

/* ---- documents to parts ---- */

static enum status add_part(struct packing *p, int64_t first, int64_t n)
{
    if (p->n == p->room) {
        int64_t room = p->room ? 2 * p->room : 1024;
        struct part *parts = room <= INT32_MAX ? sys_realloc(p->parts, (size_t)room * sizeof *parts) : NULL;
        if (!parts)
            return status_fail(ERR_NOMEM, "out of memory: %lld documents and parts of them", (long long)room);
        p->parts = parts;
        p->room = room;
    }
    p->parts[p->n++] = (struct part){first, n};
    return OK;
}

static enum status refuse_long(const struct packing *p, int64_t document)
{
    int64_t number;
    const char *path = stream_where(p->s, document, &number);
    return status_fail(ERR_INVALID,
                       "%s: document %lld in %s has %lld tokens, and a sequence %lld (--seq-len): --too-long split, drop or "
                       "truncate says what becomes of it",
                       p->config.key, (long long)number, path,
                       (long long)(stream_end(p->s, document) - stream_first(p->s, document)), (long long)p->config.seq_len);
}

/* Adds a document that is longer than a sequence: split, dropped, cut or refused. */
static enum status add_long(struct packing *p, int64_t document, int64_t first, int64_t end)
{
    struct packing_report *r = &p->report;
    int64_t n = p->config.seq_len;
    switch (p->config.too_long) {
    case TOO_LONG_SPLIT:
        r->documents_split++;
        for (int64_t at = first; at < end; at += n)
            TRY(add_part(p, at, min_i64(n, end - at)));
        return OK;
    case TOO_LONG_DROP:
        r->documents_dropped++;
        r->tokens_dropped += end - first;
        return OK;
    case TOO_LONG_TRUNCATE:
        r->documents_truncated++;
        r->tokens_truncated += end - first - n;
        return add_part(p, first, n);
    case TOO_LONG_REFUSE:
        break;
    }
    return refuse_long(p, document);
}

/* Adds tokens [first, end) of a document, as one part if they fit a sequence. */
static enum status add_range(struct packing *p, int64_t document, int64_t first, int64_t end)
{
    return end - first > p->config.seq_len ? add_long(p, document, first, end) : add_part(p, first, end - first);
}

/* Adds all documents, cut at the beginning of the held-out part so that no part lies on both sides. */
static enum status add_documents(struct packing *p)
{
    for (int64_t i = 0; i < stream_documents(p->s); i++) {
        int64_t first = stream_first(p->s, i), end = stream_end(p->s, i), below = p->config.train_below;
        const int64_t split = p->report.documents_split;
        const int on_both = first < below && below < end;
        if (on_both)
            TRY(add_range(p, i, first, below));
        TRY(add_range(p, i, on_both ? below : first, end));
        if (on_both)
            p->report.documents_split = split + 1;
    }
    return OK;
}

/* ---- parts without targets ---- */

/* A buffer with a range of the stream's tokens, read again farther on as needed. */
struct window {
    const struct stream *s;
    int64_t first, n;
    int32_t id[16384];
};

static enum status token_at(struct window *w, int64_t at, int32_t *id)
{
    int32_t next;
    if (at >= w->first + w->n) {
        w->first = at;
        w->n = min_i64((int64_t)(sizeof w->id / sizeof *w->id), stream_tokens(w->s) - at);
        TRY(stream_read(w->s, at, w->n, w->id, &next));
    }
    *id = w->id[at - w->first];
    return OK;
}

/* Counts a part's targets: all of its tokens but the first, and the token behind it if the document goes on there. */
static enum status count_targets(const struct packing *p, struct window *w, const struct part *part, int64_t *out)
{
    int64_t end = part->first + part->n;
    end += packing_goes_on(p) && end < stream_end(p->s, stream_find(p->s, end - 1));
    *out = end - part->first - 1;
    if (!stream_is_masked(p->s))
        return OK;
    *out = 0;
    for (int64_t at = part->first + 1; at < end; at++) {
        int32_t id;
        TRY(token_at(w, at, &id));
        *out += id >= 0;
    }
    return OK;
}

static enum status leave_out_untrained(struct packing *p)
{
    struct window *w = sys_calloc(1, sizeof *w);
    int64_t kept = 0, targets;
    enum status st = OK;
    if (!w)
        return status_fail(ERR_NOMEM, "out of memory: counting targets");
    w->s = p->s;
    for (int64_t i = 0; i < p->n && st == OK; i++) {
        st = count_targets(p, w, &p->parts[i], &targets);
        if (st == OK && targets > 0)
            p->parts[kept++] = p->parts[i];
        else
            p->report.tokens_untrained += p->parts[i].n;
        p->report.targets += targets;
        p->report.tokens_kept += targets > 0 ? p->parts[i].n : 0;
    }
    p->n = kept;
    free(w);
    return st;
}

/* ---- parts to sequences ---- */

/* Distributes parts [from, from + n) over sequences, which are numbered from `before` on. *sequences: their number. */
static enum status fill(struct packing *p, int64_t from, int64_t n, int64_t before, int64_t *sequences)
{
    int32_t *size = sys_malloc((size_t)(n + 1) * sizeof *size), *bin = sys_malloc((size_t)(n + 1) * sizeof *bin);
    struct part *sorted = sys_malloc((size_t)(n + 1) * sizeof *sorted);
    enum status st = size && bin && sorted ? OK : status_fail(ERR_NOMEM, "out of memory: packing %lld documents", (long long)n);
    for (int64_t i = 0; i < n && st == OK; i++)
        size[i] = (int32_t)p->parts[from + i].n;
    if (st == OK)
        st = best_fit(size, n, p->config.seq_len, bin, sequences);
    int64_t *first = st == OK ? sys_realloc(p->first, (size_t)(before + *sequences + 2) * sizeof *first) : NULL;
    if (st == OK && !first)
        st = status_fail(ERR_NOMEM, "out of memory: %lld sequences", (long long)*sequences);
    if (st == OK) {
        p->first = first;
        /* counting sort: first[b + 2] counts bin b's parts, sums make first[b + 1] its first place, and placing moves that to the
         * next bin's */
        first += before;
        memset(first, 0, (size_t)(*sequences + 2) * sizeof *first);
        for (int64_t i = 0; i < n; i++)
            first[bin[i] + 2]++;
        first[0] = first[1] = from;
        for (int64_t b = 0; b < *sequences; b++)
            first[b + 2] += first[b + 1];
        for (int64_t i = 0; i < n; i++)
            sorted[first[bin[i] + 1]++ - from] = p->parts[from + i];
        memcpy(p->parts + from, sorted, (size_t)n * sizeof *sorted);
    }
    free(size);
    free(bin);
    free(sorted);
    return st;
}

/* Counts the parts at the end that are held out: as many as fit into the held-out share of tokens, but at least one. */
static int64_t count_held_out(const struct packing *p)
{
    int64_t n = 0, tokens = 0, most = (int64_t)(p->config.held_out * (double)p->report.tokens_kept);
    if (p->config.train_below > 0) {
        while (n < p->n && p->parts[p->n - n - 1].first >= p->config.train_below)
            n++;
        return n;
    }
    if (p->config.held_out <= 0.0)
        return 0;
    while (n < p->n && (n == 0 || tokens + p->parts[p->n - n - 1].n <= most))
        tokens += p->parts[p->n - ++n].n;
    return n;
}

/* Writes " of NAME", with the source's name, if there are several sources; else "". */
static const char *of_source(const struct packing *p, char text[256])
{
    text[0] = 0;
    if (p->config.source)
        snprintf(text, 256, " of %.240s", p->config.source);
    return text;
}

static enum status pack_best_fit(struct packing *p)
{
    struct packing_report *r = &p->report;
    char of[256];
    TRY(add_documents(p));
    TRY(leave_out_untrained(p));
    if (p->n == 0)
        return status_fail(ERR_INVALID,
                           "%s: nothing%s can be trained: of %lld documents %lld are too long (--too-long), and the others "
                           "have no token to predict",
                           p->config.key, of_source(p, of), (long long)stream_documents(p->s), (long long)r->documents_dropped);
    int64_t held_out = count_held_out(p), trained = p->n - held_out;
    if (p->config.train_below > 0 && (trained == 0 || held_out == 0))
        return status_fail(ERR_INVALID, "--eval-fraction: all that is %s%s is too long for sequences of %lld tokens (--too-long)",
                           trained == 0 ? "trained" : "held out", of_source(p, of), (long long)p->config.seq_len);
    if (trained == 0)
        return status_fail(ERR_INVALID,
                           "--eval-fraction: the data has one document or part of one, nothing%s would be left to train",
                           of_source(p, of));
    p->train_end = p->config.train_below > 0 ? p->config.train_below : held_out ? p->parts[trained].first : stream_tokens(p->s);
    for (int64_t i = 0; i < trained; i++)
        r->train_tokens += p->parts[i].n;
    TRY(fill(p, 0, trained, 0, &r->train_sequences));
    return fill(p, trained, held_out, r->train_sequences, &r->eval_sequences);
}

/* Finds whether any token before p->train_end is a target. */
static enum status has_target(const struct packing *p, int *out)
{
    struct window *w = sys_calloc(1, sizeof *w);
    enum status st = w ? OK : status_fail(ERR_NOMEM, "out of memory: counting targets");
    int64_t targets = 0;
    if (w)
        w->s = p->s;
    for (int64_t i = 0; st == OK && targets == 0 && i < stream_documents(p->s) && stream_first(p->s, i) < p->train_end; i++) {
        const struct part part = {stream_first(p->s, i), min_i64(stream_end(p->s, i), p->train_end) - stream_first(p->s, i)};
        st = count_targets(p, w, &part, &targets);
    }
    free(w);
    *out = targets > 0;
    return st;
}

static enum status pack_concat(struct packing *p)
{
    int trains;
    char of[256];
    struct packing_report *r = &p->report;
    int64_t seq_len = p->config.seq_len, n = stream_tokens(p->s) / seq_len;
    if (p->config.too_long != TOO_LONG_SPLIT)
        return status_fail(ERR_INVALID,
                           "--packing concat splits documents wherever a sequence ends: --too-long needs --packing best-fit");
    if (n == 0)
        return status_fail(ERR_INVALID,
                           "%s: all files%s together have %lld tokens and a sequence needs %lld (--seq-len), or --packing "
                           "best-fit, which pads it",
                           p->config.key, of_source(p, of), (long long)stream_tokens(p->s), (long long)seq_len);
    if (p->config.train_below > 0)
        r->eval_sequences = (stream_tokens(p->s) - p->config.train_below) / seq_len;
    else if (p->config.held_out > 0.0)
        r->eval_sequences = max_i64(1, (int64_t)(p->config.held_out * (double)n));
    if (r->eval_sequences == n)
        return status_fail(ERR_INVALID, "--eval-fraction: the data has one sequence, nothing%s would be left to train",
                           of_source(p, of));
    r->train_sequences = p->config.train_below > 0 ? p->config.train_below / seq_len : n - r->eval_sequences;
    r->train_tokens = r->train_sequences * seq_len;
    r->tokens_kept = r->train_tokens + r->eval_sequences * seq_len;
    r->tokens_dropped = stream_tokens(p->s) - r->tokens_kept;
    p->train_end = p->config.train_below > 0 ? p->config.train_below : r->eval_sequences ? r->train_tokens : stream_tokens(p->s);
    TRY(has_target(p, &trains));
    if (!trains)
        return status_fail(ERR_INVALID, "%s: nothing%s can be trained: no document has a token to predict", p->config.key,
                           of_source(p, of));
    for (int64_t i = 0; i < stream_documents(p->s); i++) {
        int64_t cut = stream_first(p->s, i) / seq_len + 1; /* the first sequence that begins behind the document's first token */
        r->documents_split += cut < n && cut * seq_len < stream_end(p->s, i);
    }
    return OK;
}

enum status packing_create(const struct stream *s, const struct packing_config *config, struct packing **out)
{
    struct packing *p = sys_calloc(1, sizeof *p);
    if (!p)
        return status_fail(ERR_NOMEM, "out of memory: packing");
    p->s = s;
    p->config = *config;
    char of[256];
    enum status st = stream_tokens(s) == 0 ? status_fail(ERR_INVALID, "%s: all documents%s are empty: there is no token",
                                                         config->key, of_source(p, of))
                     : config->kind == PACKING_CONCAT ? pack_concat(p)
                                                      : pack_best_fit(p);
    if (st != OK)
        packing_destroy(p);
    else
        *out = p;
    return st;
}

void packing_destroy(struct packing *p)
{
    if (!p)
        return;
    free(p->parts);
    free(p->first);
    free(p);
}

const struct packing_report *packing_get_report(const struct packing *p)
{
    return &p->report;
}

int64_t packing_train_end(const struct packing *p)
{
    return p->train_end;
}

int packing_goes_on(const struct packing *p)
{
    return p->config.too_long != TOO_LONG_TRUNCATE;
}

/* ---- sequences ---- */

int packing_next(const struct packing *p, int64_t i, int64_t *place, struct part *out)
{
    int64_t seq_len = p->config.seq_len;
    if (p->config.kind == PACKING_BEST_FIT) {
        if (p->first[i] + *place == p->first[i + 1])
            return 0;
        *out = p->parts[p->first[i] + (*place)++];
        return 1;
    }
    if (*place == seq_len)
        return 0;
    int64_t held_out = i - p->report.train_sequences;
    out->first = (held_out < 0 ? i * seq_len : p->train_end + held_out * seq_len) + *place;
    out->n = min_i64(stream_end(p->s, stream_find(p->s, out->first)) - out->first, seq_len - *place);
    *place += out->n;
    return 1;
}
