/* Attention's heads shared among ranks and cut into tiles. Layers of one shape are cut alike. */
#ifndef LTRAIN_PLAN_LOWER_HEADS_H
#define LTRAIN_PLAN_LOWER_HEADS_H

#include "base/num.h"
#include "model/model.h"
#include "program/mesh.h"

struct head_tiles {
    int64_t dim, value;      /* elements of a head's query and key, and of its value */
    int64_t all, all_kv;     /* heads and KV heads of the model */
    int heads, kv_heads;     /* heads of a rank; with fewer KV heads than members of its ulysses group, neighbours share one */
    int q, kv;               /* heads and KV heads of a tile */
    int n_q, n_kv, q_per_kv; /* tiles of query heads, tiles of KV heads, and tiles of query heads for each tile of KV heads */
};

/* Tells whether tiles of that number of query heads are legal: whole KV groups, or equal parts of one KV group. In a ring parts
 * are not legal, since the ring would send the same keys and values again for each part. */
int heads_tile_legal(const struct attention_shape *shape, const struct mesh *mesh, int64_t tile);
/* Cuts the heads into tiles of the largest legal number of heads up to `tile`; if there is none, of the smallest legal number. */
struct head_tiles heads_cut(const struct attention_shape *shape, const struct mesh *mesh, int64_t tile);

/* Tells whether the ranks of a ring send latents in place of the keys and values that each of them makes of these. Adapters of the maps to
 * keys and values work chunk by chunk on the tokens' owner. */
int heads_send_latents(const struct attention_block *w, const struct mesh *mesh);
/* Returns the numbers of a token's row that a ring without ulysses sends for all heads; 0: keys and values travel. */
int64_t heads_latent(const struct model *m, const struct attention_block *w);

#endif
