/* Makes attention problems and calls kernels on guarded buffers. */
#ifndef TEST_ATTENTION_HARNESS_H
#define TEST_ATTENTION_HARNESS_H

#include "attention/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <omp.h>

#include "oracle.h"

/* Set with sanitizers, which make everything some 30 times slower: repetitions and the largest shapes are skipped then. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

enum mask_kind { FULL, CAUSAL, DOCUMENTS, WINDOW, EMPTY_ROWS, EMPTY_ALL };

struct kernels {
    const char *name;
    attention_kernel *forward, *backward;
    int64_t (*workspace)(enum op_kind, const struct op_attrs *, int threads);
    int bf16_only; /* 1: the kernels take bf16 only, and round P and its gradient to bf16 */
};

/* A buffer between two guards, at `offset` bytes from 64-byte alignment. */
#define GUARD 256
struct buffer {
    unsigned char *base, *data;
    int64_t bytes;
};

static struct buffer buffer_make(int64_t bytes, int offset, int fill)
{
    struct buffer b = {.bytes = bytes};
    b.base = aligned_alloc(64, (size_t)round_up(bytes + 2 * GUARD + 64, 64));
    assert_non_null(b.base);
    b.data = b.base + GUARD + offset;
    memset(b.base, 0xa5, (size_t)(bytes + 2 * GUARD + 64));
    memset(b.data, fill, (size_t)bytes);
    return b;
}

static void buffer_check(const struct buffer *b)
{
    for (const unsigned char *p = b->base; p < b->data; p++)
        assert_int_equal(*p, 0xa5);
    for (const unsigned char *p = b->data + b->bytes; p < b->base + b->bytes + 2 * GUARD + 64; p++)
        assert_int_equal(*p, 0xa5);
}

static uint64_t seed = 1;
static double uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 11) / 9007199254740992.0 * 2 - 1;
}

static double gauss(void)
{
    return (uniform() + uniform() + uniform()) * 1.0;
}

struct shape {
    int64_t sq, sk, q0, k0;
    int32_t hq, hk, d;
    enum mask_kind mask;
    enum dtype dtype;
    double gain; /* factor of q, which makes scores of about +-gain */
    float cap;
    int32_t w; /* dimension of v and o; 0: equal to d */
};

struct problem {
    struct op_attrs attrs;
    int threads;
    const atomic_int *stop; /* NULL: calls are never stopped */
    struct oracle x;
    int32_t *lo, *hi;
    int64_t nq, nk, nl, no, nv; /* numbers of elements of q, k, lse, o, v */
};

static double *doubles(int64_t n)
{
    double *p = calloc((size_t)n + 1, 8);
    assert_non_null(p);
    return p;
}

static double stored(double x, enum dtype t)
{
    return t == F32 ? (float)x : bf16_to_float(bf16_from_float((float)x));
}

static void fill_mask(const struct shape *s, int32_t *lo, int32_t *hi)
{
    int64_t document = 0, length = 0, next = 0;
    for (int64_t i = 0; i < s->sq; i++) {
        int64_t q = s->q0 + i, from = 0, to = q;
        if (s->mask == FULL)
            to = s->k0 + s->sk - 1;
        if (s->mask == DOCUMENTS) {
            static const int64_t lengths[] = {5, 1, 200, 1, 1, 33, 64, 190, 2};
            while (q >= next)
                document = next, length = lengths[next % 9], next += length;
            from = document;
        }
        if (s->mask == WINDOW)
            from = q - 49;
        if (s->mask == EMPTY_ROWS) { /* rows before their first key, then padding between documents */
            from = q / 40 * 40;
            to = q % 40 < 9 ? from - 1 : q - 9;
        }
        if (s->mask == EMPTY_ALL)
            from = to = s->k0 + s->sk + 7;
        lo[i] = (int32_t)from;
        hi[i] = (int32_t)to;
    }
}

