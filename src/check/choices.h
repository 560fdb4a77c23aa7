/* Tokens that choose other experts than in the reference run (alone.h). Private to src/check. */
#ifndef LTRAIN_CHECK_CHOICES_H
#define LTRAIN_CHECK_CHOICES_H

#include "train/run.h"

/* Counts of a step's choices in both runs: [layers with experts][experts]. Rank 0 compares them. */
struct choices {
    int layers, experts; /* layers 0: the model has no experts */
    double *given, *alone;
    double pairs;   /* pairs of a token and an expert in one layer */
    double others;  /* pairs that differ, of all layers together: each left one expert and came to another */
    double most;    /* pairs that differ in the layer that has most */
    int most_layer; /* index of the layer with most, among layers with experts, from 0 on */
};

/* Makes both runs leave their counts here; nothing for a model without experts. alone: NULL on ranks other than 0. */
enum status choices_begin(struct choices *c, struct run *given, struct run *alone);
/* Compares the last step's counts. */
void choices_compare(struct choices *c);
/* Returns by how much, relative to their L2 norms, gradients differ at most because of choices that differ. */
double choices_explain(const struct choices *c);
void choices_end(struct choices *c);

#endif
