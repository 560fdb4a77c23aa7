/* Attention against its definition in fp64, over masks, shapes, dtypes, threads and addresses. */
#include "attention/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <omp.h>

#include "oracle.h"

/* Relative L2 errors. fp32: measured at most 4e-7 for o and 9e-7 for gradients at these sizes (rounding of sums of up to 700 terms, and of
 * lse, about 1e-7 of p per unit of lse). bf16: inputs are exact in the oracle, gradients fp32 as before; only o is rounded to 8 bits,
 * uniformly within half a unit: between 2^-9 / sqrt(3) and 2^-8 / sqrt(3) of it. */
#define TOLERANCE_O 1e-6
#define TOLERANCE_O_BF16 2.3e-3
#define TOLERANCE_LSE 1e-6
#define TOLERANCE_GRAD 2e-6

enum mask_kind { FULL, CAUSAL, DOCUMENTS, WINDOW, EMPTY_ROWS, EMPTY_ALL };

struct kernels {
    const char *name;
    op_kernel *forward, *backward;
    int64_t (*workspace)(enum op_kind, const struct op_attrs *, int);
};

static struct kernels implementation[4];
static int implementations;

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
    double gain; /* of q: scores of about +-gain */
};

struct problem {
    struct op_attrs attrs;
    struct oracle x;
    int32_t *lo, *hi;
    int64_t nq, nk, nl; /* elements of q, k, lse */
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
    p.attrs.attn.dtype = s->dtype;
    p.attrs.attn.scale = (float)(1 / sqrt(s->d));
    p.nq = s->sq * s->hq * s->d, p.nk = s->sk * s->hk * s->d, p.nl = s->sq * s->hq;
    p.x = (struct oracle){doubles(p.nq), doubles(p.nk), doubles(p.nk), doubles(p.nq), doubles(p.nq), doubles(p.nl), doubles(p.nq),
        doubles(p.nk), doubles(p.nk), NULL, NULL, 0, 0};
    for (int64_t i = 0; i < p.nq; i++) {
        p.x.q[i] = stored(gauss() * s->gain, s->dtype);
        p.x.go[i] = stored(gauss(), s->dtype);
    }
    for (int64_t i = 0; i < p.nk; i++) {
        p.x.k[i] = stored(gauss(), s->dtype);
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

/* Relative to the norm of `want`, or to `floor` if that is larger (where all terms cancel, as for a lone key, rounding is all there is). */
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
        fail_msg("%s of %s: error %.2e > %.2e (sq %d sk %d q0 %d k0 %d heads %d/%d dim %d mask %d %s)", what, kernel, error, limit,
            (int)s->sq, (int)s->sk, (int)s->q0, (int)s->k0, s->hq, s->hk, s->d, (int)s->mask, dtype_name(s->dtype));
}

#define MAX_BUFFERS 12
struct call {
    struct buffer b[MAX_BUFFERS], copy[MAX_BUFFERS];
    void *arg[MAX_BUFFERS];
    int n, outputs;
};

/* Runs the kernel on the given buffers (outputs first, work last) and checks that nothing else changed. */
static void call_run(struct call *c, op_kernel *kernel, const struct op_attrs *attrs)
{
    for (int i = 0; i < c->n; i++) {
        c->arg[i] = c->b[i].data;
        c->copy[i] = buffer_make(c->b[i].bytes, 0, 0);
        memcpy(c->copy[i].data, c->b[i].data, (size_t)c->b[i].bytes);
    }
    kernel(attrs, c->arg);
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

/* 0xff everywhere is NaN: an output not written, or scratch read before it is written, shows. */
static struct call forward_call(const struct problem *p, const struct kernels *kernels, int threads, int offset)
{
    enum dtype t = p->attrs.attn.dtype;
    struct call c = {.n = 8, .outputs = 2};
    c.b[0] = buffer_make(p->nq * dtype_size(t), offset, 0xff);
    c.b[1] = buffer_make(p->nl * 4, offset, 0xff);
    c.b[2] = input(p->x.q, p->nq, t, offset);
    c.b[3] = input(p->x.k, p->nk, t, offset);
    c.b[4] = input(p->x.v, p->nk, t, offset);
    c.b[5] = buffer_make(p->attrs.attn.sq * 4, offset, 0);
    memcpy(c.b[5].data, p->lo, (size_t)p->attrs.attn.sq * 4);
    c.b[6] = buffer_make(p->attrs.attn.sq * 4, offset, 0);
    memcpy(c.b[6].data, p->hi, (size_t)p->attrs.attn.sq * 4);
    c.b[7] = buffer_make(kernels->workspace(OP_ATTN_FWD, &p->attrs, threads), offset, 0xff);
    return c;
}

/* o and lse are the oracle's, rounded; dk and dv start as 1 where they are accumulated into. */
static struct call backward_call(const struct problem *p, const struct kernels *kernels, int threads, int offset)
{
    enum dtype t = p->attrs.attn.dtype;
    struct call c = {.n = 12, .outputs = 3};
    c.b[0] = buffer_make(p->nq * 4, offset, 0xff);
    for (int i = 1; i < 3; i++) {
        c.b[i] = buffer_make(p->nk * 4, offset, 0xff);
        for (int64_t j = 0; j < p->nk && p->attrs.attn.accumulate; j++)
            ((float *)(void *)c.b[i].data)[j] = 1;
    }
    c.b[3] = input(p->x.q, p->nq, t, offset);
    c.b[4] = input(p->x.k, p->nk, t, offset);
    c.b[5] = input(p->x.v, p->nk, t, offset);
    c.b[6] = input(p->x.o, p->nq, t, offset);
    c.b[7] = input(p->x.lse, p->nl, F32, offset);
    c.b[8] = input(p->x.go, p->nq, t, offset);
    c.b[9] = buffer_make(p->attrs.attn.sq * 4, offset, 0);
    memcpy(c.b[9].data, p->lo, (size_t)p->attrs.attn.sq * 4);
    c.b[10] = buffer_make(p->attrs.attn.sq * 4, offset, 0);
    memcpy(c.b[10].data, p->hi, (size_t)p->attrs.attn.sq * 4);
    c.b[11] = buffer_make(kernels->workspace(OP_ATTN_BWD, &p->attrs, threads), offset, 0xff);
    return c;
}

static void round_oracle(struct problem *p)
{
    for (int64_t i = 0; i < p->nq; i++)
        p->x.o[i] = stored(p->x.o[i], p->attrs.attn.dtype);
    for (int64_t i = 0; i < p->nl; i++)
        p->x.lse[i] = (float)p->x.lse[i];
}

static void check_shape(const struct shape *s)
{
    struct problem p = problem_make(s);
    const int threads = omp_get_max_threads();
    const double grow = s->gain > 4 ? s->gain : 1; /* scores, and so the rounding of exponents, grow with it */
    for (int i = 0; i < implementations; i++) {
        const struct kernels *k = &implementation[i];
        struct call c = forward_call(&p, k, threads, 4);
        call_run(&c, k->forward, &p.attrs);
        check_error("o", k->name, s, error_of(c.b[0].data, s->dtype, p.x.o, p.nq),
            s->dtype == F32 ? TOLERANCE_O * grow : TOLERANCE_O_BF16);
        check_error("lse", k->name, s, error_of(c.b[1].data, F32, p.x.lse, p.nl), TOLERANCE_LSE);
        call_free(&c);
    }
    round_oracle(&p);
    oracle_backward(&p.attrs, &p.x);
    for (int i = 0; i < implementations; i++) {
        const struct kernels *k = &implementation[i];
        struct call c = backward_call(&p, k, threads, 8);
        call_run(&c, k->backward, &p.attrs);
        check_error("dq", k->name, s, error_above(p.x.dq_terms, c.b[0].data, F32, p.x.dq, p.nq), TOLERANCE_GRAD * grow);
        check_error("dk", k->name, s, error_above(p.x.dk_terms, c.b[1].data, F32, p.x.dk, p.nk), TOLERANCE_GRAD * grow);
        check_error("dv", k->name, s, error_of(c.b[2].data, F32, p.x.dv, p.nk), TOLERANCE_GRAD * grow);
        call_free(&c);
    }
    problem_free(&p);
}

/* The edges of 4, 24, 32, 64 and 192 row tiles, and several of each. */
static const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 23, 24, 25, 31, 33, 47, 48, 49, 63, 64, 65, 191, 192, 193, 383, 384, 385, 577};

static void sizes_causal(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int t = F32; t <= BF16; t++)
            check_shape(&(struct shape){sizes[i], sizes[i], 0, 0, 2, 1, 32, CAUSAL, (enum dtype)t, 1});
}

