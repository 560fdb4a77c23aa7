/* Lowered programs that trials may schedule again: with another limit, prefetch level or depth of writes. Private to the search. */
#ifndef LTRAIN_PLAN_SEARCH_SHELF_H
#define LTRAIN_PLAN_SEARCH_SHELF_H

#include "plan/schedule/prefetch.h"

/* Everything that a lowered program depends on, padding included. */
struct shelf_key {
    struct strategy strategy; /* without prefetch and write depth */
    uint64_t model, costs;    /* hashes */
    int duties;
};

void shelf_key_set(const struct strategy *s, uint64_t model, uint64_t costs, int duties, struct shelf_key *out);
/* Takes a draft off the shelf, so that nobody else has it; NULL: it is not there. */
struct draft *shelf_take(const struct shelf_key *key);
/* Puts a draft back, which the shelf owns from now on. The oldest drafts make room for it. */
void shelf_put(const struct shelf_key *key, struct draft *d);
/* Frees all drafts: before programs of a plan are made, which take all memory there is, and at the end of planning. */
void shelf_clear(void);

#endif
