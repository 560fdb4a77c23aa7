/* The list of a corpus's files, while files are looked for and afterwards. Private to documents.c and documents_find.c. */
#ifndef LTRAIN_DATA_DOCUMENTS_PARTS_H
#define LTRAIN_DATA_DOCUMENTS_PARTS_H

#include "data/documents.h"

/* Ways in which a file was found; a file found in several ways counts as the first of these. */
enum how { NAMED, LEFT_OUT, MATCHED, FOUND, REPEATED }; /* MATCHED: by a glob; FOUND: below a directory */

struct document {
    char *path;           /* canonical, owned */
    int64_t first, bytes; /* place and length in the stream */
    enum how how;
    struct fingerprint print;
};

struct documents {
    struct document *files;
    int64_t n, room;
    int64_t bytes, empty, left_out; /* empty: number of files without a byte; left_out: number of files that patterns leave out */
    struct exclusion *exclude;      /* patterns, while files are looked for; or NULL */
    const struct rereading *rereading; /* or NULL */
};

/* Adds the files of a path: a file, a directory, or (if no such file exists) a glob. key: name of the list of paths in messages. */
enum status documents_add(struct documents *d, const char *key, const char *path);

#endif
