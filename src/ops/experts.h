/* Products of experts: y = x W^T for each expert's rows, and the gradient of the matrices. Rows are sorted by expert; how many each
 * one has is known at run time only.
 *
 * Every expert with many rows is a product of all threads. The others are shared out, with scratch for each thread. Bits depend on
 * neither, nor on the number of an expert's rows: an element of y is a sum over `in`, of dw over the expert's rows. */
#ifndef LTRAIN_OPS_EXPERTS_H
#define LTRAIN_OPS_EXPERTS_H

#include "base/status.h"
#include "program/op.h"

struct cpu_stream;

struct experts_shape {
    int64_t rows, in, out;                         /* rows: of all experts */
    int32_t experts, first, count;                 /* matrices are those of experts [first, first + count) */
    int32_t per;                                   /* rows that are made of a gathered one */
    int32_t transposed;                            /* 1: matrices are stored [out,in]; 0: [in,out] */
    int32_t x_type, w_type, y_type, adds, gathers; /* gathers: enum experts_gather, of the gradient */
    const struct cpu_stream *stream;               /* NULL: one thread has scratch */
};
struct experts_shape experts_shape_of(const struct op_attrs *a);

/* Returns the bytes of `work` if `threads` threads compute. */
int64_t ops_experts_workspace(const struct experts_shape *s, int threads);
int64_t ops_experts_grad_workspace(const struct experts_shape *s, int threads);

/* The rows of experts. With an order, row i of a gathered matrix is row order[i] / per in memory. */
struct experts_rows {
    const int32_t *offsets; /* [experts+1]: each expert's first row */
    const int32_t *order;   /* [rows]; NULL: nothing is gathered */
};

/* Computes y (+)= x W^T (+ bias). ERR_CORRUPT, here and below: offsets that do not ascend from 0 to at most `rows`, or an order
 * that leaves the rows. */
enum status ops_experts(const struct experts_shape *s, void *y /* [rows,out] */, const void *x, const void *w,
                        const void *bias /* [count,out]; NULL: none */, const struct experts_rows *at, void *work);
/* Computes dw (+)= dy^T x and dbias. p [rows]: by pair, factors of dbias's addends; NULL: 1. */
enum status ops_experts_grad(const struct experts_shape *s, float *dw /* NULL: not wanted */,
                             float *dbias /* [count,out]; NULL: none */, const void *dy, const void *x, const float *p,
                             const struct experts_rows *at, void *work);

#endif