static void sizes_full_rectangular(void **state)
{
    (void)state;
    const int64_t few[] = {1, 5, 24, 191, 193, 400};
    for (size_t i = 0; i < sizeof few / sizeof *few; i++)
        for (size_t j = 0; j < sizeof few / sizeof *few; j++)
            check_shape(&(struct shape){few[i], few[j], 0, 0, 1, 1, 40, FULL, F32, 1});
}

static void head_dims(void **state)
{
    (void)state;
    for (int32_t d = 32; d <= 256; d += d < 128 ? 8 : 64)
        check_shape(&(struct shape){211, 211, 0, 0, 2, 2, d, CAUSAL, d % 16 ? BF16 : F32, 1});
}

static void grouped_heads(void **state)
{
    (void)state;
    const int32_t heads[][2] = {{1, 1}, {3, 3}, {4, 1}, {8, 2}, {7, 1}, {14, 2}};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        check_shape(&(struct shape){220, 220, 0, 0, heads[i][0], heads[i][1], 32, CAUSAL, F32, 1});
}

/* Chunks of queries against blocks of keys, before, across and behind the diagonal. */
static void offsets(void **state)
{
    (void)state;
    const int64_t at[][4] = {{100, 300, 200, 0}, {300, 100, 0, 200}, {64, 64, 0, 64}, {64, 64, 63, 126}, {200, 256, 1000, 800},
        {193, 200, 3000000, 2999900}, {1, 500, 499, 0}, {500, 1, 0, 250}, {256, 192, 300, 430}};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        for (int m = FULL; m <= EMPTY_ALL; m++)
            if (m != DOCUMENTS || at[i][2] < 2000)
                check_shape(&(struct shape){at[i][0], at[i][1], at[i][2], at[i][3], 2, 1, 32, (enum mask_kind)m, F32, 1});
}

