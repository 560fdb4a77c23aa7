/* Stages of a pipeline: messages between them, and the model's ends (embedding and head), of whose rows every stage computes a share.
 * Private to src/plan/lower.
 *
 * A stage's outputs and gradients lie in persistent buffers of all rows of a micro-batch, since another program than the one that makes
 * them sends them: outputs beside the backward pass that follows, gradients beside the next forward pass; with a lag of 2 (strategy_lag)
 * both beside the next pass of their own kind, once that pass has taken what arrived before. The last stage keeps the outputs of all
 * slices, since backward passes, and with them the head, begin with a micro-batch's last slice.
 *
 * Programs of the model's ends deal rows out and collect them themselves. With a lag of 2 layers' programs do, a tick earlier or later:
 * forward passes collect the embedding, backward passes deal out the head's input and the embedding's gradient, and collect the head's
 * gradient. The shares lie in persistent buffers, too. */
#ifndef LTRAIN_PLAN_LOWER_STAGE_H
#define LTRAIN_PLAN_LOWER_STAGE_H

#include "plan/lower/lowering.h"

/* Creates the values that stages send each other; stage_bind binds them at the program's start (end = 0) or end (1). Both do nothing
 * without stages. */
void stage_create(struct lowering *L);
void stage_bind(struct lowering *L, int end);
/* Reserves, in a program that is no half, the bytes that halves keep for micro-batches in flight. */
void stage_reserve(struct lowering *L);

/* Creates the values of a program that computes an end of the model (state.h: lower_is_apart). stage_lower lowers this program, or
 * one of messages alone. */
void stage_end_values(struct lowering *L);
void stage_lower(struct lowering *L);

/* Tells whether the program's stage computes the embedding beside its layers (model_first_embeds), as without a pipeline. */
int stage_embeds(const struct lowering *L);

/* Takes the stage's inputs, or its outputs' gradients, from the received message. */
void stage_begin_forward(struct lowering *L);
void stage_begin_backward(struct lowering *L);
/* Emits the half's own messages that are due beside a layer, unless that is done: called before the layer's attention computes, and
 * behind the layer. Messages are spread over as many layers as every stage has: on one stream, those of a layer wait behind them. Does
 * nothing without stages. */
void stage_pass(struct lowering *L, int layer);
/* Copies chunk c of the stage's output, or of its input's gradient, to the message that will be sent. */
void stage_leave_output(struct lowering *L, int c);
void stage_leave_gradient(struct lowering *L, int c);

#endif
