/* Tokens of documents in a file, made by a tokenizer from a list of files and kept for the next run. Private to this folder.
 *
 * A file has a header, the tokens (2 or 4 bytes each), and behind them: the ends of documents, the number of documents up to each
 * file's end, counts of each id, the fingerprints of the files, and a checksum of each block of tokens. It is written under
 * another name and renamed once it is whole. */
#ifndef LTRAIN_DATA_TOKEN_FILE_H
#define LTRAIN_DATA_TOKEN_FILE_H

#include "base/status.h"
#include "data/chats.h"
#include "data/fingerprint.h"

#include <stddef.h>
#include <stdint.h>

/* Origin of tokens. Equal keys mean the same tokenizer, used in the same way, and the same files by name and length. */
struct token_source {
    uint64_t key;
    int64_t files;
    int64_t ids; /* bound of ids */
};

struct token_totals {
    int64_t tokens, documents;
    int64_t text_bytes;
    int64_t repaired;      /* broken characters */
    int64_t repaired_file; /* file with the most of them */
    int64_t empty;         /* documents without tokens, which are not counted as documents */
    struct chat_counts chats;
};

/* ---- writing ---- */

struct token_writer;

/* Creates a writer in directory `dir`, which is made if absent. */
enum status token_writer_create(const char *dir, const struct token_source *source, struct token_writer **out);
enum status token_writer_add(struct token_writer *w, const int32_t *id, int64_t n);
/* Ends a document of that file behind the last token; one without tokens counts as empty. Files come in their order. */
enum status token_writer_end_document(struct token_writer *w, int64_t file);
/* Puts the file in its place. print: fingerprint of each file of the source. */
enum status token_writer_finish(struct token_writer *w, const struct token_totals *totals, const struct fingerprint *print);
/* Frees the writer; without token_writer_finish no file is left. */
void token_writer_destroy(struct token_writer *w);

/* ---- reading ---- */

struct token_file;

/* Opens the file of this source; *out is NULL if there is none, or none that is whole. */
enum status token_file_open(const char *dir, const struct token_source *source, struct token_file **out);
void token_file_close(struct token_file *f);
const struct token_totals *token_file_totals(const struct token_file *f);
const struct fingerprint *token_file_fingerprint(const struct token_file *f, int64_t i);
int64_t token_file_ids(const struct token_file *f);
const int64_t *token_file_counts(const struct token_file *f);    /* [ids] */
const int64_t *token_file_ends(const struct token_file *f);      /* [documents] */
const int64_t *token_file_file_ends(const struct token_file *f); /* [files]: number of documents up to the end of each */
/* Reads tokens [at, at + n). ERR_CORRUPT: they are not those written. From any thread. */
enum status token_file_read(const struct token_file *f, int64_t at, int64_t n, int32_t *out);

#endif
