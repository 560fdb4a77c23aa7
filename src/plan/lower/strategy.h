/* What the planner decides, and what lowering is given: the mesh, the grid of tiles, and where everything is. */
#ifndef LTRAIN_PLAN_LOWER_STRATEGY_H
#define LTRAIN_PLAN_LOWER_STRATEGY_H

#include "base/num.h"
#include "program/program.h"

/* Where a tile stays between the visits that use it. */
enum residency { RES_DEVICE, RES_HOST, RES_NVME, RES_NONE /* dropped; computed again when needed */ };

/* What the planner decided: everything here is placement except the mesh and the tile grid. */
struct strategy {
    int64_t seq_len; /* tokens of a sequence, over all ranks that share it, padding included */
    int64_t rows;    /* of them on one rank: seq_len / (ulysses * ring) */
    int dp, ulysses, ring;
    int ranks;       /* their product */
    int zero;        /* sharded over all ranks: 1 optimizer state, 2 + gradients, 3 + parameters; 0 with a single rank */
    enum dtype wire; /* of gradients on their way to the rank that sums them */
    int64_t row_chunk, loss_tile;
    int head_tile; /* query heads per attention tile */
    int64_t group; /* elements per update group and per parameter transfer */
    enum dtype dtype, moments;
    enum residency params, grads, optim, acts;
    enum tensor_class nearer_class; /* parameters, gradients, optimizer state or activations */
    enum residency nearer_at;       /* a tier nearer than it says above */
    int nearer; /* so many of the layers, evenly spread, have that class there; those with optimizer state on the device are
                 * updated there, update_on_host or not */
    enum residency passing; /* where gradients of activations are between two visits; if that is nearer than activations are,
                             * what a layer of the forward pass reads again stays there, too, until the layer is done */
    int device_layers;      /* so many of the last layers keep their activations on the device: there is no time to fetch them */
    int device_chunks;      /* and of the other layers' so many of the last row chunks */
    int kept_chunks;        /* alpha: so many of the row chunks keep what could be recomputed */
    int input_every; /* the inputs of the first layer and of every so-manieth one (at least 1), counted from the last, are kept */
    int update_on_host;
    int discrete;
    int write_depth; /* the program's: of drive writes that yield to reads; 0: they do not */
    int threads;     /* of compute, on which attention's workspace depends */
    double prefetch; /* row chunks of compute, < 0: as far as memory allows */
};

static inline int strategy_same_grid(const struct strategy *a, const struct strategy *b)
{
    return a->row_chunk == b->row_chunk && a->head_tile == b->head_tile && a->loss_tile == b->loss_tile;
}

/* The grid of tiles that `like` has. */
static inline void strategy_take_grid(struct strategy *s, const struct strategy *like)
{
    s->row_chunk = like->row_chunk;
    s->head_tile = like->head_tile;
    s->loss_tile = like->loss_tile;
}

/* The number of row chunks that is as large a share of them as `like` keeps. */
static inline int strategy_share(const struct strategy *s, const struct strategy *like)
{
    return (int)ceil_div(like->kept_chunks * ceil_div(s->rows, s->row_chunk), ceil_div(like->rows, like->row_chunk));
}

/* Everything where `like` has it; alpha, a number of row chunks, stays as it is. */
static inline void strategy_place(struct strategy *s, const struct strategy *like)
{
    s->params = like->params;
    s->grads = like->grads;
    s->optim = like->optim;
    s->acts = like->acts;
    s->nearer_class = like->nearer_class;
    s->nearer_at = like->nearer_at;
    s->nearer = like->nearer;
    s->passing = like->passing;
    s->device_layers = like->device_layers;
    s->device_chunks = (int)(like->device_chunks * ceil_div(s->rows, s->row_chunk) / ceil_div(like->rows, like->row_chunk));
    s->input_every = like->input_every;
    s->update_on_host = like->update_on_host;
    s->write_depth = like->write_depth;
}

/* Its tier of one of the first four classes. */
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

/* Whether AdamW works on the host and, of layers whose state alone is there, on the device. */
static inline int strategy_updates_on_both(const struct strategy *s)
{
    return s->update_on_host && s->nearer > 0 && s->nearer_class == CLASS_OPTIM && s->nearer_at == RES_DEVICE;
}

/* Of how many layers some may have that class nearer. */
static inline int64_t strategy_nearer_layers(const struct strategy *s, int64_t layers)
{
    return s->nearer_class == CLASS_ACT ? layers - s->device_layers : layers;
}

/* Where such a class is of the given layer; -1: of the embedding or the head. */
enum residency strategy_residency(const struct strategy *s, enum tensor_class class, int layer, int layers);

#endif
