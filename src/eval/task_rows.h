/* Samples of tasks as tokens, and as rows to train on. Private to src/eval. */
#ifndef LTRAIN_EVAL_TASK_ROWS_H
#define LTRAIN_EVAL_TASK_ROWS_H

#include "eval/prompts.h"
#include "eval/task_results.h"

#include <stdio.h>

/* Encodes a sample, by the chat template if one is open. prompt: the tokens to read, with the given beginning of the answer;
 * answer: a right continuation. Special tokens in the text are text. */
enum status task_rows_encode(const struct prompts *p, const struct task_sample *s, struct ids *prompt, struct ids *answer);
/* Writes a line of JSON. Without a chat template it has input_ids and labels that train the answer and the first of eos after it
 * (all: everything). With a template it has messages. The caller looks for ERR_IO. */
enum status task_rows_write(const struct prompts *p, const struct ids *eos, const struct task_sample *s,
                            const struct task_cell *c, int all, FILE *f);

#endif
