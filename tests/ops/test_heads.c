/* Compares delta and the merge of partial attention with fp64. */
#include "ops_test.h"

static void shape_case(struct op_case *c, enum op_kind kind, int64_t rows, int64_t heads, int64_t d, enum dtype t)
{
    case_start(c, kind);
    c->attrs.heads.rows = rows;
    c->attrs.heads.heads = (int32_t)heads;
    c->attrs.heads.head_dim = (int32_t)d;
    c->attrs.heads.dtype = (int32_t)t;
}

static const int64_t SHAPES[][3] = {{1, 1, 1},    {1, 3, 8},    {2, 1, 15},   {3, 2, 16},   {5, 1, 17},   {7, 5, 32},
                                    {257, 2, 40}, {131, 7, 64}, {64, 4, 256}, {9, 1, 1023}, {9, 2, 1024}, {5, 1, 1025}};
enum { N_SHAPES = sizeof SHAPES / sizeof *SHAPES };

static void check_delta(int64_t rows, int64_t heads, int64_t d, enum dtype t)
{
    int64_t n = rows * heads;
    struct tensor *o = tensor_random(n * d, t, 1.0), *go = tensor_random(n * d, t, 1.0);
    struct tensor *delta = tensor_new(n, F32), *want = tensor_new(n, F64);
    double size = 0, error = 0;
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int64_t j = 0; j < d; j++) {
            double term = o->val[i * d + j] * go->val[i * d + j];
            sum += term;
            size += term * term;
        }
        tensor_set(want, i, sum);
    }
    struct op_case c;
    shape_case(&c, OP_ATTN_DELTA, rows, heads, d, t);
    case_tensor(&c, delta, OUT);
    case_tensor(&c, o, IN);
    case_tensor(&c, go, IN);
    case_run(&c);
    for (int64_t i = 0; i < n; i++)
        error += (delta->val[i] - want->val[i]) * (delta->val[i] - want->val[i]);
    if (!(sqrt(error) <=
          /* absolute limit: sums of random signs may cancel, their terms do not; products are in fp32 for bf16, too */
          TOL_F32 * sqrt(size)))
        fail_msg("delta: error %.3e of %.3e (%lld x %lld x %lld)", sqrt(error), sqrt(size), (long long)rows, (long long)heads,
                 (long long)d);
}

static void test_delta(void **state)
{
    (void)state;
    for (int s = 0; s < N_SHAPES; s++)
        for (int t = F32; t <= BF16; t++)
            check_delta(SHAPES[s][0], SHAPES[s][1], SHAPES[s][2], (enum dtype)t);
    tensors_free(NULL);
}

/* Rows computed in several calls have the same bits as rows computed in one, since programs compute delta by row chunks of any
 * size. */
static void test_delta_pieces(void **state)
{
    (void)state;
    enum { ROWS = 300, HEADS = 3, D = 64 };
    struct tensor *o = tensor_random(ROWS * HEADS * D, BF16, 1.0), *go = tensor_random(ROWS * HEADS * D, BF16, 1.0);
    struct tensor *delta = tensor_new(ROWS * HEADS, F32), *piece = tensor_new(ROWS * HEADS, F32);
    op_kernel *table[OP_COUNT] = {0};
    struct op_case c;
    assert_int_equal(ops_cpu_kernels(table), OK);
    shape_case(&c, OP_ATTN_DELTA, ROWS, HEADS, D, BF16);
    assert_int_equal(table[OP_ATTN_DELTA](&c.attrs, (void *[]){delta->store, o->store, go->store}, NULL), OK);
    for (int64_t r = 0; r < ROWS; r += 7) {
        c.attrs.heads.rows = r + 7 < ROWS ? 7 : ROWS - r;
        int64_t at = r * HEADS;
        void *arg[] = {(float *)piece->store + at, (bf16 *)o->store + at * D, (bf16 *)go->store + at * D};
        assert_int_equal(table[OP_ATTN_DELTA](&c.attrs, arg, NULL), OK);
    }
    assert_memory_equal(delta->store, piece->store, ROWS * HEADS * 4);
}

