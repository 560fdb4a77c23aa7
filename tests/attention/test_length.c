/* Tests attention over a million keys, and of a million queries, against fp64: rounding errors of sums as long as the sequence.
 * LTRAIN_LONG uses 2^24 keys and 2^22 queries (16 GB of memory).
 *
 * Half of the values' columns are constant, which reveals sums that always round in the same direction; the other half are
 * random, which reveals errors in sums whose terms cancel. */
#include "attention/kernels.h"
#include "ops/simd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <math.h>
#include <omp.h>

#include "extent.h"

enum {
    D = 32,
    MOST = 48,
    BLOCK = 64
}; /* head dim; largest number of rows on the short side; rows of the long side processed at a time */

/* Tolerances. For o and gradients: norm of the error relative to the true norm, of the worst query (if few) or of all rows; for
 * lse: the difference itself, which is p's relative error. */
#define TOLERANCE 1e-5
/* Tolerance with AMX, where o is rounded to bf16, and gradients come from P and dS in bf16 (test_attention.c). */
#define TOLERANCE_ROUNDED 4e-3

enum half { RANDOM, CONSTANT }; /* contents of the columns that are summed over the long side */

/* Inputs and true results for one head; row-major [rows][D]. */
struct problem {
    struct op_attrs attrs;
    int64_t sq, sk;
    void *q, *k, *v, *go; /* stored in the type of attrs */
    float *lse, *delta;   /* [sq], the values given to the backward pass */
    int32_t *lo, *hi;
    double *o, *log_sum, *dq; /* the oracle's results; log_sum: lse before rounding */
    float *dk, *dv;
    double *cancels; /* [sq][D]: delta times the mean key, which is subtracted in dq */
    double k_floor;  /* norm of the terms p delta q, which cancel in dk */
};

static void *array(int64_t n, int64_t size)
{
    void *p = aligned_alloc(64, (size_t)round_up(n * size + 64, 64));
    assert_non_null(p);
    return p;
}

/* Draws a number in [-1, 1) that depends on stream and element only, so that it is the same on any number of threads. */
static float element(uint64_t stream, int64_t i)
{
    uint64_t x = (stream << 40 | (uint64_t)i) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (float)((x ^ x >> 31) >> 40) / 8388608.0f - 1;
}

static void *filled(uint64_t stream, int64_t n, int32_t type, int halves)
{
    void *p = array(n, dtype_size((enum dtype)type));
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++) {
        float x = halves && i / (D / 2) % 2 == CONSTANT ? 0.7f : element(stream, i);
        if (type == F32)
            ((float *)p)[i] = x;
        else
            ((bf16 *)p)[i] = bf16_from_float(x);
    }
    return p;
}

static double get(const void *x, int32_t type, int64_t i)
{
    return type == F32 ? (double)((const float *)x)[i] : (double)bf16_to_float(((const bf16 *)x)[i]);
}

/* Copies `rows` rows from `row` on into columns of BLOCK; missing rows are zero. */
static void columns(double out[D][BLOCK], const struct problem *p, const void *x, int64_t row, int64_t rows)
{
    memset(out, 0, sizeof(double[D][BLOCK]));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < D; c++)
            out[c][i] = get(x, p->attrs.attn.dtype, (row + i) * D + c);
}

/* Computes out[j] = sum over c of x[c] columns[c][j]. */
CLONES static void dots(double out[BLOCK], const double x[D], double columns[D][BLOCK])
{
    memset(out, 0, sizeof(double[BLOCK]));
    for (int64_t c = 0; c < D; c++)
#pragma omp simd
        for (int64_t j = 0; j < BLOCK; j++)
            out[j] += x[c] * columns[c][j];
}

/* Computes out[c] += sum over j of x[j] columns[c][j]. */
CLONES static void add_dots(double out[D], const double x[BLOCK], double columns[D][BLOCK])
{
    for (int64_t c = 0; c < D; c++) {
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t j = 0; j < BLOCK; j++)
            sum += x[j] * columns[c][j];
        out[c] += sum;
    }
}

/* Computes columns[c][j] += y[c] x[j]. */
CLONES static void add_outer(double columns[D][BLOCK], const double y[D], const double x[BLOCK])
{
    for (int64_t c = 0; c < D; c++)
#pragma omp simd
        for (int64_t j = 0; j < BLOCK; j++)
            columns[c][j] += y[c] * x[j];
}

static void row_get_all(double out[D], const struct problem *p, const void *x, int64_t row)
{
    for (int64_t c = 0; c < D; c++)
        out[c] = get(x, p->attrs.attn.dtype, row * D + c);
}

