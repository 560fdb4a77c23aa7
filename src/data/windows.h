/* Texts as windows of equal length, each token predicted once: what perplexity is measured on. */
#ifndef LTRAIN_DATA_WINDOWS_H
#define LTRAIN_DATA_WINDOWS_H

#include "data/corpus.h"

struct windows;

struct windows_report {
    int64_t windows, documents, tokens;
    int64_t longest;    /* tokens of the longest document: nothing sees more */
    int64_t text_bytes; /* -1: not counted, as the texts are a part of their files */
    int64_t left_out; /* files that config's `exclude` leaves out */
    int has_text; /* 0: files hold ids, and nothing says what they mean */
    struct chat_counts chats; /* of conversations; zero as well */
};

/* Of config's eval_paths. Documents are one stream, cut into windows of seq_len tokens that begin `stride` apart (at most seq_len); the last one is
 * shorter where the texts end. A token sees its own document, from the window's start on. Of tokens that two windows predict the
 * first one counts: with stride below seq_len every token but the first window's sees at least seq_len - stride others of its
 * document, if that is so long. */
enum status windows_open(const struct corpus_config *config, int64_t stride, struct windows **out);
/* The same of what config's eval_fraction holds out of its paths, where they are cut into sequences of its seq_len: of each source all tokens
 * behind those that are trained. length: of a window. */
enum status windows_open_held_out(const struct corpus_config *config, int64_t length, int64_t stride, struct windows **out);
void windows_close(struct windows *w); /* NULL is fine */
/* The files that were opened, as corpus_write_contents writes them; of what is held out with its first two lines. */
enum status windows_write_contents(const struct windows *w, FILE *f);
const struct windows_report *windows_get_report(const struct windows *w);
/* The index-th window's first *used tokens. Targets as those of corpus_eval_sequence. */
enum status windows_take(const struct windows *w, int64_t index, struct sequence *out, int64_t *used);

#endif
