/* Tests OP_GEMM with cuBLASLt against the CPU's kernel, on the fake runtime and the fake cuBLASLt (tests/cudasim/fake), which
 * read descriptors, refuse what is not documented, and execute late. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "device/cuda/device.h"
#include "device/cuda/libraries.h"
#include "fake.h"
#include "ops/cuda_gemm.h"
#include "ops/cuda_product.h"
#include "ops/ops.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BESIDE = 1 << 15, PATTERN = 0xa5 };
enum {
    CAPABILITY = 80,
    ARENA = 24 << 20,
    REGION = 4 << 20 /* bytes of the arena for each of C, a and b; `work` ends where the arena ends */
};

static int (*fake_alive)(void);
static int *fake_refuses;

/* A matrix, as stored and as exact fp64 values. matrices_free frees all matrices. */
struct matrix {
    int64_t n;
    enum dtype type;
    void *store;
    double *val;
    struct matrix *next;
};

static struct matrix *matrices;

static void *allocated(int64_t n, int64_t size)
{
    void *p = calloc((size_t)n, (size_t)size);
    assert_non_null(p);
    return p;
}

static struct matrix *matrix_new(int64_t n, enum dtype type)
{
    struct matrix *x = allocated(1, sizeof *x);
    *x = (struct matrix){n, type, allocated(n, dtype_size(type)), allocated(n, sizeof(double)), matrices};
    matrices = x;
    return x;
}

static void matrix_set(struct matrix *x, int64_t i, double value)
{
    const float f = (float)value;
    const bf16 low = bf16_from_float(f);
    memcpy((char *)x->store + i * dtype_size(x->type), x->type == F32 ? (const void *)&f : &low, (size_t)dtype_size(x->type));
    x->val[i] = (double)(x->type == F32 ? f : bf16_to_float(low));
}

static struct matrix *matrix_random(int64_t n, enum dtype type)
{
    static uint64_t stream; /* number of the next matrix's random stream: matrices differ, but repeated tests get equal ones */
    struct matrix *x = matrix_new(n, type);
    float *normals = allocated(n, sizeof *normals);
    rng_normals(7, ++stream, 0, n, normals);
    for (int64_t i = 0; i < n; i++)
        matrix_set(x, i, (double)normals[i]);
    free(normals);
    return x;
}

static void matrix_load(struct matrix *x)
{
    for (int64_t i = 0; i < x->n; i++)
        x->val[i] = (double)(x->type == F32 ? ((float *)x->store)[i] : bf16_to_float(((bf16 *)x->store)[i]));
}

static struct matrix *matrix_copy(const struct matrix *from)
{
    struct matrix *x = matrix_new(from->n, from->type);
    memcpy(x->store, from->store, (size_t)(x->n * dtype_size(x->type)));
    matrix_load(x);
    return x;
}

static void matrices_free(void)
{
    while (matrices) {
        struct matrix *next = matrices->next;
        free(matrices->store);
        free(matrices->val);
        free(matrices);
        matrices = next;
    }
}

static struct backend *open_gpu(const char *words)
{
    struct backend *b;
    fake_cuda_configure(words);
    if (cuda_device_open(0, &b) != OK || b->allocate(b, ARENA) != OK || cuda_gemm_open(CAPABILITY) != OK)
        fail_msg("%s", status_message());
    return b;
}

static void close_gpu(struct backend *b)
{
    assert_int_equal(b->join(b), OK);
    assert_int_equal(b->check(b), OK);
    cuda_gemm_close();
    b->close(b);
    assert_int_equal(fake_alive(), 0);
    assert_string_equal(fake_cuda_left(), "");
}

struct kind {
    int32_t a, b, c, accumulate;
    float scale;
};

static struct op_attrs attrs_of(int64_t m, int64_t n, int64_t k, int ta, int tb, struct kind t, int64_t pad)
{
    struct op_attrs a = {0};
    a.gemm.m = m;
    a.gemm.n = n;
    a.gemm.k = k;
    a.gemm.lda = (ta ? m : k) + pad;
    a.gemm.ldb = (tb ? k : n) + 2 * pad;
    a.gemm.ldc = n + pad;
    a.gemm.ta = ta;
    a.gemm.tb = tb;
    a.gemm.a_type = t.a;
    a.gemm.b_type = t.b;
    a.gemm.c_type = t.c;
    a.gemm.accumulate = t.accumulate;
    a.gemm.scale = t.scale;
    return a;
}

struct operands {
    struct matrix *c, *a, *b;
    double *magnitude; /* sum of |a b| for each element of C */
};

