/* Samples of tasks as tokens, and as rows to train on. Private to src/train. */
#ifndef LTRAIN_TRAIN_TASK_ROWS_H
#define LTRAIN_TRAIN_TASK_ROWS_H

#include "train/prompts.h"
#include "train/task_results.h"

#include <stdio.h>

/* prompt: what is read, the answer's given beginning included; answer: how a right one goes on. By the chat template, if one is
 * open. Special tokens in the text are text. */
enum status task_rows_encode(const struct prompts *p, const struct task_sample *s, struct ids *prompt, struct ids *answer);
/* A line of JSON: input_ids and labels, in which the answer, and the first of eos behind it, is trained (all: everything is); or, with
 * a chat template, messages. ERR_IO is the caller's to find. */
enum status task_rows_write(const struct prompts *p, const struct ids *eos, const struct task_sample *s, const struct task_cell *c, int all,
                            FILE *f);

#endif
