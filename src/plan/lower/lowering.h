/* Lowering: from a model's layer graph to a flat list of instructions, in compute order, fetches just before their use and
 * write-backs just after their producer. Private to src/plan.
 *
 * With several ranks every rank has the same program; what differs is which tokens and which shards it holds.
 *
 * A `value` is a tensor under lowering: its rows are cut into tiles, and each tile knows its version and where its current copies
 * are. Everything is demand-driven: value_get() finds a tile on the device, fetches it from its home, or computes it. Recomputing
 * in the backward pass therefore emits the very instructions of the forward pass. */
#ifndef LTRAIN_PLAN_LOWER_LOWERING_H
#define LTRAIN_PLAN_LOWER_LOWERING_H

#include "model/model.h"
#include "program/program.h"
#include "program/target.h"

/* Where a tile stays between the visits that use it. */
enum residency { RES_DEVICE, RES_HOST, RES_NVME, RES_NONE /* dropped; computed again when needed */ };

#define PLACE_KEEP TIERS /* a device copy in a chunk buffer of its own, while the working copy is elsewhere */
#define PLACES (TIERS + 1)

struct place {
    int buffer; /* -1: no copy here */
    int64_t offset;
};

struct tile {
    int64_t row0, row1;
    int version;
    enum residency residency;
    int fresh; /* a gradient that this program has not written yet */
    struct place place[PLACES];
    struct place home;                   /* fixed address of a persistent value's tile; buffer -1: none */
    int64_t extent_offset, extent_bytes; /* of its group there */
};

enum value_kind { VALUE_TEMP, VALUE_X, VALUE_Q, VALUE_K, VALUE_V, VALUE_XMID, VALUE_GATE, VALUE_UP };

struct value {
    int tensor;
    enum tensor_class class;
    enum value_kind kind;
    int layer, index; /* what computes it again (kind) */
    int64_t rows, row_bytes;
    struct tile *tiles;
    int n_tiles;
    int sharded;     /* rows are those of shards, not elements of the unit */
    int staged;      /* copies that come by way of the host stay there until value_leave */
    int lingers;     /* copies on the device stay there between visits until value_leave */
    int brief;       /* made again after value_leave: while it lingers, and where copies are staged, it needs no home */
    int full;        /* device copies lie in one buffer of all rows (while open_full) */
    int full_buffer; /* -1: not open */
};

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
    const struct target *target; /* borrowed */
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

enum program_role {
    ROLE_UPDATE = 1, /* a pending update, woven into the forward (or alone) */
    ROLE_FORWARD = 2,
    ROLE_BACKWARD = 4,
    ROLE_FIRST = 8, /* the first micro-batch of a step: gradients start anew */
    ROLE_LAST = 16, /* the last one: the gradient norm follows */
};

/* Values of one unit. A shard has one tile per group: ceil(elements / ranks) rows, the same number on every rank, of which the
 * last ranks' may lie beyond the group's end (they are zero). */
struct unit_values {
    struct value param;       /* all elements, storage dtype; transient if parameters are sharded */
    struct value param_shard; /* its shards: sharded parameters, or what a sharded update makes of bf16 ones */
    struct value master;      /* fp32, where the parameters themselves are not what the update works on */
    struct value m, v;        /* of all elements, or of the shards */
    struct value grad;        /* of the global batch so far; of all elements, or of the shards if gradients are sharded */
    struct value grad_shard;  /* only the optimizer state is sharded: the summed gradient's shard, for the pending update */
    struct value micro;       /* of this micro-batch, when it is not the first, or when gradients are sharded */
    struct value micro_shard; /* its shards, when it is not the first */
    struct value *target;     /* which value the backward pass writes: grad or micro */
    int updated;
    int64_t first_sum; /* its first row in the sums of squares */
};

/* Elements [first, end) of a unit, and the rows of a sharded value that hold them. */
struct group {
    int64_t first, end, shard_first, shard_end;
};

/* The host side of a program: persistent host buffers that the engine fills before and reads after. */
struct io_buffers {
    int tokens, targets, positions, lo, hi, inv_freq, record, norm, loss;
};