static double at(const struct matrix *x, int64_t ld, int t, int64_t i, int64_t j)
{
    return t ? x->val[j * ld + i] : x->val[i * ld + j];
}

static struct operands draw(const struct op_attrs *s)
{
    struct operands o = {.c = matrix_random(s->gemm.m * s->gemm.ldc, (enum dtype)s->gemm.c_type),
                         .a = matrix_random((s->gemm.ta ? s->gemm.k : s->gemm.m) * s->gemm.lda, (enum dtype)s->gemm.a_type),
                         .b = matrix_random((s->gemm.tb ? s->gemm.n : s->gemm.k) * s->gemm.ldb, (enum dtype)s->gemm.b_type)};
    o.magnitude = matrix_new(o.c->n, F32)->val;
    for (int64_t i = 0; i < s->gemm.m; i++)
        for (int64_t j = 0; j < s->gemm.n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < s->gemm.k; l++)
                sum +=
                    fabs(at(o.a, s->gemm.lda, (int)s->gemm.ta, i, l + s->gemm.a_first) * at(o.b, s->gemm.ldb, s->gemm.tb, l, j));
            o.magnitude[i * s->gemm.ldc + j] = s->gemm.scale != 0 ? (double)s->gemm.scale * sum : sum;
            if (!s->gemm.accumulate) /* old values must not matter */
                matrix_set(o.c, i * s->gemm.ldc + j, NAN);
        }
    return o;
}

static struct matrix *rounded(const struct matrix *x)
{
    struct matrix *r = matrix_copy(x);
    for (int64_t i = 0; i < x->n; i++)
        matrix_set(r, i, (double)bf16_to_float(bf16_from_float((float)x->val[i])));
    return r;
}

static struct matrix *by_processor(const struct op_attrs *s, const struct operands *o, struct matrix *a, struct matrix *b)
{
    struct matrix *c = matrix_copy(o->c);
    void *work = malloc((size_t)op_workspace_bytes(OP_GEMM, s, 1) + 1);
    void *arg[OP_MAX_ARGS] = {c->store, a->store, b->store, work};
    assert_int_equal(ops_cpu_gemm(s, arg, NULL), OK);
    free(work);
    matrix_load(c);
    return c;
}

static int64_t bytes_of(const struct matrix *t)
{
    return t->n * dtype_size(t->type);
}

static void must(enum status st)
{
    if (st != OK)
        fail_msg("%s", status_message());
}

/* Reads the result. Nothing outside C is written: BESIDE bytes before and after C keep their pattern. */
static void take_result(struct backend *b, const char *c_at, struct matrix *c)
{
    unsigned char *all = allocated(bytes_of(c) + 2 * BESIDE, 1);
    must(b->read(b, all, c_at - BESIDE, bytes_of(c) + 2 * BESIDE));
    for (int64_t i = 0; i < BESIDE; i++)
        if (all[i] != PATTERN || all[BESIDE + bytes_of(c) + i] != PATTERN)
            fail_msg("byte %lld beside C was written", (long long)i);
    memcpy(c->store, all + BESIDE, (size_t)bytes_of(c));
    free(all);
    matrix_load(c);
}

/* Computes the product with C, a and b at addresses aligned exactly as well as their leading dimensions promise (times `shift`),
 * and no better. */
static struct matrix *by_gpu(struct backend *b, const struct op_attrs *s, const struct operands *o, int shift)
{
    struct matrix *c = matrix_copy(o->c), *const t[] = {c, o->a, o->b};
    const int64_t ld[] = {s->gemm.ldc, s->gemm.lda, s->gemm.ldb};
    const struct gemm_shape shape = gemm_shape_of(s);
    void *arg[OP_MAX_ARGS] = {0};
    must(b->fill(b, b->base, PATTERN, bytes_of(c) + 3 * BESIDE));
    for (int i = 0; i < 3; i++) {
        arg[i] = b->base + i * REGION + BESIDE + shift * gcd_i64(16, ld[i] * dtype_size(t[i]->type));
        must(b->write(b, arg[i], t[i]->store, bytes_of(t[i])));
    }
    arg[3] = b->base + ARENA - round_up(cuda_product_workspace(&shape, CAPABILITY), 256);
    must(cuda_gemm_prepare(s));
    const long calls = fake_cuda_calls();
    must(ops_cuda_gemm(s, arg, b->stream[LANE_COMPUTE]));
    const int64_t slabs = cuda_product_slabs(&shape).count;
    /* one launch for the product of each slab and one for its cast, no more */
    assert_int_equal(fake_cuda_calls() - calls, (shape.a_type != shape.b_type ? 2 : 1) * slabs);
    must(b->join(b));
    take_result(b, arg[0], c);
    return c;
}

