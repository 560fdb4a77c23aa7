/* Alternatives to a plan's decisions: each decision is changed alone, all others stay. */
#ifndef LTRAIN_PLAN_REPORT_EXPLAIN_H
#define LTRAIN_PLAN_REPORT_EXPLAIN_H

#include "plan/plan.h"
#include "plan/report/kinds.h"

enum { EXPLAIN_DECISIONS = 16, EXPLAIN_ALTERNATIVES = 7 };

struct alternative {
    char say[128];
    double seconds;       /* seconds of a step */
    int64_t bytes[TIERS]; /* bytes needed */
    int fits;
};

struct decision {
    const char *what;
    const char *flag; /* option that sets the decision; "": no single option does */
    char chosen[128];
    char note[512]; /* cost of the chosen way; may be empty */
    int given;      /* 1: the settings fix the decision */
    int n;
    /* alternatives: first those that fit, the fastest first, then the others in the order of trials */
    struct alternative by_cost[EXPLAIN_ALTERNATIVES];
};

struct explanation {
    double seconds; /* seconds of the plan's step, found like an alternative's (search_price) */
    int n;
    struct decision decision[EXPLAIN_DECISIONS];
    int n_kinds; /* number of kinds of layers */
    struct layer_kind kind[MODEL_KINDS];
};

/* Tries every alternative as the search does (search_price) or, of stages, by a brief plan of them all. ERR_NOMEM. */
enum status explain_make(const struct plan *p, const struct model *m, const struct plan_request *s, struct explanation *out);

#endif
