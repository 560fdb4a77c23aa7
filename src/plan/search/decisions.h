/* The choices of a placement: one row for each, over which listing, comparing and counting loop.
 *
 * A further choice is a field of struct strategy, a member of enum decision_id and a row in decisions.c: placements are then
 * listed, compared, counted and grouped with it, and `ltrain plan --json` shows it. Its cost is computed in estimate.c. */
#ifndef LTRAIN_PLAN_SEARCH_DECISIONS_H
#define LTRAIN_PLAN_SEARCH_DECISIONS_H

#include "plan/lower/strategy.h"
#include "settings/settings.h"

/* The first four are classes, in the order of enum tensor_class. Lists of placements (options.h) vary the last choice fastest. */
enum decision_id {
    DECISION_PARAMS,
    DECISION_GRADS,
    DECISION_OPTIM,
    DECISION_ACTS,
    DECISION_PASSING,
    DECISION_UPDATE,
    DECISION_PROMOTED_LAYERS, /* layers that have a class promoted; the next two say which class, and to which tier */
    DECISION_PROMOTED_CLASS,
    DECISION_PROMOTE_TIER,
    DECISION_KEEP_INPUTS,
    DECISION_DEVICE_LAYERS,
    DECISION_DEVICE_CHUNKS,
    DECISION_KEPT_CHUNKS,
    DECISION_FULL_MORE, /* this and the next: differences of kept chunks between kinds of layers */
    DECISION_LIGHT_FEWER,
    DECISION_WRITE_DEPTH,
    DECISIONS
};

enum decision_kind {
    DECISION_IS_TIER,   /* enum residency */
    DECISION_IS_CHOICE, /* 0 or 1, or another enum */
    DECISION_IS_AMOUNT  /* number of layers, row chunks or blocks */
};

enum decision_kind decision_kind(enum decision_id d);
/* Returns the field of plan.json that shows a tier or an amount; NULL: there is none, or the field shows more than this choice. */
const char *decision_json(enum decision_id d);

/* Gets or sets a choice's value: an enum residency, an amount, or 0 and 1. */
int decision_get(const struct strategy *s, enum decision_id d);
void decision_set(struct strategy *s, enum decision_id d, int value);

/* Returns the member of a request that fixes the choice's tier; NULL: requests cannot fix it. */
enum offload *decision_request(struct plan_request *s, enum decision_id d);
/* Returns the choice whose options include values of d: DECISION_ACTS for DECISION_PASSING, else d itself. */
enum decision_id decision_leader(enum decision_id d);

/* Tells whether every choice is the same, except for kept chunks, layer inputs and the depth of drive writes. */
int decisions_same_classes(const struct strategy *a, const struct strategy *b);
/* Counts the choices in which two placements differ: tiers of classes, the place of the update, and layers on the device. */
int decisions_distance(const struct strategy *a, const struct strategy *b);

/* Tells whether stalls of `tried` are evidence for c: the same data travels in the same passes, about equally far. Layers of c
 * may pass activations on in a tier farther away. */
int decisions_same_family(const struct strategy *tried, const struct strategy *c);
/* Number of families that decisions_family tells apart: by two tiers, a choice, and gradients on the device or not. The tier in
 * which layers pass activations on does not count. */
enum { DECISIONS_FAMILIES = TIERS * TIERS * 2 * 2 };
int decisions_family(const struct strategy *s);

#endif
