/* Scores by length and depth, as text and as a picture. Private to src/train. */
#ifndef LTRAIN_TRAIN_HEAT_MAP_H
#define LTRAIN_TRAIN_HEAT_MAP_H

#include "train/task_results.h"

#include <stdio.h>

/* A table for each task, and one of all. coloured: for a terminal. */
void heat_map_print(const struct task_results *r, int coloured, FILE *f);
/* ERR_IO. */
enum status heat_map_write_svg(const struct task_results *r, const char *model, const char *path);
/* The mean of the cells of a task (TASKS: of all) at a length (0: at all) that have answers; NaN: none has. */
double heat_map_mean(const struct task_results *r, enum task t, int64_t length);

#endif
