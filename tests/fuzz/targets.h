/* Readers of files that strangers may have written, each fed with arbitrary bytes. */
#ifndef LTRAIN_TESTS_FUZZ_TARGETS_H
#define LTRAIN_TESTS_FUZZ_TARGETS_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct fuzz_target {
    const char *name;
    const char *file; /* the name under which the reader finds the bytes in a directory; NULL: it takes them from memory */
    enum status (*read)(const uint8_t *data, size_t n);
};

extern const struct fuzz_target fuzz_targets[];
extern const int fuzz_n_targets;

/* Makes the directory that targets read from, on a file system in memory where there is one. fuzz_end removes it. */
void fuzz_begin(void);
void fuzz_end(void);
/* Removes what a target has written, before another one. */
void fuzz_clear(void);
/* Writes the bytes where the target's reader finds them, reads them, and returns the reader's status; aborts if an error has no
 * sentence. */
enum status fuzz_once(const struct fuzz_target *t, const uint8_t *data, size_t n);
/* Returns the target of that name; NULL: there is none. */
const struct fuzz_target *fuzz_find(const char *name);

#endif
