/* Calls the CUDA attention functions in the way the tests call CPU kernels: arguments are copied to the simulated device and
 * results back. harness.h must be included first. */
#ifndef TEST_ATTENTION_DEVICE_H
#define TEST_ATTENTION_DEVICE_H

#include "attention/cuda_kernels.h"
#include "cudasim.h"

/* Tolerances: relative L2 errors against the fp64 oracle. Rounding to bf16 has a uniform error within half a unit: an RMS of
 * between 2^-9 / sqrt(3) and 2^-8 / sqrt(3) = 2.3e-3 relative to the value, and the same for a sum of such terms with random
 * signs. o has two such errors, from rounding P and from rounding o itself (2.3e-3 sqrt(2)); dv has the error of P; dq and dk
 * have the error of dS, whose terms p dp and p delta may cancel by up to sqrt(2). lse is computed in fp32 throughout: its error
 * is that of the CPU kernels plus 2 ulp of ex2 for each term; an absolute error of lse is a relative error of p, so a small lse
 * need not be more exact than an lse of 1. Measured errors relative to these tolerances, over all shapes of attention_sm80.c: at
 * most 0.74 of O, 0.12 of LSE, 0.76 of DV, 0.68 of DQK. */
#define TOLERANCE_O 3.3e-3
#define TOLERANCE_LSE 1e-6
#define TOLERANCE_DV 2.3e-3
#define TOLERANCE_DQK 3.3e-3

struct device_kernels {
    const char *name;
    struct attn_cuda cuda;
    enum status (*forward)(const struct op_attrs *, void *const *, const struct attn_cuda *, struct CUstream_st *);
    enum status (*backward)(const struct op_attrs *, void *const *, const struct attn_cuda *, struct CUstream_st *);
    int64_t (*workspace)(enum op_kind, const struct op_attrs *, const struct attn_cuda *);
};

static int64_t device_bytes(enum op_kind kind, const struct op_attrs *a, int i)
{
    const int64_t queries = a->attn.sq * a->attn.hq, keys = a->attn.sk * a->attn.hk, lse = queries * 4, row = a->attn.sq * 4;
    const int64_t q = queries * a->attn.head_dim, o = queries * op_value_dim(a);
    const int64_t k = keys * a->attn.head_dim, v = keys * op_value_dim(a);
    const int64_t forward[] = {o * op_arg_element_bytes(OP_ATTN_FWD, 0, a), lse, q * 2, k * 2, v * 2, row, row};
    const int64_t backward[] = {q * 4, k * 4, v * 4, q * 2, k * 2, v * 2, lse, lse, o * 2, row, row};
    return kind == OP_ATTN_FWD ? forward[i] : backward[i];
}

/* Runs one kernel on the simulated device. Every argument gets an allocation of exactly its size, so that an access one byte
 * beyond it is an error. Outputs and workspace, into which nothing is copied, hold NaN at first. */
static enum status device_call(const struct device_kernels *kernels, enum op_kind kind, const struct op_attrs *attrs,
                               void *const *arg)
{
    const int n = kind == OP_ATTN_FWD ? 8 : 12, outputs = kind == OP_ATTN_FWD ? 2 : 3;
    void *there[12];
    cudaStream_t stream;
    sim_device(kernels->cuda.capability,
               kernels->cuda.processors); /* the simulator refuses more shared memory than this device has */
    assert_int_equal(cudaStreamCreate(&stream), cudaSuccess);
    const unsigned long long before = sim_counted().enqueued;
    for (int i = 0; i < n; i++) {
        int64_t bytes = i < n - 1 ? device_bytes(kind, attrs, i) : kernels->workspace(kind, attrs, &kernels->cuda);
        assert_int_equal(cudaMalloc(&there[i], (size_t)bytes), cudaSuccess);
        if (i < n - 1 && (i >= outputs || attrs->attn.accumulate))
            assert_int_equal(cudaMemcpy(there[i], arg[i], (size_t)bytes, cudaMemcpyHostToDevice), cudaSuccess);
    }
    enum status st = (kind == OP_ATTN_FWD ? kernels->forward : kernels->backward)(attrs, there, &kernels->cuda, stream);
    assert_true(sim_enqueued(stream) == sim_counted().enqueued - before); /* nothing was enqueued on another stream */
    for (int i = 0; i < outputs && st == OK; i++)
        assert_int_equal(cudaMemcpy(arg[i], there[i], (size_t)device_bytes(kind, attrs, i), cudaMemcpyDeviceToHost), cudaSuccess);
    for (int i = 0; i < n; i++)
        cudaFree(there[i]);
    cudaStreamDestroy(stream);
    return st;
}

