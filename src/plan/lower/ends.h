/* Both ends of a model: the embedding, and the final norm, head and loss. Private to src/plan/lower. */
#ifndef LTRAIN_PLAN_LOWER_ENDS_H
#define LTRAIN_PLAN_LOWER_ENDS_H

#include "plan/lower/lowering.h"

/* Computes chunk c of the first layer's input. lower_embed_backward: makes the embedding's gradient from L->dx. */
void lower_embed(struct lowering *L, int c);
void lower_embed_backward(struct lowering *L, int c);

/* Returns the unit that has the head's matrix. */
int head_matrix_unit(const struct lowering *L);
/* Returns the elements from row to row of the logits: on GPUs a multiple of 8, for the fastest products. */
int64_t lower_logits_ld(const struct lowering *L);
/* Tells whether the program writes every token's loss: programs that only evaluate do. */
int lower_says_each(const struct lowering *L);
/* Tells whether the program reads every token's weight: programs with a backward pass do, if there are weights. */
int lower_weighs(const struct lowering *L);
/* Creates the values of the loss and of its gradients. */
void loss_values(struct lowering *L);
/* Computes the loss tiles of chunk c: logits and loss; `gradient`: also the logits' gradient in the same pass, then L->dx. */
void lower_loss_chunk(struct lowering *L, int c, int gradient);
/* Computes L->logits from row L->last_row of the last layer's output, which is a single chunk. */
void lower_last_logits(struct lowering *L);

#endif
