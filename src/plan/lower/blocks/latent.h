/* Latent attention: a token's keys and values as a narrow row, which each tile of heads expands. Private to
 * src/plan/lower/blocks. */
#ifndef LTRAIN_PLAN_LOWER_BLOCKS_LATENT_H
#define LTRAIN_PLAN_LOWER_BLOCKS_LATENT_H

#include "plan/lower/blocks/attend.h"
#include "plan/lower/blocks/block.h"

/* Produces a tile of q, k or v from the layer's latents. */
value_produce latent_q, latent_k, latent_v;

/* Returns the normalised latents of keys and values of a program's tokens, which are one row chunk, on the device. *shared: the part of
 * their keys that all heads share. */
struct value *latent_rows(struct lowering *L, const struct block *b, struct value **shared);

/* Ends a visit of chunk c of the layer's latents; does nothing for the usual attention. */
void latents_drop(struct lowering *L, const struct block *b, int c);
/* Ends the last visit of the latents in the forward pass. */
void latents_leave(struct lowering *L, const struct block *b);
/* Computes the gradients of the maps to q, k and v from dq, dk and dv of all tiles, and adds the gradient of chunk c of the normalised
 * input to L->acc. */
void latent_gradients(struct lowering *L, const struct block *b, int c);
int latent_grad_cuts(const struct lowering *L, const struct block *b, int64_t *cuts, int n, int max);
/* Creates the latents of a layer; latents_of_work: the transients that the layers of a shape share. */
void latents_of_layer(struct lowering *L, struct block *b);
void latents_of_work(struct lowering *L, struct attention_work *W, int shape);

#endif
