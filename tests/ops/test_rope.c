/* Compares rotary embedding with libm in long double, also at far positions, and tests its inverse. */
#include "ops_test.h"

/* number of elements of a head that are rotated (0: all); 1: pairs are neighbouring elements */
static int part, interleaved;
/* element of a head at which the rotated ones begin */
static int begin;

static void run(struct tensor *x, struct tensor *pos, struct tensor *freq, int64_t rows, int heads, int head_dim, int inverse)
{
    struct op_case c;
    case_start(&c, OP_ROPE);
    c.attrs.rope.rows = rows;
    c.attrs.rope.heads = heads;
    c.attrs.rope.head_dim = head_dim;
    c.attrs.rope.x_type = x->dtype;
    c.attrs.rope.inverse = inverse;
    c.attrs.rope.rotated = part;
    c.attrs.rope.interleaved = interleaved;
    c.attrs.rope.first = begin;
    case_tensor(&c, x, INOUT);
    case_tensor(&c, pos, IN);
    case_tensor(&c, freq, IN);
    case_run(&c);
}

static void check(int64_t rows, int heads, int head_dim, enum dtype t, int64_t first, int inverse)
{
    const int64_t rotated = part ? part : head_dim, half = rotated / 2, n = rows * heads * head_dim;
    const int64_t step = interleaved ? 2 : 1, apart = interleaved ? 1 : half;
    struct tensor *x = tensor_random(n, t, 1.0), *before = tensor_copy(x), *want = tensor_new(n, F64);
    struct tensor *pos = tensor_new(rows, I32), *freq = tensor_new(half, F32);
    for (int64_t i = 0; i < rows; i++)
        tensor_set(pos, i, (double)(first + 3 * i));
    for (int64_t j = 0; j < half; j++)
        tensor_set(freq, j, pow(10000.0, -2.0 * (double)j / (double)rotated));
    for (int64_t i = 0; i < n; i++)
        tensor_set(want, i, x->val[i]);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < half; j++) {
            long double angle = (long double)pos->val[i] * freq->val[j];
            double c = (double)cosl(angle), s = (double)sinl(angle) * (inverse ? -1.0 : 1.0);
            for (int h = 0; h < heads; h++) {
                int64_t lo = (i * heads + h) * head_dim + begin + step * j, hi = lo + apart;
                tensor_set(want, lo, x->val[lo] * c - x->val[hi] * s);
                tensor_set(want, hi, x->val[hi] * c + x->val[lo] * s);
            }
        }
    run(x, pos, freq, rows, heads, head_dim, inverse);
    /* limit: each element sums two fp32 products of numbers with an error of 1e-7 */
    check_error("rope", x->val, want->val, n, t == BF16 ? TOL_BF16 : 2e-7);
    run(x, pos, freq, rows, heads, head_dim, !inverse);
    check_error("rope and back", x->val, before->val, n, t == BF16 ? 2 * TOL_BF16 : 4e-7);
}

static void test_rope(void **state)
{
    (void)state;
    static const int dims[] = {2, 4, 6, 32, 34, 64, 128, 256, 2050};
    static const int64_t firsts[] = {0, 1000, 430080, 8000000, 2147000000};
    for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
        for (size_t f = 0; f < sizeof firsts / sizeof *firsts; f++)
            for (int t = F32; t <= BF16; t++)
                check(f % 2 ? 1 : 19, 1 + (int)(d + f) % 3, dims[d], (enum dtype)t, firsts[f], (int)f % 2);
    tensors_free(NULL);
}

/* Tests rotating a part of each head, the first elements or others, which leaves the rest unchanged; pairs of neighbours; both
 * together. */
