/* The choices that a request leaves open on one grid of tiles. Private to the search. */
#ifndef LTRAIN_PLAN_SEARCH_OPTIONS_H
#define LTRAIN_PLAN_SEARCH_OPTIONS_H

#include "model/model.h"
#include "plan/search/decisions.h"

enum { OPTIONS_ACTS = 6, OPTIONS_MOST = OPTIONS_ACTS };

/* The values that are open for each choice; none of the values found around other placements. */
struct options {
    int value[DECISIONS][OPTIONS_MOST], n[DECISIONS]; /* of saved chunks the most first: all numbers between are open, too */
    int split; /* activations may be split by row chunks: any number of the last ones on the device, if others are not */
};

void options_of(const struct model *m, const struct plan_request *s, const struct strategy *fixed, struct options *o);
/* Those of a single placement: its own, and the tiers of what it has in two. */
void options_of_one(const struct strategy *s, struct options *o);

int options_count(const struct options *o);
/* The i-th placement of all: numbers of saved chunks vary fastest. */
void options_place(const struct options *o, int i, struct strategy *out);
/* Which value of the choice s has; 0 if none is the same. */
int options_index(const struct options *o, enum decision_id d, const struct strategy *s);
/* The largest and the smallest number of chunks that may be kept. */
int options_most_kept(const struct options *o);
int options_fewest_kept(const struct options *o);
/* Whether some layers may have the class in the nearer tier `at`. */
int options_may_promote(const struct options *o, const struct strategy *s, enum tensor_class class, enum residency at);

#endif
