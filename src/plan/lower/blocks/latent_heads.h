/* Keys and values of a tile of heads, made of rows of latents, and the gradients that go back. Private to src/plan/lower/blocks. */
#ifndef LTRAIN_PLAN_LOWER_BLOCKS_LATENT_HEADS_H
#define LTRAIN_PLAN_LOWER_BLOCKS_LATENT_HEADS_H

#include "plan/lower/blocks/attend.h"
#include "plan/lower/product.h"

/* Rows of latents, all on the device, and a tile of heads. */
struct latent_tile {
    const struct attention_block *weights;
    int member, tile;               /* ulysses member, and tile of its heads */
    struct value *normed, *rotated; /* normalised latents, and the part of keys that all heads share */
    int64_t row, rows;              /* first row in both, and number of rows */
    struct value *own;              /* transient of the heads' own parts of keys, or of these parts' gradients in fp32 */
    int64_t own_row;
};

/* Returns the number of elements of a head's key that belong to this head alone: those that are not rotated. */
int64_t latent_own_dim(const struct attention_shape *s);
/* Returns the part of a map to all heads, `dim` outputs each, for tile t of ulysses member m: `per` heads. */
struct model_linear latent_heads_slice(const struct head_tiles *h, const struct model_linear *w, int m, int t, int per,
                                       int64_t dim);

/* Computes `rows` rows of y from those of x, bias included. */
void latent_map(struct lowering *L, const struct model_linear *w, struct value *y, int64_t y0, struct value *x, int64_t x0,
                int64_t rows);
/* Computes rows [k0, k0 + x->rows) of the tile's keys; latent_make_values: of its values. The tile is made on the device. */
void latent_make_keys(struct lowering *L, const struct latent_tile *x, struct value *k, int64_t k0);
void latent_make_values(struct lowering *L, const struct latent_tile *x, struct value *v, int64_t v0);

/* A map w in the backward pass. dy: gradient of its outputs; x: its inputs; dx: fp32 sum of its inputs' gradient, NULL if nobody needs
 * that gradient. */
struct latent_step {
    const struct model_linear *w;
    struct linear_side dy;
    struct value *x, *dx;
};

/* Computes the gradients of a map's weights, and sets dx or adds to dx. */
void latent_map_back(struct lowering *L, const struct latent_step *s, int64_t x0, int64_t rows, int accumulate);
/* Computes the gradients of the map to the tile's keys from rows dk0 on of dk. Adds to dnormed, the gradient of the normalised latents,
 * and to drotated; accumulate 0: sets both. latent_values_back: the same for values, which adds to dnormed alone. */
void latent_keys_back(struct lowering *L, const struct latent_tile *x, struct value *dk, int64_t dk0, struct value *dnormed,
                      struct value *drotated, int accumulate);
void latent_values_back(struct lowering *L, const struct latent_tile *x, struct value *dv, int64_t dv0, struct value *dnormed);

#endif
