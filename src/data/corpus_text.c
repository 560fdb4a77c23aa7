/* A corpus as text: its contents, and the results of reading that an unchanged start need not find again. */
#include "data/corpus_parts.h"

#include "data/known.h"

#include <stdlib.h>
#include <string.h>

/* ---- what the next start need not read ---- */

int64_t corpus_trained_of(const struct corpus *c, const struct source *s)
{
    return c->packing == PACKING_CONCAT ? packing_get_report(s->packing)->train_tokens : packing_train_end(s->packing);
}

int64_t corpus_trained_tokens(const struct corpus *c)
{
    int64_t n = 0;
    for (int i = 0; i < c->n_sources; i++)
        n += corpus_trained_of(c, &c->sources[i]);
    return n;
}

#define KNOWN "ltrain data 1\ntokens %lld entropy %la\n"

static int recall_sources(struct corpus *c, const char *text)
{
    for (int i = 0; i < c->n_sources; i++)
        if (!stream_recall(c->sources[i].files, "data", &text))
            return 0;
    return (!c->eval.files || stream_recall(c->eval.files, "eval-data", &text)) && !*text;
}

/* Takes the entropy from the text of an earlier start. Returns 0 if the text is not about these files, untouched since, and as
 * many trained tokens. */
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

/* Tells whether all sources are read as bytes. (Files of tokens keep the fingerprints of their sources themselves.) */
static int is_bytes(const struct corpus *c)
{
    int bytes = !c->eval.files || stream_is_bytes(c->eval.files);
    for (int i = 0; i < c->n_sources; i++)
        bytes &= stream_is_bytes(c->sources[i].files);
    return bytes;
}

int corpus_is_remembered(struct corpus *c, const char *path)
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

/* ---- what a run is trained on ---- */

#define LAYOUT "sequences of %lld tokens: %lld to train, %lld held out\n"
#define BELOW "\ntrained below token %lld\n"
#define BARE "ids without a header: %d bytes each\n"

static void print_packing(const struct corpus *c, FILE *f)
{
    static const char *const kinds[] = {"concat", "best-fit"}, *const longer[] = {"split", "drop", "truncate", "refuse"};
    int64_t end = 0;
    fprintf(f, "packing %s, longer documents: %s", kinds[c->packing], longer[c->too_long]);
    for (int i = 0; i < c->n_sources; i++)
        end += packing_train_end(c->sources[i].packing);
    for (int i = 0; i < c->n_sources && c->n_sources > 1; i++)
        fprintf(f, "%s %.17g of %lld", i ? "" : ", weights", c->sources[i].weight, (long long)stream_tokens(c->sources[i].files));
    fprintf(f, BELOW, (long long)end);
}

enum status corpus_write_contents(const struct corpus *c, FILE *f)
{
    fprintf(f, LAYOUT, (long long)c->seq_len, (long long)c->report.train_sequences, (long long)c->report.eval_sequences);
    print_packing(c, f);
    if (c->bare_bytes)
        fprintf(f, BARE, c->bare_bytes);
    if (c->tokenizer.ids)
        fingerprint_print(f, "tokenizer", &(struct fingerprint){.xxh3 = c->tokenizer.hash, .bytes = c->tokenizer.ids},
                          c->tokenizer.name);
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
    const char *bare = strstr(text, "\nids without a header: ");
    out->bare_bytes = 0;
    if (bare && sscanf(bare + 1, BARE, &out->bare_bytes) != 1)
        return 0;
    if (!below || sscanf(below, BELOW, &out->trained_below) != 1)
        return 0;
    return sscanf(text, LAYOUT, &out->seq_len, &out->train_sequences, &out->eval_sequences) == 3;
}
