/* Texts as windows of equal length, each token predicted once, for measuring perplexity. */
#ifndef LTRAIN_DATA_WINDOWS_H
#define LTRAIN_DATA_WINDOWS_H

#include "data/corpus.h"

struct windows;

struct windows_report {
    int64_t windows, documents, tokens;
    int64_t longest;          /* tokens of the longest document: no token attends to more */
    int64_t text_bytes;       /* bytes of the texts; -1: not counted, as the texts are only a part of their files */
    int64_t left_out;         /* files that config's `exclude` leaves out */
    int has_text;             /* 1: there is text; 0: the files have ids, and no tokenizer says what ids mean */
    struct chat_counts chats; /* totals of the conversations among the texts; all zero if there are none */
};

/* Opens the texts of config's eval_paths. Documents are one stream, cut into windows of seq_len tokens that begin `stride` (at
 * most seq_len) apart; the last window may be shorter.
 *
 * A token attends to its own document, from the window's start on. A token that lies in two windows is predicted in the first of
 * them only. With a stride below seq_len every token behind the first window attends to at least seq_len - stride tokens before
 * it, if its document has as many. */
enum status windows_open(const struct corpus_config *config, int64_t stride, struct windows **out);
/* Opens the part of each source that config's eval_fraction holds out when the source is cut into sequences of config's seq_len:
 * all tokens behind the trained ones. length: tokens of a window. */
enum status windows_open_held_out(const struct corpus_config *config, int64_t length, int64_t stride, struct windows **out);
void windows_close(struct windows *w); /* NULL is fine */
/* Writes the list of the files as corpus_write_contents does; its first two lines, about sequences, only if held-out parts were
 * opened. */
enum status windows_write_contents(const struct windows *w, FILE *f);
const struct windows_report *windows_get_report(const struct windows *w);
/* Reads window number `index`, whose first *used entries are tokens. Targets as in corpus_eval_sequence. */
enum status windows_take(const struct windows *w, int64_t index, struct sequence *out, int64_t *used);

#endif
