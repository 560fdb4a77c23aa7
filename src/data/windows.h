/* Texts as windows of equal length, each token predicted once, for measuring perplexity. */
#ifndef LTRAIN_DATA_WINDOWS_H
#define LTRAIN_DATA_WINDOWS_H

#include "data/corpus.h"

struct windows;

struct windows_report {
    int64_t windows, documents, tokens;
    int64_t longest;          /* tokens of the longest document: no token sees more */
    int64_t text_bytes;       /* -1: not counted, as the texts are a part of their files */
    int64_t left_out;         /* files that config's `exclude` leaves out */
    int has_text;             /* 0: files have ids, and nothing says what they mean */
    struct chat_counts chats; /* totals of its conversations; may be zero */
};

/* Opens the texts of config's eval_paths. Documents are one stream, cut into windows of seq_len tokens that begin `stride` (at
 * most seq_len) apart; the last one may be shorter. A token sees its own document, from the window's start on. If two windows
 * predict a token the first one counts. With stride below seq_len every token but the first window's sees at least seq_len -
 * stride others of its document, if it has as many. */
enum status windows_open(const struct corpus_config *config, int64_t stride, struct windows **out);
/* Opens the part of each source that config's eval_fraction holds out when the source is cut into sequences of config's seq_len:
 * all tokens behind the trained ones. length: tokens of a window. */
enum status windows_open_held_out(const struct corpus_config *config, int64_t length, int64_t stride, struct windows **out);
void windows_close(struct windows *w); /* NULL is fine */
/* Writes the files that were opened, as corpus_write_contents does; for held-out parts with its first two lines. */
enum status windows_write_contents(const struct windows *w, FILE *f);
const struct windows_report *windows_get_report(const struct windows *w);
/* Reads the index-th window's first *used tokens. Targets are as those of corpus_eval_sequence. */
enum status windows_take(const struct windows *w, int64_t index, struct sequence *out, int64_t *used);

#endif
