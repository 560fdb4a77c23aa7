/* `ltrain data`: samples, lengths, counts. */
#include "train/show.h"

#include "base/num.h"
#include "base/progress.h"
#include "base/sys.h"
#include "base/units.h"
#include "data/stream.h"
#include "train/data.h"
#include "train/data_report.h"
#include "train/train.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SHOWN = 512 }; /* tokens shown of each end of a sample */

struct show {
    const struct settings *s;
    int sized;   /* 1: the settings have a sequence length */
    int numbers; /* 1: ids without a known text are shown as numbers */
    const struct tokenizer *tokenizer;
    const struct stream *d;   /* documents of the present source */
    const char *open, *close; /* marks around supervised text */
};

/* ---- samples ---- */

/* Tells whether a special token's text begins at text[0 .. n). */
static int begins_token(const struct show *x, const uint8_t *text, size_t n)
{
    const uint8_t *token;
    size_t length;
    int64_t at = 0;
    while (x->tokenizer && tokenizer_special(x->tokenizer, &at, &token, &length))
        if (length > 0 && length <= n && token[0] == text[0] && memcmp(token, text, length) == 0)
            return 1;
    return 0;
}

/* Tells whether text[0 .. n) has the form of \xNN. */
static int looks_escaped(const uint8_t *text, size_t n)
{
    return n > 3 && text[0] == '\\' && text[1] == 'x' && isxdigit(text[2]) && isxdigit(text[3]);
}

/* Prints bytes [first, end) of a text whose special tokens have 1 in `token`. Control characters are printed as \xNN, so that no
 * document sends commands to a terminal. The first letter of text that only looks like a special token is printed so, too, and the
 * backslash of a \xNN that stands in the text. */
static void print_text(const struct show *x, const struct text_buffer *text, const uint8_t *token, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++) {
        const unsigned char c = text->data[i];
        if ((c < ' ' && c != '\n' && c != '\t') || c == 0x7f || looks_escaped(text->data + i, text->n - i) ||
            (!token[i] && begins_token(x, text->data + i, text->n - i)))
            printf("\\x%02x", c);
        else
            putchar(c);
    }
}

static enum status text_of(const struct show *x, const int32_t *id, size_t n, struct text_buffer *out)
{
    out->n = 0;
    if (x->tokenizer)
        return tokenizer_decode(x->tokenizer, id, n, 1, out);
    enum { DIGITS = 12 };
    TRY(text_buffer_reserve(out, n * DIGITS));
    for (size_t i = 0; i < n; i++)
        if (x->numbers)
            out->n += (size_t)snprintf((char *)out->data + out->n, DIGITS, "%d ", id[i]);
        else
            out->data[out->n++] = (uint8_t)id[i];
    return OK;
}

/* Finds the byte of the whole text where the text of the first n ids ends: before a character that is incomplete there. */
static enum status place_of(const struct show *x, const int32_t *id, size_t n, const struct text_buffer *whole,
                            struct text_buffer *part, size_t *out)
{
    size_t at = 0;
    TRY(text_of(x, id, n, part));
    while (at < part->n && at < whole->n && part->data[at] == whole->data[at])
        at++;
    while (at > 0 && at < whole->n && (whole->data[at] & 0xC0) == 0x80)
        at--;
    *out = at;
    return OK;
}

static int is_special(const struct show *x, int32_t id)
{
    const uint8_t *token;
    size_t length;
    int64_t at = 0;
    while (x->tokenizer && tokenizer_special(x->tokenizer, &at, &token, &length)) {
        char text[256];
        snprintf(text, sizeof text, "%.*s", (int)length, (const char *)token);
        if (length < sizeof text && tokenizer_find(x->tokenizer, text) == id)
            return 1;
    }
    return 0;
}

/* Sets token[i] of each byte of the whole text that a special token has written. */
static enum status find_tokens(const struct show *x, const int32_t *id, size_t n, const struct text_buffer *whole,
                               struct text_buffer *part, uint8_t *token)
{
    memset(token, 0, whole->n);
    for (size_t i = 0; i < n; i++) {
        size_t first, end;
        if (!is_special(x, id[i]))
            continue;
        TRY(place_of(x, id, i, whole, part, &first));
        TRY(place_of(x, id, i + 1, whole, part, &end));
        memset(token + first, 1, end > first ? end - first : 0);
    }
    return OK;
}

static enum status print_marked(const struct show *x, const int32_t *id, const uint8_t *supervised, size_t n,
                                const struct text_buffer *whole, struct text_buffer *part, const uint8_t *token)
{
    size_t at = 0, next;
    int marked = 0;
    for (size_t i = 0; i <= n; i++) {
        if (marked == (i < n && supervised[i]))
            continue;
        TRY(place_of(x, id, i, whole, part, &next));
        next = next > at ? next : at;
        print_text(x, whole, token, at, next);
        fputs(marked ? x->close : x->open, stdout);
        marked = !marked;
        at = next;
    }
    print_text(x, whole, token, at, whole->n);
    return OK;
}

