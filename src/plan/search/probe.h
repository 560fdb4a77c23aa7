/* Probes: whether a request fits, and about how fast it is, in a fraction of the time that planning takes. */
#ifndef LTRAIN_PLAN_SEARCH_PROBE_H
#define LTRAIN_PLAN_SEARCH_PROBE_H

#include "plan/search/candidate.h"

/* Tells whether the trial c had so small a program (PROBE_SMALL_CHUNKS) that further trials take no time. */
int probe_is_small(const struct candidate *c, const struct model *m);

/* Finds the smallest placement; it fits if out->excess <= 1, and its seconds mean nothing. For small models (probe_is_small) the
 * finest open grid is tried, too; for larger ones that takes too long. Errors as plan_create. */
enum status probe_fits(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], struct candidate *out);

/* Probes as probe_fits, but tries larger models (not probe_is_small) only with the inputs of one of PROBE_INPUTS_EVERY layers:
 * for lengths near the longest. */
enum status probe_fits_long(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                            struct candidate *out);

/* Tells quickly whether the placement of `like`, which fits another length, fits this one, too. */
enum status probe_like(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                       const struct strategy *like, struct candidate *out);

/* Tells whether the placement of `like` fits, or any other placement that keeps as many layer inputs, fewer, or one of
 * PROBE_INPUTS_EVERY. */
enum status probe_fits_like(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                            const struct strategy *like, struct candidate *out);

/* Finds the smallest placement on the grid and with the inputs of `fixed`, or fewer. */
enum status probe_smallest(const struct problem *p, const struct strategy *fixed, struct candidate *out);

/* Sets c's bytes to the need of the first program of all layers in the serial order: trials of fewer layers may be a percent off. */
enum status probe_all_layers(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                             struct candidate *c);

/* Finds the least number of layers, at most `most`, of which one keeps its input in placements for which all tiers together may have
 * room, by estimates alone. */
enum status probe_inputs(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], int most, int *every);

/* Estimates the least need of the placement that is mostly the smallest, without trials. */
enum status probe_estimate(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                           struct candidate *out);

/* Finds the fastest of a few promising placements (search_promising), with its seconds as tried; if none fits, the placement of `like`,
 * which may be NULL; if that does not fit, probe_fits' result. A plan is as fast or somewhat faster. */
enum status probe_seconds(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], double rate,
                          const struct strategy *like, struct candidate *out);

/* Probes as probe_seconds, given `fits`, a placement that is known to fit when no instructions overlap. */
enum status probe_seconds_of(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], double rate,
                             const struct candidate *fits, struct candidate *out);

#endif
