/* Roles of ranks: ranks with equal parts of the model run one program set.
 *
 * The ranks of a part share it as the plan's mesh says. Ranks are numbered part by part, and within a part by the mesh. */
#ifndef LTRAIN_PLAN_ROLES_H
#define LTRAIN_PLAN_ROLES_H

#include "plan/plan.h"

/* Plans a program set for each role among the parts of a model. The first role is planned on the settings' mesh; the others take the
 * first one's mesh and tiles. limit: as for plan_create. The whole model must outlive the plan.
 *
 * *out: the plan of part `own`, which has the others as its roles. ERR_INVALID: a part cannot be made. */
enum status plan_roles_create(const struct model *whole, const struct model_part *part, int n_parts, int own,
                              const struct plan_request *s, const int64_t limit[TIERS], struct plan **out);

/* Plans all stages of the request's mesh (program/mesh.h: pp), with the first stage's placement for all. With one stage, plans `m`
 * itself, a whole model or a part. *out: the plan of stage `own`. Errors are those of plan_roles_create; a plan that does not fit has
 * `fits` 0. */
enum status plan_stages_create(const struct model *m, const struct plan_request *s, int own, const int64_t limit[TIERS],
                               struct plan **out);

/* Replaces a plan that fits by that of another role that does not, if there is one: what is shown of all ranks does not fit, either. */
void plan_show_misfit(struct plan **p);
/* Returns the number of roles, and the plan of one; a plan of plan_create has one role, its own. */
int plan_n_roles(const struct plan *p);
const struct plan *plan_of_role(const struct plan *p, int role);
/* Returns the simulated seconds of a step: the slowest role's, since the step ends on all ranks together. */
double plan_step_seconds(const struct plan *p);
/* Returns the dense peak of a rank, by which MFU is defined: on islands the mean of all ranks. */
double plan_peak_flops(const struct plan *p);

/* Verifies the programs of all roles, each and all ranks' together. ERR_CORRUPT with the verifier's sentence. */
enum status plan_verify_ranks(const struct plan *p);

#endif
