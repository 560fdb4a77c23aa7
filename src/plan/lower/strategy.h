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

/* Decisions that may change bits: equal keys give equal bits on one machine, whatever the placement. */
struct numerics_key {
    struct mesh mesh;          /* every degree is at least 1 */
    struct mesh_stages stages; /* layers of each stage; n = 0: divided evenly */
    int zero;        /* ZeRO stage: 1 shards optimizer state over all ranks, 2 gradients too, 3 parameters too; one rank has 0 */
    enum dtype wire; /* type of gradients on their way to the rank that sums them */
    int64_t row_chunk, loss_tile;
    int head_tile; /* query heads per attention tile */
    int64_t group; /* elements per update group and per parameter transfer */
    enum dtype dtype, moments;
    int64_t packed; /* sequences of a micro-batch, one after another in its rows */
};

/* Decisions that never change a bit. */
struct placement {
    enum residency params, grads, optim, acts;
    int experts_at; /* 1 + the tier of experts' parameters, gradients and optimizer state; 0: where those of other units are */
    enum tensor_class promoted_class; /* parameters, gradients, optimizer state or activations */
    enum residency promote_tier;      /* a tier nearer than that of promoted_class above */
    /* number of layers, evenly spread, that have promoted_class at promote_tier. A layer with optimizer state on the device is
     * updated there even if update_on_host is set. */
    int promoted_layers;
    /* tier of the gradients of activations between two visits. If it is nearer than the tier of activations, values that a layer
     * of the forward pass reads again stay there until the layer is done. */
    enum residency passing;
    int device_layers; /* number of last layers whose activations stay on the device: there is no time to fetch them */
    int device_chunks; /* number of last row chunks of the other layers whose activations stay on the device */
    int kept_chunks;   /* number of first row chunks that keep their recomputable values */
    /* only for models with light layers (little compute, for example under a window): kept_chunks is then the mean; light layers
     * keep light_fewer chunks fewer, the others full_more chunks more (below 0: the reverse) */
    int full_more, light_fewer;
    /* distance of layers that keep their input, counted from the last layer; the first layer always keeps its own; 1: all do */
    int keep_inputs;
    int update_on_host;
    int write_depth;       /* most blocks of drive writes in flight while there are reads; 0: no limit */
    double prefetch;       /* row chunks of compute to fetch ahead; below 0: as far as memory allows */
    enum residency cached; /* tier of whole blocks of cached keys and values; the block being filled is on the host or nearer */
};

/* The planner's decisions, for sequences of one length. Ranks that share a sequence share its whole micro-batch. */
struct strategy {
    struct numerics_key key;
    struct placement placement;
    int64_t seq_len; /* tokens of a micro-batch, over all ranks that share it, padding included */
    int64_t rows;    /* tokens of a micro-batch, or of a slice of it, on one rank: seq_len / (ulysses * ring * slices) */
    /* consecutive tokens in a rank's rows (seq_piece), which row chunks divide, where ranks that share a sequence pass states; 0: they
     * do not */
    int64_t piece;
    int ranks;            /* number of ranks: the product of the mesh's degrees */
    int64_t saved[TIERS]; /* pipelines: bytes of all micro-batches in flight, once their halves are lowered (halves.h); else 0 */
    int64_t sequences;    /* sequences of a step, over all ranks */
    int ahead;            /* pipelines: 1: what passes between stages travels a tick later, beside compute (plan/ticks.h) */
    int evaluates;        /* 1: programs without a backward pass leave every token's loss */
    int weighted;         /* 1: each token's loss has a weight, an input */
    int discrete;
    const struct target *target; /* borrowed */
    /* only for programs that continue a text (decode.h), with keys and values of earlier tokens cached in blocks */
    int64_t cached_tokens; /* most tokens that are cached, whole blocks; 0: training */
    int64_t cache_block;   /* tokens of one block of the cache */
    int64_t expert_slots;  /* experts of a layer that are kept on the device, if theirs are elsewhere (slots.h); 0: none */
    int64_t
        input_rows; /* tokens of the set's largest program, for which inputs have room; `rows` belongs to the present program */
};

/* Returns the number of stages of a pipeline; 1: there is none. */
static inline int strategy_stages(const struct strategy *s)
{
    return mesh_degree(&s->key.mesh, MESH_PP);
}

/* Returns the ticks by which a stage is behind the one before it. strategy_head_lag: by which the last stage's backward pass is behind
 * the tick of its forward pass, while the head's input and its gradient travel. */
static inline int strategy_lag(const struct strategy *s)
{
    return 1 + s->ahead;
}

static inline int strategy_head_lag(const struct strategy *s)
{
    return 2 * s->ahead;
}

/* Returns the number of slices in which stages take a sequence; 1: they take it whole. */
static inline int strategy_slices(const struct strategy *s)
{
    return mesh_degree(&s->key.mesh, MESH_SLICES);
}

/* Returns the rows of a piece for whose ends of the model a rank's slices are responsible together: all rows or, of stages, a share. */
static inline int64_t strategy_end_rows(const struct strategy *s)
{
    const int64_t slices = mesh_degree(&s->key.mesh, MESH_TP);
    return ceil_div(s->rows / slices, strategy_stages(s)) * slices;
}

/* Returns the micro-batches of a step that have a sequence, over all ranks. strategy_own_micro_batches: those of a rank. */
static inline int64_t strategy_micro_batches(const struct strategy *s)
{
    return ceil_div(s->sequences, s->key.packed);
}

