/* Parts of a matrix in NF4: rows, columns, beginnings in the middle of a byte and of a block. */
#include "ops_test.h"

#include "base/nf4.h"

/* A matrix of n elements. */
static uint8_t *pack(int64_t n, enum nf4_scales s)
{
    float *scale = malloc((size_t)nf4_blocks(n) * sizeof *scale);
    uint8_t *packed = calloc(1, (size_t)nf4_bytes(n, s));
    struct tensor *x = tensor_random(n, F32, 0.3);
    nf4_quantise(x->store, n, scale, nf4_parts(packed, n, s).code);
    nf4_pack_scales(scale, n, s, packed);
    free(scale);
    return packed;
}

static void check(uint8_t *packed, int64_t n, enum nf4_scales s, int64_t first, int64_t rows, int64_t cols, int64_t ld, enum dtype type)
{
    struct nf4_parts p = nf4_parts(packed, n, s);
    struct tensor *y = tensor_new(rows * cols, type);
    struct op_case c;
    case_start(&c, OP_DEQUANTISE);
    c.attrs.dequantise.rows = rows;
    c.attrs.dequantise.cols = cols;
    c.attrs.dequantise.first = first;
    c.attrs.dequantise.ld = ld;
    c.attrs.dequantise.n = n;
    c.attrs.dequantise.y_type = (int32_t)type;
    c.attrs.dequantise.scales = (int32_t)s;
    case_tensor(&c, y, OUT);
    case_bytes(&c, p.code + first / 2, ceil_div(first + (rows - 1) * ld + cols, 2) - first / 2, 1, IN);
    case_bytes(&c, packed, nf4_scale_bytes(n, s), 4, IN);
    case_run(&c);
    for (int64_t i = 0; i < rows * cols; i++) {
        const int64_t e = first + i / cols * ld + i % cols;
        const float want = nf4_map[nf4_code(p.code, e)] * nf4_scale(packed, n, s, e / NF4_BLOCK);
        if (type == F32)
            assert_memory_equal((float *)y->store + i, &want, 4);
        else
            assert_int_equal(((bf16 *)y->store)[i], bf16_from_float(want));
    }
}

static void test_parts(void **state)
{
    static const int64_t sides[][2] = {{1, 1}, {3, 7}, {5, 64}, {8, 96}, {33, 200}, {70, 513}, {3, 9001}};
    (void)state;
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++)
        for (int k = 0; k < 4; k++) {
            const int64_t rows = sides[i][0], ld = sides[i][1], n = rows * ld, r0 = rows / 3, c0 = ld / 3;
            const enum nf4_scales s = k % 2 ? NF4_NESTED : NF4_PLAIN;
            const enum dtype type = k / 2 ? BF16 : F32;
            uint8_t *packed = pack(n, s);
            check(packed, n, s, 0, 1, n, n, type);
            check(packed, n, s, r0 * ld, rows - r0, ld, ld, type);
            check(packed, n, s, r0 * ld + c0, rows - r0, ld - c0, ld, type);
            check(packed, n, s, 0, rows, c0 + 1, ld, type);
            free(packed);
            tensors_free(NULL);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(test_parts, tensors_free)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
