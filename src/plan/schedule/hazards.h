/* Hazards on bytes, as dependencies between instructions. */
#ifndef LTRAIN_PLAN_SCHEDULE_HAZARDS_H
#define LTRAIN_PLAN_SCHEDULE_HAZARDS_H

#include "program/program.h"

/* Dependencies of each instruction i on earlier ones, in compressed rows: dep[first[i] .. first[i+1]-1], each once. */
struct deps {
    int *first, *dep;
};

/* Finds read-after-write, write-after-read and write-after-write in program order, before packing: every buffer has bytes of its
 * own. The caller frees *out with hazards_free. */
enum status hazards_find(const struct program *p, struct deps *out);
void hazards_free(struct deps *d);

/* Converts the dependencies to another order of the same n instructions. Instruction i of the new order was instruction order[i];
 * the new order must respect the dependencies. */
enum status hazards_reorder(const struct deps *d, const int *order, int n, struct deps *out);

#endif