struct lowering {
    const struct model *m;
    struct strategy s;
    int role;
    struct program *p;
    int n_chunks, n_tiles_q, n_tiles_kv, q_per_kv; /* q tiles per kv tile */
    int kv_heads_tile;
    int64_t attn_rows; /* tokens whose attention one rank computes, for its share of the heads */
    int local_heads, local_kv_heads;
    int64_t n_sums, n_loss;
    struct unit_values *units;
    struct io_buffers io;
    struct value tokens, targets, positions, lo, hi, inv_freq, record, norm, loss, sums;
    struct value all_loss, all_sums;   /* of all ranks; not with a single one */
    struct value *x;                   /* [layers + 1] */
    struct value *q, *k, *v, *o, *lse; /* [layers][tiles] */
    struct value *xmid, *gate, *up;    /* [layers] */
    struct value n1, n2, acc, act, dact, dn, final_n, logits, dx;
    struct value *d_o, *delta, *dq, *dk, *dv; /* [tiles] */
    /* In the heads layout (attention.c), of the tile at work and of the next: */
    struct value heads_q[2], heads_k[2], heads_v[2], heads_o[2], heads_do[2], heads_delta[2], heads_dq[2], heads_dk[2],
        heads_dv[2];
    struct value dq_low; /* in storage dtype, to be sent */
    /* Of the ring's steps: */
    struct value ring_k, ring_v, o_part, o_sum, lse_part, dq_part, dk_part, dv_part, returned_k[2], returned_v[2];
    char phase;
    int layer;
    enum status st; /* sticky */
};

/* values.c */
void value_create(struct lowering *L, struct value *v, const char *name, enum tensor_class class, int64_t rows, int64_t row_bytes,
                  int64_t cut, enum residency r);
void value_create_cuts(struct lowering *L, struct value *v, const char *name, enum tensor_class class, int64_t row_bytes,
                       const int64_t *cuts, int n_cuts, enum residency r);
void value_destroy(struct value *v);
/* A device copy of the tile to be written next: a new buffer, or its part of the open full buffer. The version goes up; other
 * copies are gone. */
void value_new(struct lowering *L, struct value *v, int tile);
/* Makes sure that the tile is on the device: fetched or computed. */
void value_get(struct lowering *L, struct value *v, int tile);
/* After production: writes it home if it lives off the device. */
void value_put(struct lowering *L, struct value *v, int tile);
/* End of a visit: forgets the device copy unless it lives there. */
void value_drop(struct lowering *L, struct value *v, int tile);
void value_drop_all(struct lowering *L, struct value *v);
/* Forgets all copies of a transient tile: it is computed again when it is needed. */
void value_forget(struct value *v, int tile);
/* End of a visit that others follow: forgets the device copy unless it lives or lingers there. */
void value_pause(struct lowering *L, struct value *v, int tile);
/* After the last visit of the forward pass: forgets what a staged or lingering value left nearer than its home. It lingers no
 * more. */
void value_leave(struct lowering *L, struct value *v);
/* Forgets an open full buffer, so that the next one is new. */
void value_reset_full(struct value *v);
void value_open_full(struct lowering *L, struct value *v);
void value_close_full(struct lowering *L, struct value *v);
int value_on_device(const struct value *v, int tile);
int value_tile_at(const struct value *v, int64_t row);
int buffer_new(struct lowering *L, enum tier tier, int64_t bytes, enum tensor_class class);

/* Copies rows [row0, row1) (whole tiles) between tiers, by way of a host slot where the device is out of reach of the drive; sets
 * the place of the target. */
void value_copy(struct lowering *L, struct value *v, int64_t row0, int64_t row1, int from, int to, int buffer, int64_t offset,
                int depth);
/* The tier that holds a current copy of the tile at `row`, nearest first. */
int value_where(const struct value *v, int64_t row);