static void test_variants(void **state)
{
    (void)state;
    static const int dims[][2] = {{4, 2}, {34, 6}, {64, 16}, {128, 96}, {2090, 2050}};
    for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
        for (int kind = 1; kind < 4; kind++)
            for (int t = F32; t <= BF16; t++) {
                part = kind & 1 ? dims[d][1] : 0, interleaved = kind >> 1;
                check(d % 2 ? 1 : 19, 1 + (int)d % 3, dims[d][0], (enum dtype)t, kind == 1 ? 0 : 430080, kind == 2);
            }
    for (int t = F32; t <= BF16; t++) /* the last elements of a head */
        for (interleaved = 0; interleaved < 2; interleaved++) {
            part = 6, begin = 9;
            check(7, 3, 15, (enum dtype)t, 1000, interleaved);
            part = 64, begin = 128;
            check(19, 2, 192, (enum dtype)t, 430080, !interleaved);
        }
    part = interleaved = begin = 0;
    tensors_free(NULL);
}

/* Queries are scaled by 1 + slope log(1 + position / period), in both directions. */
static void test_slope(void **state)
{
    (void)state;
    enum { ROWS = 40, HEAD = 16, PERIOD = 7 };
    struct tensor *x = tensor_random(ROWS * HEAD, F32, 1.0), *plain = tensor_copy(x), *pos = tensor_new(ROWS, I32),
                  *freq = tensor_new(HEAD / 2, F32);
    for (int64_t j = 0; j < HEAD / 2; j++)
        tensor_set(freq, j, pow(10000.0, -2.0 * (double)j / HEAD));
    for (int64_t i = 0; i < ROWS; i++)
        tensor_set(pos, i, (double)(i == ROWS - 1 ? 2147000000 : i));
    for (int inverse = 0; inverse < 2; inverse++) {
        struct op_case c;
        case_start(&c, OP_ROPE);
        c.attrs.rope.rows = ROWS;
        c.attrs.rope.heads = 1;
        c.attrs.rope.head_dim = HEAD;
        c.attrs.rope.x_type = F32;
        c.attrs.rope.inverse = inverse;
        c.attrs.rope.slope = 0.25f;
        c.attrs.rope.period = PERIOD;
        case_tensor(&c, x, INOUT);
        case_tensor(&c, pos, IN);
        case_tensor(&c, freq, IN);
        case_run(&c);
        run(plain, pos, freq, ROWS, 1, HEAD, inverse);
        for (int64_t i = 0; i < ROWS; i++) {
            double factor = 1.0 + 0.25 * log(1.0 + floor(pos->val[i] / PERIOD));
            for (int64_t j = 0; j < HEAD; j++)
                tensor_set(plain, i * HEAD + j, plain->val[i * HEAD + j] * factor);
        }
        check_error("scaled queries", x->val, plain->val, ROWS * HEAD, 1e-6);
    }
    tensors_free(NULL);
}

/* The product of a rotated query and key depends on their distance only, wherever they are. */
static void test_distance(void **state)
{
    (void)state;
    enum { HEAD = 64 };
    static const int64_t firsts[] = {0, 1 << 20, 1 << 24, 2147000000};
    struct tensor *freq = tensor_new(HEAD / 2, F32), *pos = tensor_new(2, I32);
    const struct tensor *both = tensor_random(2 * HEAD, F32, 1.0);
    double first = 0.0;
    for (int64_t j = 0; j < HEAD / 2; j++)
        tensor_set(freq, j, pow(500000.0, -2.0 * (double)j / HEAD));
    for (size_t f = 0; f < sizeof firsts / sizeof *firsts; f++) {
        struct tensor *x = tensor_copy(both);
        double product = 0.0;
        tensor_set(pos, 0, (double)(firsts[f] + 12345));
        tensor_set(pos, 1, (double)firsts[f]);
        run(x, pos, freq, 2, 1, HEAD, 0);
        for (int64_t j = 0; j < HEAD; j++)
            product += x->val[j] * x->val[HEAD + j];
        first = f == 0 ? product : first;
        assert_true(fabs(product - first) < 5e-6); /* 64 products of numbers of size 1, each with an error of 2e-7 */
    }
    tensors_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_rope, tensors_free), cmocka_unit_test_teardown(test_variants, tensors_free),
        cmocka_unit_test_teardown(test_distance, tensors_free), cmocka_unit_test_teardown(test_slope, tensors_free)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
