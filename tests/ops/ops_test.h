/* Helpers that the tests of ops share: tensors with an fp64 view, and running a kernel so that threads, alignment and stray
 * writes are checked. */
#ifndef LTRAIN_TESTS_OPS_TEST_H
#define LTRAIN_TESTS_OPS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ops/ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A tensor of n elements, as stored and as exact fp64 values. Freed by tensors_free(). */
struct tensor {
    int64_t n;
    enum dtype dtype;
    void *store;
    double *val;
};

struct tensor *tensor_new(int64_t n, enum dtype dtype); /* every byte is 0xff: NaN in floats, -1 in integers */
struct tensor *tensor_random(int64_t n, enum dtype dtype, double scale);
struct tensor *tensor_copy(const struct tensor *t);
void tensor_set(struct tensor *t, int64_t i, double value); /* rounds to the dtype */
void tensor_load(struct tensor *t);                         /* sets the fp64 values from the stored elements */
void tensors_number(uint64_t first); /* starts random streams anew: a case's tensors depend on no case before it */
int tensors_free(void **state);      /* frees all tensors: the teardown of every test */

enum arg_mode { IN, OUT, INOUT };

struct op_case {
    enum op_kind kind;
    struct op_attrs attrs;
    int args, work; /* work: number of the scratch argument, counted from 1; 0: none */
    struct {
        void *data; /* memory of the argument; results are copied back here unless the mode is IN */
        int64_t bytes, align;
        enum arg_mode mode;
    } arg[OP_MAX_ARGS];
};

void case_start(struct op_case *c, enum op_kind kind);
void case_tensor(struct op_case *c, struct tensor *t, enum arg_mode mode); /* tensor NULL: the argument is absent */
void case_bytes(struct op_case *c, void *data, int64_t bytes, int64_t align, enum arg_mode mode);
void case_work(struct op_case *c); /* adds `work`: the op's workspace bytes, filled with NaN */

/* Runs the kernel with 1, 2, 3 and 8 threads on copies of the arguments at several alignments; fails unless all outputs have
 * identical bits, inputs are unchanged and no byte outside the arguments was written. Leaves the results in the arguments (and in
 * the tensors' val). */
void case_run(struct op_case *c);

/* Returns sqrt(sum (a - b)^2 / sum b^2). */
double norm_error(const double *a, const double *b, int64_t n);
void check_error(const char *what, const double *got, const double *want, int64_t n, double limit);

/* Norm-wise tolerances: fp32 arithmetic with a few roundings per element and pairwise-like sums of up to some thousand terms;
 * bf16 storage rounds each result by at most 2^-8 = 3.9e-3 relative. */
#define TOL_F32 1e-6
#define TOL_BF16 4e-3
static inline double tol(enum dtype t)
{
    return t == BF16 ? TOL_BF16 : TOL_F32;
}

/* Computes the gradient of f(x, ctx) at x[0..n) by central differences of fourth order in fp64; error about 1e-10. */
void finite_difference(double (*f)(const double *x, void *ctx), void *ctx, double *x, int64_t n, double *grad);

#endif
