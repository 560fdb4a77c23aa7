/* Probes: whether a request fits, and about how fast it is, in a fraction of the time that planning takes. */
#ifndef LTRAIN_PLAN_SEARCH_PROBE_H
#define LTRAIN_PLAN_SEARCH_PROBE_H

#include "plan/search/candidate.h"

/* Whether the trial c was of so small a program (PROBE_SMALL_CHUNKS) that further trials take no time. */
int probe_is_small(const struct candidate *c, const struct model *m);

/* Whether any placement fits: out is the smallest one found, and fits if out->excess <= 1. Its seconds mean nothing. Of small
 * models (probe_is_small) the finest grid that the request leaves open is tried, too: of larger ones that takes too long.
 * Errors as plan_create. */
enum status probe_fits(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], struct candidate *out);

/* The same, but models that are not small are tried with the inputs of one of PROBE_INPUTS_EVERY layers only: for lengths near
 * the longest. */
enum status probe_fits_long(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                            struct candidate *out);

/* Whether the placement of `like`, which fits another length, fits this one, too: that is quick. */
enum status probe_like(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                       const struct strategy *like, struct candidate *out);

/* Whether that placement fits, or any other one that keeps as many layer inputs, fewer, or one of PROBE_INPUTS_EVERY. */
enum status probe_fits_like(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                            const struct strategy *like, struct candidate *out);

/* The smallest placement on the grid and with the inputs of `fixed`, or fewer. */
enum status probe_smallest(const struct problem *p, const struct strategy *fixed, struct candidate *out);

/* Sets c's bytes to what the first program of all layers needs in the serial order: trials of fewer layers may be a percent off.
 */
enum status probe_all_layers(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                             struct candidate *c);

/* What the placement that is mostly the smallest is estimated to need, at least: nothing is tried. */
enum status probe_estimate(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                           struct candidate *out);

/* The fastest of a few placements that ought to be (search_promising), with its seconds as tried; if none of them fits, what
 * probe_fits finds. A plan is as fast or somewhat faster. */
enum status probe_seconds(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], double rate,
                          struct candidate *out);

/* The same where `fits` is known to fit in the serial order. */
enum status probe_seconds_of(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], double rate,
                             const struct candidate *fits, struct candidate *out);

#endif
