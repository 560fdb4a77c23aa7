/* What a placement decides: a row per choice, over which everything that is the same for all of them loops.
 *
 * A further choice is a field of struct strategy, a member of enum decision_id and a row in decisions.c: placements are then
 * listed, compared, counted and grouped with it, and `ltrain plan --json` shows it. What it costs is estimate.c's. */
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
    DECISION_CARRY,
    DECISION_UPDATE,
    DECISION_PROMOTED_LAYERS, /* layers that have a class promoted; the next two say which class, and where */
    DECISION_PROMOTED_CLASS,
    DECISION_PROMOTE_TIER,
    DECISION_KEEP_EVERY,
    DECISION_DEVICE_LAYERS,
    DECISION_DEVICE_CHUNKS,
    DECISION_SAVED_CHUNKS,
    DECISION_FULL_MORE, /* of saved chunks, by kind of layer */
    DECISION_WINDOW_FEWER,
    DECISION_WRITE_DEPTH,
    DECISIONS
};

enum decision_kind {
    DECISION_IS_TIER,   /* enum residency */
    DECISION_IS_CHOICE, /* 0 or 1, or another enum */
    DECISION_IS_AMOUNT  /* of layers, row chunks or blocks */
};

enum decision_kind decision_kind(enum decision_id d);
/* The field of plan.json that shows a tier or an amount; NULL: none, or one that says more. */
const char *decision_json(enum decision_id d);

/* An enum residency, an amount, or 0 and 1. */
int decision_get(const struct strategy *s, enum decision_id d);
void decision_set(struct strategy *s, enum decision_id d, int value);

/* Where a request says which tier it is to be; NULL: it cannot. */
enum offload *decision_request(struct plan_request *s, enum decision_id d);
/* The choice that this one is listed together with: carry with acts, else itself. */
enum decision_id decision_leader(enum decision_id d);

/* Whether every choice is the same but for saved chunks, layer inputs and the depth of drive writes. */
int decisions_same_classes(const struct strategy *a, const struct strategy *b);
/* In how many choices of whole classes, of the update's place and of layers on the device two placements differ. */
int decisions_distance(const struct strategy *a, const struct strategy *b);

/* Whether stalls of `tried` are evidence for c: the same data travels in the same passes and about as far. Layers of c may pass
 * activations on farther away. */
int decisions_same_family(const struct strategy *tried, const struct strategy *c);
/* The number of a family, whatever its layers pass on: two tiers, a choice, and whether gradients are on the device. */
enum { DECISIONS_FAMILIES = TIERS * TIERS * 2 * 2 };
int decisions_family(const struct strategy *s);

#endif
