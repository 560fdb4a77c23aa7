/* Both ends of a model: the embedding, and the final norm, head and loss. Private to src/plan/lower. */
#ifndef LTRAIN_PLAN_LOWER_ENDS_H
#define LTRAIN_PLAN_LOWER_ENDS_H

#include "plan/lower/lowering.h"

/* Chunk c of the first layer's input; and what the embedding learns from L->dx. */
void lower_embed(struct lowering *L, int c);
void lower_embed_backward(struct lowering *L, int c);

/* The unit that has the head's matrix. */
int head_unit(const struct lowering *L);
/* Elements from row to row of the logits: on GPUs a multiple of 8, as the fastest products want it. */
int64_t lower_logits_ld(const struct lowering *L);
/* Whether the loss gives the logits' gradient in bf16: products of GPUs would round it each. */
int lower_rounds_dlogits(const struct lowering *L);
/* Whether the program leaves every token's loss: one that only evaluates. */
int lower_says_each(const struct lowering *L);
/* Loss tiles of chunk c: logits, loss and, with `gradient`, theirs in the same pass, then L->dx. */
void lower_loss_chunk(struct lowering *L, int c, int gradient);
/* The logits of row L->last_row of the stream after the last layer, of which there is one chunk: L->logits. */
void lower_last_logits(struct lowering *L);

#endif
