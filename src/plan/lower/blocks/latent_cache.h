/* Attention over cached latents. Private to src/plan/lower/blocks.
 *
 * A head's key is its map of a latent beside a part that all heads share. So its scores are the latent times what the map's transpose
 * makes of the query, and its values' sum is the map to values of the latents' sum: all heads attend one row of a token, as wide as the
 * latent and the shared part, whose first elements are the value. No key or value of a head is ever made.
 *
 * Source: DeepSeek-V2 (DeepSeek-AI 2024), section 2.1.2. */
#ifndef LTRAIN_PLAN_LOWER_BLOCKS_LATENT_CACHE_H
#define LTRAIN_PLAN_LOWER_BLOCKS_LATENT_CACHE_H

#include "plan/lower/blocks/attend.h"
#include "plan/lower/blocks/block.h"

/* Tells whether the block's latents are cached. */
int caches_latents(const struct lowering *L, const struct attention_block *w);
/* Returns the heads that kernels attend in layers of a shape. */
struct head_tiles latent_heads(const struct lowering *L, int shape);
/* Creates the transients that the layers of a shape share, if their latents are cached. */
void latent_cache_values(struct lowering *L, struct attention_work *W);

/* Returns f with queries that attend latents, and room for what they get. */
struct forward_tile latent_absorb(struct lowering *L, const struct forward_tile *f);
/* Replaces f's keys, shared parts alone, by the rows that are attended. */
void latent_join(struct lowering *L, struct forward_tile *f);
/* Maps sums of latents to sums of values, f->o, and drops the former. */
void latent_results(struct lowering *L, const struct forward_tile *sums, const struct forward_tile *f);

#endif
