/* Tests casts: to fp32 they are exact, to bf16 they round to nearest even. */
#include "ops_test.h"

static struct tensor *cast(struct tensor *x, enum dtype type)
{
    struct tensor *y = tensor_new(x->n, type);
    struct op_case c;
    case_start(&c, OP_CAST);
    c.attrs.cast.n = x->n;
    c.attrs.cast.y_type = (int32_t)type;
    c.attrs.cast.x_type = (int32_t)x->dtype;
    case_tensor(&c, y, OUT);
    case_tensor(&c, x, IN);
    case_run(&c);
    return y;
}

static void test_sizes(void **state)
{
    (void)state;
    const int64_t sizes[] = {1, 2, 15, 17, 1023, 1024, 1025, 16384, 16385, 50021};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int64_t n = sizes[s];
        struct tensor *f = tensor_random(n, F32, 3.0), *b = tensor_copy(cast(f, BF16));
        for (int64_t i = 0; i < n; i++)
            assert_int_equal(((bf16 *)b->store)[i], bf16_from_float(((float *)f->store)[i]));
        assert_memory_equal(cast(b, F32)->val, b->val, n * 8);
        assert_memory_equal(cast(f, F32)->store, f->store, n * 4);
        assert_memory_equal(cast(b, BF16)->store, b->store, n * 2);
        tensors_free(NULL);
    }
}

/* Ties go to even, the largest floats to infinity, NaNs stay NaNs, and zeros keep their sign. */
static void test_rounding(void **state)
{
    (void)state;
    static const struct {
        uint32_t x;
        uint16_t y;
    } cases[] = {{0x3f808000, 0x3f80}, {0x3f818000, 0x3f82}, {0x3f808001, 0x3f81}, {0x3f807fff, 0x3f80},
                 {0x80000000, 0x8000}, {0x7f7fffff, 0x7f80}, {0xff800000, 0xff80}, {0x7f800001, 0x7fc0},
                 {0xffffffff, 0xffff}, {0x00000001, 0x0000}, {0x00008001, 0x0001}};
    enum { N = sizeof cases / sizeof *cases };
    struct tensor *x = tensor_new(N, F32);
    for (int i = 0; i < N; i++)
        memcpy((float *)x->store + i, &cases[i].x, 4);
    struct tensor *y = cast(x, BF16);
    for (int i = 0; i < N; i++)
        assert_int_equal(((bf16 *)y->store)[i], cases[i].y);
}

/* Numbers are multiplied in place by a number in memory. */
static void test_multiply(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 17, 1025, 50021};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int t = F32; t <= BF16; t++) {
            struct tensor *x = tensor_random(sizes[s], (enum dtype)t, 3.0), *factor = tensor_random(1, (enum dtype)t, 1.0);
            struct tensor *want = tensor_new(x->n, (enum dtype)t);
            for (int64_t i = 0; i < x->n; i++)
                tensor_set(want, i, (float)factor->val[0] * (float)x->val[i]);
            struct op_case c;
            case_start(&c, OP_MULTIPLY);
            c.attrs.cast.n = x->n;
            c.attrs.cast.x_type = c.attrs.cast.y_type = t;
            case_tensor(&c, x, INOUT);
            case_tensor(&c, factor, IN);
            case_run(&c);
            assert_memory_equal(x->val, want->val, (size_t)x->n * sizeof *x->val);
            tensors_free(NULL);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_sizes, tensors_free),
        cmocka_unit_test_teardown(test_rounding, tensors_free),
        cmocka_unit_test_teardown(test_multiply, tensors_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
