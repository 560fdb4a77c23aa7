/* Rows of pairs on their way to the ranks that have their experts, and back.
 *
 * Experts are shared out to `members` ranks in the order of their numbers. Every member sorts its pairs by expert, so that those for
 * another member follow each other; that member has the members' rows one after another and sorts them by expert, member and token.
 * All know all members' offsets, and so how many rows travel. */
#ifndef LTRAIN_OPS_DISPATCH_H
#define LTRAIN_OPS_DISPATCH_H

#include "base/status.h"

#include <stdint.h>

struct dispatch_shape {
    int64_t rows; /* most rows that arrive */
    int32_t experts, members;
};

/* Returns how many pairs of a member are for another one. offsets: that member's, [experts+1]; *first: the first one's row. */
static inline int64_t dispatch_part(const struct dispatch_shape *s, const int32_t *offsets, int to, int64_t *first)
{
    const int32_t each = s->experts / s->members;
    *first = offsets[to * each];
    return offsets[(to + 1) * each] - *first;
}

/* Refuses offsets [members, experts+1] that do not ascend from 0 on, or by which more rows than there is room for would reach member
 * `me`. */
enum status dispatch_check(const struct dispatch_shape *s, const int32_t *all, int me);

/* Arrived rows sorted by expert. order: each sorted row's place among those that arrived; place: the reverse, -1 beyond them; offsets:
 * each of the member's experts' first sorted row, and their number behind the last; ids: which of these experts each row that arrived
 * is for, -1 beyond them. */
struct arrivals {
    int32_t *order /* [rows] */, *place /* [rows] */, *offsets /* [experts/members+1] */, *ids /* [rows]; NULL: not wanted */;
};

/* Sorts the rows that reach member `me`. */
enum status ops_arrive(const struct dispatch_shape *s, int me, const struct arrivals *out,
                       const int32_t *all /* [members,experts+1] */);

/* Copies row index[i] / per of x to row i of y, for each index that is not negative. ERR_CORRUPT: a row beyond x_rows. */
enum status ops_spread(int64_t rows, int64_t x_rows, int64_t row_bytes, int32_t per, void *y, const void *x,
                       const int32_t *index);

#endif
