/* Fingerprints of files' contents, checks that these still hold, and comparisons of lists of files between ranks and with an
 * earlier start. */
#ifndef LTRAIN_DATA_FINGERPRINT_H
#define LTRAIN_DATA_FINGERPRINT_H

#include "base/status.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

struct fingerprint {
    int64_t bytes;
    uint64_t xxh3;  /* hash of all bytes, as `xxhsum -H3` prints */
    uint64_t stamp; /* hash of inode, size and times; unchanged, and equal on all hosts, while nobody touches the file */
    int settled;    /* 1: any later change of the file changes the stamp, too */
};

/* Called with a file's bytes, in order. */
typedef enum status fingerprint_visitor(void *user, const uint8_t *data, int64_t n);

/* Reads the whole file; visit may be NULL. ERR_INVALID: it cannot be opened; ERR_IO; ERR_CORRUPT: it changes meanwhile. */
enum status fingerprint_take(const char *path, fingerprint_visitor *visit, void *user, struct fingerprint *out);
/* Tells whether a change of a file after now_ns (clock_wall_ns) would show in its times, if the inode last changed at ctime:
 * times go in clock ticks, and a second change within the same tick does not show. shared: the times come from another host,
 * whose clock may differ. */
int fingerprint_is_settled(const struct timespec *ctime, int64_t now_ns, int shared);
/* Prepares reading a part of a file. Pages that a process has mapped and written are written back first: until then, further
 * writes to such a page would not change the file's times. */
void fingerprint_before_read(struct fingerprint *f, int fd, int64_t at, int64_t n);
/* Takes a file's stamp without reading it. */
enum status fingerprint_stamp(const char *path, uint64_t *stamp, int64_t *bytes);
/* Takes the stamp, and whether it is settled, of an open file (struct fingerprint). settled may be NULL. */
enum status fingerprint_stamp_of(int fd, const char *path, uint64_t *stamp, int *settled);

/* Listener that is told when a file is read again as a whole, which may take long, and whose flag ends the reading. */
struct rereading {
    void (*begins)(void *user, const char *path, int64_t bytes);
    void (*ended)(void *user, const char *path, enum status st);
    const atomic_int *stop; /* flag that ends the reading with ERR_STOPPED when not 0; NULL: there is none */
    void *user;
};

/* Makes sure that an open file is still the one whose fingerprint was taken. If the stamp differs the file is read again: if the
 * bytes are the same (touched, copied back) the stamp is renewed; other bytes are ERR_CORRUPT. From any thread. r may be NULL. */
enum status fingerprint_check(int fd, const char *path, struct fingerprint *f, const struct rereading *r);

/* ---- lists: a line "KIND XXH3 BYTES PATH" for each file ---- */

void fingerprint_print(FILE *f, const char *kind, const struct fingerprint *x, const char *path);

/* Writes a path on one line (print), or reads it back (read). bytes: room in `path`; longer paths are cut. */
void fingerprint_print_path(FILE *f, const char *path);
void fingerprint_read_path(const char *text, char *path, size_t bytes);

struct listed_file {
    int there; /* 0: the list has no file at this place */
    uint64_t xxh3;
    long long bytes;
    char path[4096];
};

struct fingerprint_difference {
    int64_t files[2];            /* number of files of that kind in each list */
    int64_t unequal;             /* number of places at which the lists differ */
    int resized;                 /* 1: at some place a file's length differs, or one of the lists has no file */
    int reordered;               /* 1: both lists have the same files, in another order */
    struct listed_file first[2]; /* files of both lists at the first place that differs */
};

/* Tells whether two lists differ in the files of that kind or in their order; paths do not count. */
int fingerprint_lists_differ(const char *a, const char *b, const char *kind, struct fingerprint_difference *out);
/* Describes the difference between a, the list of now, and b, the list of an earlier start: "A has 10 bytes and had 5; 2 more
 * differ". */
void fingerprint_describe(const struct fingerprint_difference *d, char *text, size_t bytes);

#endif