static void masks(void **state)
{
    (void)state;
    const int64_t n[] = {40, 300, 650};
    for (size_t i = 0; i < sizeof n / sizeof *n; i++)
        for (int m = FULL; m <= EMPTY_ALL; m++)
            for (int t = F32; t <= BF16; t++)
                check_shape(&(struct shape){n[i], n[i], 0, 0, 4, 2, 40, (enum mask_kind)m, (enum dtype)t, 1});
}

static void large_scores(void **state)
{
    (void)state;
    check_shape(&(struct shape){400, 400, 0, 0, 1, 1, 64, CAUSAL, F32, 30});
    check_shape(&(struct shape){400, 400, 0, 0, 1, 1, 64, FULL, F32, 1000});
    check_shape(&(struct shape){400, 400, 0, 0, 1, 1, 64, WINDOW, BF16, 300});
}

/* Scores that keep growing along the keys, so that every running maximum is stale. */
static void growing_scores(void **state)
{
    (void)state;
    struct shape s = {64, 1000, 0, 0, 1, 1, 32, FULL, F32, 1};
    struct problem p = problem_make(&s);
    for (int64_t i = 0; i < p.nq; i++)
        p.x.q[i] = (float)fabs(p.x.q[i]);
    for (int64_t i = 0; i < p.nk; i++)
        p.x.k[i] = (float)((double)(i / 32) * 0.05);
    oracle_forward(&p.attrs, &p.x);
    for (int i = 0; i < implementations; i++) {
        struct call c = forward_call(&p, &implementation[i], omp_get_max_threads(), 0);
        call_run(&c, implementation[i].forward, &p.attrs);
        check_error("o", implementation[i].name, &s, error_of(c.b[0].data, F32, p.x.o, p.nq), 4e-5); /* rounded scores up to 280 */
        check_error("lse", implementation[i].name, &s, error_of(c.b[1].data, F32, p.x.lse, p.nl), TOLERANCE_LSE);
        call_free(&c);
    }
    problem_free(&p);
}

static void accumulates(void **state)
{
    (void)state;
    struct shape s = {300, 410, 200, 90, 4, 2, 48, CAUSAL, F32, 1};
    struct problem p = problem_make(&s);
    p.attrs.attn.accumulate = 1;
    round_oracle(&p);
    oracle_backward(&p.attrs, &p.x);
    for (int64_t i = 0; i < p.nk; i++)
        p.x.dk[i] = 1 + 2 * p.x.dk[i], p.x.dv[i] = 1 + 2 * p.x.dv[i];
    for (int i = 0; i < implementations; i++) {
        struct call c = backward_call(&p, &implementation[i], omp_get_max_threads(), 0);
        call_run(&c, implementation[i].backward, &p.attrs);
        call_run(&c, implementation[i].backward, &p.attrs);
        check_error("dq", implementation[i].name, &s, error_of(c.b[0].data, F32, p.x.dq, p.nq), TOLERANCE_GRAD);
        check_error("dk", implementation[i].name, &s, error_of(c.b[1].data, F32, p.x.dk, p.nk), TOLERANCE_GRAD);
        check_error("dv", implementation[i].name, &s, error_of(c.b[2].data, F32, p.x.dv, p.nk), TOLERANCE_GRAD);
        call_free(&c);
    }
    problem_free(&p);
}

