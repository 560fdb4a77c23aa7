/* The state of units: parameters, gradients and optimizer state as values with homes at fixed addresses. Private to
 * src/plan/lower. */
#ifndef LTRAIN_PLAN_LOWER_STATE_H
#define LTRAIN_PLAN_LOWER_STATE_H

#include "plan/lower/groups.h"
#include "plan/lower/value.h"

struct lowering;

/* Parts of a unit of experts that lie side by side: elements, and bytes of quantised matrices. */
enum slot_part { SLOTS_TRAINED, SLOTS_FROZEN, SLOTS_PACKED, SLOT_PARTS };

/* Values of one unit. A shard has one tile per group: ceil(elements / members) rows, equally many on every member. On the last
 * members some rows may lie beyond the group's end; these are zero. */
struct unit_values {
    struct group *groups; /* [n_groups]: groups of all elements */
    int n_groups;
    struct value param;        /* all elements, storage dtype; transient if parameters are sharded */
    struct value param_shard;  /* shards of param: sharded parameters, or bf16 parameters as a sharded update writes them */
    struct value packed;       /* frozen matrices that are quantised, as bytes; transient if parameters are sharded */
    struct value packed_shard; /* shards of packed */
    struct value dequantised;  /* transient: the part of a quantised matrix that one product reads */
    struct value master;       /* fp32, unless the update works on the parameters themselves */
    struct value m, v;         /* moments of all trained elements, or of their shards */
    struct value grad; /* gradient of the global batch so far, of all elements or, if gradients are sharded, of the shards */
    struct value grad_shard; /* ZeRO stage 1 only: the summed gradient's shard, for the pending update */
    struct value micro; /* gradient of this micro-batch, if gradients are sharded, or without stages if it is not the first */
    struct value micro_shard; /* shards of micro, if the micro-batch is not the first */
    /* experts in slots on the device, and which these are (slots.h); unused without slots */
    struct value kept[SLOT_PARTS], kept_table[SLOT_PARTS];
    struct value *target; /* the value that the backward pass writes: grad or micro */
    int updated;          /* 1: the unit's pending update is emitted */
    int32_t *sum;         /* row of each group of trained elements in the sums of squares */
};

enum residency unit_residency(const struct lowering *L, int unit, enum tensor_class class); /* class: one of the first four */
/* Tells whether a pipeline's program computes an end of the model, or passes messages on, in place of layers. */
int lower_is_apart(const struct lowering *L);
/* Returns a program's duties as they concern the gradients of one unit. */
int unit_duties(const struct lowering *L, int unit);
int unit_groups(const struct lowering *L, int unit);         /* groups of all elements */
int unit_trained_groups(const struct lowering *L, int unit); /* groups of trained elements, which come first */
struct group unit_group(const struct lowering *L, int unit, int index);
/* Appends the element offsets at which gradients of a unit are written piecewise. cuts has room for max. Returns their number. */
typedef int unit_cuts(const struct lowering *L, int unit, int64_t *cuts, int n, int max);
/* Creates the values of all units. pieces: further cuts of gradients, beside the borders of groups and parameters. */
void units_create(struct lowering *L, unit_cuts *pieces);
/* Binds the contents of the units' homes at the program's start (end = 0) or end (1). */
void units_bind(struct lowering *L, int end);
/* Gives a persistent value its fixed address: flat on the device, elsewhere the unit's groups at aligned offsets. unit -1: one
 * extent. */
void home_create(struct lowering *L, struct value *v, int unit, enum residency r);
/* Binds the contents of one value's home at the program's start (end = 0) or end (1). */
void value_bind(struct lowering *L, struct value *v, int end);
void value_bind_as(struct lowering *L, struct value *v, enum binding_kind kind, int unit, int end);
/* Binds n tiles from `first` on as value_bind does. */
void value_bind_tiles(struct lowering *L, struct value *v, int first, int n, int end);
/* Gives each tile of a persistent value a fixed address and an extent of its own. */
void home_create_apart(struct lowering *L, struct value *v, enum residency r);
/* Returns the fp32 value that AdamW updates. */
struct value *unit_master(struct lowering *L, int unit);
/* Returns the ZeRO stage of a unit (plan_unit_zero). */
int unit_zero(const struct lowering *L, int unit);
/* Tells whether AdamW works on shards of a unit. */
int optim_sharded(const struct lowering *L, int unit);
/* Tells whether ranks have gradients that others lack, so that their norm needs the sums of other ranks: none; only experts, or
 * slices of layers; all. norm_lane: the lane whose members have the others. */
enum norm_scope { NORM_OWN, NORM_OF_SOME, NORM_OF_ALL };
enum norm_scope norm_scope(const struct lowering *L);
enum lane norm_lane(const struct lowering *L);

#endif
