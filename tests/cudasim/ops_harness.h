/* Runs an op's CUDA kernel and its CPU twin on the same arguments and compares the results. The same tests run in the simulator
 * (tests/cudasim) and on a GPU (tools/gpu-check.sh, where cmocka is absent): so they use no cmocka, and a failure ends the
 * process. */
#ifndef LTRAIN_TESTS_OPS_HARNESS_H
#define LTRAIN_TESTS_OPS_HARNESS_H

#include "ops/cuda_ops.h"
#include "ops/ops.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Way to compare an argument's result with the CPU twin's. EXACT: bit for bit, NaN only with NaN. CLOSE: every element within
 * absolute + relative * |want|. SKIP: not compared (scratch memory). */
enum compare { EXACT, CLOSE, SKIP };
enum arg_mode { IN, OUT, INOUT };

struct twin_arg {
    void *data; /* host memory; NULL: the argument is absent. A run does not change it */
    int64_t n;
    enum dtype dtype;
    int64_t element_bytes;
    enum arg_mode mode;
    enum compare compare;
    double absolute, relative;
};

struct twin_case {
    enum op_kind kind;
    struct op_attrs attrs;
    int args;
    struct twin_arg arg[OP_MAX_ARGS];
    int few;        /* 1: two runs and a shifted one only, the second without the simulator's checks of accesses */
    char what[160]; /* for messages */
};

/* Make arrays that live until arrays_free(). Random elements are normally distributed; every call draws other numbers, which are
 * the same in every run of the program. */
void *array_new(int64_t bytes);
void *array_random(int64_t n, enum dtype dtype, double scale);
int32_t *array_indices(int64_t n, int32_t first, int32_t count); /* values are uniform in [first, first + count) */
void arrays_free(void);

void case_start(struct twin_case *c, enum op_kind kind, const char *format, ...) __attribute__((format(printf, 3, 4)));
struct twin_arg *case_arg(struct twin_case *c, void *data, int64_t n, enum dtype dtype, enum arg_mode mode);
struct twin_arg *case_bytes(struct twin_case *c, void *data, int64_t bytes, enum arg_mode mode);
void case_absent(struct twin_case *c);
void case_work(struct twin_case *c);
/* Declares that a result, computed in fp32 and stored as `dtype`, may differ from the twin's by `ulps` units of 2^-24 relative
 * plus `absolute`; a bf16 result may also be rounded to the other side, which is one unit of 2^-8. */
void close_to(struct twin_arg *a, double ulps, double absolute);

/* Runs the twin once and the kernel several times: with all arguments aligned to 16 bytes, then with one argument after another
 * misaligned, with different seeds of the simulator. Fails unless all results agree as declared, all aligned runs give the same
 * bits, inputs are unchanged, no guard byte beside an argument was written and, in the simulator, everything was enqueued on the
 * given stream. */
void case_run(struct twin_case *c);

/* Does the same for functions outside the op table: `call` gets device addresses, `want` holds the expected value of arg[out]. */
typedef enum status device_call(void *const *arg, void *stream, void *context);
void case_run_call(struct twin_case *c, device_call *call, void *context, int out, const void *want);

_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
int64_t cases_run(void);

/* Run the tests of one group each; called by ops_main.c. */
void test_moves(void);
void test_embedding(void);
void test_elements(void);
void test_heads(void);
void test_rope(void);
void test_norms(void);
void test_columns(void);
void test_loss(void);
void test_update(void);
void test_routes(void);
void test_pairs(void);
void test_travel(void);
void test_experts(void);
void test_convolutions(void);
void test_decays(void);
void test_scans(void);
void test_summaries(void);

#endif
