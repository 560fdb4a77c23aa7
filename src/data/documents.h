/* Files as one stream of bytes, in an order that depends on their paths only. Private to this folder.
 *
 * Files stay closed between reads, so neither memory nor file handles grow with the data. Each read checks that the file is still
 * the one that documents_survey has read. */
#ifndef LTRAIN_DATA_DOCUMENTS_H
#define LTRAIN_DATA_DOCUMENTS_H

#include "base/status.h"
#include "data/exclude.h"
#include "data/fingerprint.h"

#include <stdint.h>
#include <stdio.h>

struct documents;

/* Opens files. paths: files, directories (all files below except hidden ones; links are followed) and globs. Canonical paths are
 * sorted; repeated and empty files are dropped. key: name of the list of paths in messages ("--data"). exclude: patterns of files
 * that are left out unless `paths` names them; NULL: none. */
enum status documents_open(const char *key, const char *const *paths, int n_paths, struct exclusion *exclude,
                           struct documents **out);
void documents_close(struct documents *d);
/* Reads every file once, in order, for its fingerprint; visit (may be NULL) sees the stream. Comes before the first
 * documents_read. */
enum status documents_survey(struct documents *d, fingerprint_visitor *visit, void *user);
/* Takes the results of an earlier survey, which spares documents_survey, if *text begins with a list by documents_write_known of
 * exactly these files under that kind, and no file was touched since. Returns 1 and moves *text behind the list, or returns 0. */
int documents_recall(struct documents *d, const char *kind, const char **text);
/* Writes a line for each file for documents_recall. Returns 0 if a later change of some file might not show, so that nothing may
 * be remembered. */
int documents_write_known(const struct documents *d, const char *kind, FILE *f);
/* Makes r hear of each file that is read again later on; NULL: nobody is told. r must outlive d. */
void documents_tell(struct documents *d, const struct rereading *r);
/* Prints a line for each file, with its fingerprint: "KIND XXH3 BYTES PATH". */
void documents_print(const struct documents *d, const char *kind, FILE *f);

int64_t documents_count(const struct documents *d);
int64_t documents_empty(const struct documents *d);    /* files without a byte, which are left out */
int64_t documents_left_out(const struct documents *d); /* number of files that patterns leave out */
int64_t documents_bytes(const struct documents *d);
const char *documents_path(const struct documents *d, int64_t i);
int documents_is_found(const struct documents *d,
                       int64_t i); /* 1: the file was found below a directory, neither named nor matched by a glob */
/* Returns file i's fingerprint, which its reader fills in if documents_survey does not. */
struct fingerprint *documents_fingerprint(struct documents *d, int64_t i);
/* Returns the document holding byte `at` of the stream, 0 <= at < bytes. */
int64_t documents_find(const struct documents *d, int64_t at);
/* Returns the bounds of document i: stream bytes [first, end). */
int64_t documents_first(const struct documents *d, int64_t i);
int64_t documents_end(const struct documents *d, int64_t i);
/* Reads stream bytes [at, at + n) into out; *next, if not NULL: the byte after them in the same document, -1 at its end.
 * ERR_CORRUPT: a file is not the one that was surveyed. From any thread. */
enum status documents_read(const struct documents *d, int64_t at, int64_t n, uint8_t *out, int32_t *next);

/* Makes sure, without reading, that the files that hold stream bytes [at, at + n) are those that were surveyed. */
enum status documents_check(const struct documents *d, int64_t at, int64_t n);

#endif
