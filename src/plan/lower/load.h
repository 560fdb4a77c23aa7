/* Counting the tokens of each expert, and the balancing loss (ops/route.h) that follows from the counts. Private to
 * src/plan/lower.
 *
 * The forward pass of a program with a backward pass counts; recomputation does not. The balancing loss spans all layers of one
 * sequence, so its counts are complete, and gathered from the ranks that share the sequence, before the first router's backward
 * pass. In a pipeline the engine hands each stage's counts of a micro-batch to the program of the head, which gathers those of all
 * stages, and their sums to the backward halves (engine/expert_stages.h). */
#ifndef LTRAIN_PLAN_LOWER_LOAD_H
#define LTRAIN_PLAN_LOWER_LOAD_H

#include "plan/lower/lowering.h"

/* Creates the counts, if the model has experts. */
void load_create(struct lowering *L, struct io_buffers *io);
/* Zeroes the counts before the forward pass; load_end: gathers them, and sends them to the host; load_bind binds what the program reads at
 * its start (end = 0), or leaves at its end (1). */
void load_begin(struct lowering *L);
void load_end(struct lowering *L);
void load_bind(struct lowering *L, int end);
/* Gathers the counts of all stages, in the program of a pipeline's head; load_take: brings their sums to the device, before the backward
 * half. Both do nothing without stages or without the loss. */
void load_gather(struct lowering *L);
void load_take(struct lowering *L);

/* Appends to OP_ROUTE of rows [first, end) of a layer the counts that it adds to. a: its attributes. */
void load_count(struct lowering *L, struct op_attrs *a, int layer, int64_t first, int64_t end);
/* Appends to OP_ROUTE_GRAD of these rows the counts of the balancing loss, if the model is trained with one. */
void load_balance(struct lowering *L, struct op_attrs *a, int64_t first, int64_t end);

#endif
