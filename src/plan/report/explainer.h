/* State and functions that the explanations of all decisions share. Private to explain.c. */
#ifndef LTRAIN_PLAN_REPORT_EXPLAINER_H
#define LTRAIN_PLAN_REPORT_EXPLAINER_H

#include "plan/report/explain.h"
#include "plan/report/figures.h"
#include "plan/search/price.h"

struct explainer {
    const struct plan *p;
    const struct model *m;
    const struct plan_request *s; /* request with the plan's grid fixed */
    struct report report;
    struct explanation *out;
};

/* Returns the problem that the plan solves, with a request of its own. */
struct problem explainer_problem(const struct plan *p, const struct model *m, const struct plan_request *s);
/* Appends a decision to x->out, without alternatives. given: the settings made it. */
struct decision *explainer_decide(struct explainer *x, const char *what, const char *flag, const char *chosen, int given);
/* Inserts an alternative into the decision's list: those that fit come first, by time, then the others. */
void explainer_keep(struct decision *d, const struct alternative *a);
/* Adds an alternative that has been tried: its candidate c, and the seconds of its step. */
void explainer_add(struct decision *d, const struct candidate *c, double seconds, const char *say);
/* Tries an alternative (search_price) and adds it. */
enum status explainer_try(struct explainer *x, struct decision *d, const struct plan_request *s, const struct strategy *strategy,
                          const char *say);

#endif