/* Prints ids as text, with marks around the supervised ones. */
static enum status print_ids(const struct show *x, const int32_t *id, const uint8_t *supervised, size_t n)
{
    struct text_buffer whole = {0}, part = {0};
    enum status st = text_of(x, id, n, &whole);
    uint8_t *token = st == OK ? sys_malloc(whole.n + 1) : NULL;
    if (st == OK)
        st = token ? find_tokens(x, id, n, &whole, &part, token) : status_fail(ERR_NOMEM, "out of memory: a text");
    if (st == OK)
        st = print_marked(x, id, supervised, n, &whole, &part, token);
    free(token);
    text_buffer_free(&whole);
    text_buffer_free(&part);
    return st;
}

/* Prints n tokens from `at` on, of a document that begins at `first`. */
static enum status print_part(const struct show *x, int64_t first, int64_t at, int64_t n)
{
    int32_t id[2 * SHOWN], next;
    uint8_t supervised[2 * SHOWN];
    TRY(stream_read(x->d, at, n, id, &next));
    for (int64_t i = 0; i < n; i++) {
        supervised[i] = id[i] >= 0 && at + i > first;
        id[i] = id[i] < 0 ? -1 - id[i] : id[i];
    }
    return print_ids(x, id, supervised, (size_t)n);
}

static enum status print_samples(const struct show *x)
{
    int64_t documents = stream_documents(x->d), n = min_i64(x->s->samples, documents);
    char a[32];
    for (int64_t i = 0; i < n; i++) {
        int64_t k = (int64_t)((double)i * (double)documents / (double)n), first = stream_first(x->d, k),
                end = stream_end(x->d, k), left_out = end - first - 2 * SHOWN;
        printf("---- document %lld of %lld, %s token%s\n", (long long)k + 1, (long long)documents,
               units_format_count(end - first, a), end - first == 1 ? "" : "s");
        TRY(print_part(x, first, first, left_out > 0 ? SHOWN : end - first));
        if (left_out > 0) {
            printf("\n---- %s tokens are not shown\n", units_format_count(left_out, a));
            TRY(print_part(x, first, end - SHOWN, SHOWN));
        }
        putchar('\n');
    }
    if (n > 0)
        printf("----\n");
    return OK;
}

/* ---- counts ---- */

/* Counts supervised tokens; a document's first token is never a target. */
static enum status count_supervised(const struct stream *d, int64_t *out)
{
    enum { AT_ONCE = 16384 };
    int32_t id[AT_ONCE], next;
    *out = stream_tokens(d) - stream_documents(d);
    if (!stream_is_masked(d))
        return OK;
    *out = 0;
    for (int64_t at = 0, document = 0, n; at < stream_tokens(d); at += n) {
        n = min_i64(AT_ONCE, stream_tokens(d) - at);
        TRY(stream_read(d, at, n, id, &next));
        for (int64_t i = 0; i < n; i++) {
            int is_first = at + i == stream_first(d, document);
            *out += id[i] >= 0 && !is_first;
            document += at + i + 1 == stream_end(d, document);
        }
    }
    return OK;
}

static void print_lengths(const struct show *x)
{
    enum { BUCKETS = 63, BAR = 40 };
    int64_t in[BUCKETS] = {0}, most = 1, shortest = INT64_MAX, longest = 0, longer = 0, documents = stream_documents(x->d);
    int first = BUCKETS, last = 0;
    char a[32], b[32], c[32];
    for (int64_t i = 0; i < documents; i++) {
        int64_t n = stream_end(x->d, i) - stream_first(x->d, i);
        int k = 0;
        while (n >> (k + 1))
            k++;
        most = max_i64(most, ++in[k]);
        first = k < first ? k : first;
        last = k > last ? k : last;
        shortest = min_i64(shortest, n);
        longest = max_i64(longest, n);
        longer += x->sized && n > x->s->plan.seq_len;
    }
    printf("lengths: %s to %s tokens, %s on average", units_format_count(shortest, a), units_format_count(longest, b),
           units_format_count(stream_tokens(x->d) / documents, c));
    if (x->sized)
        printf("; %s %s longer than a sequence", longer ? units_format_count(longer, a) : "none", longer > 1 ? "are" : "is");
    putchar('\n');
    for (int k = first; k <= last; k++) {
        int bar = (int)((in[k] * BAR + most - 1) / most);
        printf("%14s to %-14s %12s%s%.*s\n", units_format_count((int64_t)1 << k, a), units_format_count(((int64_t)2 << k) - 1, b),
               units_format_count(in[k], c), bar ? "  " : "", bar, "########################################");
    }
}

