/* Compares NF4 and int8 with bitsandbytes' results in tests/golden/nf4.json and int8.json, made by make_nf4.py and make_int8.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/quantised.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Returns the CRC-32 of zlib. */
static uint32_t crc(const void *data, int64_t n)
{
    static uint32_t table[256];
    const uint8_t *b = data;
    uint32_t c = ~0u;
    for (uint32_t i = 0; table[255] == 0 && i < 256; i++) {
        table[i] = i;
        for (int k = 0; k < 8; k++)
            table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0xedb88320u : 0);
    }
    for (int64_t i = 0; i < n; i++)
        c = c >> 8 ^ table[(c ^ b[i]) & 255];
    return ~c;
}

static float middle(int j)
{
    return (nf4_map[j] + nf4_map[j + 1]) / 2.0f;
}

/* Fills in the same numbers as make_nf4.py. */
static void fill(float *x, int64_t n, int seed)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t a = (uint32_t)((uint64_t)i * 2654435761u + (uint64_t)seed * 40503 + 12345), b = a * 1664525u + 1013904223u;
        double sum = (double)((a >> 8 & 0xffff) + (b >> 8 & 0xffff)) - 65535.0;
        x[i] = (float)(sum / 0x1p21 * (double)(1 + i / 64 * 7 % 11));
    }
    if (seed == 1)
        for (int64_t i = 64; i < 256; i++)
            x[i] = i < 128 ? 0.0f : (float)(x[i] * (i < 192 ? 0x1p-130 : 0x1p-120));
    for (int64_t k = 0; seed == 2 && k < n / 64; k++) {
        x[64 * k] = k % 2 ? 1.0f : -1.0f;
        for (int j = 0; j < 15; j++) {
            x[64 * k + 1 + j] = middle(j);
            x[64 * k + 16 + j] = nextafterf(middle(j), 1.0f);
            x[64 * k + 31 + j] = nextafterf(middle(j), -1.0f);
        }
    }
}

static uint32_t number(const json_t *of, const char *key)
{
    return (uint32_t)json_integer_value(json_object_get(of, key));
}

static double real(const json_t *text)
{
    return strtod(json_string_value(text), NULL);
}

static void check_numbers(const void *packed, int64_t n, enum nf4_scales s, const json_t *want)
{
    struct nf4_parts p = nf4_parts((void *)(uintptr_t)packed, n, s);
    float *y = malloc((size_t)n * sizeof *y);
    bf16 *z = malloc((size_t)n * sizeof *z);
    for (int64_t i = 0; i < n; i++) {
        y[i] = nf4_map[nf4_code(p.code, i)] * nf4_scale(packed, n, s, i / NF4_BLOCK);
        z[i] = bf16_from_float(y[i]);
    }
    assert_int_equal(crc(y, n * 4), number(want, "fp32"));
    assert_int_equal(crc(z, n * 2), number(want, "bf16"));
    free(z);
    free(y);
}

static void check_case(const json_t *want)
{
    const int64_t n = json_integer_value(json_object_get(want, "n")), blocks = nf4_blocks(n);
    float *x = malloc((size_t)n * sizeof *x), *scale = malloc((size_t)blocks * sizeof *scale);
    fill(x, n, (int)number(want, "seed"));
    assert_int_equal(crc(x, n * 4), number(want, "numbers"));
    for (enum nf4_scales s = NF4_PLAIN; s <= NF4_NESTED; s++) {
        const json_t *part = json_object_get(want, s == NF4_PLAIN ? "plain" : "nested");
        void *packed = calloc(1, (size_t)nf4_bytes(n, s));
        struct nf4_parts p = nf4_parts(packed, n, s);
        nf4_quantise(x, n, scale, p.code);
        nf4_pack_scales(scale, n, s, packed);
        assert_int_equal(crc(p.code, ceil_div(n, 2)), number(want, "code"));
        if (s == NF4_PLAIN) {
            assert_int_equal(crc(p.scale, blocks * 4), number(part, "scale"));
        } else {
            assert_true((double)*p.mean == real(json_object_get(part, "mean")));
            assert_int_equal(crc(p.most, ceil_div(blocks, NF4_NESTED_BLOCK) * 4), number(part, "most"));
            assert_int_equal(crc(p.scale_code, blocks), number(part, "scale"));
        }
        check_numbers(packed, n, s, part);
        free(packed);
    }
    free(scale);
    free(x);
}

static json_t *load(const char *name)
{
    char path[512];
    json_error_t error;
    snprintf(path, sizeof path, "%s/tests/golden/%s", getenv("LTRAIN_SOURCE_ROOT") ? getenv("LTRAIN_SOURCE_ROOT") : ".", name);
    json_t *all = json_load_file(path, 0, &error);
    if (!all)
        fail_msg("%s: %s", path, error.text);
    return all;
}

