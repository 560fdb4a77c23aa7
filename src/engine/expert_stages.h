/* Counts of the balancing loss on their way between a pipeline's programs.
 *
 * The loss of a sequence is over all layers. So each stage adds up the counts of a micro-batch's forward passes, the program of the head
 * gathers those of all stages, and backward halves read the sums. */
#ifndef LTRAIN_ENGINE_EXPERT_STAGES_H
#define LTRAIN_ENGINE_EXPERT_STAGES_H

#include "engine/session.h"

struct expert_stages;

/* Makes room for the micro-batches in flight. *out: NULL if there is no pipeline, or no such loss. */
enum status expert_stages_create(const struct session *s, struct expert_stages **out);
void expert_stages_destroy(struct expert_stages *x); /* NULL is fine */

/* Fills the counts in that a program of a piece reads. x may be NULL. */
void expert_stages_fill(struct expert_stages *x, struct session *s, enum plan_program which, int64_t piece);
/* Takes the counts that the program has left. Returns, once for each micro-batch, this rank's part of its balancing loss
 * (expert_balance): that of its stage's layers; else 0. */
double expert_stages_take(struct expert_stages *x, struct session *s, enum plan_program which, int64_t piece);

#endif
