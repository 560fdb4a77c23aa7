/* Files as one stream of bytes, in an order that depends on their paths only. Private to this folder.
 *
 * Files stay closed between reads, so neither memory nor file handles grow with the data; a file that shrank since is
 * ERR_CORRUPT. */
#ifndef LTRAIN_DATA_DOCUMENTS_H
#define LTRAIN_DATA_DOCUMENTS_H

#include "base/status.h"

#include <stdint.h>

struct documents;

/* paths: files, directories (all files below except hidden ones; links followed) and globs. Canonical paths are sorted and
 * repeated ones dropped, empty files too. key: what messages call the list ("--data"). */
enum status documents_open(const char *key, const char *const *paths, int n_paths, struct documents **out);
void documents_close(struct documents *d);

int64_t documents_count(const struct documents *d);
int64_t documents_bytes(const struct documents *d);
/* The document holding byte `at` of the stream, 0 <= at < bytes. */
int64_t documents_find(const struct documents *d, int64_t at);
/* Document i is stream bytes [first, end). */
int64_t documents_first(const struct documents *d, int64_t i);
int64_t documents_end(const struct documents *d, int64_t i);
/* Stream bytes [at, at + n) into out; *next, if not NULL: the byte after them in the same document, -1 at its end. */
enum status documents_read(const struct documents *d, int64_t at, int64_t n, uint8_t *out, int32_t *next);

#endif