/* Adds a block of keys to a query's sums of p and of p v. Scores are below 20: no maximum is needed. */
static void forward_block(const struct problem *p, int64_t query, double k[D][BLOCK], double v[D][BLOCK], int64_t n, double *sum,
                          double o[D])
{
    double q[D], s[BLOCK];
    row_get_all(q, p, p->q, query);
    dots(s, q, k);
    for (int64_t j = 0; j < BLOCK; j++)
        s[j] = j < n ? exp((double)p->attrs.attn.scale * s[j]) : 0;
    for (int64_t j = 0; j < n; j++)
        *sum += s[j];
    add_dots(o, s, v);
}

/* Adds a thread's sums to `out`. */
static void add_all(double *out, const double *x, int64_t n)
{
#pragma omp critical
    for (int64_t i = 0; i < n; i++)
        out[i] += x[i];
}

/* Computes o and lse, then lse and delta in the form that the kernels get. */
static void oracle_forward(struct problem *p)
{
#pragma omp parallel
    {
        double *sum = calloc((size_t)p->sq * (D + 1), sizeof *sum), *o = sum + p->sq, k[D][BLOCK], v[D][BLOCK];
#pragma omp for
        for (int64_t key = 0; key < p->sk; key += BLOCK) {
            const int64_t n = min_i64(BLOCK, p->sk - key);
            columns(k, p, p->k, key, n);
            columns(v, p, p->v, key, n);
            for (int64_t i = 0; i < p->sq; i++)
                forward_block(p, i, k, v, n, sum + i, o + i * D);
        }
        add_all(p->log_sum, sum, p->sq);
        add_all(p->o, o, p->sq * D);
        free(sum);
    }
    for (int64_t i = 0; i < p->sq; i++) {
        double delta = 0;
        for (int64_t c = 0; c < D; c++) {
            p->o[i * D + c] /= p->log_sum[i];
            delta += p->o[i * D + c] * get(p->go, p->attrs.attn.dtype, i * D + c);
        }
        p->log_sum[i] = log(p->log_sum[i]);
        p->lse[i] = (float)p->log_sum[i];
        p->delta[i] = (float)delta;
    }
}

/* Adds one query's contribution to a block's dk and dv, and the block's contribution to the query's dq. */
static void backward_block(const struct problem *p, int64_t query, double k[D][BLOCK], double v[D][BLOCK], int64_t n,
                           double dk[D][BLOCK], double dv[D][BLOCK], double dq[D], double cancels[D], double *k_floor)
{
    const double scale = (double)p->attrs.attn.scale, delta = (double)p->delta[query];
    double q[D], go[D], prob[BLOCK], ds[BLOCK], terms[BLOCK], squares = 0;
    row_get_all(q, p, p->q, query);
    row_get_all(go, p, p->go, query);
    dots(prob, q, k);
    dots(ds, go, v);
    for (int64_t c = 0; c < D; c++)
        squares += q[c] * q[c];
    for (int64_t j = 0; j < BLOCK; j++) {
        prob[j] = j < n ? exp(scale * prob[j] - (double)p->lse[query]) : 0;
        ds[j] = scale * prob[j] * (ds[j] - delta);
        terms[j] = scale * prob[j] * delta;
        *k_floor += terms[j] * terms[j] * squares;
    }
    add_outer(dv, go, prob);
    add_outer(dk, q, ds);
    add_dots(dq, ds, k);
    add_dots(cancels, terms, k);
}

static void oracle_backward(struct problem *p)
{
    double k_floor = 0;
#pragma omp parallel reduction(+ : k_floor)
    {
        double *dq = calloc((size_t)p->sq * 2 * D, sizeof *dq), *cancels = dq + p->sq * D;
        double k[D][BLOCK], v[D][BLOCK], dk[D][BLOCK], dv[D][BLOCK];
#pragma omp for
        for (int64_t key = 0; key < p->sk; key += BLOCK) {
            const int64_t n = min_i64(BLOCK, p->sk - key);
            columns(k, p, p->k, key, n);
            columns(v, p, p->v, key, n);
            memset(dk, 0, sizeof dk);
            memset(dv, 0, sizeof dv);
            for (int64_t i = 0; i < p->sq; i++)
                backward_block(p, i, k, v, n, dk, dv, dq + i * D, cancels + i * D, &k_floor);
            for (int64_t i = 0; i < n * D; i++) {
                p->dk[key * D + i] = (float)dk[i % D][i / D];
                p->dv[key * D + i] = (float)dv[i % D][i / D];
            }
        }
        add_all(p->dq, dq, p->sq * D);
        add_all(p->cancels, cancels, p->sq * D);
        free(dq);
    }
    p->k_floor = sqrt(k_floor);
}

