/* A plan against the machine that is to run it. Private to src/doctor. */
#ifndef LTRAIN_DOCTOR_NEEDS_H
#define LTRAIN_DOCTOR_NEEDS_H

#include "doctor/doctor.h"
#include "doctor/checks.h"
#include "plan/report/figures.h"
#include "train/train.h"

struct needs {
    const struct settings *s; /* borrowed */
    struct model *model;
    struct train_plans plans;
    const struct plan *plan; /* plan of the longest sequences */
    struct report report;
    int64_t limit[TIERS]; /* bytes that a rank may have */
    int ranks;            /* ranks of this host */
};

/* Plans for this machine as `ltrain plan` does. ERR_INVALID: settings that ask for no such plan. doctor_needs_free frees what it made,
 * also after a failure. */
enum status doctor_needs_find(struct settings *s, struct needs *out);
void doctor_needs_free(struct needs *n);

/* Checks that the plan fits, its memory, locked memory, and room for the run's own files. */
void doctor_needs_check(struct findings *f, const struct needs *n, const char *root);
/* Checks the room of one of n_paths directories, and the rates of all. */
void doctor_needs_path(struct findings *f, const struct needs *n, const char *path, int n_paths);
void doctor_needs_rates(struct findings *f, const struct needs *n, const struct drive_rates *measured);

#endif