/* Emission. emit() starts an instruction; arguments follow. Rows of reads are arbitrary, of writes whole tiles. */
struct op_attrs *emit(struct lowering *L, enum op_kind op, enum lane lane);
void arg_read(struct lowering *L, int arg, struct value *v, int64_t row0, int64_t row1, int place);
void arg_write(struct lowering *L, int arg, struct value *v, int64_t row0, int64_t row1, int place);
void arg_update(struct lowering *L, int arg, struct value *v, int64_t row0, int64_t row1, int place);
void arg_scratch(struct lowering *L, int arg, int64_t bytes); /* 0: no argument */
void emit_done(struct lowering *L, double pairs);             /* FLOPs and bytes */

/* Persistent values: rows [row0, row1) to the device or to the host in one contiguous piece, and back to their home. */
void value_bring(struct lowering *L, struct value *v, int64_t row0, int64_t row1, int tier, int depth);
void value_put_home(struct lowering *L, struct value *v, int64_t row0, int64_t row1, int from);
/* Forgets every copy of the rows except the home. */
void value_keep_home(struct value *v, int64_t row0, int64_t row1);

/* maps.c */
/* Element offsets at which gradients of the unit are written piecewise, appended to cuts (room for max). */
int lower_grad_cuts(const struct lowering *L, int unit, int64_t *cuts, int n, int max);

/* Heads and KV heads (of the model) that ulysses member m attends in its tile t, kt. */
int64_t routed_head(const struct lowering *L, int m, int t);
int64_t routed_kv_head(const struct lowering *L, int m, int kt);
/* Whether member m's KV tiles are the same heads as those of the member before it. */
int kv_replica(const struct lowering *L, int m);
/* dq on its way to the tokens and at home. */
enum dtype dq_type(const struct lowering *L);

/* attention.c: all attention tiles of a layer */
void lower_attention_forward(struct lowering *L, int layer);
void lower_attention_backward(struct lowering *L, int layer);
void attention_values_create(struct lowering *L);
void attention_values_destroy(struct lowering *L);

/* lower.c: whether the backward pass finds a layer's input where the forward pass left it. The last layer's always is: its
 * backward pass follows at once. */
int lower_keeps_input(const struct lowering *L, int l);

/* model.c */
void lower_forward(struct lowering *L);
void lower_backward(struct lowering *L);
void lower_value_produce(struct lowering *L, struct value *v, int tile);

/* units.c */
/* The index-th group of a unit's elements; what rank r holds of it is elements [first + r * share, ...), share = shard_end -
 * shard_first of them, as far as they are below end. */
struct group plan_group(const struct model *m, const struct strategy *s, int unit, int index);
enum residency unit_residency(const struct lowering *L, int unit, enum tensor_class class); /* one of the first four classes */
int unit_groups(const struct lowering *L, int unit);                                        /* all */
int unit_trained_groups(const struct lowering *L, int unit);                                /* the first so many */
struct group unit_group(const struct lowering *L, int unit, int index);
void units_create(struct lowering *L);
void units_destroy(struct lowering *L);
/* What the units' homes hold when the program starts, or ends. */
void units_bind(struct lowering *L, int end);
void home_create(struct lowering *L, struct value *v, int unit, enum residency r); /* unit -1: one extent */
void value_bind(struct lowering *L, struct value *v, int end);
/* The fp32 value that AdamW updates. */
struct value *unit_master(struct lowering *L, int unit);
/* Whether the values that AdamW works on are shards. */
int optim_sharded(const struct lowering *L);

/* update.c */
void unit_fetch(struct lowering *L, int unit); /* parameters to the device, after the pending update if the role has one */
void unit_drop(struct lowering *L, int unit);
void unit_update(struct lowering *L, int unit);
void grads_begin(struct lowering *L, int unit);
void grads_finish(struct lowering *L, int unit);
void lower_norm(struct lowering *L);
void lower_loss_sum(struct lowering *L); /* every rank's partial losses to the host */

/* lower.c: one program of the set. Persistent buffers come first and are the same for every role. */
enum status lower_program(const struct model *m, const struct strategy *s, int role, struct io_buffers *io, struct program **out);

#endif
