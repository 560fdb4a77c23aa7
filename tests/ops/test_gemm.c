/* Compares GEMM with fp64, and with itself on other threads and for parts of C. */
#include "device/cpu_stream.h"
#include "ops/gemm_amx.h"
#include "ops_test.h"

#include <omp.h>

/* Returns element (i, j) of a row-major matrix, or of its transpose if t. */
static double at(const struct tensor *x, int64_t ld, int t, int64_t i, int64_t j)
{
    return t ? x->val[j * ld + i] : x->val[i * ld + j];
}

struct kind {
    int a, b, c, accumulate;
    float scale;
};

static void check(int64_t m, int64_t n, int64_t k, int ta, int tb, struct kind t, int64_t pad)
{
    int64_t lda = (ta ? m : k) + pad, ldb = (tb ? k : n) + 2 * pad, ldc = n + pad;
    struct tensor *a = tensor_random((ta ? k : m) * lda, (enum dtype)t.a, 1.0),
                  *b = tensor_random((tb ? n : k) * ldb, (enum dtype)t.b, 1.0);
    struct tensor *c = tensor_random(m * ldc, (enum dtype)t.c, 1.0), *want = tensor_new(m * ldc, F64);
    if (!t.accumulate) /* garbage, since old values must not matter */
        for (int64_t i = 0; i < m; i++)
            tensor_set(c, i * ldc + n / 2, NAN);
    double noise = 0.0;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < ldc; j++) {
            double sum = t.accumulate ? c->val[i * ldc + j] : 0.0, scale = t.scale != 0.0f ? (double)t.scale : 1.0;
            for (int64_t l = 0; j < n && l < k; l++)
                sum += scale * at(a, lda, ta, i, l) * at(b, ldb, tb, l, j);
            tensor_set(want, i * ldc + j, j < n ? sum : c->val[i * ldc + j]); /* the padding stays */
            noise += j < n ? sum * sum : 0.0;
        }
    struct op_case o;
    case_start(&o, OP_GEMM);
    o.attrs.gemm.m = m;
    o.attrs.gemm.n = n;
    o.attrs.gemm.k = k;
    o.attrs.gemm.lda = lda;
    o.attrs.gemm.ldb = ldb;
    o.attrs.gemm.ldc = ldc;
    o.attrs.gemm.ta = ta;
    o.attrs.gemm.tb = tb;
    o.attrs.gemm.a_type = t.a;
    o.attrs.gemm.b_type = t.b;
    o.attrs.gemm.c_type = t.c;
    o.attrs.gemm.accumulate = t.accumulate;
    o.attrs.gemm.scale = t.scale;
    case_tensor(&o, c, INOUT);
    case_tensor(&o, a, IN);
    case_tensor(&o, b, IN);
    case_work(&o);
    case_run(&o);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = n; j < ldc; j++)
            assert_true(c->val[i * ldc + j] == want->val[i * ldc + j]);
    /* k roundings of 2^-24 each add up like a random walk; the limit is relative to the result's norm (of order sqrt(k) per
     * element) */
    double limit = t.c == BF16 ? TOL_BF16 : 2e-7 * sqrt((double)k + 4.0);
    double error = norm_error(c->val, want->val, c->n);
    if (noise > 0.1 && !(error <= limit))
        fail_msg("m %lld n %lld k %lld ta %d tb %d types %d %d %d: error %.2e above %.2e", (long long)m, (long long)n,
                 (long long)k, ta, tb, t.a, t.b, t.c, error, limit);
}

static const struct kind KINDS[] = {
    {F32, F32, F32, 0, 0},       {F32, F32, F32, 1, 0},    {BF16, BF16, F32, 0, 0},     {BF16, BF16, F32, 1, 0},
    {BF16, BF16, BF16, 0, 0},    {F32, BF16, F32, 1, 0},   {BF16, F32, BF16, 0, 0},     {F32, F32, BF16, 0, 0},
    {BF16, BF16, BF16, 1, 0},    {F32, F32, F32, 1, 1.5f}, {BF16, BF16, BF16, 1, 0.5f}, {F32, BF16, F32, 0, 2.0f},
    {BF16, BF16, F32, 1, 0.75f},
};
enum { KIND_COUNT = sizeof KINDS / sizeof *KINDS };

static void test_edges(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 7, 16, 17, 33};
    enum { N = sizeof sizes / sizeof *sizes };
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            for (int l = 0; l < N; l++) {
                int x = i * 49 + j * 7 + l; /* selects kinds, transpositions and paddings in turn */
                check(sizes[i], sizes[j], sizes[l], x & 1, x >> 1 & 1, KINDS[x % KIND_COUNT], x % 3);
                check(sizes[i], sizes[j], sizes[l], !(x & 1), x >> 2 & 1, KINDS[(x + 3) % KIND_COUNT], 0);
                tensors_free(NULL);
            }
}