static inline int64_t strategy_own_micro_batches(const struct strategy *s)
{
    return max_i64(1, ceil_div(strategy_micro_batches(s), mesh_degree(&s->key.mesh, MESH_DP)));
}

/* Returns the most pieces that a stage has begun and not finished (plan/ticks.h). strategy_open_micro_batches: the most micro-batches of
 * which it has begun a slice and not finished all. */
static inline int strategy_slots(const struct strategy *s)
{
    const int slices = strategy_slices(s);
    return (int)min_i64(strategy_own_micro_batches(s) * slices,
                        slices + strategy_head_lag(s) + 2 * strategy_lag(s) * (strategy_stages(s) - 1));
}

static inline int strategy_open_micro_batches(const struct strategy *s)
{
    const int slices = strategy_slices(s);
    const int behind = 2 * (slices - 1) + strategy_head_lag(s) + 2 * strategy_lag(s) * (strategy_stages(s) - 1);
    return (int)min_i64(strategy_own_micro_batches(s), 1 + behind / slices);
}

static inline int strategy_same_grid(const struct strategy *a, const struct strategy *b)
{
    return a->key.row_chunk == b->key.row_chunk && a->key.head_tile == b->key.head_tile && a->key.loss_tile == b->key.loss_tile;
}

/* Returns the rows of the residual stream that a rank has of a whole row chunk: slices of layers share them. */
static inline int64_t strategy_stream_chunk(const struct strategy *s)
{
    return s->key.row_chunk / mesh_degree(&s->key.mesh, MESH_TP);
}

/* Copies the grid of tiles of `like`. */
static inline void strategy_take_grid(struct strategy *s, const struct strategy *like)
{
    s->key.row_chunk = like->key.row_chunk;
    s->key.head_tile = like->key.head_tile;
    s->key.loss_tile = like->key.loss_tile;
}

/* Returns the number of first row chunks that a layer keeps. light: 1 for a layer with little compute (model_is_light). */
static inline int strategy_kept(const struct strategy *s, int light)
{
    return s->placement.kept_chunks + (light ? -s->placement.light_fewer : s->placement.full_more);
}

/* Sets kept_chunks, full_more and light_fewer so that light layers keep `light` chunks, the others `full`. */
void strategy_keep_by_kind(struct strategy *s, const struct model *m, int full, int light);

/* Returns the number of kept chunks on this grid that is the share which `like` keeps on its own grid, rounded up. */
int strategy_share(const struct strategy *s, const struct strategy *like);

/* Copies the placement of `like`, except for prefetch and cached. kept_chunks, which counts this grid's row chunks, is not copied
 * and becomes the same for all layers. */
void strategy_place(struct strategy *s, const struct strategy *like);

/* Returns the field that holds the tier of one of the first four classes. */
static inline enum residency *strategy_class(struct strategy *s, enum tensor_class class)
{
    enum residency *const of[] = {&s->placement.params, &s->placement.grads, &s->placement.optim, &s->placement.acts};
    return of[class];
}

static inline enum residency strategy_tier(const struct strategy *s, enum tensor_class class)
{
    const enum residency of[] = {s->placement.params, s->placement.grads, s->placement.optim, s->placement.acts};
    return of[class];
}

/* Tells whether AdamW runs on the host, but on the device for promoted layers or experts whose optimizer state is there. */
static inline int strategy_updates_on_both(const struct strategy *s)
{
    const struct placement *p = &s->placement;
    const int promoted = p->promoted_layers > 0 && p->promoted_class == CLASS_OPTIM && p->promote_tier == RES_DEVICE;
    return p->update_on_host && (promoted || (p->experts_at == 1 + RES_DEVICE && p->optim != RES_DEVICE));
}

/* Returns the number of layers among which promoted layers are spread. */
static inline int64_t strategy_promotable_layers(const struct strategy *s, int64_t layers)
{
    return s->placement.promoted_class == CLASS_ACT ? layers - s->placement.device_layers : layers;
}

/* Returns the tier of a class for one of `layers` layers; layer -1: for the embedding or the head. */
enum residency strategy_residency(const struct strategy *s, enum tensor_class class, int layer, int layers);

/* Returns the number of slots in layers under a mask; 0: all tokens are in the tail. Keys and values of earlier tokens are cached
 * in blocks; the block that is being filled, the tail, has a home of its own.
 *
 * Whole blocks lie in slots, block j in slot j mod slots: as many slots as queries under the mask can reach. Between two
 * programs, their caller moves a full tail into its slot. */
int64_t cached_slots(const struct model *m, const struct strategy *s, int mask);
/* Tells whether latents are cached in place of heads' keys and values, which they make (latent attention). GPUs attend
 * narrow rows only. */
int cached_latents(const struct strategy *s, const struct attention_shape *shape);
/* Returns the elements of the storage type that a block caches of each earlier token. */
int64_t cached_per_token(const struct model *m, const struct strategy *s, const struct model_block *b);
/* Returns the predicate of a slot, from 1 on; it holds if some query of the program attends the slot's block. */
int cached_predicate(const struct model *m, const struct strategy *s, int mask, int64_t slot);
/* Returns the number of predicates of all masks. */
int cached_predicates(const struct model *m, const struct strategy *s);

#endif
