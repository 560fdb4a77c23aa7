/* Placements, budgets, times and rates in words, for people. */
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

/* The flag that sets a tier's budget. */
extern const char *const budget_flag[TIERS];
/* Returns the flag that explains a tier's budget: "--nvme none" for drives that the settings rule out, else budget_flag. */
const char *budget_flag_given(const struct plan_request *s, enum tier t);
/* Returns the text on the limit of this machine's memory (settings->memory_limit), if the tier's budget comes from it; else "". */
const char *budget_memory_limit(const struct plan_request *s, enum tier t);
/* Tells whether --nvme-max gives more than this machine's drives have free, so that the free space is the limit. */
int budget_is_free_space(const struct plan *p, const struct plan_request *s);
/* Returns the number of ranks that share a node's host memory and drives, if the settings name a machine; else 1. */
int budget_sharing(const struct plan *p, const struct plan_request *s);

#define DAY 86400.0 /* seconds */

/* Returns the name of the unit in which people read `seconds`, from ns to years. *unit: seconds of one such unit. */
const char *report_time_unit(double seconds, double *unit);
/* Formats a time with three digits: "0.0314 s", "9.6 ms", "317 s", "36 min", "3.4 h", "3.2 days". "0 s" is printed for zero only.
 * Writes into buf and returns it. */
const char *report_duration(double seconds, char buf[32]);

/* Formats a rate that is `faster` times another one: "31% faster", "12.5% slower" (a step takes 12.5% longer), "2.4 times as
 * fast", "takes 3 times as long"; "as fast" if both differ by less than `least`. Writes into buf and returns it. */
const char *report_compared(double faster, double least, char buf[32]);

#endif
