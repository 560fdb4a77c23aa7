/* Answers of models to tasks, as JSON. Private to src/eval. */
#ifndef LTRAIN_EVAL_TASK_JSON_H
#define LTRAIN_EVAL_TASK_JSON_H

#include "eval/task_results.h"

#include <jansson.h>

/* Adds an object for each cell that has answers to `results`, and the means and the prompts' source to `object`. */
void task_json_add(const struct task_results *r, json_t *object, json_t *results);

#endif
