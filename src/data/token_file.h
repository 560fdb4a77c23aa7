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

/* Origin of tokens. Equal keys mean the same tokenizer and settings, and files of the same names and lengths. */
struct token_source {
    uint64_t key;
    int64_t files;
    int64_t ids; /* bound of the stored ids, which are all below */
};

struct token_totals {
    int64_t tokens, documents;
    int64_t text_bytes;
    int64_t repaired;      /* broken UTF-8 characters that were replaced */
    int64_t repaired_file; /* number of the file with the most broken characters */
    int64_t empty;         /* documents without a token, which are left out of the number of documents */
    struct chat_counts chats;
};

/* ---- writing ---- */

struct token_writer;

/* Creates a writer in directory `dir`, which is made if absent. */
enum status token_writer_create(const char *dir, const struct token_source *source, struct token_writer **out);
enum status token_writer_add(struct token_writer *w, const int32_t *id, int64_t n);
/* Ends a document of file `file` behind the last added token; a document without tokens counts as empty. Files come in ascending
 * order. */
enum status token_writer_end_document(struct token_writer *w, int64_t file);
/* Completes the file and gives it its final name. print: fingerprint of each file of the source. */
enum status token_writer_finish(struct token_writer *w, const struct token_totals *totals, const struct fingerprint *print);
/* Frees the writer; if token_writer_finish was not called no file is left. */
void token_writer_destroy(struct token_writer *w);

/* ---- reading ---- */

struct token_file;

/* Opens the file of tokens of this source; *out is NULL if there is none, or only a damaged or unfinished one. */
enum status token_file_open(const char *dir, const struct token_source *source, struct token_file **out);
void token_file_close(struct token_file *f);
const struct token_totals *token_file_totals(const struct token_file *f);
const struct fingerprint *token_file_fingerprint(const struct token_file *f, int64_t i);
int64_t token_file_ids(const struct token_file *f);
const int64_t *token_file_counts(const struct token_file *f);    /* number of occurrences of each id, [ids] */
const int64_t *token_file_ends(const struct token_file *f);      /* number of the token behind each document, [documents] */
const int64_t *token_file_file_ends(const struct token_file *f); /* number of documents up to the end of each file, [files] */
/* Reads tokens [at, at + n). ERR_CORRUPT: the file's bytes are not those that were written. From any thread. */
enum status token_file_read(const struct token_file *f, int64_t at, int64_t n, int32_t *out);

#endif
