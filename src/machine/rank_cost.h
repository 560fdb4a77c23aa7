/* Costs of instructions for one rank, from a machine, a mesh and settings. */
#ifndef LTRAIN_MACHINE_RANK_COST_H
#define LTRAIN_MACHINE_RANK_COST_H

#include "machine/cost.h"
#include "settings/settings.h"

/* Sets the costs of one rank, from the settings' hardware (NULL: assumed), mesh, storage type and link speed. */
void plan_cost_model(const struct plan_request *s, struct cost_model *out);

#endif
