/* The part of a strategy that settings fix. */
#ifndef LTRAIN_PLAN_LOWER_FIXED_H
#define LTRAIN_PLAN_LOWER_FIXED_H

#include "model/model.h"
#include "plan/lower/strategy.h"
#include "settings/settings.h"

/* Of the first program of a set, with its update: a whole step, or an evaluation (enum program_role). */
int plan_first_role(const struct plan_request *s);

/* What is decided before the placement: mesh, rows, types, tiles. Errors as plan_tiles. */
enum status plan_fixed(const struct model *m, const struct plan_request *s, struct strategy *out);

/* The number of row chunks on `grid` that all layers keep what could be recomputed of, for a share alpha of them. Where the request
 * gives a share to each kind of layer, those count instead of alpha: the mean of both numbers, rounded up, so that a search that
 * knows one kind of layer counts no fewer bytes than the plan needs. */
int plan_saved_chunks(const struct model *m, const struct plan_request *s, const struct strategy *grid, double alpha);

/* Sets both kinds' numbers of chunks where the request gives them. */
void plan_save_as_given(const struct model *m, const struct plan_request *s, struct strategy *out);

/* The share of the chunks by which given shares are missed where chunks are few. */
double plan_alpha_error(const struct plan_request *s, const struct strategy *grid);

#endif
