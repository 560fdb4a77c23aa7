/* Stacks of experts in MXFP4, as gpt-oss' files have them, beside the numbers that transformers makes of them
 * (tests/golden/make_mxfp4.py); and in the forms of other bases. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/quantised.h"
#include "engine/mxfp4.h"
#include "engine/packed.h"
#include "engine/weights.h"
#include "model/config/adapter_config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH = 512 };

static void must(enum status st)
{
    if (st != OK)
        fail_msg("%s", status_message());
}

/* The case's file, its model, and transformers' numbers. */
struct example {
    char path[PATH];
    struct model *m;
    struct st_file *f, *numbers;
};

static struct example open_example(void)
{
    struct example x;
    struct model_config c;
    char numbers[PATH + 64];
    snprintf(x.path, PATH, "%s/tests/golden/moe/gpt-oss-mxfp4", getenv("LTRAIN_SOURCE_ROOT"));
    snprintf(numbers, sizeof numbers, "%s/dequantised.safetensors", x.path);
    must(model_config_read(x.path, &c));
    assert_int_equal(c.mxfp4, 1);
    c.base = BASE_STORED;
    c.quantised = 0;
    must(model_create(&c, NULL, 0, &x.m));
    must(st_open(x.path, &x.f));
    must(st_open(numbers, &x.numbers));
    return x;
}

static void close_example(struct example *x)
{
    st_close(x->f);
    st_close(x->numbers);
    model_destroy(x->m);
}

/* Returns the model's next parameter in MXFP4 from the i-th on; NULL: there is none. */
static const struct model_param *next_stack(const struct example *x, int *i)
{
    while (*i < x->m->n_params)
        if (weights_has_mxfp4(x->f, &x->m->params[(*i)++]))
            return &x->m->params[*i - 1];
    return NULL;
}

/* Makes sure that elements [first, first + n) are transformers' bf16 numbers, in either type. */
static void check_range(const struct example *x, const struct model_param *p, int64_t first, int64_t n)
{
    bf16 *want = malloc((size_t)n * 2), *have = malloc((size_t)n * 2);
    float *wide = malloc((size_t)n * 4);
    must(st_read_bytes(x->numbers, p->name, first * 2, n * 2, want));
    must(weights_read(x->f, p, first, n, BF16, have));
    must(weights_read(x->f, p, first, n, F32, wide));
    assert_memory_equal(have, want, (size_t)n * 2);
    for (int64_t i = 0; i < n; i++) {
        const float number = bf16_to_float(want[i]);
        assert_memory_equal(&wide[i], &number, 4);
    }
    free(want);
    free(have);
    free(wide);
}

/* Numbers are transformers', whichever part of a stack is read. */
static void numbers_are_transformers(void **state)
{
    struct example x = open_example();
    const struct model_param *p;
    int stacks = 0;
    (void)state;
    must(weights_check(x.f, x.m, NULL, 0));
    for (int i = 0; (p = next_stack(&x, &i)); stacks++) {
        const int64_t n = model_param_stored(p), each = n / p->experts;
        check_range(&x, p, 0, n);
        check_range(&x, p, 1, 1);
        check_range(&x, p, p->shape[1] - 1, 2);
        check_range(&x, p, each - 5, each + 7);
        check_range(&x, p, n - 1, 1);
        check_range(&x, p, 33 * p->shape[1] + 3, p->shape[1]);
    }
    assert_int_equal(stacks, 2);
    close_example(&x);
}

/* An expert's matrix is packed byte for byte, and stands for the same numbers. */
static void packed_matrices_are_the_files(void **state)
{
    struct example x = open_example();
    const struct model_param *p;
    (void)state;
    for (int i = 0; (p = next_stack(&x, &i));) {
        const int64_t in = p->shape[0] / p->experts, out = p->shape[1];
        const struct quantised q = {QUANTISED_MXFP4, out, in};
        const char *name[MXFP4_TENSORS];
        must(weights_find_mxfp4(x.f, p, name));
        uint8_t *packed = calloc(1, (size_t)quantised_bytes(&q));
        for (int64_t e = 0; e < p->experts; e++) {
            must(mxfp4_read_packed(x.f, name, p, e, packed));
            for (int64_t at = 0; at < in * out; at++) {
                float have, want;
                quantised_numbers(packed, &q, at, 1, &have);
                must(weights_read(x.f, p, (e * in + at % in) * out + at / in, 1, F32, &want));
                assert_memory_equal(&have, &want, 4);
            }
        }
        free(packed);
    }
    close_example(&x);
}

