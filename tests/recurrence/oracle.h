/* OP_SCAN and its gradient in fp64, token after token as defined. */
#ifndef LTRAIN_TESTS_RECURRENCE_ORACLE_H
#define LTRAIN_TESTS_RECURRENCE_ORACLE_H

#include "ops/ops_test.h"

/* Arguments and results of a scan, as in op_table.h; the gradients stand beside what they are of. */
struct oracle {
    struct op_attrs a;
    const int32_t *links;
    double *qkv, *g, *beta, *before, *skip; /* before and skip may be NULL */
    double *o, *after;
    double *d_out, *dstate; /* given; dstate becomes the gradient of `before` */
    double *dqkv, *dg, *dbeta, *dskip;
};

void oracle_scan(struct oracle *x);
/* Needs room for a state per token and head. */
void oracle_scan_grad(struct oracle *x);

#endif
