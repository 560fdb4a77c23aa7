/* Tokens of experts, and the balancing loss: what a program of training counted, as this rank has it. */
#ifndef LTRAIN_ENGINE_EXPERT_LOAD_H
#define LTRAIN_ENGINE_EXPERT_LOAD_H

#include "engine/session.h"

/* Returns the number of counts: experts times layers with experts, those of other stages included; 0: the model has no experts. */
int expert_counts(const struct session *s);
/* Returns the number of counts of the stages before this rank's. */
int expert_counts_first(const struct session *s);
/* Adds to counts[layer][expert] the tokens that this rank's rows gave each expert in the program that ran last. */
void expert_counts_add(struct session *s, double *counts);
/* Returns this rank's part of the balancing loss of its sequence in the program that ran last, without its coefficient, as
 * transformers' load_balancing_loss_func without a mask: E sum of f P, f and P means over all layers' rows. The loss is the sum of
 * the parts of the ranks that share the sequence. 0: the model is not trained with this loss, or the sequence is empty. Without stages
 * only (expert_stages.h). */
double expert_balance(struct session *s);
/* Returns the same from plain[parts][expert], the tokens that the softmax alone gives each expert on the ranks that share the sequence,
 * and sums[expert], sums of the softmax over this rank's rows. */
double expert_balance_of(const struct model *m, const int32_t *plain, int parts, const float *sums);

#endif
