/* ltrain doctor: checks of this machine for training, with remedies. */
#ifndef LTRAIN_DOCTOR_DOCTOR_H
#define LTRAIN_DOCTOR_DOCTOR_H

#include "settings/settings.h"

struct doctor {
    const char *const *path; /* directories for offloading; borrowed */
    int n_paths;
    int measure;           /* 1: writes and reads a file on each path */
    int json;              /* 1: prints an object instead of lines */
    int strict;            /* 1: warnings count as failures */
    struct settings *plan; /* settings of a plan that the machine is to run; NULL: none */
    const char *bundle;    /* file for a support bundle; NULL: none */
    const char *version;   /* text of `ltrain --version`, for the bundle */
};

/* Looks at the machine, prints the findings to stdout, writes the bundle, and sets *code: 0, or 1 if something fails. */
enum status doctor_run(const struct doctor *d, int *code);

#endif