static struct problem problem_make(const struct shape *s)
{
    struct problem p = {0};
    p.attrs.attn.sq = s->sq, p.attrs.attn.sk = s->sk, p.attrs.attn.q0 = s->q0, p.attrs.attn.k0 = s->k0;
    p.attrs.attn.hq = s->hq, p.attrs.attn.hk = s->hk, p.attrs.attn.head_dim = s->d;
    p.attrs.attn.dtype = s->dtype, p.threads = omp_get_max_threads();
    p.attrs.attn.scale = (float)(1 / sqrt(s->d));
    p.attrs.attn.cap = s->cap;
    p.attrs.attn.value_dim = s->w;
    p.nq = s->sq * s->hq * s->d, p.nk = s->sk * s->hk * s->d, p.nl = s->sq * s->hq;
    p.no = p.nl * op_value_dim(&p.attrs), p.nv = s->sk * s->hk * op_value_dim(&p.attrs);
    p.x = (struct oracle){doubles(p.nq),
                          doubles(p.nk),
                          doubles(p.nv),
                          doubles(p.no),
                          doubles(p.no),
                          doubles(p.nl),
                          doubles(p.nq),
                          doubles(p.nk),
                          doubles(p.nv),
                          NULL,
                          NULL,
                          0,
                          0};
    for (int64_t i = 0; i < max_i64(p.nq, p.no); i++) {
        if (i < p.nq)
            p.x.q[i] = stored(gauss() * s->gain, s->dtype);
        if (i < p.no)
            p.x.go[i] = stored(gauss(), s->dtype);
    }
    for (int64_t i = 0; i < max_i64(p.nk, p.nv); i++) {
        if (i < p.nk)
            p.x.k[i] = stored(gauss(), s->dtype);
        if (i < p.nv)
            p.x.v[i] = stored(gauss(), s->dtype);
    }
    p.lo = calloc((size_t)s->sq + 1, 4), p.hi = calloc((size_t)s->sq + 1, 4);
    fill_mask(s, p.lo, p.hi);
    p.x.lo = p.lo, p.x.hi = p.hi;
    oracle_forward(&p.attrs, &p.x);
    return p;
}

static void problem_free(struct problem *p)
{
    double *all[] = {p->x.q, p->x.k, p->x.v, p->x.o, p->x.go, p->x.lse, p->x.dq, p->x.dk, p->x.dv};
    for (int i = 0; i < 9; i++)
        free(all[i]);
    free(p->lo);
    free(p->hi);
}

static struct buffer input(const double *x, int64_t n, enum dtype t, int offset)
{
    struct buffer b = buffer_make(n * dtype_size(t), offset, 0);
    for (int64_t i = 0; i < n; i++)
        if (t == F32)
            ((float *)(void *)b.data)[i] = (float)x[i];
        else
            ((bf16 *)(void *)b.data)[i] = bf16_from_float((float)x[i]);
    return b;
}

/* Returns the norm of the error divided by the norm of `want` or, if larger, by `floor`: if all terms cancel, as for a single
 * key, only roundings are left. */
static double error_above(double floor, const void *got, enum dtype t, const double *want, int64_t n)
{
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        double g = t == F32 ? (double)((const float *)got)[i] : bf16_to_float(((const bf16 *)got)[i]);
        if (isinf(want[i]) && g == want[i])
            continue;
        diff += (g - want[i]) * (g - want[i]);
        norm += want[i] * want[i];
    }
    return diff == 0 ? 0 : sqrt(diff) / fmax(sqrt(norm), floor);
}

static double error_of(const void *got, enum dtype t, const double *want, int64_t n)
{
    return error_above(0, got, t, want, n);
}

static void check_error(const char *what, const char *kernel, const struct shape *s, double error, double limit)
{
    if (!(error <= limit))
        fail_msg("%s of %s: error %.2e > %.2e (sq %d sk %d q0 %d k0 %d heads %d/%d dim %d mask %d %s)", what, kernel, error,
                 limit, (int)s->sq, (int)s->sk, (int)s->q0, (int)s->k0, s->hq, s->hk, s->d, (int)s->mask, dtype_name(s->dtype));
}

#define MAX_BUFFERS 12
struct call {
    struct buffer b[MAX_BUFFERS], copy[MAX_BUFFERS];
    void *arg[MAX_BUFFERS];
    int n, outputs;
};

/* Runs the kernel on the given buffers (outputs first, work last) and checks that nothing else changed. */
static void call_run(struct call *c, attention_kernel *kernel, const struct problem *p)
{
    for (int i = 0; i < c->n; i++) {
        c->arg[i] = c->b[i].data;
        c->copy[i] = buffer_make(c->b[i].bytes, 0, 0);
        memcpy(c->copy[i].data, c->b[i].data, (size_t)c->b[i].bytes);
    }
    kernel(&p->attrs, c->arg, &(struct cpu_stream){.threads = p->threads, .stop = p->stop});
    for (int i = 0; i < c->n; i++) {
        buffer_check(&c->b[i]);
        if (i >= c->outputs && i < c->n - 1)
            assert_memory_equal(c->copy[i].data, c->b[i].data, c->b[i].bytes);
        free(c->copy[i].base);
    }
}

