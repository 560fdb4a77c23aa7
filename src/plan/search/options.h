/* The choices that a request leaves open on one grid of tiles. Private to the search. */
#ifndef LTRAIN_PLAN_SEARCH_OPTIONS_H
#define LTRAIN_PLAN_SEARCH_OPTIONS_H

#include "model/model.h"
#include "plan/search/decisions.h"

enum { OPTIONS_ACTS = 6, OPTIONS_MOST = OPTIONS_ACTS };

/* The values that are open for each choice, without those that are found around other placements (promoted classes, device
 * chunks). */
struct options {
    int value[DECISIONS][OPTIONS_MOST], n[DECISIONS]; /* kept chunks: the most first; all numbers in between are open, too */
    int split; /* 1: the last row chunks' activations, any number of them, may stay on the device while the others are elsewhere */
};

void options_of(const struct model *m, const struct plan_request *s, const struct strategy *fixed, struct options *o);
/* Lists the options of a single placement: its own, and both tiers of a class that it has in two. */
void options_of_one(const struct strategy *s, struct options *o);

/* Leaves out the drives for each class that is open in all tiers. Returns 0 if there is no such class. */
int options_leave_drives(struct options *o);
/* Leaves out hidden states between layers that lie farther away than they have to. Returns 0 if there are none. */
int options_leave_passing(struct options *o);
/* Moves what s has where it is not listed to the nearest place that is. */
void options_bring_nearer(const struct options *o, struct strategy *s);
/* Returns the placement with the first option of every class. */
struct strategy options_first(const struct options *o, const struct strategy *fixed);
int options_count(const struct options *o);
/* Sets *out to the i-th placement; numbers of kept chunks vary fastest. */
void options_place(const struct options *o, int i, struct strategy *out);
/* Returns the index of the value that s has for choice d; 0 if that value is not listed. */
int options_index(const struct options *o, enum decision_id d, const struct strategy *s);
/* Returns the largest and the smallest number of chunks that may be kept. */
int options_most_kept(const struct options *o);
int options_fewest_kept(const struct options *o);
/* Tells whether some layers may have the class in the nearer tier `at`. */
int options_may_promote(const struct options *o, const struct strategy *s, enum tensor_class class, enum residency at);

#endif