static struct problem problem_make(int64_t sq, int64_t sk, enum dtype type)
{
    struct problem p = {.sq = sq, .sk = sk, .attrs.attn = {.sq = sq, .sk = sk, .hq = 1, .hk = 1, .head_dim = D}};
    p.attrs.attn.dtype = (int32_t)type;
    p.attrs.attn.q0 = max_i64(0, sk - sq);
    p.attrs.attn.scale = (float)(1 / sqrt(D));
    p.q = filled(1, sq * D, (int32_t)type, 0);
    p.k = filled(2, sk * D, (int32_t)type, 0);
    p.v = filled(3, sk * D, (int32_t)type, sk > sq);
    p.go = filled(4, sq * D, (int32_t)type, sq > sk);
    p.lse = array(sq, 4), p.delta = array(sq, 4);
    p.lo = array(sq, 4), p.hi = array(sq, 4);
    for (int64_t i = 0; i < sq; i++)
        p.lo[i] = 0, p.hi[i] = (int32_t)(sk - 1);
    p.o = calloc((size_t)(sq * D), 8), p.log_sum = calloc((size_t)sq, 8), p.dq = calloc((size_t)(sq * D), 8);
    p.cancels = calloc((size_t)(sq * D), 8);
    p.dk = array(sk * D, 4), p.dv = array(sk * D, 4);
    oracle_forward(&p);
    oracle_backward(&p);
    return p;
}