static void call_free(struct call *c)
{
    for (int i = 0; i < c->n; i++)
        free(c->b[i].base);
}

/* Makes a forward call. Buffers are filled with 0xff, which is NaN in every type, so that outputs which are not written, and
 * scratch memory that is read before it is written, are noticed. */
static struct call forward_call(const struct problem *p, const struct kernels *kernels, int offset)
{
    enum dtype t = p->attrs.attn.dtype;
    struct call c = {.n = 8, .outputs = 2};
    c.b[0] = buffer_make(p->no * op_arg_element_bytes(OP_ATTN_FWD, 0, &p->attrs), offset, 0xff);
    c.b[1] = buffer_make(p->nl * 4, offset, 0xff);
    c.b[2] = input(p->x.q, p->nq, t, offset);
    c.b[3] = input(p->x.k, p->nk, t, offset);
    c.b[4] = input(p->x.v, p->nv, t, offset);
    c.b[5] = buffer_make(p->attrs.attn.sq * 4, offset, 0);
    memcpy(c.b[5].data, p->lo, (size_t)p->attrs.attn.sq * 4);
    c.b[6] = buffer_make(p->attrs.attn.sq * 4, offset, 0);
    memcpy(c.b[6].data, p->hi, (size_t)p->attrs.attn.sq * 4);
    c.b[7] = buffer_make(kernels->workspace(OP_ATTN_FWD, &p->attrs, p->threads), offset, 0xff);
    return c;
}

/* Checks that the fp32 o of one call, when rounded, equals the bf16 o of the other, and that lse is the same. */
static void check_unrounded(const struct call *fp32, const struct call *rounded, const struct problem *p)
{
    for (int64_t i = 0; i < p->no; i++)
        assert_int_equal(bf16_from_float(((const float *)(const void *)fp32->b[0].data)[i]),
                         ((const bf16 *)(const void *)rounded->b[0].data)[i]);
    assert_memory_equal(fp32->b[1].data, rounded->b[1].data, p->nl * 4);
}

/* Returns rowsum(do * o) in the layout that the kernel reads. */
static struct buffer delta_input(const struct problem *p, int offset)
{
    const int64_t d = op_value_dim(&p->attrs);
    struct buffer b = buffer_make(p->nl * 4, offset, 0);
    for (int64_t i = 0; i < p->nl; i++)
        ((float *)(void *)b.data)[i] = (float)oracle_dot(p->x.o + i * d, p->x.go + i * d, d);
    return b;
}

/* Makes a backward call. delta and lse are the oracle's, rounded; dk and dv start as 1 if the call adds to them. */
static struct call backward_call(const struct problem *p, const struct kernels *kernels, int offset)
{
    enum dtype t = p->attrs.attn.dtype;
    struct call c = {.n = 12, .outputs = 3};
    c.b[0] = buffer_make(p->nq * 4, offset, 0xff);
    for (int i = 1; i < 3; i++) {
        const int64_t n = i == 1 ? p->nk : p->nv;
        c.b[i] = buffer_make(n * 4, offset, 0xff);
        for (int64_t j = 0; j < n && p->attrs.attn.accumulate; j++)
            ((float *)(void *)c.b[i].data)[j] = 1;
    }
    c.b[3] = input(p->x.q, p->nq, t, offset);
    c.b[4] = input(p->x.k, p->nk, t, offset);
    c.b[5] = input(p->x.v, p->nv, t, offset);
    c.b[6] = delta_input(p, offset);
    c.b[7] = input(p->x.lse, p->nl, F32, offset);
    c.b[8] = input(p->x.go, p->no, t, offset);
    c.b[9] = buffer_make(p->attrs.attn.sq * 4, offset, 0);
    memcpy(c.b[9].data, p->lo, (size_t)p->attrs.attn.sq * 4);
    c.b[10] = buffer_make(p->attrs.attn.sq * 4, offset, 0);
    memcpy(c.b[10].data, p->hi, (size_t)p->attrs.attn.sq * 4);
    c.b[11] = buffer_make(kernels->workspace(OP_ATTN_BWD, &p->attrs, p->threads), offset, 0xff);
    return c;
}

static void round_oracle(struct problem *p)
{
    for (int64_t i = 0; i < p->no; i++)
        p->x.o[i] = stored(p->x.o[i], p->attrs.attn.dtype);
    for (int64_t i = 0; i < p->nl; i++)
        p->x.lse[i] = (float)p->x.lse[i];
}

#endif