static enum status print_counts(const struct show *x, const struct packing_report *packed)
{
    int64_t supervised, documents = stream_documents(x->d), tokens = stream_tokens(x->d);
    char a[32], b[32], c[32];
    TRY(count_supervised(x->d, &supervised));
    printf("data: %s document%s, %s tokens, %s (%.1f%%) supervised; ", units_format_count(documents, a),
           documents == 1 ? "" : "s", units_format_count(tokens, b), units_format_count(supervised, c),
           100.0 * (double)supervised / (double)tokens);
    if (x->tokenizer)
        printf("tokens of %s, %.2f bytes each\n", tokenizer_path(x->tokenizer), (double)stream_text_bytes(x->d) / (double)tokens);
    else if (x->numbers)
        printf("ids below %lld, as they are\n", (long long)stream_ids(x->d));
    else
        printf("text as bytes\n");
    const char *path;
    const int64_t repaired = stream_repaired(x->d, &path);
    data_print_repaired(repaired, path, stdout);
    const struct chat_counts chats = stream_chats(x->d);
    data_print_chats(&chats, stdout);
    print_lengths(x);
    if (x->sized)
        data_print_packing(x->s->plan.seq_len, packed, stdout);
    return OK;
}

static enum status print_sources(struct show *x, const struct corpus *c)
{
    double all = 0;
    int n = corpus_sources(c);
    enum status st = OK;
    for (int i = 0; i < n; i++)
        all += corpus_get_source(c, i).weight;
    for (int i = 0; i < n && st == OK; i++) {
        struct corpus_source s = corpus_get_source(c, i);
        x->d = s.documents;
        x->numbers = !x->tokenizer && stream_has_ids(x->d);
        if (n > 1)
            printf("%s==== %s: %.4g%% of the tokens\n", i ? "\n" : "", s.name, 100 * s.weight / all);
        st = print_samples(x);
        if (st == OK)
            st = print_counts(x, s.packed);
    }
    const struct corpus_source held_out = corpus_get_held_out(c);
    if (st == OK && held_out.documents) {
        struct packing_report r = *held_out.packed;
        r.eval_sequences = r.train_sequences;
        r.train_sequences = 0;
        x->d = held_out.documents;
        printf("\n==== --eval-data\n");
        st = print_counts(x, &r);
    }
    data_print_remarks(c, stdout);
    return st;
}

/* Prints how the documents of all sources fill sequences of the curriculum's other lengths. */
static enum status print_other_lengths(const struct settings *s, struct corpus *c)
{
    for (int i = 0; i < s->curriculum.n; i++) {
        if (s->curriculum.at[i].seq_len == s->plan.seq_len)
            continue;
        TRY(corpus_cut(c, s->curriculum.at[i].seq_len));
        data_print_packed(c, stdout);
    }
    return OK;
}

static void begin_reading(const struct settings *s, const struct comm *comm)
{
    train_show_progress(s, comm);
    if (!isatty(STDERR_FILENO))
        progress_begin_lines(STDOUT_FILENO, progress_silence_ns(), PROGRESS_LINE_NS);
}

static void end_reading(void)
{
    progress_end();
}

static enum status show(void *user, const struct corpus_config *config)
{
    struct show *x = user;
    struct corpus *c = NULL;
    enum status st = corpus_open(config, &c);
    end_reading();
    TRY(st);
    x->tokenizer = config->tokenizer;
    st = print_sources(x, c);
    if (st == OK && x->sized)
        st = print_other_lengths(x->s, c);
    corpus_close(c);
    if (fflush(stdout) != 0 || ferror(stdout))
        st = st == OK ? status_fail(ERR_IO, "cannot write: standard output is full or closed") : st;
    return st;
}

/* Shows the data. Without a sequence length they are cut into the shortest sequences, about which nothing is printed. */
static enum status show_alone(const struct settings *s, const struct comm *comm)
{
    enum { SHORTEST = 2 };
    struct settings sized = *s;
    int colored = isatty(STDOUT_FILENO);
    struct show x = {
        .s = s, .sized = s->plan.seq_len > 0, .open = colored ? "\033[32m" : "【", .close = colored ? "\033[0m" : "】"};
    struct model *m;
    sized.plan.seq_len = x.sized ? s->plan.seq_len : SHORTEST;
    if (!x.sized) {
        sized.packing = PACK_CONCAT;
        sized.too_long = LONGER_SPLIT;
    }
    TRY(train_open_model(&sized, &m));
    begin_reading(s, comm);
    enum status st = data_read(&sized, m, show, &x);
    end_reading();
    model_destroy(m);
    return st;
}

enum status show_data(const struct settings *s, struct comm *comm)
{
    return comm_agree(comm, comm_rank(comm) == 0 ? show_alone(s, comm) : OK);
}