static void problem_free(struct problem *p)
{
    void *all[] = {p->q, p->k, p->v, p->go, p->lse, p->delta, p->lo, p->hi, p->o, p->log_sum, p->dq, p->cancels, p->dk, p->dv};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* Returns the norm of the error of `rows` rows from element `at` on, divided by the true norm or, if larger, by `floor`; the
 * larger of the two halves of the columns. */
static double error_of(const void *got, int32_t type, const double *want, const float *rounded, int64_t at, int64_t rows,
                       double floor)
{
    double worst = 0;
    for (int half = RANDOM; half <= CONSTANT; half++) {
        double diff = 0, norm = 0;
#pragma omp parallel for reduction(+ : diff, norm) if (rows > MOST)
        for (int64_t i = 0; i < rows * D / 2; i++) {
            const int64_t e = at + i / (D / 2) * D + half * D / 2 + i % (D / 2);
            const double w = want ? want[e] : (double)rounded[e], off = get(got, type, e) - w;
            diff += off * off;
            norm += w * w;
        }
        worst = fmax(worst, sqrt(diff) / fmax(sqrt(norm), floor));
    }
    return worst;
}

static double norm_of(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

/* Returns the error of the worst query, if there are few queries, or of all rows together. */
static double queries_error(const struct problem *p, const void *got, int32_t type, const double *want, const double *cancels)
{
    const int64_t rows = p->sq > MOST ? p->sq : 1;
    double worst = 0;
    for (int64_t i = 0; i < p->sq; i += rows)
        worst = fmax(worst, error_of(got, type, want, NULL, i * D, rows, cancels ? norm_of(cancels + i * D, rows * D) : 0));
    return worst;
}

static void expect(const struct problem *p, const char *kernel, const char *what, double error, double limit)
{
    if (!(error <= limit))
        fail_msg("%s of %s: error %.2e > %.2e (%lld queries, %lld keys)", what, kernel, error, limit, (long long)p->sq,
                 (long long)p->sk);
}

static void check(const struct problem *p, const char *name, const struct attention_kernels *k)
{
    const int threads = omp_get_max_threads(), rounded = p->attrs.attn.dtype == BF16;
    const double limit = rounded ? TOLERANCE_ROUNDED : TOLERANCE;
    float *lse = array(p->sq, 4), *dq = array(p->sq * D, 4);
    void *o = array(p->sq * D, 4), *work = array(k->workspace(OP_ATTN_FWD, &p->attrs, threads), 1);
    double worst = 0;
    k->forward(&p->attrs, (void *[]){o, lse, p->q, p->k, p->v, p->lo, p->hi, work}, &(struct cpu_stream){.threads = threads});
    for (int64_t i = 0; i < p->sq; i++)
        worst = fmax(worst, fabs((double)lse[i] - p->log_sum[i]));
    expect(p, name, "lse", worst, TOLERANCE);
    expect(p, name, "o", queries_error(p, o, p->attrs.attn.dtype, p->o, NULL), limit);
    free(work);

    work = array(k->workspace(OP_ATTN_BWD, &p->attrs, threads), 1);
    float *dk = array(p->sk * D, 4), *dv = array(p->sk * D, 4);
    k->backward(&p->attrs, (void *[]){dq, dk, dv, p->q, p->k, p->v, p->delta, p->lse, p->go, p->lo, p->hi, work},
                &(struct cpu_stream){.threads = threads});
    expect(p, name, "dq", queries_error(p, dq, F32, p->dq, p->cancels), limit);
    expect(p, name, "dk", error_of(dk, F32, NULL, p->dk, 0, p->sk, p->k_floor), limit);
    expect(p, name, "dv", error_of(dv, F32, NULL, p->dv, 0, p->sk, 0), limit);
    free(work), free(o), free(lse), free(dq), free(dk), free(dv);
}

/* Checks the kernels of every instruction set that the CPU has. */
static void check_all(int64_t sq, int64_t sk)
{
    struct problem p = problem_make(sq, sk, F32);
    for (enum isa isa = ISA_PORTABLE; isa <= isa_of_processor(); isa++) {
        const struct attention_kernels k = attention_kernels_for(isa);
        check(&p, isa_name(isa), &k);
    }
    problem_free(&p);
#ifdef __x86_64__
    if (isa_has_amx()) {
        const struct attention_kernels k = {amx_forward, amx_backward, amx_workspace};
        p = problem_make(sq, sk, BF16);
        check(&p, "amx", &k);
        problem_free(&p);
    }
#endif
}

static int64_t many(void)
{
    return extent_is_long() ? 1 << 24 : EXTENT_SANITIZED ? 1 << 16 : 1 << 20;
}

/* Many keys: 48 queries fill one panel of AVX-512; for AMX they fill one panel and a part of another. 32 fill one of AMX; a quarter
 * of the keys suffices for that. */
static void many_keys(void **state)
{
    (void)state;
    check_all(32, many() / 4);
    check_all(48, many());
}

static void many_queries(void **state)
{
    (void)state;
    check_all(extent_is_long() ? 1 << 22 : many(), 32);
}

/* Windows that begin and end inside a group of blocks give the portable kernels' results, which have no groups. */
static void windows(void **state)
{
    (void)state;
    enum { QUERIES = EXTENT_SANITIZED ? 40 : 128, KEYS = 200000, OUTPUTS = 5 };
    const int64_t n[OUTPUTS] = {QUERIES * D, QUERIES, QUERIES * D, (int64_t)KEYS * D, (int64_t)KEYS * D};
    static const char *const names[OUTPUTS] = {"o", "lse", "dq", "dk", "dv"};
    struct op_attrs a = {.attn = {.sq = QUERIES, .sk = KEYS, .hq = 1, .hk = 1, .head_dim = D, .dtype = F32}};
    float *in[4] = {filled(1, n[0], F32, 0), filled(2, n[3], F32, 0), filled(3, n[3], F32, 1), filled(4, n[0], F32, 0)};
    float *delta = filled(5, QUERIES, F32, 0), *want[OUTPUTS], *got[OUTPUTS];
    int32_t lo[QUERIES], hi[QUERIES];
    a.attn.scale = (float)(1 / sqrt(D));
    for (int i = 0; i < QUERIES; i++)
        lo[i] = 30000 + 31 * i, hi[i] = 160000 + 83 * i;
    for (enum isa isa = ISA_PORTABLE; isa <= isa_of_processor(); isa++) {
        const struct attention_kernels k = attention_kernels_for(isa);
        void *work = array(k.workspace(OP_ATTN_FWD, &a, 2) + k.workspace(OP_ATTN_BWD, &a, 2), 1);
        float **out = isa == ISA_PORTABLE ? want : got;
        for (int i = 0; i < OUTPUTS; i++)
            out[i] = array(n[i], 4);
        k.forward(&a, (void *[]){out[0], out[1], in[0], in[1], in[2], lo, hi, work}, &(struct cpu_stream){.threads = 2});
        k.backward(&a, (void *[]){out[2], out[3], out[4], in[0], in[1], in[2], delta, want[1], in[3], lo, hi, work},
                   &(struct cpu_stream){.threads = 2});
        free(work);
        for (int i = 0; i < OUTPUTS && isa > ISA_PORTABLE; i++) {
            double diff = 0, norm = 0;
            for (int64_t j = 0; j < n[i]; j++) {
                diff += ((double)got[i][j] - (double)want[i][j]) * ((double)got[i][j] - (double)want[i][j]);
                norm += (double)want[i][j] * (double)want[i][j];
            }
            if (!(sqrt(diff / norm) <= TOLERANCE))
                fail_msg("%s of %s: %.2e off the portable kernels'", names[i], isa_name(isa), sqrt(diff / norm));
            free(got[i]);
        }
    }
    for (int i = 0; i < OUTPUTS; i++)
        free(want[i]);
    for (int i = 0; i < 4; i++)
        free(in[i]);
    free(delta);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(many_keys), cmocka_unit_test(many_queries), cmocka_unit_test(windows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
