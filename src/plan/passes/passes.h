/* Passes that plan the placements which the search found, and that change a plan afterwards. Private to src/plan. */
#ifndef LTRAIN_PLAN_PASSES_PASSES_H
#define LTRAIN_PLAN_PASSES_PASSES_H

#include "plan/plan.h"
#include "plan/search/key.h"

/* Plans the best placements until one keeps its trial's promise. A plan on another grid than the default one is compared with the
 * best plan on the default grid if it does not fit, or takes as long as the trial there. The caller destroys *out. */
enum status plan_searched(const struct searched *v, const int64_t limit[TIERS], struct plan **out);

/* A plan, owned, and the problem that it solves: request and costs are those of its mesh. */
struct choice {
    struct problem problem;
    struct plan *plan;
};

/* Plans with the `finer`-th grid in place of the default one; all that the request leaves open is chosen again. */
typedef enum status plan_anew(const struct model *m, const struct plan_request *given, const int64_t limit[TIERS], int finer,
                              struct choice *out);
/* Looks for a smaller plan if the plan of *c does not fit: the smallest on its mesh, on the given request's mesh, or on finer
 * grids, planned by `anew`. v: the placements among which *c was found. A plan that fits replaces *c. */
enum status plan_for_memory(const struct searched *v, const struct plan_request *given, plan_anew *anew, struct choice *c);

/* Replaces *out by a plan whose experts have their parameters, gradients and optimizer state in the farthest tier that *out uses, and
 * other layers theirs elsewhere, if that is faster by EXPERTS_GAIN. Applies where the request leaves both open and compute waits. */
enum status plan_for_experts(const struct problem *p, struct plan **out);

/* Replaces *out by a plan that sends less, if slow links would hold its step up; it may cost SLOW_LINKS_GIVE of the step at most.
 * One more of SLOW_LINKS_CHUNKS row chunks stays on the device, or is computed again, or chunks are half as long. */
enum status plan_for_slow_links(const struct problem *p, struct plan **out);

/* Replaces *out by a plan whose kinds of layers save different numbers of row chunks, if that is faster. It applies to models
 * whose layers attend under two masks. The search gives both kinds the same number, and its trials of a few layers know one kind
 * (problem_shortened); here all programs have all layers. */
enum status plan_for_layer_kinds(const struct problem *p, struct plan **out);

/* Replaces *out by a plan with groups of GROUP_RESIDENT elements if a single GPU holds all parameters, gradients and optimizer
 * state. Small groups gain nothing there. The new plan must fit and save GROUP_GAIN of the step in instructions' fixed costs. */
enum status plan_for_resident_groups(const struct problem *p, struct plan **out);
/* Replaces *out by a plan with larger groups if messages between ranks limit the step: fewer messages cost less latency. The new
 * plan must fit and save GROUP_GAIN of the step. */
enum status plan_for_messages(const struct problem *p, struct plan **out);

#endif
