/* Visits of values: a tile is fetched or computed when it is needed, and written home when it is made. Private to src/plan/lower.
 *
 * Everything is demand-driven: value_get() finds a tile on the device, fetches it from its home, or computes it. Recomputing in
 * the backward pass therefore emits the same instructions as the forward pass. */
#ifndef LTRAIN_PLAN_LOWER_VISIT_H
#define LTRAIN_PLAN_LOWER_VISIT_H

#include "plan/lower/value.h"

/* Makes sure that the tile is on the device, by a fetch or by computing it. */
void value_get(struct lowering *L, struct value *v, int tile);
/* Writes a tile home after it was made, if it lives off the device. */
void value_put(struct lowering *L, struct value *v, int tile);
/* Brings rows [row0, row1) of a persistent value to the device or to the host in one contiguous piece; value_put_home: writes
 * them back. */
void value_bring(struct lowering *L, struct value *v, int64_t row0, int64_t row1, int tier, int depth);
void value_put_home(struct lowering *L, struct value *v, int64_t row0, int64_t row1, int from);

#endif