/* Codes have a sign, two bits of exponent and one of mantissa; scales are powers of two, the least of them subnormal. */
static void values_follow_the_format(void **state)
{
    (void)state;
    for (int code = 0; code < MXFP4_VALUES; code++) {
        const int exponent = code >> 1 & 3, mantissa = code & 1;
        const double size = exponent > 0 ? ldexp(1 + 0.5 * mantissa, exponent - 1) : 0.5 * mantissa;
        const float want = (float)(code & 8 ? -size : size);
        assert_memory_equal(&mxfp4_map[code], &want, 4);
    }
    for (int scale = 0; scale < 255; scale++)
        assert_true(mxfp4_scale((uint8_t)scale) == (float)ldexp(1, scale - 127));
    assert_true(isfinite(6 * mxfp4_scale(MXFP4_LARGEST_SCALE)));
}

/* ---- other forms ---- */

/* Compares the packed matrices of a stack with the tensors of its file, each quantised by itself, and the numbers that come back. */
static void check_packed_stack(struct source *src, int param)
{
    const struct model_param *p = &src->model->params[param];
    const struct quantised q = model_quantised(&src->model->config, p);
    const int64_t n = q.rows * q.columns, each = quantised_bytes(&q), matrices = model_param_matrices(p);
    uint8_t *have = malloc((size_t)p->packed_bytes), *want = malloc((size_t)each);
    float *x = malloc((size_t)n * 4), *back = malloc((size_t)(n * matrices) * 4), *scale = malloc((size_t)n * 4);
    must(packed_read(src, param, 0, p->packed_bytes, have));
    must(packed_read_f32(src, param, 0, n * matrices, back));
    assert_int_equal(p->packed_bytes, matrices * each);
    for (int64_t m = 0; m < matrices; m++) {
        struct param_tensor t;
        model_param_tensor(p, p->split > 0 ? m : 0, &t);
        must(st_read_f32(src->file, t.name, p->split > 0 ? 0 : m * n, n, x));
        memset(want, 0, (size_t)each);
        uint8_t *codes = want + quantised_scale_bytes(&q);
        for (int64_t r = 0; r < q.rows && q.form == QUANTISED_INT8; r++)
            ((float *)want)[r] = rows8_quantise(x + r * q.columns, q.columns, (int8_t *)codes + r * q.columns);
        if (q.form != QUANTISED_INT8) {
            nf4_quantise(x, n, scale, codes);
            nf4_pack_scales(scale, n, quantised_scales(q.form), want);
        }
        assert_memory_equal(have + m * each, want, (size_t)each);
        quantised_numbers(want, &q, 0, n, x);
        assert_memory_equal(back + m * n, x, (size_t)n * 4);
    }
    free(have);
    free(want);
    free(x);
    free(back);
    free(scale);
}

/* In NF4 and int8 each expert's matrix is quantised by itself as files have it, whether they split a stack or not. */
static void stacks_are_packed_by_matrix(void **state)
{
    static const char *const models[] = {"qwen3_moe", "granitemoe"};
    static const enum model_base bases[] = {BASE_NF4, BASE_NF4_PLAIN, BASE_INT8};
    (void)state;
    for (int i = 0; i < 6; i++) {
        char path[PATH];
        struct model_config c;
        struct model *m;
        struct source src;
        int stacks = 0;
        snprintf(path, PATH, "%s/tests/golden/experts/%s", getenv("LTRAIN_SOURCE_ROOT"), models[i % 2]);
        must(model_config_read(path, &c));
        must(lora_parse("--lora", "r=2,targets=q_proj", &c.lora));
        c.base = bases[i / 2];
        must(model_create(&c, NULL, 0, &m));
        must(source_open(m, path, NULL, 0, &src));
        for (int k = 0; k < m->n_params; k++)
            if (model_param_is_stack(&m->params[k])) {
                check_packed_stack(&src, k);
                stacks++;
            }
        assert_true(stacks >= 2 && m->packed_params > 0);
        source_close(&src);
        model_destroy(m);
    }
}

