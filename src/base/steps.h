/* A run's checkpoints as listed in RUN/checkpoints, by names alone, and the order in which they are tried. */
#ifndef LTRAIN_BASE_STEPS_H
#define LTRAIN_BASE_STEPS_H

#include "base/status.h"

#include <stdint.h>

/* Forms of checkpoints' directories; STEP_FINAL and STEP_OLD are whole (checkpoint/checkpoint.c). */
enum step_form { STEP_FINAL, STEP_OLD, STEP_PARTIAL };

struct step_dir {
    char name[48];
    int64_t step;
    enum step_form form;
};

struct steps {
    struct step_dir *dirs; /* newest step first; among those of one step, the final one first */
    int n, next;
    char latest[48]; /* checkpoint named by the file `latest`; "": none is */
    int64_t latest_step;
};

/* Lists a directory of checkpoints; a directory that does not exist is empty. ERR_IO, ERR_NOMEM. */
enum status steps_list(const char *dir, struct steps *out);
void steps_free(struct steps *s);
/* Returns the next checkpoint to try among those whose names say that they are whole: that of `latest`, then the others in the
 * list's order. NULL: none is left. */
const char *steps_next(struct steps *s);

#endif
