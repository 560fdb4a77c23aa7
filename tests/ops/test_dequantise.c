/* Tests dequantising parts of a matrix: rows, columns, parts that begin in the middle of a byte and of a block. */
#include "ops_test.h"

#include "base/quantised.h"

static uint8_t *pack(const struct quantised *q)
{
    const int64_t n = q->rows * q->columns;
    float *scale = malloc((size_t)nf4_blocks(n) * sizeof *scale);
    uint8_t *packed = calloc(1, (size_t)quantised_bytes(q));
    struct tensor *x = tensor_random(n, F32, 0.3);
    if (q->form == QUANTISED_MXFP4) { /* any bytes are numbers, but for the largest scales */
        memcpy(packed + quantised_scale_bytes(q), x->store, (size_t)(n / 2));
        for (int64_t i = 0; i < n / MXFP4_BLOCK; i++)
            packed[i] = (uint8_t)(i * 37 % (MXFP4_LARGEST_SCALE + 1));
        free(scale);
        return packed;
    }
    if (q->form != QUANTISED_INT8) {
        nf4_quantise(x->store, n, scale, packed + quantised_scale_bytes(q));
        nf4_pack_scales(scale, n, quantised_scales(q->form), packed);
    }
    for (int64_t i = 0; i < q->rows && q->form == QUANTISED_INT8; i++)
        ((float *)packed)[i] = rows8_quantise((float *)x->store + i * q->columns, q->columns,
                                              (int8_t *)packed + quantised_scale_bytes(q) + i * q->columns);
    free(scale);
    return packed;
}

static void check(uint8_t *packed, const struct quantised *q, int64_t first, int64_t rows, int64_t cols, int64_t ld,
                  enum dtype type)
{
    const int64_t each = quantised_per_byte(q->form);
    uint8_t *codes = packed + quantised_scale_bytes(q);
    struct tensor *y = tensor_new(rows * cols, type);
    struct op_case c;
    case_start(&c, OP_DEQUANTISE);
    c.attrs.dequantise.rows = rows;
    c.attrs.dequantise.cols = cols;
    c.attrs.dequantise.first = first;
    c.attrs.dequantise.ld = ld;
    c.attrs.dequantise.n = q->rows * q->columns;
    c.attrs.dequantise.columns = q->columns;
    c.attrs.dequantise.y_type = (int32_t)type;
    c.attrs.dequantise.form = (int32_t)q->form;
    case_tensor(&c, y, OUT);
    case_bytes(&c, codes + first / each, ceil_div(first + (rows - 1) * ld + cols, each) - first / each, 1, IN);
    case_bytes(&c, packed, quantised_scale_bytes(q), 4, IN);
    case_run(&c);
    for (int64_t i = 0; i < rows * cols; i++) {
        float want;
        quantised_numbers(packed, q, first + i / cols * ld + i % cols, 1, &want);
        if (type == F32)
            assert_memory_equal((float *)y->store + i, &want, 4);
        else
            assert_int_equal(((bf16 *)y->store)[i], bf16_from_float(want));
    }
}

/* Matrices of a stack are dequantised together, each by its own scales. */
static void check_stack(enum quantised_form form, int64_t matrices, int64_t rows, int64_t columns, enum dtype type)
{
    const struct quantised q = {form, rows, columns};
    const int64_t n = rows * columns, stride = quantised_bytes(&q), scales = quantised_scale_bytes(&q);
    uint8_t *packed = malloc((size_t)(matrices * stride));
    for (int64_t m = 0; m < matrices; m++) {
        uint8_t *one = pack(&q);
        one[form == QUANTISED_MXFP4 ? 0 : scales] ^= (uint8_t)(m + 1);
        memcpy(packed + m * stride, one, (size_t)stride);
        free(one);
    }
    struct tensor *y = tensor_new(matrices * n, type);
    struct op_case c;
    case_start(&c, OP_DEQUANTISE);
    c.attrs.dequantise.rows = matrices;
    c.attrs.dequantise.cols = c.attrs.dequantise.ld = c.attrs.dequantise.n = n;
    c.attrs.dequantise.columns = columns;
    c.attrs.dequantise.stride = stride;
    c.attrs.dequantise.y_type = (int32_t)type;
    c.attrs.dequantise.form = (int32_t)form;
    case_tensor(&c, y, OUT);
    case_bytes(&c, packed + scales, (matrices - 1) * stride + ceil_div(n, quantised_per_byte(form)), 1, IN);
    case_bytes(&c, packed, (matrices - 1) * stride + scales, 4, IN);
    case_run(&c);
    for (int64_t i = 0; i < matrices * n; i++) {
        float want;
        quantised_numbers(packed + i / n * stride, &q, i % n, 1, &want);
        if (type == F32)
            assert_memory_equal((float *)y->store + i, &want, 4);
        else
            assert_int_equal(((bf16 *)y->store)[i], bf16_from_float(want));
    }
    free(packed);
    tensors_free(NULL);
}

static void test_stacks(void **state)
{
    (void)state;
    for (int k = 0; k < 8; k++) {
        const enum dtype type = k % 2 ? BF16 : F32;
        const enum quantised_form form = (enum quantised_form)(k / 2);
        check_stack(form, 1, 2, 32, type);
        check_stack(form, 3, 5, 64, type);
        check_stack(form, 2, 70, 96, type);
        if (form != QUANTISED_MXFP4)
            check_stack(form, 4, 3, 7, type);
    }
}

static void test_mxfp4_parts(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        const struct quantised q = {QUANTISED_MXFP4, 33, 160};
        uint8_t *packed = pack(&q);
        check(packed, &q, 0, 1, 33 * 160, 33 * 160, k ? BF16 : F32);
        check(packed, &q, 3 * 160 + 31, 30, 67, 160, k ? BF16 : F32);
        free(packed);
        tensors_free(NULL);
    }
}

static void test_parts(void **state)
{
    static const int64_t sides[][2] = {{1, 1}, {3, 7}, {5, 64}, {8, 96}, {33, 200}, {70, 513}, {3, 9001}};
    (void)state;
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++)
        for (int k = 0; k < 6; k++) {
            const int64_t rows = sides[i][0], ld = sides[i][1], n = rows * ld, r0 = rows / 3, c0 = ld / 3;
            const struct quantised q = {(enum quantised_form)(k / 2), rows, ld};
            const enum dtype type = k % 2 ? BF16 : F32;
            uint8_t *packed = pack(&q);
            check(packed, &q, 0, 1, n, n, type);
            check(packed, &q, r0 * ld, 1, (rows - r0) * ld, (rows - r0) * ld, type);
            check(packed, &q, r0 * ld, rows - r0, ld, ld, type);
            check(packed, &q, r0 * ld + c0, rows - r0, ld - c0, ld, type);
            check(packed, &q, 0, rows, c0 + 1, ld, type);
            free(packed);
            tensors_free(NULL);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(test_parts, tensors_free),
                                       cmocka_unit_test_teardown(test_mxfp4_parts, tensors_free),
                                       cmocka_unit_test_teardown(test_stacks, tensors_free)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
