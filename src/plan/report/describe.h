/* A placement in one line of text, for people. */
#ifndef LTRAIN_PLAN_REPORT_DESCRIBE_H
#define LTRAIN_PLAN_REPORT_DESCRIBE_H

#include "plan/plan.h"

enum { PLAN_TEXT = 512 }; /* bytes that hold either description */

/* Describes residencies, alpha, the place of the update, tiles. */
void strategy_describe(const struct strategy *s, char *buf, int size);
/* Describes a plan's strategy, and why its grid is not the default one. */
void plan_describe(const struct plan *p, char *buf, int size);
/* Writes the flags of mesh and tiles to give with the longest length, if these are not the default ones; else "". */
void plan_longest_flags(const struct plan *p, char buf[96]);

#endif
