/* Tests that the table is complete, and that every op has a name, a signature and a cost. */
#include "ops_test.h"

static void test_table(void **state)
{
    (void)state;
    op_kernel *table[OP_COUNT] = {0};
    assert_int_equal(ops_cpu_kernels(table), OK);
    for (int i = 0; i < OP_COUNT; i++) {
        /* entries that other folders fill in */
        assert_int_equal(table[i] == NULL, i == OP_ATTN_FWD || i == OP_ATTN_BWD || i >= OP_ALL_GATHER ||
                                               op_class((enum op_kind)i) == OPS_RECURRENT);
        assert_non_null(op_name((enum op_kind)i));
        assert_in_range(op_arg_count((enum op_kind)i), 1, OP_MAX_ARGS);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(op_name((enum op_kind)i), op_name((enum op_kind)j));
    }
}

static void test_flops(void **state)
{
    (void)state;
    struct op_attrs a = {0};
    a.gemm.m = 3;
    a.gemm.n = 5;
    a.gemm.k = 7;
    assert_true(op_flops(OP_GEMM, &a, 0.0) == 210.0);
    struct op_attrs b = {0};
    b.attn.hq = 4;
    b.attn.head_dim = 64;
    assert_true(op_flops(OP_ATTN_FWD, &b, 10.0) == 4.0 * 10.0 * 4 * 64);
    assert_true(op_flops(OP_ATTN_BWD, &b, 10.0) == 10.0 * 10.0 * 4 * 64);
    assert_true(op_flops(OP_COPY, &b, 0.0) == 0.0);
}

/* Experts are priced as one expert's product with an equal part of the rows; those of some experts cost as many parts. */
static void test_experts(void **state)
{
    (void)state;
    const struct op_attrs a = {
        .experts = {.rows = 80, .in = 6, .out = 10, .experts = 8, .first = 2, .count = 4, .transposed = 1, .w_type = BF16}};
    const struct op_product y = op_product(OP_EXPERTS, &a), dw = op_product(OP_EXPERTS_GRAD, &a);
    assert_true(y.m == 10 && y.n == 10 && y.k == 6 && !y.ta && y.tb && y.a_type == F32 && y.b_type == BF16);
    assert_true(dw.m == 10 && dw.n == 6 && dw.k == 10 && dw.ta && !dw.tb && dw.a_type == F32 && dw.b_type == F32);
    assert_true(op_flops(OP_EXPERTS, &a, 0) == 2.0 * 40 * 6 * 10 && op_flops(OP_EXPERTS_GRAD, &a, 0) == 2.0 * 40 * 6 * 10);
    assert_true(op_storage_type(OP_EXPERTS, &a) == BF16 && op_storage_type(OP_EXPERTS_GRAD, &a) == F32);
    assert_true(op_runs_on_gpus(OP_GEMM) && op_runs_on_gpus(OP_ALL_GATHER) && op_runs_on_gpus(OP_EXPERTS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_table), cmocka_unit_test(test_flops),
                                       cmocka_unit_test(test_experts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
