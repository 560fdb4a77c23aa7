/* Files as one stream of bytes, in an order that depends on their paths only. Private to this folder.
 *
 * Files stay closed between reads, so neither memory nor file handles grow with the data; each read looks whether the file is
 * still the one that documents_survey has read. */
#ifndef LTRAIN_DATA_DOCUMENTS_H
#define LTRAIN_DATA_DOCUMENTS_H

#include "base/status.h"
#include "data/exclude.h"
#include "data/fingerprint.h"

#include <stdint.h>
#include <stdio.h>

struct documents;

/* paths: files, directories (all files below except hidden ones; links followed) and globs. Canonical paths are sorted and
 * repeated ones dropped, empty files too. key: what messages call the list ("--data").
 * exclude: patterns of files that are left out, unless `paths` names them; NULL: none. */
enum status documents_open(const char *key, const char *const *paths, int n_paths, struct exclusion *exclude, struct documents **out);
void documents_close(struct documents *d);
/* Reads every file once, in order, for its fingerprint; visit (may be NULL) sees the stream. Before the first documents_read. */
enum status documents_survey(struct documents *d, fingerprint_visitor *visit, void *user);
/* Instead of documents_survey: what an earlier one has found, if *text, a list by documents_write_known, begins with exactly these
 * files, of that kind, and none was touched since. 1: it does, and *text is behind them. */
int documents_recall(struct documents *d, const char *kind, const char **text);
/* A line for each file. 0: of some file a later change might not show, so that nothing may be remembered. */
int documents_write_known(const struct documents *d, const char *kind, FILE *f);
/* Is told of files that are read again later on; NULL: nobody. Must outlive them. */
void documents_tell(struct documents *d, const struct rereading *r);
/* A line for each file (data/fingerprint.h). */
void documents_print(const struct documents *d, const char *kind, FILE *f);

int64_t documents_count(const struct documents *d);
int64_t documents_empty(const struct documents *d); /* files without a byte, which are left out */
int64_t documents_left_out(const struct documents *d); /* number of files that patterns leave out */
int64_t documents_bytes(const struct documents *d);
const char *documents_path(const struct documents *d, int64_t i);
int documents_is_found(const struct documents *d, int64_t i); /* below a directory; neither named nor matched by a glob */
/* Of file i: whoever reads it writes it, if not documents_survey. */
struct fingerprint *documents_fingerprint(struct documents *d, int64_t i);
/* The document holding byte `at` of the stream, 0 <= at < bytes. */
int64_t documents_find(const struct documents *d, int64_t at);
/* Document i is stream bytes [first, end). */
int64_t documents_first(const struct documents *d, int64_t i);
int64_t documents_end(const struct documents *d, int64_t i);
/* Stream bytes [at, at + n) into out; *next, if not NULL: the byte after them in the same document, -1 at its end. ERR_CORRUPT: a
 * file is not the one that was surveyed. From any thread. */
enum status documents_read(const struct documents *d, int64_t at, int64_t n, uint8_t *out, int32_t *next);

/* Without reading them, whether the files that hold stream bytes [at, at + n) are those that were surveyed. */
enum status documents_check(const struct documents *d, int64_t at, int64_t n);

#endif
