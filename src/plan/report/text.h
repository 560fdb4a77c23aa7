/* What `ltrain plan` prints. */
#ifndef LTRAIN_PLAN_REPORT_TEXT_H
#define LTRAIN_PLAN_REPORT_TEXT_H

#include "plan/plan.h"

/* What `ltrain plan` says: the verdict, memory against its limits, and of what fits where a step's time goes. s: of the plan,
 * with the hardware if they name a machine. ERR_NOMEM. */
enum status plan_print(const struct plan *p, const struct model *m, const struct plan_request *s, FILE *f);
/* Memory beside what any plan would need: what addresses and fetching ahead cost. ERR_NOMEM. */
enum status plan_print_bounds(const struct plan *p, const struct model *m, FILE *f);
/* How the sequences of a step are shared out, where that is not evident: masked tokens, groups of ranks without work, several
 * micro-batches. A line each. */
void plan_print_sharing(const struct plan *p, FILE *f);
/* How many ranks have to share a node's host memory and drives, where the settings' machine says so; else 1. */
int plan_sharing(const struct plan *p, const struct plan_request *s);
/* The mesh and tiles to give with the longest length, where they are not the usual ones, as flags; else "". */
void plan_longest_flags(const struct plan *p, char buf[96]);
/* One line: residencies, alpha, tiles. PLAN_TEXT bytes are enough for either. */
enum { PLAN_TEXT = 512 };
void strategy_describe(const struct strategy *s, char *buf, int size);
void plan_describe(const struct plan *p, char *buf, int size);

#endif