/* Checks the result. The limit is `relative` times the element of C, plus `of_sums` times the sum of |a b|. */
static void near(const struct op_attrs *s, const struct matrix *got, const struct matrix *want, const double *magnitude,
                 double of_sums, double relative)
{
    for (int64_t i = 0; i < s->gemm.m; i++)
        for (int64_t j = 0; j < s->gemm.ldc; j++) {
            const int64_t e = i * s->gemm.ldc + j;
            const double limit = j < s->gemm.n ? of_sums * (magnitude[e] + 1) + relative * fabs(want->val[e]) : 0;
            if (!(fabs(got->val[e] - want->val[e]) <= limit)) /* columns beyond n must not change */
                fail_msg("m %lld n %lld k %lld ta %d tb %d types %d %d %d +%d: C[%lld,%lld] %.9g, not %.9g", (long long)s->gemm.m,
                         (long long)s->gemm.n, (long long)s->gemm.k, s->gemm.ta, s->gemm.tb, s->gemm.a_type, s->gemm.b_type,
                         s->gemm.c_type, s->gemm.accumulate, (long long)i, (long long)j, got->val[e], want->val[e]);
        }
}

static void check(struct backend *b, const struct op_attrs *s)
{
    const struct operands o = draw(s);
    const struct matrix *got = by_gpu(b, s, &o, 1);
    /* rounded operands have exact products: only the order of fp32 sums differs, and half a unit of a bf16 result on each side */
    const double sums = 1e-6, store = s->gemm.c_type == BF16 ? 0x1p-7 : 0;
    if (s->gemm.a_type == F32 && s->gemm.b_type == F32) { /* nothing is rounded */
        near(s, got, by_processor(s, &o, o.a, o.b), o.magnitude, sums, store);
        matrices_free();
        return;
    }
    near(s, got, by_processor(s, &o, rounded(o.a), rounded(o.b)), o.magnitude, sums, store);
    /* the CPU does not round the fp32 operand: half a unit of bf16, 2^-9, in each product */
    near(s, got, by_processor(s, &o, o.a, o.b), o.magnitude, sums + 0x1p-9, store);
    matrices_free();
}

static const struct kind kinds[] = {{BF16, BF16, F32, 0, 0}, {BF16, BF16, F32, 1, 0},  {BF16, BF16, BF16, 0, 0},
                                    {F32, BF16, F32, 0, 0},  {F32, BF16, F32, 1, 0},   {F32, BF16, BF16, 0, 0},
                                    {BF16, F32, F32, 0, 0},  {BF16, F32, F32, 1, 0},   {BF16, F32, BF16, 0, 0},
                                    {BF16, F32, F32, 1, 2},  {BF16, BF16, BF16, 1, 0}, {BF16, BF16, BF16, 1, 0.5f}};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Every transposition of every kind is right, with padded rows or not, for odd sizes and for multiples of tiles. */
static void every_kind(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 1}, {2, 3, 5}, {7, 1, 33}, {1, 17, 8}, {16, 24, 40}, {33, 9, 64}, {5, 31, 100}};
    struct backend *b = open_gpu("seed=4");
    int x = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int t = 0; t < 4; t++)
            for (int k = 0; k < KINDS; k++) {
                static const int64_t pads[] = {0, 1, 8, 3};
                struct op_attrs s = attrs_of(sizes[i][0], sizes[i][1], sizes[i][2], t & 1, t >> 1, kinds[k], pads[x++ % 4]);
                check(b, &s);
            }
    close_gpu(b);
}

/* A call for some columns of C leaves the other columns unchanged, and reads some columns of A. */
static void columns(void **state)
{
    (void)state;
    struct backend *b = open_gpu("seed=5");
    for (int k = 0; k < 3; k++) {
        struct op_attrs s = attrs_of(33, 24, 40, 0, 1, kinds[k], 0);
        s.gemm.ldc = 96;
        s.gemm.c_first = 64;
        s.gemm.accumulate = k == 1 ? GEMM_ADDS : GEMM_KEEPS;
        s.gemm.lda = 72;
        s.gemm.a_first = 32;
        const struct operands o = draw(&s);
        const struct matrix *got = by_gpu(b, &s, &o, 1), *want = by_processor(&s, &o, o.a, o.b);
        for (int64_t e = 0; e < o.c->n; e++) {
            const int inside = e % 96 >= 64 && e % 96 < 88;
            const double limit = inside ? 1e-6 * (o.magnitude[e - 64] + 1) + (k == 2 ? 0x1p-7 * fabs(want->val[e]) : 0) : 0;
            if (!(fabs(got->val[e] - want->val[e]) <= limit) ||
                (inside ? got->val[e] == o.c->val[e] : got->val[e] != o.c->val[e]))
                fail_msg("kind %d: element %lld of C is %.9g, not %.9g", k, (long long)e, got->val[e], want->val[e]);
        }
        matrices_free();
    }
    close_gpu(b);
}

