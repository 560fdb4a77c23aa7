/* The choices of a placement: one row for each, over which listing, comparing and counting loop.
 *
 * A further choice is a field of struct strategy, a member of enum decision_id and a row in decisions.c: placements are then
 * listed, compared, counted and grouped with it, and `ltrain plan --json` shows it. Its cost is computed in estimate.c. */
#ifndef LTRAIN_PLAN_SEARCH_DECISIONS_H
#define LTRAIN_PLAN_SEARCH_DECISIONS_H

#include "plan/lower/strategy.h"
#include "settings/settings.h"

/* The first four are classes, in the order of enum tensor_class. Options (options.h) vary the last of these fastest. */
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
    DECISION_FULL_MORE, /* kept chunks by kind of layer: this and the next */
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
/* Returns the field of plan.json that shows a tier or an amount; NULL: none does, or one that says more. */
const char *decision_json(enum decision_id d);

/* Gets or sets a choice's value: an enum residency, an amount, or 0 and 1. */
int decision_get(const struct strategy *s, enum decision_id d);
void decision_set(struct strategy *s, enum decision_id d, int value);

/* Returns the member of a request that fixes the choice's tier; NULL: requests cannot fix it. */
enum offload *decision_request(struct plan_request *s, enum decision_id d);
/* Returns the choice that this one is listed together with: acts for passing, else d itself. */
enum decision_id decision_leader(enum decision_id d);

/* Tells whether every choice is the same but for kept chunks, layer inputs and the depth of drive writes. */
int decisions_same_classes(const struct strategy *a, const struct strategy *b);
/* Counts the choices of whole classes, of the update's place and of layers on the device in which two placements differ. */
int decisions_distance(const struct strategy *a, const struct strategy *b);

/* Tells whether stalls of `tried` are evidence for c: the same data travels in the same passes and about as far. Layers of c may
 * pass activations on farther away. */
int decisions_same_family(const struct strategy *tried, const struct strategy *c);
/* Numbers of families, without the tier that layers pass activations on in: two tiers, a choice, and whether gradients are on the
 * device. */
enum { DECISIONS_FAMILIES = TIERS * TIERS * 2 * 2 };
int decisions_family(const struct strategy *s);

#endif
