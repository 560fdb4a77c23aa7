/* Checks of all ranks together: hosts, versions, clocks, a shared directory, messages. Private to src/doctor. */
#ifndef LTRAIN_DOCTOR_RANKS_H
#define LTRAIN_DOCTOR_RANKS_H

#include "comm/comm.h"
#include "doctor/findings.h"

struct rank_checks {
    struct comm *comm;  /* borrowed */
    const char *fault;  /* sentence about a rank that runs another program; "": all run the same */
    const char *shared; /* directory that all ranks are to see, existing or not */
    int must_share;     /* 1: a rank that does not see it is a failure, not a warning */
};

/* Adds, on rank 0, findings of all ranks together. Every rank calls it. */
enum status doctor_ranks(struct findings *f, const struct rank_checks *r);
/* Adds, on rank 0, what other hosts found that is not as on its own. Every rank calls it with its own findings. */
enum status doctor_hosts(struct findings *f, struct comm *c);

#endif