enum { EMPTY_NEITHER, EMPTY_PART, EMPTY_OLD, EMPTY_BOTH };

/* Tells for a row and head which of the two sets of keys is empty. */
static int emptiness(int64_t i)
{
    return i % 7 == 3 ? EMPTY_PART : i % 7 == 5 ? EMPTY_OLD : i % 11 == 6 ? EMPTY_BOTH : EMPTY_NEITHER;
}

static void clear(struct tensor *o, int64_t i, int64_t d, struct tensor *lse, int64_t at)
{
    for (int64_t j = 0; j < d; j++)
        tensor_set(o, i * d + j, 0);
    tensor_set(lse, at, -INFINITY);
}

static void check_merge(int64_t rows, int64_t heads, int64_t d, double spread)
{
    int64_t n = rows * heads;
    struct tensor *o = tensor_random(n * d, F32, 1.0), *part = tensor_random(n * d, F32, 1.0);
    struct tensor *lse = tensor_random(n, F32, spread), *lse_part = tensor_random(n, F32, spread);
    struct tensor *want = tensor_new(n * d, F64), *want_lse = tensor_new(n, F64);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i % heads * rows + i / heads;
        int empty = emptiness(i);
        if (empty == EMPTY_PART || empty == EMPTY_BOTH)
            clear(part, i, d, lse_part, at);
        if (empty == EMPTY_OLD || empty == EMPTY_BOTH)
            clear(o, i, d, lse, at);
        double a = lse->val[at], b = lse_part->val[at], m = fmax(a, b);
        double sum = empty == EMPTY_BOTH ? -INFINITY : m + log(exp(a - m) + exp(b - m));
        tensor_set(want_lse, at, sum);
        for (int64_t j = 0; j < d; j++)
            tensor_set(want, i * d + j,
                       empty == EMPTY_BOTH ? 0 : exp(a - sum) * o->val[i * d + j] + exp(b - sum) * part->val[i * d + j]);
    }
    struct op_case c;
    shape_case(&c, OP_ATTN_MERGE, rows, heads, d, F32);
    case_tensor(&c, o, INOUT);
    case_tensor(&c, lse, INOUT);
    case_tensor(&c, part, IN);
    case_tensor(&c, lse_part, IN);
    case_run(&c);
    check_error("merge", o->val, want->val, n * d, TOL_F32);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i % heads * rows + i / heads;
        double error = lse->val[at] == want_lse->val[at] ? 0 : fabs(lse->val[at] - want_lse->val[at]);
        if (!(error <= 1.2e-7 * fmax(1, fabs(want_lse->val[at])))) /* limit: one rounding of each of two terms */
            fail_msg("lse %.9g, not %.9g", lse->val[at], want_lse->val[at]);
        for (int64_t j = 0; j < d && emptiness(i) != EMPTY_NEITHER; j++)
            assert_true(o->val[i * d + j] == want->val[i * d + j]);
        assert_true(emptiness(i) == EMPTY_NEITHER || lse->val[at] == want_lse->val[at]);
    }
}

static void test_merge(void **state)
{
    (void)state;
    for (int s = 0; s < N_SHAPES; s++)
        for (int k = 0; k < 3; k++) /* similar weights; one near 1; one that underflows to 0 */
            check_merge(SHAPES[s][0], SHAPES[s][1], SHAPES[s][2], (double[]){1, 20, 300}[k]);
    tensors_free(NULL);
}

