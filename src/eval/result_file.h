/* A file that a command writes beside its printed results. It is written as FILE.partial and renamed to FILE once whole, so that
 * a former FILE stays until then. */
#ifndef LTRAIN_EVAL_RESULT_FILE_H
#define LTRAIN_EVAL_RESULT_FILE_H

#include "settings/settings.h"

#include <stdio.h>

struct result_file {
    const char *option, *given; /* option that names the file, and the name as given */
    char path[4096], partial[4096 + 16];
    FILE *f;
};

/* Makes sure that the file can be written and is none of those of --data and --eval-data. Leaves nothing behind. */
enum status result_file_check(const char *option, const char *path, const struct settings *s);
enum status result_file_begin(struct result_file *x, const char *option, const char *path);
/* Closes the file and renames it. st: status of writing to x->f. Unless it is OK, the partial file is removed and st is returned. */
enum status result_file_end(struct result_file *x, enum status st);

#endif
