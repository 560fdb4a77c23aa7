/* What `ltrain plan` prints. */
#ifndef LTRAIN_PLAN_REPORT_TEXT_H
#define LTRAIN_PLAN_REPORT_TEXT_H

#include "plan/plan.h"

/* The table of `ltrain plan`: the verdict, memory against its limits, and where a step's time goes if the plan fits. s: the
 * plan's, with the hardware if a machine is named. ERR_NOMEM. */
enum status plan_print(const struct plan *p, const struct model *m, const struct plan_request *s, FILE *f);
/* Where the run's sequences change their length: a line for each length. */
void plan_print_stretches(const struct plan *p, FILE *f);
/* Memory beside what any plan would need: what addresses and fetching ahead cost. ERR_NOMEM. */
enum status plan_print_bounds(const struct plan *p, const struct model *m, FILE *f);
/* How the sequences of a step are shared out, where that is not evident: masked tokens, groups of ranks without work, several
 * micro-batches; a line for each. */
void plan_print_sharing(const struct plan *p, FILE *f);

#endif
