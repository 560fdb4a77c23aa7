/* A file that a command writes beside what it prints: as FILE.partial, which takes FILE's name once it is whole, so what was there before
 * stays until then. */
#ifndef LTRAIN_TRAIN_RESULT_FILE_H
#define LTRAIN_TRAIN_RESULT_FILE_H

#include "settings/settings.h"

#include <stdio.h>

struct result_file {
    const char *option, *given; /* that names it, and how */
    char path[4096], partial[4096 + 16];
    FILE *f;
};

/* Whether it can be written, and is none of the files that --data and --eval-data name. Leaves nothing behind. */
enum status result_file_check(const char *option, const char *path, const struct settings *s);
enum status result_file_begin(struct result_file *x, const char *option, const char *path);
/* st: of what was written to x->f. Anything but OK: the partial file is removed, and st is returned. */
enum status result_file_end(struct result_file *x, enum status st);

#endif