/* Runs a call at several thread counts and addresses; every run must give the first one's bits. */
static void same_bits(const struct problem *p, const struct kernels *k, int backward)
{
    const int before = omp_get_max_threads();
    struct call first = {0};
    for (int threads = 1; threads <= 4; threads++)
        for (int repeat = 0; repeat < 2; repeat++) {
            omp_set_num_threads(threads);
            int offset = 4 * ((threads * 7 + repeat * 3) % 16);
            struct call c = backward ? backward_call(p, k, threads, offset) : forward_call(p, k, threads, offset);
            call_run(&c, backward ? k->backward : k->forward, &p->attrs);
            for (int i = 0; i < c.outputs && first.n; i++)
                assert_memory_equal(c.b[i].data, first.b[i].data, c.b[i].bytes);
            if (first.n)
                call_free(&c);
            else
                first = c;
        }
    call_free(&first);
    omp_set_num_threads(before);
}

static void threads_and_addresses(void **state)
{
    (void)state;
    const struct shape shapes[] = {{1000, 1000, 0, 0, 4, 2, 32, CAUSAL, F32, 1}, {700, 700, 0, 0, 3, 1, 64, DOCUMENTS, BF16, 1},
        {900, 900, 0, 0, 2, 2, 40, WINDOW, F32, 1}, {400, 800, 100, 300, 7, 1, 32, FULL, F32, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct problem p = problem_make(&shapes[i]);
        round_oracle(&p);
        for (int j = 0; j < implementations; j++)
            for (int backward = 0; backward < 2; backward++)
                same_bits(&p, &implementation[j], backward);
        problem_free(&p);
    }
}

/* The oracle's own gradients, by central differences of sum(go * o): error h^2 ~ 1e-10 and rounding 1e-16 / h ~ 1e-11. */
static void oracle_differences(void **state)
{
    (void)state;
    const double h = 1e-5;
    struct shape s = {9, 11, 2, 0, 2, 1, 8, WINDOW, F32, 1};
    struct problem p = problem_make(&s);
    double *o = doubles(p.nq);
    oracle_backward(&p.attrs, &p.x);
    double *const input_of[] = {p.x.q, p.x.k, p.x.v}, *const grad[] = {p.x.dq, p.x.dk, p.x.dv};
    for (int which = 0; which < 3; which++)
        for (int64_t i = 0; i < (which == 0 ? p.nq : p.nk); i++) {
            double keep = input_of[which][i], loss[2];
            for (int side = 0; side < 2; side++) {
                input_of[which][i] = keep + (side ? h : -h);
                oracle_forward(&p.attrs, &p.x);
                loss[side] = oracle_dot(p.x.go, p.x.o, p.nq);
            }
            input_of[which][i] = keep;
            assert_true(fabs((loss[1] - loss[0]) / (2 * h) - grad[which][i]) < 1e-8);
        }
    free(o);
    problem_free(&p);
}

/* A query of no keys: o = 0, lse = -inf, dq = 0, and nobody's gradient changes. */
static void empty_call(void **state)
{
    (void)state;
    check_shape(&(struct shape){50, 60, 0, 1000, 2, 1, 32, CAUSAL, F32, 1});
    check_shape(&(struct shape){50, 60, 5000, 0, 2, 1, 32, WINDOW, BF16, 1});
}

static void workspace_is_linear(void **state)
{
    (void)state;
    struct op_attrs a = {0};
    a.attn.hq = 32, a.attn.hk = 32, a.attn.head_dim = 128, a.attn.dtype = BF16;
    for (int kind = OP_ATTN_FWD; kind <= OP_ATTN_BWD; kind++) {
        a.attn.sq = a.attn.sk = 1 << 20;
        int64_t two = attention_workspace_bytes((enum op_kind)kind, &a, 2), many = attention_workspace_bytes((enum op_kind)kind, &a, 64);
        assert_true(two < (int64_t)(1 << 20) * 128 * 4 * 4);
        assert_true(many - two < (int64_t)62 * (8 << 20)); /* a thread's own scratch does not grow with S */
    }
    assert_true(attention_workspace_bytes(OP_ATTN_BWD, &a, 0) > 0);
}

int main(void)
{
    op_kernel *table[OP_COUNT] = {0};
    attention_cpu_kernels(table);
    implementation[implementations++] =
        (struct kernels){"portable", attn_portable_forward, attn_portable_backward, attn_portable_workspace};
    if (table[OP_ATTN_FWD] != attn_portable_forward)
        implementation[implementations++] =
            (struct kernels){"chosen", table[OP_ATTN_FWD], table[OP_ATTN_BWD], attention_workspace_bytes};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oracle_differences),
        cmocka_unit_test(sizes_causal),
        cmocka_unit_test(sizes_full_rectangular),
        cmocka_unit_test(head_dims),
        cmocka_unit_test(grouped_heads),
        cmocka_unit_test(offsets),
        cmocka_unit_test(masks),
        cmocka_unit_test(large_scores),
        cmocka_unit_test(growing_scores),
        cmocka_unit_test(accumulates),
        cmocka_unit_test(threads_and_addresses),
        cmocka_unit_test(empty_call),
        cmocka_unit_test(workspace_is_linear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