/* A NaN in either lse appears in o and lse of the same row and head, and nowhere else. */
static void test_nan(void **state)
{
    (void)state;
    enum { ROWS = 4, HEADS = 2, D = 24 };
    for (int which = 0; which < 2; which++) {
        struct tensor *o = tensor_random(ROWS * HEADS * D, F32, 1.0), *part = tensor_random(ROWS * HEADS * D, F32, 1.0);
        struct tensor *lse = tensor_random(ROWS * HEADS, F32, 1.0), *lse_part = tensor_random(ROWS * HEADS, F32, 1.0);
        tensor_set(which ? lse : lse_part, ROWS + 2, (double)NAN); /* head 1, row 2 */
        struct op_case c;
        shape_case(&c, OP_ATTN_MERGE, ROWS, HEADS, D, F32);
        case_tensor(&c, o, INOUT);
        case_tensor(&c, lse, INOUT);
        case_tensor(&c, part, IN);
        case_tensor(&c, lse_part, IN);
        case_run(&c);
        for (int64_t i = 0; i < ROWS * HEADS; i++) {
            int bad = i == 2 * HEADS + 1;
            assert_true(isnan(lse->val[i % HEADS * ROWS + i / HEADS]) == bad);
            for (int64_t j = 0; j < D; j++)
                assert_true(isnan(o->val[i * D + j]) == bad);
        }
    }
}

/* Heads are joined from parts of their own and a shared one; splitting a gradient sums the shared part over heads, in their order,
 * on top of what is there. */
static void check_join(int64_t rows, int64_t heads, int64_t own, int64_t shared, enum dtype t)
{
    const int64_t wide = own + shared;
    struct tensor *y = tensor_new(rows * heads * wide, t), *x = tensor_random(rows * heads * own, t, 1.0),
                  *z = tensor_random(rows * shared, t, 1.0), *dy = tensor_random(rows * heads * wide, F32, 1.0),
                  *dx = tensor_new(rows * heads * own, F32), *dz = tensor_random(rows * shared, F32, 1.0),
                  *before = tensor_copy(dz);
    struct op_case c;
    for (int kind = 0; kind < 3; kind++) {
        const int add = kind == 2;
        case_start(&c, kind == 0 ? OP_HEADS_JOIN : OP_HEADS_SPLIT);
        c.attrs.join.rows = rows;
        c.attrs.join.heads = (int32_t)heads;
        c.attrs.join.own = (int32_t)own;
        c.attrs.join.shared = (int32_t)shared;
        c.attrs.join.dtype = (int32_t)(kind == 0 ? t : F32);
        c.attrs.join.accumulate = add;
        case_tensor(&c, kind == 0 ? y : dx, OUT);
        case_tensor(&c, kind == 0 ? x : dz, kind == 0 ? IN : add ? INOUT : OUT);
        case_tensor(&c, kind == 0 ? z : dy, IN);
        if (add)
            for (int64_t i = 0; i < rows * shared; i++)
                tensor_set(dz, i, before->val[i]);
        case_run(&c);
        for (int64_t i = 0; i < rows * heads * wide; i++) {
            const int64_t head = i / wide, j = i % wide;
            if (kind == 0)
                assert_true(y->val[i] == (j < own ? x->val[head * own + j] : z->val[head / heads * shared + j - own]));
            else if (j < own)
                assert_true(dx->val[head * own + j] == dy->val[i]);
        }
        for (int64_t i = 0; kind > 0 && i < rows * shared; i++) {
            float sum = add ? (float)before->val[i] : 0.0f;
            for (int64_t h = 0; h < heads; h++)
                sum += (float)dy->val[(i / shared * heads + h) * wide + own + i % shared];
            assert_true(dz->val[i] == (double)sum);
        }
    }
    tensors_free(NULL);
}

static void test_join(void **state)
{
    (void)state;
    for (int t = F32; t <= BF16; t++) {
        check_join(1, 1, 1, 1, (enum dtype)t);
        check_join(3, 5, 12, 8, (enum dtype)t);
        check_join(257, 2, 128, 64, (enum dtype)t);
        check_join(9, 3, 17, 33, (enum dtype)t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_delta, tensors_free), cmocka_unit_test_teardown(test_delta_pieces, tensors_free),
        cmocka_unit_test_teardown(test_merge, tensors_free), cmocka_unit_test_teardown(test_nan, tensors_free),
        cmocka_unit_test_teardown(test_join, tensors_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