/* The fp32 operand is cast in three slabs, the last of which is short. */
static void slabs(void **state)
{
    (void)state;
    struct backend *b = open_gpu("seed=7");
    for (int t = 0; t < 4; t++)
        for (int k = 3; k < KINDS && kinds[k].a != kinds[k].b; k++) {
            struct op_attrs s = attrs_of(k < 6 ? 300 : 19, k < 6 ? 19 : 300, 41, t & 1, t >> 1, kinds[k], t == 3 ? 8 : 0);
            const struct gemm_shape shape = gemm_shape_of(&s);
            assert_int_equal(cuda_product_slabs(&shape).count, 3);
            check(b, &s);
        }
    close_gpu(b);
}

/* Neither bits nor algorithms depend on addresses, on the order of calls, or on how often they are prepared. */
static void same_bits_elsewhere(void **state)
{
    (void)state;
    const struct op_attrs x = attrs_of(40, 33, 64, 1, 0, kinds[1], 0), y = attrs_of(130, 24, 48, 0, 1, kinds[3], 3);
    uint64_t first, second, other;
    struct backend *b = open_gpu("seed=1");
    const struct operands o = draw(&x);
    const struct matrix *here = by_gpu(b, &x, &o, 1), *there = by_gpu(b, &x, &o, 4);
    assert_memory_equal(here->store, there->store, (size_t)bytes_of(here));
    must(cuda_gemm_digest(&other));
    must(cuda_gemm_prepare(&y));
    must(cuda_gemm_digest(&first));
    cuda_gemm_close();
    must(cuda_gemm_open(CAPABILITY));
    must(cuda_gemm_prepare(&y));
    must(cuda_gemm_prepare(&x));
    must(cuda_gemm_prepare(&y));
    must(cuda_gemm_digest(&second));
    assert_true(first == second && first != other);
    close_gpu(b);
    matrices_free();
}

/* The table holds more calls than it has room for at first. */
static void many_calls(void **state)
{
    (void)state;
    struct backend *b = open_gpu("");
    for (int round = 0; round < 2; round++)
        for (int64_t m = 1; m <= 200; m++) {
            const struct op_attrs s = attrs_of(m, 3, 5, 0, 0, kinds[m % KINDS], 0);
            must(cuda_gemm_prepare(&s));
        }
    const struct op_attrs s = attrs_of(77, 3, 5, 0, 0, kinds[77 % KINDS], 0);
    check(b, &s);
    close_gpu(b);
}

/* Two fp32 operands are multiplied as they are. */
static void both_fp32(void **state)
{
    (void)state;
    struct backend *b = open_gpu("seed=6");
    for (int t = 0; t < 8; t++) {
        struct op_attrs s = attrs_of(33, 9, 64, t & 1, t >> 1 & 1, (struct kind){F32, F32, F32, t >> 2, 0}, t % 3);
        check(b, &s);
    }
    close_gpu(b);
}

static void says(enum status st, const char *words)
{
    assert_int_equal(st, ERR_INVALID);
    if (!strstr(status_message(), words))
        fail_msg("\"%s\" does not say \"%s\"", status_message(), words);
}