/* Sizes just above one task (192 x 128), one block (2048; 1024 for a BF16 C) and a tile's depth (256 or 512) are right. */
static void test_blocks(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{257, 255, 40}, {1, 1025, 513},  {1030, 3, 100}, {5, 300, 1100}, {260, 1, 2050},
                                        {1, 1, 3000},   {129, 513, 385}, {2050, 3, 9},   {3, 2050, 9}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int x = 0; x < 4; x++) {
            check(shapes[s][0], shapes[s][1], shapes[s][2], x & 1, x >> 1, KINDS[((int)s + 2 * x) % KIND_COUNT], x == 3);
            check(shapes[s][0], shapes[s][1], shapes[s][2], x & 1, x >> 1, KINDS[((int)s + 2 * x + 1) % KIND_COUNT], 0);
            tensors_free(NULL);
        }
}

/* BF16 products are right for k above the largest depth, with several blocks of rows, transposed or not; and for padded rows that
 * are not packed. */
static void test_bf16_blocks(void **state)
{
    (void)state;
    const struct kind to_bf16 = {BF16, BF16, BF16, 0, 0}, to_f32 = {BF16, BF16, F32, 1, 0};
    check(1030, 3, 2050, 1, 0, to_bf16, 0);
    check(1056, 3, 8224, 0, 1, to_bf16, 0);
    tensors_free(NULL);
    check(64, 33, 64, 0, 0, to_bf16, 2);
    check(64, 33, 64, 0, 1, to_f32, 2);
}

/* With k = 0, C becomes zero or, if the product is added to it, does not change. */
static void test_empty_k(void **state)
{
    (void)state;
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        struct tensor *a = tensor_random(12, (enum dtype)KINDS[kind].a, 1.0),
                      *b = tensor_random(12, (enum dtype)KINDS[kind].b, 1.0);
        struct tensor *c = tensor_random(12, (enum dtype)KINDS[kind].c, 1.0), *before = tensor_copy(c);
        struct op_case o;
        case_start(&o, OP_GEMM);
        o.attrs.gemm.m = 3;
        o.attrs.gemm.n = 4;
        o.attrs.gemm.lda = o.attrs.gemm.ldb = o.attrs.gemm.ldc = 4;
        o.attrs.gemm.a_type = KINDS[kind].a;
        o.attrs.gemm.b_type = KINDS[kind].b;
        o.attrs.gemm.c_type = KINDS[kind].c;
        o.attrs.gemm.accumulate = KINDS[kind].accumulate;
        case_tensor(&o, c, INOUT);
        case_tensor(&o, a, IN);
        case_tensor(&o, b, IN);
        case_work(&o);
        case_run(&o);
        for (int i = 0; i < 12; i++)
            assert_true(c->val[i] == (KINDS[kind].accumulate ? before->val[i] : 0.0));
    }
}

/* A product of some columns of A's rows is that of these columns alone. */
static void test_columns(void **state)
{
    enum { M = 5, N = 7, K = 16, LD = 40, FIRST = 24 };
    (void)state;
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        const enum dtype type = (enum dtype)KINDS[kind].a;
        struct tensor *wide = tensor_random(M * LD, type, 1.0), *narrow = tensor_new(M * K, type),
                      *b = tensor_random(K * N, (enum dtype)KINDS[kind].b, 1.0), *c[2];
        for (int64_t i = 0; i < M * K; i++)
            tensor_set(narrow, i, wide->val[i / K * LD + FIRST + i % K]);
        for (int part = 0; part < 2; part++) {
            struct op_case o;
            c[part] = tensor_new(M * N, F32);
            case_start(&o, OP_GEMM);
            o.attrs.gemm.m = M;
            o.attrs.gemm.n = o.attrs.gemm.ldb = o.attrs.gemm.ldc = N;
            o.attrs.gemm.k = K;
            o.attrs.gemm.lda = part ? LD : K;
            o.attrs.gemm.a_first = part ? FIRST : 0;
            o.attrs.gemm.a_type = KINDS[kind].a;
            o.attrs.gemm.b_type = KINDS[kind].b;
            o.attrs.gemm.c_type = F32;
            case_tensor(&o, c[part], OUT);
            case_tensor(&o, part ? wide : narrow, IN);
            case_tensor(&o, b, IN);
            case_work(&o);
            case_run(&o);
        }
        assert_memory_equal(c[0]->store, c[1]->store, M * N * sizeof(float));
    }
    tensors_free(NULL);
}

