/* Scores by length and depth, as text and as a picture. Private to src/eval. */
#ifndef LTRAIN_EVAL_HEAT_MAP_H
#define LTRAIN_EVAL_HEAT_MAP_H

#include "eval/task_results.h"

#include <stdio.h>

/* Prints a table for each task, and a table of the means of all tasks. coloured: 1: for a terminal. */
void heat_map_print(const struct task_results *r, int coloured, FILE *f);
/* Writes the tables as a picture. ERR_IO. */
enum status heat_map_write_svg(const struct task_results *r, const char *model, const char *path);
/* Returns the mean of the cells that have answers, of a task (TASKS: all) and at a length (0: all); NaN: there are none. */
double heat_map_mean(const struct task_results *r, enum task t, int64_t length);

#endif
