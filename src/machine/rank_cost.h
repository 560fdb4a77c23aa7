/* From a machine, a mesh and settings to what instructions cost one rank. */
#ifndef LTRAIN_MACHINE_RANK_COST_H
#define LTRAIN_MACHINE_RANK_COST_H

#include "machine/cost.h"
#include "settings/settings.h"

/* Of one rank, from the settings' hardware (NULL: assumed), mesh, storage type and link speed. */
void plan_cost_model(const struct plan_request *s, struct cost_model *out);

#endif