/* The workspace is bounded, whatever the size of the matrices. */
static void test_workspace(void **state)
{
    (void)state;
    struct op_attrs a = {0};
    a.gemm.m = 1 << 20;
    a.gemm.n = 1 << 17;
    for (int x = 0; x < 16; x++) {
        a.gemm.k = x & 8 ? 8224 : 1 << 16; /* k of 8224 is just above what AMX sums at once */
        a.gemm.a_type = a.gemm.b_type = x & 1 ? BF16 : F32;
        a.gemm.c_type = x & 2 ? BF16 : F32;
        a.gemm.ta = x >> 2 & 1;
        assert_true(op_workspace_bytes(OP_GEMM, &a, 1) <= 25 << 19);
    }
}

/* Computes C [m, n] with one tile on `threads` threads, from A's rows i and following and B's columns j and following. */
static float *product(const struct gemm_tile *tile, const struct tensor *a, const struct tensor *b, int64_t m, int64_t n,
                      int64_t k, int64_t i, int64_t j, int t, int threads)
{
    const struct gemm_shape s = {.m = m, .n = n, .k = k, .lda = t ? 160 : k, .ldb = t ? 160 : k, .ldc = n, .ta = t, .tb = !t};
    float *c = malloc((size_t)(m * n) * sizeof *c);
    void *work = malloc((size_t)gemm_workspace(tile, &s));
    assert_true(c && work);
    const int before = omp_get_max_threads();
    omp_set_num_threads(threads);
    gemm_run(tile, &s, c, (const float *)a->store + (t ? i : i * k), (const float *)b->store + (t ? j : j * k), work);
    omp_set_num_threads(before);
    free(work);
    return c;
}

/* Every tile that this CPU can run is right, and gives the same bits on any number of threads and for a part of C alone. */
static void test_tiles(void **state)
{
    (void)state;
    enum { M = 150, N = 141, K = 1030, I = 5, J = 7 };
    for (enum isa isa = ISA_PORTABLE; isa <= isa_of_processor(); isa++)
        for (int t = 0; t < 2; t++) {
            const struct gemm_tile *tile = gemm_tile_for(isa);
            struct tensor *a = tensor_random((int64_t)K * 160, F32, 1.0), *b = tensor_random((int64_t)K * 160, F32, 1.0);
            float *one = product(tile, a, b, M, N, K, 0, 0, t, 1), *three = product(tile, a, b, M, N, K, 0, 0, t, 3),
                  *part = product(tile, a, b, M - I, N - J, K, I, J, t, 2);
            double error = 0, norm = 0;
            for (int64_t i = 0; i < M; i++)
                for (int64_t j = 0; j < N; j++) {
                    double sum = 0;
                    for (int64_t l = 0; l < K; l++)
                        sum += at(a, t ? 160 : K, t, i, l) * at(b, t ? 160 : K, !t, l, j);
                    error += pow((double)one[i * N + j] - sum, 2);
                    norm += sum * sum;
                    if (i >= I && j >= J)
                        assert_memory_equal(&part[(i - I) * (N - J) + j - J], &one[i * N + j], sizeof *one);
                }
            assert_memory_equal(one, three, M * N * sizeof *one);
            assert_true(sqrt(error / norm) <= 2e-7 * sqrt(K + 4.0)); /* the limit of check() */
            free(one), free(three), free(part);
            tensors_free(NULL);
        }
}

#ifdef __x86_64__

enum {
    AMX_M = 224,
    AMX_N = 141,
    AMX_K = 8224,
    AMX_LD = 240
}; /* sizes above a task (192 x 128) and the depth of 8192, in steps of 32 */

/* Computes C [m, AMX_N - j] from A's rows i and following and B's columns j and following. */
static void *amx_product(const struct tensor *a, const struct tensor *b, int64_t i, int64_t m, int64_t j, int t, enum dtype type,
                         int threads)
{
    const int64_t n = AMX_N - j;
    const struct gemm_shape s = {.m = m,
                                 .n = n,
                                 .k = AMX_K,
                                 .lda = t ? AMX_LD : AMX_K,
                                 .ldb = t ? AMX_LD : AMX_K,
                                 .ldc = n,
                                 .ta = t,
                                 .tb = !t,
                                 .a_type = BF16,
                                 .b_type = BF16,
                                 .c_type = type};
    void *c = malloc((size_t)(m * n * dtype_size(type))), *work = malloc((size_t)gemm_amx_workspace(&s));
    assert_true(c && work);
    const int before = omp_get_max_threads();
    omp_set_num_threads(threads);
    gemm_amx_run(&s, c, (const bf16 *)a->store + (t ? i : i * AMX_K), (const bf16 *)b->store + (t ? j : j * AMX_K), work);
    omp_set_num_threads(before);
    free(work);
    return c;
}

