/* A look at what settings come to, in a fraction of the time that planning them takes. */
#ifndef LTRAIN_PLAN_GLANCE_H
#define LTRAIN_PLAN_GLANCE_H

#include "plan/search.h"

/* Whether any placement fits: out is the leanest one found, and fits if out->excess <= 1. Its seconds mean nothing. Of models
 * whose trials are whole (out->whole) the finest grid that the settings leave open is looked at, too: of larger ones that takes
 * too long. Errors as plan_create. */
enum status glance_fits(const struct model *m, const struct settings *s, const int64_t limit[TIERS], struct candidate *out);

/* The same, but the placement of `like`, which fits another length, is enough if it fits this one, too: that is quick. */
enum status glance_fits_like(const struct model *m, const struct settings *s, const int64_t limit[TIERS],
                             const struct strategy *like, struct candidate *out);

/* What the one placement that is mostly the leanest is reckoned to need, at least: nothing is tried. */
enum status glance_reckon(const struct model *m, const struct settings *s, const int64_t limit[TIERS], struct candidate *out);

/* The fastest of a few placements that ought to be (search_promising), with its seconds as tried; if none of them fits, what
 * glance_fits finds. A plan is as fast or somewhat faster. */
enum status glance_seconds(const struct model *m, const struct settings *s, const int64_t limit[TIERS], double rate,
                           struct candidate *out);

#endif