static void bits_of_bitsandbytes(void **state)
{
    size_t i;
    json_t *want, *all = load("nf4.json");
    (void)state;
    for (i = 0; i < NF4_VALUES; i++)
        assert_true((double)nf4_map[i] == real(json_array_get(json_object_get(all, "map"), i)));
    void *packed = calloc(1, (size_t)nf4_bytes(1, NF4_NESTED));
    nf4_pack_scales((const float[]){1}, 1, NF4_NESTED, packed);
    assert_int_equal(crc(nf4_parts(packed, 1, NF4_NESTED).nested, NF4_NESTED_VALUES * 4), number(all, "nested_map"));
    free(packed);
    assert_true(json_array_size(json_object_get(all, "cases")) > 20);
    json_array_foreach(json_object_get(all, "cases"), i, want) check_case(want);
    json_decref(all);
}

static void check_int8(const json_t *want)
{
    const int64_t rows = json_integer_value(json_object_get(want, "rows")),
                  columns = json_integer_value(json_object_get(want, "columns")), n = rows * columns;
    const struct quantised q = {QUANTISED_INT8, rows, columns};
    float *x = malloc((size_t)n * sizeof *x), *y = malloc((size_t)n * sizeof *y), *scale = calloc(1, (size_t)quantised_bytes(&q));
    bf16 *z = malloc((size_t)n * sizeof *z);
    int8_t *code = (int8_t *)scale + quantised_scale_bytes(&q);
    fill(x, n, (int)number(want, "seed"));
    assert_int_equal(crc(x, n * 4), number(want, "numbers"));
    for (int64_t i = 0; i < rows; i++)
        scale[i] = rows8_quantise(x + i * columns, columns, code + i * columns);
    assert_int_equal(crc(scale, rows * 4), number(want, "scale"));
    assert_int_equal(crc(code, n), number(want, "code"));
    quantised_numbers(scale, &q, 0, n, y);
    for (int64_t i = 0; i < n; i++)
        z[i] = bf16_from_float(y[i]);
    assert_int_equal(crc(y, n * 4), number(want, "fp32"));
    assert_int_equal(crc(z, n * 2), number(want, "bf16"));
    free(z);
    free(scale);
    free(y);
    free(x);
}

static void int8_of_bitsandbytes(void **state)
{
    size_t i;
    json_t *want, *all = load("int8.json");
    (void)state;
    assert_true(json_array_size(json_object_get(all, "cases")) > 20);
    json_array_foreach(json_object_get(all, "cases"), i, want) check_int8(want);
    json_decref(all);
}

/* Values outside the range of fp16. */
static void beyond_fp16(void **state)
{
    const float x[4] = {-65519.996f, 1e-8f, 65504.0f, 2.0f}, larger[2] = {1.0f, -65520.0f};
    int8_t code[4];
    (void)state;
    assert_true(rows8_quantise(x, 4, code) == 65504.0f);
    assert_int_equal(code[0], -127);
    assert_int_equal(code[1], 0);
    assert_int_equal(code[2], 127);
    assert_true(isinf(rows8_quantise(larger, 2, code)));
    assert_true(rows8_quantise(x + 1, 1, code) == 0.0f && code[0] == 0);
}

/* A matrix that is quantised in pieces, cut between blocks, equals one quantised as a whole. */
static void pieces(void **state)
{
    enum { N = 64 * 50 + 21 };
    float x[N], whole[51], part[51];
    uint8_t code[N / 2 + 1], other[N / 2 + 1];
    (void)state;
    fill(x, N, 0);
    nf4_quantise(x, N, whole, code);
    for (int64_t at = 0; at < N; at += 64 * 7)
        nf4_quantise(x + at, min_i64(64 * 7, N - at), part + at / 64, other + at / 2);
    assert_memory_equal(whole, part, sizeof whole);
    assert_memory_equal(code, other, sizeof code);
}

/* A matrix of 4096 x 4096 has 4.13 bits a number. */
static void sizes(void **state)
{
    const int64_t n = 4096 * 4096;
    (void)state;
    assert_true((double)nf4_bytes(n, NF4_NESTED) * 8 / (double)n < 4.1276);
    assert_true((double)nf4_bytes(n, NF4_PLAIN) * 8 / (double)n < 4.5001);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bits_of_bitsandbytes), cmocka_unit_test(int8_of_bitsandbytes),
                                       cmocka_unit_test(beyond_fp16), cmocka_unit_test(pieces), cmocka_unit_test(sizes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