/* Returns the error of every 13th row of [0, AMX_M), against fp64. */
static double amx_error(const struct tensor *a, const struct tensor *b, int t, enum dtype type, const void *c)
{
    double error = 0, norm = 0;
    for (int64_t i = 0; i < AMX_M; i += 13)
        for (int64_t j = 0; j < AMX_N; j++) {
            double sum = 0;
            for (int64_t l = 0; l < AMX_K; l++)
                sum += at(a, t ? AMX_LD : AMX_K, t, i, l) * at(b, t ? AMX_LD : AMX_K, !t, l, j);
            const int64_t e = i * AMX_N + j;
            error += pow((type == F32 ? (double)((const float *)c)[e] : (double)bf16_to_float(((const bf16 *)c)[e])) - sum, 2);
            norm += sum * sum;
        }
    return sqrt(error / norm);
}

/* AMX products are right, and have the same bits on any number of threads, for a part of C alone, and with A packed (rows not a
 * multiple of 32) or not. */
static void test_amx(void **state)
{
    (void)state;
    if (!isa_has_amx())
        skip();
    enum { I = 37, J = 7 };
    struct tensor *a = tensor_random((int64_t)AMX_K * AMX_LD, BF16, 1.0), *b = tensor_random((int64_t)AMX_K * AMX_LD, BF16, 1.0);
    for (int x = 0; x < 4; x++) {
        const enum dtype type = x & 1 ? BF16 : F32;
        const int t = x >> 1;
        const size_t e = (size_t)dtype_size(type);
        char *one = amx_product(a, b, 0, AMX_M, 0, t, type, 1), *three = amx_product(a, b, 0, AMX_M, 0, t, type, 3),
             *part = amx_product(a, b, I, AMX_M - I, J, t, type, 2);
        assert_memory_equal(one, three, AMX_M * AMX_N * e);
        for (size_t i = I; i < AMX_M; i++)
            assert_memory_equal(part + (i - I) * (AMX_N - J) * e, one + (i * AMX_N + J) * e, (AMX_N - J) * e);
        /* products are exact in fp32; sums are rounded more seldom than in check() */
        const double error = amx_error(a, b, t, type, one), limit = type == BF16 ? TOL_BF16 : 2e-7 * sqrt(AMX_K + 4.0);
        if (!(error <= limit))
            fail_msg("type %d transposed %d: error %.2e above %.2e", (int)type, t, error, limit);
        free(one), free(three), free(part);
    }
}

#else
static void test_amx(void **state)
{
    (void)state;
    skip();
}
#endif

/* A product that is stopped before it begins writes nothing. One that is stopped as soon as C has a first element leaves the rest
 * unwritten, except for tasks that other threads had begun. */
static void ends_early(const struct gemm_tile *tile, enum dtype type, int threads)
{
    enum { N = 1024, K = 64 };
    static bf16 a[N * K], b[N * K];
    static float c[N * N];
    atomic_int now = 1;
    struct cpu_stream stream = {.stop = &now};
    const struct gemm_shape s = {
        .m = N, .n = N, .k = K, .lda = K, .ldb = K, .ldc = N, .tb = 1, .a_type = type, .b_type = type, .stream = &stream};
    const float none = -7;
    const int before = omp_get_max_threads();
    void *work = malloc((size_t)(tile ? gemm_workspace(tile, &s) : ops_gemm_workspace(&s)));
    assert_non_null(work);
    omp_set_num_threads(threads);
    for (int i = 0; i < N * K; i++)
        a[i] = b[i] = bf16_from_float(1);
    for (int i = 0; i < N * N; i++)
        c[i] = none;
    for (int late = 0; late < 2; late++) {
        c[0] = late ? 0 : none;
        stream.stop = late ? (atomic_int *)(void *)c : &now;
        if (tile)
            gemm_run(tile, &s, c, a, b, work);
        else
            ops_gemm(&s, c, a, b, work);
        assert_true(late ? c[0] == K : c[0] == none);
        for (int j = N / 2; j < N && (!late || threads == 1); j++)
            assert_true(c[(N - 1) * N + j] == none);
    }
    omp_set_num_threads(before);
    free(work);
}

static void test_ends_early(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        for (enum isa isa = ISA_PORTABLE; isa <= isa_of_processor(); isa++)
            ends_early(gemm_tile_for(isa), BF16, threads);
        if (isa_has_amx())
            ends_early(NULL, BF16, threads);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_edges, tensors_free),
        cmocka_unit_test_teardown(test_blocks, tensors_free),
        cmocka_unit_test_teardown(test_bf16_blocks, tensors_free),
        cmocka_unit_test_teardown(test_empty_k, tensors_free),
        cmocka_unit_test_teardown(test_columns, tensors_free),
        cmocka_unit_test(test_workspace),
        cmocka_unit_test_teardown(test_tiles, tensors_free),
        cmocka_unit_test_teardown(test_amx, tensors_free),
        cmocka_unit_test(test_ends_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
