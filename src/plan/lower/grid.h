/* Grids of tiles, which are part of the numerics key. */
#ifndef LTRAIN_PLAN_LOWER_GRID_H
#define LTRAIN_PLAN_LOWER_GRID_H

#include "model/model.h"
#include "plan/lower/strategy.h"
#include "settings/settings.h"

/* Chooses the default grid of tiles from model, sequence length and mesh; sizes that the request gives stay. ERR_INVALID names
 * the legal values. */
enum status plan_tiles(const struct model *m, const struct plan_request *s, struct strategy *out);
/* Changes one size of the grid t to its i-th other value, if the settings leave it open: more heads, row chunks twice or half as
 * long, longer loss tiles. Returns 0 if there is none. */
enum tile_size { TILE_HEADS, TILE_ROWS, TILE_LOSS, TILE_SIZES };
int plan_other_tiles(const struct model *m, const struct plan_request *s, enum tile_size which, int i, struct strategy *t);
/* Sets the i-th grid beside t, in all directions: also fewer heads, and loss tiles twice, four times, half and a quarter as long.
 * Returns 0 if the settings do not leave it open, or it is not legal. */
enum { PLAN_NEAR_TILES = 8 };
int plan_near_tiles(const struct model *m, const struct plan_request *s, int i, struct strategy *t);
/* Sets the next finer grid that the settings leave open: fewer heads to a tile, and row chunks half as long. Returns 0 if there
 * is none. */
#define PLAN_FINER_HELPS 3.0 /* most times the available memory that a plan may need if finer grids are to be tried */
enum { PLAN_FINER = 2 };     /* number of finer grids that are tried at most: each takes longer to plan */
int plan_finer_tiles(const struct model *m, const struct plan_request *s, struct strategy *t);
/* Sets the next coarser grid: more heads, longer row chunks and loss tiles, those that the settings leave open. Returns 0 if
 * there is none. */
enum { PLAN_COARSER = 4 }; /* number of coarser grids that are tried at most when a program exceeds its tables */
int plan_coarser_tiles(const struct model *m, const struct plan_request *s, struct strategy *t);
/* Returns the pieces of attention of all layers: row chunks times head tiles. A plan of more than PLAN_QUICK pieces takes longer
 * than the rest of planning: 7344 pieces took 41 s instead of 16, for a length 5% longer, in a case where host memory was short. */
enum { PLAN_QUICK = 6144 };
int64_t plan_pieces(const struct model *m, const struct strategy *t);

#endif
