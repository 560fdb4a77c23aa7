/* What the planner decides, and what lowering is given: the mesh, the grid of tiles, and where everything is. */
#ifndef LTRAIN_PLAN_LOWER_STRATEGY_H
#define LTRAIN_PLAN_LOWER_STRATEGY_H

#include "base/num.h"
#include "model/model.h"
#include "program/mesh.h"
#include "program/program.h"
#include "program/target.h"

/* Where a tile stays between the visits that use it. */
enum residency { RES_DEVICE, RES_HOST, RES_NVME, RES_NONE /* dropped; computed again when needed */ };

/* What the planner decided. Numerics: mesh, zero, wire, the grid of tiles, group, dtype, moments. All else is placement, which
 * never changes a bit. */
struct strategy {
    int64_t seq_len; /* tokens of a sequence, over all ranks that share it, padding included */
    int64_t rows;    /* tokens of a sequence on one rank: seq_len / (ulysses * ring) */
    struct mesh mesh; /* every degree is at least 1 */
    int ranks;       /* their product */
    int zero;        /* ZeRO stage: 1 shards optimizer state over all ranks, 2 gradients too, 3 parameters too; one rank has 0 */
    enum dtype wire; /* type of gradients on their way to the rank that sums them */
    int64_t row_chunk, loss_tile;
    int head_tile; /* query heads per attention tile */
    int64_t group; /* elements per update group and per parameter transfer */
    enum dtype dtype, moments;
    enum residency params, grads, optim, acts;
    enum tensor_class promoted_class; /* parameters, gradients, optimizer state or activations */
    enum residency promote_tier;       /* a tier nearer than that of promoted_class above */
    int promoted_layers; /* number of layers, evenly spread, that have promoted_class at promote_tier. A layer with optimizer state on the
                 * device is updated there even if update_on_host is set. */
    enum residency carry; /* where gradients of activations are between two visits. If that is nearer than activations are,
                             * what a layer of the forward pass reads again stays there, too, until the layer is done. */
    int device_layers;      /* number of last layers whose activations stay on the device: there is no time to fetch them */
    int device_chunks;      /* number of last row chunks of the other layers whose activations stay on the device */
    int saved_chunks;        /* number of first row chunks that keep what could be recomputed */
    int full_more, window_fewer; /* where some layers have a window and others attend farther, saved_chunks is the mean: the others
                              * keep full_more more, those with the window window_fewer fewer, or the reverse if below 0 */
    int keep_every;        /* kept layer inputs: the first layer's, and each keep_every-th (from 1 on), counted from the last */
    int evaluates; /* programs without a backward pass leave every token's loss */
    int update_on_host;
    int discrete;
    int write_depth; /* blocks of drive writes in flight at most while reads are; 0: writes do not yield */
    const struct target *target; /* borrowed */
    /* Of programs that read a text on and predict one token (decode.h): keys and values of earlier tokens are cached in blocks. */
    int64_t cached_tokens;  /* at most, whole blocks; 0: training */
    int64_t cache_block;    /* tokens of one */
    int64_t input_rows;     /* tokens of the largest program, for which inputs have room; `rows` is those of this one */
    enum residency cached;  /* where whole blocks are; the one that is being filled is no farther away than the host */
    double prefetch; /* row chunks of compute to fetch ahead; below 0: as far as memory allows */
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

/* The number of first row chunks that layers of one kind save: those with the window of a model that has both, or any others. */
static inline int strategy_saved(const struct strategy *s, int windowed)
{
    return s->saved_chunks + (windowed ? -s->window_fewer : s->full_more);
}

/* Sets the numbers of both kinds of m's layers, and the mean of all layers. */
void strategy_save_by_kind(struct strategy *s, const struct model *m, int full, int windowed);

/* saved_chunks for the same share of row chunks that `like` keeps, rounded up. */
int strategy_share(const struct strategy *s, const struct strategy *like);

/* Copies the placement of `like`; saved_chunks, a number of this grid's row chunks, stays as it is, the same for all layers. */
void strategy_place(struct strategy *s, const struct strategy *like);

/* The tier of one of the first four classes. */
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

/* Whether AdamW runs on the host and, for layers whose optimizer state alone is there, on the device. */
static inline int strategy_updates_on_both(const struct strategy *s)
{
    return s->update_on_host && s->promoted_layers > 0 && s->promoted_class == CLASS_OPTIM && s->promote_tier == RES_DEVICE;
}

/* The number of layers among which promoted layers are spread. */
static inline int64_t strategy_promotable_layers(const struct strategy *s, int64_t layers)
{
    return s->promoted_class == CLASS_ACT ? layers - s->device_layers : layers;
}

/* Where a class is for one of `layers` layers; layer -1: for the embedding or the head. */
enum residency strategy_residency(const struct strategy *s, enum tensor_class class, int layer, int layers);

#endif
