/* What a file holds, as a number; whether it still does; and lists of files that are compared: between ranks, and with those of an
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
    uint64_t xxh3;  /* of all bytes: what `xxhsum -H3` prints */
    uint64_t stamp; /* of inode, size and times: the same while nobody touches the file, on all hosts that see it */
    int settled;    /* whoever changes it after it was read changes the stamp, too */
};

/* Called with a file's bytes, in order. */
typedef enum status fingerprint_visitor(void *user, const uint8_t *data, int64_t n);

/* Reads the whole file; visit may be NULL. ERR_INVALID: it cannot be opened; ERR_IO; ERR_CORRUPT: it changes meanwhile. */
enum status fingerprint_take(const char *path, fingerprint_visitor *visit, void *user, struct fingerprint *out);
/* Whether a file whose inode changed last at ctime shows a change that comes after now_ns (clock_wall_ns): times go in ticks, and of
 * two changes within one the second does not show. shared: the times are another host's, whose clock may go otherwise. */
int fingerprint_is_settled(const struct timespec *ctime, int64_t now_ns, int shared);
/* What is read of a file in parts: each is written back first if somebody has mapped it and written to it, as such a page shows no
 * further write until it has gone to the drive. */
void fingerprint_before_read(struct fingerprint *f, int fd, int64_t at, int64_t n);
/* Without reading it. */
enum status fingerprint_stamp(const char *path, uint64_t *stamp, int64_t *bytes);
/* Of an open file; settled may be NULL. */
enum status fingerprint_stamp_of(int fd, const char *path, uint64_t *stamp, int *settled);

/* Who is told that a file is read again as a whole, which may take long, and may end it. */
struct rereading {
    void (*begins)(void *user, const char *path, int64_t bytes);
    void (*ended)(void *user, const char *path, enum status st);
    const atomic_int *stop; /* not 0: ERR_STOPPED; NULL: never */
    void *user;
};

/* Of an open file, whether it is the one whose fingerprint was taken. Where its stamp is another one the file is read again: the
 * same bytes (touched, copied back) are fine, and the stamp is renewed; else ERR_CORRUPT. From any thread. r may be NULL. */
enum status fingerprint_check(int fd, const char *path, struct fingerprint *f, const struct rereading *r);

/* ---- lists: a line "KIND XXH3 BYTES PATH" for each file ---- */

void fingerprint_print(FILE *f, const char *kind, const struct fingerprint *x, const char *path);

/* A path on one line; and as it was. bytes: of path, which is cut. */
void fingerprint_print_path(FILE *f, const char *path);
void fingerprint_read_path(const char *text, char *path, size_t bytes);

struct listed_file {
    int there; /* 0: the list ends before */
    uint64_t xxh3;
    long long bytes;
    char path[4096];
};

struct fingerprint_difference {
    int64_t files[2];           /* of that kind in the two lists */
    int64_t unequal;            /* places that differ */
    int resized;                /* some place has a file of another length, or none */
    int reordered;              /* all of the one are in the other, in another order */
    struct listed_file first[2]; /* the first place that differs */
};

/* 1 if the files of that kind are not the same ones in the same order; their paths do not count. */
int fingerprint_lists_differ(const char *a, const char *b, const char *kind, struct fingerprint_difference *out);
/* "A has 10 bytes and had 5; 2 more differ": of lists of which a is of the files now and b of those before. */
void fingerprint_describe(const struct fingerprint_difference *d, char *text, size_t bytes);

#endif
