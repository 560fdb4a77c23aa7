/* Checking whether this machine has the memory, room and drives that a plan needs. Private to src/doctor. */
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
    int ranks;            /* ranks on this host */
};

/* Plans for this machine as `ltrain plan` does, for the ranks of `comm`, all of which call it, or (NULL) for those that the settings name. ERR_INVALID: the settings describe no
 * run that can be planned here. doctor_needs_free frees *out, also after a failure. */
enum status doctor_needs_find(struct settings *s, struct comm *comm, struct needs *out);
void doctor_needs_free(struct needs *n);

/* Checks that the plan fits, that its memory is free and may be locked, and that the run's files have room. */
void doctor_needs_check(struct findings *f, const struct needs *n, const char *root);
/* Checks the room in one of n_paths directories; doctor_needs_rates: the rates of all together. */
void doctor_needs_path(struct findings *f, const struct needs *n, const char *path, int n_paths);
void doctor_needs_rates(struct findings *f, const struct needs *n, const struct drive_rates *measured);

#endif
