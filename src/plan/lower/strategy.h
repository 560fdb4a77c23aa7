/* The planner's decisions, which lowering carries out: the mesh, the grid of tiles, and the placement. */
#ifndef LTRAIN_PLAN_LOWER_STRATEGY_H
#define LTRAIN_PLAN_LOWER_STRATEGY_H

#include "base/num.h"
#include "model/model.h"
#include "program/mesh.h"
#include "program/program.h"
#include "program/target.h"

/* Place of a tile between the visits that use it. */
enum residency { RES_DEVICE, RES_HOST, RES_NVME, RES_NONE /* dropped; computed again when needed */ };

/* The planner's decisions. Numerics: mesh, zero, wire, the grid of tiles, group, dtype, moments. All else is placement, which
 * never changes a bit. */
struct strategy {
    int64_t seq_len;  /* tokens of a sequence, over all ranks that share it, padding included */
    int64_t rows;     /* tokens of a sequence on one rank: seq_len / (ulysses * ring) */
    struct mesh mesh; /* every degree is at least 1 */
    int ranks;        /* number of ranks: the product of the degrees */
    int zero;         /* ZeRO stage: 1 shards optimizer state over all ranks, 2 gradients too, 3 parameters too; one rank has 0 */
    enum dtype wire;  /* type of gradients on their way to the rank that sums them */
    int64_t row_chunk, loss_tile;
    int head_tile; /* query heads per attention tile */
    int64_t group; /* elements per update group and per parameter transfer */
    enum dtype dtype, moments;
    enum residency params, grads, optim, acts;
    enum tensor_class promoted_class; /* parameters, gradients, optimizer state or activations */
    enum residency promote_tier;      /* a tier nearer than that of promoted_class above */
    /* number of layers, evenly spread, that have promoted_class at promote_tier. A layer with optimizer state on the device is
     * updated there even if update_on_host is set. */
    int promoted_layers;
    /* tier of the gradients of activations between two visits. If it is nearer than the tier of activations, values that a layer
     * of the forward pass reads again stay there until the layer is done. */
    enum residency carry;
    int device_layers; /* number of last layers whose activations stay on the device: there is no time to fetch them */
    int device_chunks; /* number of last row chunks of the other layers whose activations stay on the device */
    int saved_chunks;  /* number of first row chunks that keep their recomputable values */
    /* only for models in which some layers are light (short of compute, as with a window): saved_chunks is then the mean; light
     * layers keep window_fewer fewer, the others full_more more (below 0: the reverse) */
    int full_more, window_fewer;
    int keep_every; /* kept layer inputs: the first layer's, and each keep_every-th (from 1 on), counted from the last */
    int evaluates;  /* 1: programs without a backward pass leave every token's loss */
    int update_on_host;
    int discrete;
    int write_depth;             /* limit of blocks of drive writes in flight while there are reads; 0: writes do not yield */
    const struct target *target; /* borrowed */
    /* Programs that read a text on and predict one token (decode.h) only: keys and values of earlier tokens are cached in blocks. */
    int64_t cached_tokens; /* most tokens that are cached, whole blocks; 0: training */
    int64_t cache_block;   /* tokens of one block */
    int64_t input_rows;    /* tokens of the largest program, for which inputs have room; `rows` belongs to this program */
    enum residency cached; /* tier of whole blocks; the block that is being filled is no farther away than the host */
    double prefetch;       /* row chunks of compute to fetch ahead; below 0: as far as memory allows */
};

static inline int strategy_same_grid(const struct strategy *a, const struct strategy *b)
{
    return a->row_chunk == b->row_chunk && a->head_tile == b->head_tile && a->loss_tile == b->loss_tile;
}

/* Copies the grid of tiles of `like`. */
static inline void strategy_take_grid(struct strategy *s, const struct strategy *like)
{
    s->row_chunk = like->row_chunk;
    s->head_tile = like->head_tile;
    s->loss_tile = like->loss_tile;
}

/* Returns the number of first row chunks that layers keep. light: those that are short of compute (model_is_light). */
static inline int strategy_saved(const struct strategy *s, int light)
{
    return s->saved_chunks + (light ? -s->window_fewer : s->full_more);
}

/* Sets saved_chunks, full_more and window_fewer so that light layers keep `light` chunks, the others `full`. */
void strategy_save_by_kind(struct strategy *s, const struct model *m, int full, int light);

/* Returns the saved_chunks that keep the same share of row chunks as `like` does, rounded up. */
int strategy_share(const struct strategy *s, const struct strategy *like);

/* Copies the placement of `like`. saved_chunks, a number of this grid's row chunks, stays as it is and becomes the same for all
 * layers. */
void strategy_place(struct strategy *s, const struct strategy *like);

/* Returns the field that holds the tier of one of the first four classes. */
static inline enum residency *strategy_class(struct strategy *s, enum tensor_class class)
{
    enum residency *const of[] = {&s->params, &s->grads, &s->optim, &s->acts};
    return of[class];
}

static inline enum residency strategy_tier(const struct strategy *s, enum tensor_class class)
{
    const enum residency of[] = {s->params, s->grads, s->optim, s->acts};
    return of[class];
}

/* Tells whether AdamW runs on the host and, for promoted layers whose optimizer state is on the device, there. */
static inline int strategy_updates_on_both(const struct strategy *s)
{
    return s->update_on_host && s->promoted_layers > 0 && s->promoted_class == CLASS_OPTIM && s->promote_tier == RES_DEVICE;
}

/* Returns the number of layers among which promoted layers are spread. */
static inline int64_t strategy_promotable_layers(const struct strategy *s, int64_t layers)
{
    return s->promoted_class == CLASS_ACT ? layers - s->device_layers : layers;
}

/* Returns the tier of a class for one of `layers` layers; layer -1: for the embedding or the head. */
enum residency strategy_residency(const struct strategy *s, enum tensor_class class, int layer, int layers);

/* Keys and values of earlier tokens are cached in blocks. The block that is being filled, the tail, has a home of its own. Whole
 * blocks lie in slots: block j is in slot j mod slots. The layers of a mask have as many slots as its queries can reach. The caller
 * that runs the programs moves a full tail into its slot between two of them.
 *
 * Returns the number of slots of the layers of a mask; 0: all tokens are in the tail. */
int64_t cached_slots(const struct model *m, const struct strategy *s, int mask);
/* Returns the predicate of a slot, from 1 on; it holds if some query of the program attends the slot's block. */
int cached_predicate(const struct model *m, const struct strategy *s, int mask, int64_t slot);
/* Returns the number of predicates of all masks. */
int cached_predicates(const struct model *m, const struct strategy *s);

#endif
