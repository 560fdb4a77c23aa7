/* Gathering answers of several ranks as if one rank had made them. Private to src/eval. */
#ifndef LTRAIN_EVAL_TASK_GATHER_H
#define LTRAIN_EVAL_TASK_GATHER_H

#include "comm/comm.h"
#include "eval/task_results.h"

/* Adds the answers of each rank since the last call, in the order of ranks, to r and its cells on all ranks. own: NULL if this
 * rank has none; r owns its text from here on. */
enum status task_gather(struct comm *c, struct task_answer *own, struct task_results *r);

#endif
