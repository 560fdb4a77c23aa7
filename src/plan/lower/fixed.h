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

/* The share of row chunks that the request gives to a layer on average, what could be recomputed of them being kept; AUTO: none. */
double plan_alpha(const struct model *m, const struct plan_request *s);

#endif
