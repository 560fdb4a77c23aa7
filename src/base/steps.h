/* A run's checkpoints as RUN/checkpoints shows them by its names: which there are, and in which order they are tried. */
#ifndef LTRAIN_BASE_STEPS_H
#define LTRAIN_BASE_STEPS_H

#include "base/status.h"

#include <stdint.h>

enum step_form { STEP_FINAL, STEP_OLD, STEP_PARTIAL }; /* the first two are whole (checkpoint/checkpoint.c) */

struct step_dir {
    char name[48];
    int64_t step;
    enum step_form form;
};

struct steps {
    struct step_dir *dirs; /* newest step first; of one step, the final one first */
    int n, next;
    char latest[48]; /* the name in `latest` if there is a sensible one, else "" */
};

/* Lists a directory of checkpoints; a directory that does not exist is empty. ERR_IO, ERR_NOMEM. */
enum status steps_list(const char *dir, struct steps *out);
void steps_free(struct steps *s);
/* Returns the next checkpoint to try, whole by its name only: `latest`'s, then the others in the list's order. NULL: none is
 * left. */
const char *steps_next(struct steps *s);

#endif
