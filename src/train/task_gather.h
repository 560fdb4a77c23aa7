/* Answers of several ranks, as one rank would have them. Private to src/train. */
#ifndef LTRAIN_TRAIN_TASK_GATHER_H
#define LTRAIN_TRAIN_TASK_GATHER_H

#include "comm/comm.h"
#include "train/task_results.h"

/* Adds what each rank has answered since the last call, in the order of ranks, to r and its cells, on all of them. own: NULL where this
 * one has nothing, else its text is r's from here on. */
enum status task_gather(struct comm *c, struct task_answer *own, struct task_results *r);

#endif