/* ---- damaged files ---- */

/* Writes a copy of the example's file in which some bytes are others, and opens it. */
static struct st_file *open_damaged(const struct example *x, const char *copy, int64_t at, const void *bytes, size_t n)
{
    char path[PATH + 64];
    struct st_file *f;
    static char data[1 << 16];
    snprintf(path, sizeof path, "%s/model.safetensors", x->path);
    FILE *in = fopen(path, "rb");
    const size_t size = fread(data, 1, sizeof data, in);
    fclose(in);
    assert_true(size < sizeof data && at + (int64_t)n <= (int64_t)size);
    if (bytes)
        memcpy(data + at, bytes, n);
    FILE *out = fopen(copy, "wb");
    assert_int_equal(fwrite(data, 1, size, out), size);
    assert_int_equal(fclose(out), 0);
    must(st_open(copy, &f));
    return f;
}

/* Returns the place of a word in the example's file. */
static int64_t find_word(const struct example *x, const char *word)
{
    char path[PATH + 64], data[8192];
    snprintf(path, sizeof path, "%s/model.safetensors", x->path);
    FILE *in = fopen(path, "rb");
    const size_t size = fread(data, 1, sizeof data, in);
    fclose(in);
    const char *at = memmem(data, size, word, strlen(word));
    assert_non_null(at);
    return at - data;
}

static void expect(enum status st, const char *said)
{
    assert_int_equal(st, ERR_INVALID);
    if (!strstr(status_message(), said))
        fail_msg("no '%s' in: %s", said, status_message());
}

/* Missing tensors, other types and shapes, and scales that are no finite numbers are refused by name. */
static void damage_is_refused(void **state)
{
    static const char copy[] = "damaged.safetensors", name[] = "model.layers.0.mlp.experts.down_proj_scales";
    struct example x = open_example();
    const struct model_param *p = NULL;
    struct st_raw t;
    struct st_file *f;
    float value;
    int i = 0;
    (void)state;
    while ((p = next_stack(&x, &i)) && !strstr(p->name, "down_proj"))
        ;
    assert_non_null(p);
    must(st_find_raw(x.f, name, &t));
    f = open_damaged(&x, copy, t.at + t.bytes - 1, "\xfd", 1);
    expect(weights_read(f, p, model_param_stored(p) - 1, 1, F32, &value), "has the scale 253 (element 255)");
    must(weights_read(f, p, 0, 1, F32, &value));
    st_close(f);
    f = open_damaged(&x, copy, find_word(&x, "down_proj_scales"), "down_proj_scalex", 16);
    expect(weights_check(f, x.m, NULL, 0), "lack the tensor model.layers.0.mlp.experts.down_proj_scales");
    st_close(f);
    f = open_damaged(&x, copy, find_word(&x, "\"U8\""), "\"I8\"", 4);
    expect(weights_check(f, x.m, NULL, 0), "is of type I8, and MXFP4 is of U8");
    st_close(f);
    struct model_config other = x.m->config;
    struct model *wider;
    other.ffn = other.expert_ffn = 96;
    must(model_create(&other, NULL, 0, &wider));
    expect(weights_check(x.f, wider, NULL, 0), "has the shape [4, 128, 1, 16], config.json means [4, 192, 1, 16]");
    model_destroy(wider);
    unlink(copy);
    close_example(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(numbers_are_transformers),
                                       cmocka_unit_test(packed_matrices_are_the_files),
                                       cmocka_unit_test(values_follow_the_format), cmocka_unit_test(stacks_are_packed_by_matrix),
                                       cmocka_unit_test(damage_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
