/* The output of `ltrain plan`. */
#ifndef LTRAIN_PLAN_REPORT_TEXT_H
#define LTRAIN_PLAN_REPORT_TEXT_H

#include "plan/report/explain.h"

/* Prints the table of `ltrain plan`: the verdict, memory against its limits and, if the plan fits, the parts of a step's time. s:
 * the plan's request, with the hardware if a machine is named. ERR_NOMEM. */
enum status plan_print(const struct plan *p, const struct model *m, const struct plan_request *s, FILE *f);
/* Prints a line for each length, if the run's sequences change their length. */
void plan_print_stretches(const struct plan *p, FILE *f);
/* Prints the plan's memory beside the least that any plan needs; the difference is the cost of addresses and of fetching ahead.
 * ERR_NOMEM. */
enum status plan_print_bounds(const struct plan *p, const struct model *m, FILE *f);
/* Prints how the sequences of a step are shared out, if that is not evident: masked tokens, groups of ranks without work, several
 * micro-batches; a line for each. */
void plan_print_sharing(const struct plan *p, FILE *f);
/* Prints a paragraph for each decision, and before them a table of the kinds of layers, if there are several. */
void explain_print(const struct plan *p, const struct explanation *e, FILE *f);

#endif
