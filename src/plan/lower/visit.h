/* Visits of values: a tile is fetched or computed when it is needed, and written home when it is made. Private to src/plan/lower.
 *
 * Everything is demand-driven: value_get() finds a tile on the device, fetches it from its home, or computes it. Recomputing in
 * the backward pass therefore emits the very instructions of the forward pass. */
#ifndef LTRAIN_PLAN_LOWER_VISIT_H
#define LTRAIN_PLAN_LOWER_VISIT_H

#include "plan/lower/value.h"

/* Makes sure that the tile is on the device: fetched or computed. */
void value_get(struct lowering *L, struct value *v, int tile);
/* After production: writes it home if it lives off the device. */
void value_put(struct lowering *L, struct value *v, int tile);
/* Persistent values: rows [row0, row1) to the device or to the host in one contiguous piece, and back to their home. */
void value_bring(struct lowering *L, struct value *v, int64_t row0, int64_t row1, int tier, int depth);
void value_put_home(struct lowering *L, struct value *v, int64_t row0, int64_t row1, int from);

#endif
