/* The memory that a rank may take: its part of what limits leave (base/memory.h). Private to src/train. */
#ifndef LTRAIN_TRAIN_MEMORY_H
#define LTRAIN_TRAIN_MEMORY_H

#include "base/memory.h"
#include "comm/comm.h"
#include "plan/plan.h"

struct memory_part {
    int64_t left;            /* bytes of one rank for its arenas: the least of all ranks */
    int64_t aside;           /* bytes of one rank beside its arenas, under the tightest limit */
    int sharing;             /* ranks that share the tightest limit */
    struct memory_limit by;  /* tightest limit, as seen by the rank with the least memory */
    struct memory_limits of; /* this rank's limits */
    char whose[120];         /* "rank 1 on node-b has the least" if ranks of another host have more; else "" */
};

/* Divides the rest of every limit by the ranks under it, less a rank's need beside its arenas. All ranks call it and get equal
 * results except `of`. alone: ranks that a single process plans for; threads: threads of a rank's compute. */
enum status memory_part_find(struct comm *c, int alone, int threads, struct memory_part *out);
/* Returns the bytes that this rank's limits leave beside `each` more bytes of every rank of its host. */
int64_t memory_left_beside(const struct memory_part *m, int ranks, int64_t each);
/* Describes the limit: "1.2 GiB are left of 2.0 GiB, memory.max of /sys/fs/cgroup/job_7, and 34 MiB are set aside for stacks and
 * the program"; "" if the machine's free memory is the limit. */
void memory_describe(const struct memory_part *m, char *text, size_t size);
#define MEMORY_ASIDE_STAGING \
    (16LL << 20) /* part of a rank's memory beside its arenas for two groups of state (session_staging_bytes) */
/* Makes sure that the plan fits. ERR_NOFIT: its arenas in this machine's memory and `beside` bytes beside them exceed a rank's
 * part. */
enum status memory_check(const struct memory_part *m, const struct plan *p, int64_t beside, const struct plan_request *s);

#endif
