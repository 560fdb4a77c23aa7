/* The part of a strategy that settings fix. */
#ifndef LTRAIN_PLAN_LOWER_FIXED_H
#define LTRAIN_PLAN_LOWER_FIXED_H

#include "model/model.h"
#include "plan/lower/strategy.h"
#include "settings/settings.h"

/* Returns the pieces of a rank's step: micro-batches or, of stages, their slices. */
int64_t plan_pieces_of(const struct plan_request *s);
/* Returns the duties (enum program_duty) of the first program of a set, with its update: a whole step, or an evaluation. */
int plan_first_duties(const struct plan_request *s);

/* Sets all that is decided before the placement: mesh, rows, types, tiles. Errors: as plan_tiles. */
enum status plan_fixed(const struct model *m, const struct plan_request *s, struct strategy *out);

/* Fixes the request's grid of tiles to `grid`. */
static inline void plan_fix_grid(struct plan_request *s, const struct strategy *grid)
{
    s->row_chunk = grid->key.row_chunk;
    s->head_tile = grid->key.head_tile;
    s->loss_tile = grid->key.loss_tile;
}

/* Returns the number of row chunks on `grid` whose recomputable values all layers keep, for a share alpha of the chunks. If the
 * request gives a share to each kind of layer, those count instead of alpha: the result is the mean of both numbers, rounded up.
 * So a search that knows one kind of layer counts no fewer bytes than the plan needs. */
int plan_kept_chunks(const struct model *m, const struct plan_request *s, const struct strategy *grid, double alpha);

/* Sets both kinds' numbers of kept chunks if the request gives them. */
void plan_keep_as_given(const struct model *m, const struct plan_request *s, struct strategy *out);

/* Returns the difference between the given share of chunks and the nearest possible share, which is large if there are few
 * chunks. Of two given shares, the larger difference counts. */
double plan_alpha_error(const struct plan_request *s, const struct strategy *grid);

#endif
