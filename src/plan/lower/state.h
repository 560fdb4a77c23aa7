/* The state of units: parameters, gradients and optimizer state as values with homes at fixed addresses. Private to
 * src/plan/lower. */
#ifndef LTRAIN_PLAN_LOWER_STATE_H
#define LTRAIN_PLAN_LOWER_STATE_H

#include "plan/lower/groups.h"
#include "plan/lower/value.h"

struct lowering;

/* Values of one unit. A shard has one tile per group: ceil(elements / ranks) rows, the same number on every rank, of which the
 * last ranks' may lie beyond the group's end (they are zero). */
struct unit_values {
    struct value param;       /* all elements, storage dtype; transient if parameters are sharded */
    struct value param_shard; /* its shards: sharded parameters, or what a sharded update makes of bf16 ones */
    struct value packed;      /* frozen matrices that are quantised, as bytes; transient if parameters are sharded */
    struct value packed_shard; /* their shards */
    struct value dequantised; /* transient: a part of such a matrix beside the product that it is for */
    struct value master;      /* fp32, unless the update works on the parameters themselves */
    struct value m, v;        /* of all elements, or of the shards */
    struct value grad;        /* of the global batch so far; of all elements, or of the shards if gradients are sharded */
    struct value grad_shard;  /* only the optimizer state is sharded: the summed gradient's shard, for the pending update */
    struct value micro;       /* of this micro-batch, when it is not the first, or when gradients are sharded */
    struct value micro_shard; /* its shards, when it is not the first */
    struct value *target;     /* which value the backward pass writes: grad or micro */
    int updated;              /* the pending update of this unit is emitted */
    int64_t first_sum;        /* its first row in the sums of squares */
};

enum residency unit_residency(const struct lowering *L, int unit, enum tensor_class class); /* class: one of the first four */
int unit_groups(const struct lowering *L, int unit);                                        /* of all elements */
int unit_trained_groups(const struct lowering *L, int unit); /* of trained elements: they come first */
struct group unit_group(const struct lowering *L, int unit, int index);
/* Appends the element offsets at which gradients of a unit are written piecewise. cuts has room for max. Returns their number. */
typedef int unit_cuts(const struct lowering *L, int unit, int64_t *cuts, int n, int max);
/* pieces: what cuts gradients beside the borders of groups and parameters. */
void units_create(struct lowering *L, unit_cuts *pieces);
/* What the units' homes hold when the program starts, or ends. */
void units_bind(struct lowering *L, int end);
/* Gives a persistent value its fixed address: flat on the device, the unit's groups at aligned offsets elsewhere. unit -1: one
 * extent. */
void home_create(struct lowering *L, struct value *v, int unit, enum residency r);
/* What the home of one value holds when the program starts, or ends. */
void value_bind(struct lowering *L, struct value *v, int end);
void value_bind_as(struct lowering *L, struct value *v, enum binding_role role, int unit, int end);
/* Gives each tile of a persistent value a fixed address and an extent of its own. */
void home_create_apart(struct lowering *L, struct value *v, enum residency r);
/* The fp32 value that AdamW updates. */
struct value *unit_master(struct lowering *L, int unit);
/* Whether the values that AdamW works on are shards. */
int optim_sharded(const struct lowering *L);

#endif
