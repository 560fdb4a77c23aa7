/* The memory that a rank may take: its part of what limits leave (base/memory.h). Private to src/train. */
#ifndef LTRAIN_TRAIN_MEMORY_H
#define LTRAIN_TRAIN_MEMORY_H

#include "base/memory.h"
#include "comm/comm.h"
#include "plan/plan.h"

struct memory_part {
    int64_t left;            /* of one rank, for its arenas: the least of all ranks */
    int64_t aside;           /* of one rank, beside its arenas: under the tightest limit */
    int sharing;             /* ranks that share that one */
    struct memory_limit by;  /* the tightest one, as the rank sees it that has the least */
    struct memory_limits of; /* this rank's limits */
    char whose[120];         /* "rank 1 on node-b has the least", where ranks of another host have more; else "" */
};

/* Of each rank, every limit's rest divided by the ranks under it, less what a rank takes beside its arenas. All ranks call it and
 * get the same, but for `of`. alone: ranks that a single process plans for; threads: of a rank's compute. */
enum status memory_part_find(struct comm *c, int alone, int threads, struct memory_part *out);
/* What this rank's limits leave beside `each` more bytes of every rank of its host. */
int64_t memory_left_beside(const struct memory_part *m, int ranks, int64_t each);
/* "1.2 GiB are left of 2.0 GiB, memory.max of /sys/fs/cgroup/job_7, and 34 MiB are set aside for stacks and the program"; "" where the machine's free memory is the limit. */
void memory_describe(const struct memory_part *m, char *text, size_t size);
#define MEMORY_ASIDE_STAGING (16LL << 20) /* for two groups of state, of what a rank takes beside its arenas (session_staging_bytes) */
/* ERR_NOFIT if the plan's arenas in this machine's memory, and `beside` bytes beside them, are more than a rank's part. */
enum status memory_check(const struct memory_part *m, const struct plan *p, int64_t beside, const struct plan_request *s);

#endif
