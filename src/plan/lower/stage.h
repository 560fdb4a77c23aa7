/* Stages of a pipeline: what passes between them, and both ends of the model, of whose rows every stage computes a share. Private to
 * src/plan/lower.
 *
 * A stage's outputs and gradients lie in persistent buffers of all rows of a micro-batch, since they travel in another program than
 * the one that makes them: outputs beside the backward pass that follows, gradients beside the next forward pass; with a lag of 2
 * (strategy_lag) both beside the next pass of their own kind, once that has taken what arrived before. The last stage has
 * its outputs' gradient of each slice until the slice's backward pass, since slices go backwards there. */
#ifndef LTRAIN_PLAN_LOWER_STAGE_H
#define LTRAIN_PLAN_LOWER_STAGE_H

#include "plan/lower/lowering.h"

/* Creates the values that pass between stages; stage_bind binds them at the program's start (end = 0) or end (1). Nothing without
 * stages. */
void stage_create(struct lowering *L);
void stage_bind(struct lowering *L, int end);
/* Reserves what the halves' programs keep for all micro-batches in flight, in a program that is no half. */
void stage_reserve(struct lowering *L);

/* Creates the values of a program of the model's ends (state.h: lower_is_apart). stage_lower: lowers it, or messages alone. */
void stage_end_values(struct lowering *L);
void stage_lower(struct lowering *L);

/* Takes the stage's inputs, or its outputs' gradients, from what arrived, and emits the half's message. The functions below copy
 * chunk c of the results to what leaves. */
void stage_begin_forward(struct lowering *L);
void stage_begin_backward(struct lowering *L);
void stage_leave_output(struct lowering *L, int c);
void stage_leave_gradient(struct lowering *L, int c);

#endif
