/* Tasks of long contexts, generated and answered by greedy decoding: a part of `ltrain eval`. Private to src/eval. */
#ifndef LTRAIN_EVAL_EVAL_TASKS_H
#define LTRAIN_EVAL_EVAL_TASKS_H

#include "comm/comm.h"
#include "eval/task_results.h"
#include "settings/settings.h"

enum { EVAL_MOST_DEPTHS = 101 };

/* Reads --depths: "0,25,50", with or without %, or a single number without %, which is the number of depths from 0 to 100. out:
 * [EVAL_MOST_DEPTHS]. */
enum status eval_tasks_depths(const struct settings *s, double *out, int *n);
/* Answers every sample of every cell, or writes the samples to --write-samples. out: the caller fills in tasks, depths and
 * lengths; the rest are the answers, also after a failure or a signal (*signal_number). s->model is the model's own directory.
 * ERR_NOFIT, before any answer: the longest length does not fit. */
enum status eval_tasks_run(struct settings *s, struct comm *c, struct task_results *out, int *signal_number);
void eval_tasks_destroy(struct task_results *r);

#endif