static void refusals(void **state)
{
    (void)state;
    struct backend *b = open_gpu("");
    struct op_attrs s = attrs_of(8, 8, 8, 0, 0, (struct kind){F32, F32, BF16, 0, 0}, 0);
    says(cuda_gemm_prepare(&s), "the product of two fp32 matrices is fp32, not bf16");
    s = attrs_of(8, 8, 8, 0, 0, (struct kind){F64, BF16, F32, 0, 0}, 0);
    says(cuda_gemm_prepare(&s), "not fp64");
    s = attrs_of(8, 8, 0, 0, 0, kinds[0], 0);
    says(cuda_gemm_prepare(&s), "from 1 to");
    s = attrs_of(8, 8, 8, 0, 0, kinds[0], -1);
    says(cuda_gemm_prepare(&s), "elements apart");
    s = attrs_of(8, 8, 8, 0, 0, kinds[0], 0);
    *fake_refuses = 1;
    says(cuda_gemm_prepare(&s), "no algorithm for a product of fp32 that is 8 x 8 with k 8");
    *fake_refuses = 0;
    void *arg[OP_MAX_ARGS] = {b->base, b->base + REGION, b->base + 2 * REGION, b->base + 3 * REGION};
    says(ops_cuda_gemm(&s, arg, b->stream[LANE_COMPUTE]), "was not prepared");
    must(cuda_gemm_prepare(&s));
    arg[1] = b->base + REGION + 8; /* misaligned: with rows of lda elements, 16 bytes are promised */
    says(ops_cuda_gemm(&s, arg, b->stream[LANE_COMPUTE]), "a at");
    arg[1] = b->base + REGION;
    arg[3] = b->base + 3 * REGION + 128;
    says(ops_cuda_gemm(&s, arg, b->stream[LANE_COMPUTE]), "aligned to 256");
    arg[3] = b->base + ARENA - 4096; /* fewer bytes than the call needs */
    assert_int_equal(ops_cuda_gemm(&s, arg, b->stream[LANE_COMPUTE]), ERR_IO);
    assert_non_null(strstr(status_message(), "workspace of"));
    assert_non_null(strstr(fake_cuda_left(), "workspace of"));
    assert_int_equal(b->join(b), OK);
    cuda_gemm_close();
    b->close(b);
}

/* Runs everything from open to close. calls: number of library calls until cuBLASLt was opened, and in all. */
static enum status whole_run(const char *words, long calls[2])
{
    const struct op_attrs s = attrs_of(300, 19, 41, 1, 0, kinds[3], 0);
    void *arg[OP_MAX_ARGS];
    struct backend *b = NULL;
    uint64_t digest;
    fake_cuda_configure(words);
    enum status st = cuda_device_open(0, &b);
    if (st == OK)
        st = b->allocate(b, ARENA);
    calls[0] = fake_cuda_calls();
    if (st == OK)
        st = cuda_gemm_open(CAPABILITY);
    if (st == OK)
        st = cuda_gemm_prepare(&s);
    if (st == OK)
        st = cuda_gemm_digest(&digest);
    for (int i = 0; st == OK && i < 4; i++)
        arg[i] = b->base + i * REGION;
    if (st == OK)
        st = ops_cuda_gemm(&s, arg, b->stream[LANE_COMPUTE]);
    calls[1] = fake_cuda_calls();
    if (st == OK)
        st = b->join(b);
    cuda_gemm_close();
    if (b)
        b->close(b);
    return st;
}

/* Each call of cuBLASLt fails once: the error names the call, and nothing is leaked. */
static void every_call_fails(void **state)
{
    (void)state;
    long calls[2], unused[2];
    must(whole_run("", calls));
    assert_true(calls[1] - calls[0] > 40);
    int survived = 0;
    for (long n = calls[0] + 1; n <= calls[1]; n++) {
        char words[32];
        snprintf(words, sizeof words, "fail=%ld:%d", n, n % 2 ? 1 : 2);
        const enum status st = whole_run(words, unused);
        survived += st == OK;
        if (st != OK && !strstr(status_message(), "cublasLt") && !strstr(status_message(), "cast_rows"))
            fail_msg("call %ld: \"%s\"", n, status_message());
        assert_int_equal(fake_alive(), 0);
        assert_string_equal(fake_cuda_left(), "");
    }
    assert_int_equal(survived, 2); /* two calls may fail without consequences: those that destroy preferences */
}

int main(int argc, char **argv)
{
    if (argc > 1) /* the argument names a test to be skipped */
        cmocka_set_skip_filter(argv[1]);
    /* The fake library is called libcublasLt.so.13: once it is open, the loader returns it whenever this name is opened. */
    const char *path = getenv("LTRAIN_FAKE_CUBLASLT");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL, *symbol;
    if (!library) {
        printf("FAILED: LTRAIN_FAKE_CUBLASLT: %s\n", path ? dlerror() : "is not set");
        return 1;
    }
    symbol = dlsym(library, "fake_cublaslt_alive");
    memcpy(&fake_alive, &symbol, sizeof symbol);
    fake_refuses = dlsym(library, "fake_cublaslt_refuses");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind),          cmocka_unit_test(columns),    cmocka_unit_test(slabs),
        cmocka_unit_test(same_bits_elsewhere), cmocka_unit_test(many_calls), cmocka_unit_test(refusals),
        cmocka_unit_test(every_call_fails),    cmocka_unit_test(both_fp32)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
