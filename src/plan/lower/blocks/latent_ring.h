/* Latents around a ring: they travel once for all heads, and each member expands the keys and values of its queries' heads, tile by tile.
 * Gradients of latents, summed over all tiles, travel back. Private to src/plan/lower/blocks.
 *
 * So a row costs kv_latent + rotated elements a pass in place of all heads' keys and values, and each member multiplies all rows of the
 * sequence by the maps to keys and values. Only a ring's members have the same heads: with ulysses > 1 expanded heads travel. */
#ifndef LTRAIN_PLAN_LOWER_BLOCKS_LATENT_RING_H
#define LTRAIN_PLAN_LOWER_BLOCKS_LATENT_RING_H

#include "plan/lower/blocks/attend.h"
#include "plan/lower/blocks/block.h"

/* Tells whether latents travel in place of what they make. */
int ring_sends_latents(const struct lowering *L, const struct attention_block *w);

/* Begins a pass; adds chunk c of this rank's latents, which are on the device, to what is sent; sends them and receives others'. All do
 * nothing unless latents travel. */
void latent_ring_begin(struct lowering *L, const struct attention_block *w);
void latent_ring_put(struct lowering *L, const struct block *b, int c);
void latent_ring_send(struct lowering *L, const struct attention_block *w);
/* Makes a tile's keys and values of the member s places before, W->ring_k and W->ring_v, if this rank attends them. */
void latent_ring_expand(struct lowering *L, const struct attention_block *w, int tile, int s);
/* Adds the gradients that W->dk_part and W->dv_part of step s give to the maps and to the latents of that member; drops these parts. */
void latent_ring_gradients(struct lowering *L, const struct attention_block *w, int tile, int s);
/* Ends a pass; does nothing unless latents travel. latent_ring_return: first sends the latents' gradients to their owners, where they are
 * added up member by member, and leaves them in W->dkv_normed and W->d_rotated. */
void latent_ring_end(struct lowering *L, const struct attention_block *w);
void latent_ring_return(struct lowering *L, const struct attention_block *w);
/* Tells whether latents of some layers of a shape travel; latent_ring_create: then creates the values that these layers share. */
int latent_ring_needed(const struct lowering *L, int shape);
void latent_ring_create(struct lowering *L, struct attention_work *W, int shape);

#endif
