/* A plan as JSON. */
#ifndef LTRAIN_PLAN_REPORT_JSON_H
#define LTRAIN_PLAN_REPORT_JSON_H

#include "plan/report/advise.h"
#include "plan/report/explain.h"

/* Writes the plan as JSON, for `ltrain plan --json` and a run's plan.json: everything that the table says (docs/plan-json.md). s:
 * the plan's request; advice: NULL, or possible changes; e: NULL, or the decisions. ERR_IO, ERR_NOMEM. */
enum status plan_write_json(const struct plan *p, const struct model *m, const struct plan_request *s,
                            const struct advice *advice, const struct explanation *e, FILE *f);

#endif
