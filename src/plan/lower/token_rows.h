/* Rows of single tokens that are parameters of their own, in place of the head's: their logits and the gradients of these.
 *
 * All logits are computed from the head's matrix. Then those of the tokens with such rows are computed from these and take their
 * columns' place. Their gradient leaves its columns before the matrix's product, which so adds nothing for them. Private to
 * src/plan/lower. */
#ifndef LTRAIN_PLAN_LOWER_TOKEN_ROWS_H
#define LTRAIN_PLAN_LOWER_TOKEN_ROWS_H

#include "plan/lower/product.h"

/* Returns the number of the head's rows. */
int64_t token_rows_of_head(const struct lowering *L);
/* Creates the transients; nothing without rows of the head, as of the other functions. */
void token_rows_values(struct lowering *L);
/* Writes the rows' logits into the columns of call->y, the head's product, which has a tile of logits. */
void token_rows_put(struct lowering *L, const struct linear_call *call);
/* Takes the rows' columns out of call->y, the logits' gradient. */
void token_rows_take(struct lowering *L, const struct linear_call *call);
/* Adds the rows' share to the gradient of the head's inputs, dn, and makes the rows' own, from the columns taken last. call: as of the
 * head's gradient. */
void token_rows_gradient(struct lowering *L, const struct linear_call *call, const struct linear_side *dn);

#endif
