/* ltrain doctor: checks of this machine for training, with remedies. */
#ifndef LTRAIN_DOCTOR_DOCTOR_H
#define LTRAIN_DOCTOR_DOCTOR_H

#include "comm/comm.h"
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
    struct comm *comm;     /* the ranks that mpiexec started; NULL: this process is alone. Borrowed */
    const char *fault;     /* sentence about ranks that cannot join, or that run another program; "": none */
};

/* Looks at the machine, prints the findings to stdout, writes the bundle, and sets *code: 0, or 1 if something fails.
 *
 * Of several ranks one on each host looks at it, and rank 0 prints what concerns all of them and what other hosts found. */
enum status doctor_run(const struct doctor *d, int *code);

#endif
