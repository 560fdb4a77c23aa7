/* How placements compare, choice by choice. Private to the search. */
#ifndef LTRAIN_PLAN_SEARCH_DECISIONS_H
#define LTRAIN_PLAN_SEARCH_DECISIONS_H

#include "plan/lower/lowering.h"

/* Whether every choice but the number of kept chunks is the same. */
int decisions_same_classes(const struct strategy *a, const struct strategy *b);

/* Whether stalls of `tried` are evidence for c: the same data travels in the same passes and about as far. Layers of c may pass
 * activations on farther away. */
int decisions_same_family(const struct strategy *tried, const struct strategy *c);

#endif