static void device_must(const struct device_kernels *kernels, enum op_kind kind, const struct problem *p, struct call *c)
{
    for (int i = 0; i < c->n; i++)
        c->arg[i] = c->b[i].data;
    if (device_call(kernels, kind, &p->attrs, c->arg) != OK || *sim_report())
        fail_msg("%s: %s", kernels->name, *sim_report() ? sim_report() : status_message());
}

static double *doubles_of(const struct buffer *b, enum dtype t, int64_t n)
{
    double *x = doubles(n);
    for (int64_t i = 0; i < n; i++)
        x[i] = t == BF16 ? bf16_to_float(((const bf16 *)(const void *)b->data)[i]) : ((const float *)(const void *)b->data)[i];
    return x;
}

/* Checks that queries without keys give exactly o = 0 and lse = -inf, never NaN. */
static void device_check_empty(const struct problem *p, const struct call *c)
{
    const int64_t hq = p->attrs.attn.hq, sq = p->attrs.attn.sq, d = op_value_dim(&p->attrs);
    for (int64_t i = 0; i < hq * sq; i++) {
        if (!isinf(p->x.lse[i]))
            continue;
        assert_true(((const float *)(const void *)c->b[1].data)[i] == -INFINITY);
        const bf16 *o = (const bf16 *)(const void *)c->b[0].data + (i % sq * hq + i / sq) * d;
        for (int64_t j = 0; j < d; j++)
            assert_true(bf16_to_float(o[j]) == 0);
    }
}

/* Checks the fp32 output o of every fourth call, and of every call with a soft cap. */
static void device_check_unrounded(const struct device_kernels *kernels, const struct call *rounded, const struct problem *p)
{
    const struct kernels cpu = {"twin", attn_portable_forward, attn_portable_backward, attn_portable_workspace};
    static int calls;
    struct problem other = *p;
    if (calls++ % 4 != 0 && p->attrs.attn.cap == 0.0f)
        return;
    other.attrs.attn.o_fp32 = 1;
    struct call c = forward_call(&other, &cpu, 0);
    device_must(kernels, OP_ATTN_FWD, &other, &c);
    check_unrounded(&c, rounded, p);
    call_free(&c);
}

/* Compares the forward's results with the oracle's and with those of the portable CPU kernel. */
static void device_check_forward(const struct device_kernels *kernels, const struct shape *s, const struct problem *p)
{
    const struct kernels cpu = {"twin", attn_portable_forward, attn_portable_backward, attn_portable_workspace};
    struct call c = forward_call(p, &cpu, 0), twin = forward_call(p, &cpu, 0);
    device_must(kernels, OP_ATTN_FWD, p, &c);
    check_error("o", kernels->name, s, error_of(c.b[0].data, BF16, p->x.o, p->no), TOLERANCE_O);
    check_error("lse", kernels->name, s, error_above(sqrt((double)p->nl), c.b[1].data, F32, p->x.lse, p->nl), TOLERANCE_LSE);
    device_check_empty(p, &c);
    device_check_unrounded(kernels, &c, p);
    call_run(&twin, attn_portable_forward, p);
    double *o = doubles_of(&twin.b[0], BF16, p->no), *lse = doubles_of(&twin.b[1], F32, p->nl);
    check_error("o beside the CPU twin", kernels->name, s, error_of(c.b[0].data, BF16, o, p->no), TOLERANCE_O);
    check_error("lse beside the CPU twin", kernels->name, s, error_above(sqrt((double)p->nl), c.b[1].data, F32, lse, p->nl),
                TOLERANCE_LSE);
    free(o);
    free(lse);
    call_free(&c);
    call_free(&twin);
}

/* Compares gradients with those of the portable CPU kernel, whose error test_attention limits to 2e-6. Inputs delta and lse are
 * the oracle's, rounded (round_oracle). Errors of dq and dk are relative to the size of the terms that cancel in them. */
static void device_check_backward(const struct device_kernels *kernels, const struct shape *s, const struct problem *p)
{
    const struct kernels cpu = {"twin", attn_portable_forward, attn_portable_backward, attn_portable_workspace};
    struct call c = backward_call(p, &cpu, 0), twin = backward_call(p, &cpu, 0);
    device_must(kernels, OP_ATTN_BWD, p, &c);
    call_run(&twin, attn_portable_backward, p);
    static const char *const names[] = {"dq", "dk", "dv"};
    for (int i = 0; i < 3; i++) {
        int64_t n = i == 0 ? p->nq : i == 1 ? p->nk : p->nv;
        double *want = doubles_of(&twin.b[i], F32, n), floor = i == 0 ? p->x.dq_terms : i == 1 ? p->x.dk_terms : 0;
        check_error(names[i], kernels->name, s, error_above(floor, c.b[i].data, F32, want, n),
                    i == 2 ? TOLERANCE_DV : TOLERANCE_DQK);
        free(want);
    }
    call_free(&c);
    call_free(&twin);
}

#endif
