/* Changes to the settings that make a plan fit, or faster: each planned again to see what it comes to. */
#ifndef LTRAIN_PLAN_CHANGES_H
#define LTRAIN_PLAN_CHANGES_H

#include "plan/explain.h"
#include "plan/report.h"

#define CHANGES_MAX 24
#define CHANGES_SECONDS 10.0 /* long enough for people to wait */

struct change {
    char say[80];      /* the flags, as one types them */
    int gives_more;    /* more memory, drives or devices than there are now */
    int shortens;      /* a shorter sequence */
    double seconds;    /* a step's */
    double per_second; /* tokens */
    int64_t arena[TIERS];
    char strategy[200]; /* plan_describe */
};

struct changes {
    int n;
    struct change by_cost[CHANGES_MAX]; /* those that help: what is there used otherwise before more, then the fastest first */
    int tried;
    int all_tried; /* 0: time ran out */
};

/* Of a plan that does not fit: changes that do. Of one that fits: those that make it at least 2% faster. Starts no plan after so
 * many seconds; tries what is likely to help first. */
enum status changes_find(const struct plan *p, const struct model *m, const struct settings *s, double seconds,
                         struct changes *out);

/* Whether there is something to change: it does not fit, or compute waits or computes twice. ERR_NOMEM. */
enum status changes_wanted(const struct plan *p, const struct model *m, int *wanted);

/* The three cheapest, a line each. */
void changes_print(const struct plan *p, const struct changes *c, FILE *f);

/* The plan as JSON, for `ltrain plan --json` and a run's plan.json: everything that the table says. c: NULL, or what could be
 * changed; e: NULL, or the decisions. ERR_IO, ERR_NOMEM. */
enum status plan_write_json(const struct plan *p, const struct model *m, const struct changes *c, const struct explanation *e,
                            FILE *f);

/* A refusal as an ERR_NOFIT failure: which tier, the excess, and the cheapest change that fits. */
enum status changes_refuse(const struct plan *p, const struct settings *s, const struct changes *c);

#endif
