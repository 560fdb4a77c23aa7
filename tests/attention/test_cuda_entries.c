/* Tests the CUDA attention functions without CUDA: which calls they refuse, and which family of kernels they choose (replaced by
 * stand-ins here). */
#include "attention/cuda_kernels.h"
#include "program/target.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const char *called;

#define FAMILY(name)                                                                                                 \
    enum status attn_##name##_forward(const struct op_attrs *attrs, void *const *arg, const struct attn_cuda *cuda,  \
                                      struct CUstream_st *stream)                                                    \
    {                                                                                                                \
        (void)attrs, (void)arg, (void)cuda, (void)stream;                                                            \
        called = #name;                                                                                              \
        return OK;                                                                                                   \
    }                                                                                                                \
    enum status attn_##name##_backward(const struct op_attrs *attrs, void *const *arg, const struct attn_cuda *cuda, \
                                       struct CUstream_st *stream)                                                   \
    {                                                                                                                \
        (void)attrs, (void)arg, (void)cuda, (void)stream;                                                            \
        called = #name;                                                                                              \
        return OK;                                                                                                   \
    }

FAMILY(sm80)
FAMILY(sm90)

static struct op_attrs good(void)
{
    struct op_attrs a = {0};
    a.attn.sq = a.attn.sk = 1000, a.attn.hq = 8, a.attn.hk = 2, a.attn.head_dim = 64, a.attn.dtype = BF16;
    a.attn.scale = 0.125f;
    return a;
}

static const struct attn_cuda h100 = {90, 132, 227 * 1024, ATTN_FAST}, a100 = {80, 108, 163 * 1024, ATTN_FAST};
static void *const aligned[12] = {0};

static void expect(const char *family, const struct op_attrs *a, const struct attn_cuda *cuda)
{
    assert_int_equal(attention_cuda_workspace_bytes(OP_ATTN_BWD, a, cuda),
                     (strcmp(family, "sm90") == 0 ? attn_sm90_workspace_bytes : attn_sm80_workspace_bytes)(OP_ATTN_BWD, a, cuda));
    called = NULL;
    assert_int_equal(attention_cuda_forward(a, aligned, cuda, NULL), OK);
    assert_string_equal(called, family);
    called = NULL;
    assert_int_equal(attention_cuda_backward(a, aligned, cuda, NULL), OK);
    assert_string_equal(called, family);
}

static void chooses(void **state)
{
    (void)state;
    const struct attn_cuda ada = {89, 128, 99 * 1024, ATTN_FAST}, blackwell = {100, 148, 227 * 1024, ATTN_FAST};
    struct op_attrs a = good();
    expect("sm90", &a, &h100);
    expect("sm80", &a, &a100);
    expect("sm80", &a, &ada);
    expect("sm80", &a, &blackwell); /* wgmma exists only on sm_90a */
    a.attn.head_dim = 160;          /* too wide for sm90's backward */
    assert_int_equal(attention_cuda_backward(&a, aligned, &h100, NULL), OK);
    assert_string_equal(called, "sm80");
    assert_int_equal(attention_cuda_forward(&a, aligned, &h100, NULL), OK);
    assert_string_equal(called, "sm90");
    a.attn.head_dim = 64, a.attn.value_dim = 160; /* values that are too wide have the same effect as heads that are too wide */
    assert_int_equal(attention_cuda_backward(&a, aligned, &h100, NULL), OK);
    assert_string_equal(called, "sm80");
    a.attn.value_dim = 32;
    expect("sm90", &a, &h100);
    expect("sm80", &a, &a100);
    a = good();
    a.attn.sk = 0; /* sm90 needs tensor maps, which cannot describe an empty tensor */
    expect("sm80", &a, &h100);
}

/* Calls are recognised whose sums may be added in varying order: only Hopper's own kernels, without caps and for heads that are
 * not too wide, fix the order. */
static void other_orders(void **state)
{
    (void)state;
    static const struct {
        int capability, shared_kib, head_dim;
        float cap;
        int fast;
    } cases[] = {{90, 227, 64, 0, 0}, {90, 227, 128, 0, 0},  {90, 227, 136, 0, 1}, {90, 227, 256, 0, 1}, {90, 227, 264, 0, 0},
                 {80, 163, 64, 0, 1}, {80, 163, 128, 50, 0}, {80, 163, 256, 0, 1}, {89, 99, 128, 0, 1},  {89, 99, 136, 0, 0}};
    struct op_attrs a = good();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        a.attn.head_dim = cases[i].head_dim, a.attn.value_dim = 0, a.attn.cap = cases[i].cap;
        assert_int_equal(target_can_be_fast(cases[i].capability, cases[i].shared_kib * 1024, &a), cases[i].fast);
    }
}

static void refuse(const struct op_attrs *a, const struct attn_cuda *cuda, void *const *arg)
{
    called = NULL;
    assert_int_equal(attention_cuda_forward(a, arg, cuda, NULL), ERR_INVALID);
    assert_int_equal(attention_cuda_backward(a, arg, cuda, NULL), ERR_INVALID);
    assert_null(called);
    assert_true(status_message()[0] != 0);
}

static void refuses(void **state)
{
    (void)state;
    const struct attn_cuda volta = {70, 80, 96 * 1024, ATTN_FAST};
    struct op_attrs a = good();
    refuse(&a, &volta, aligned);
    a = good(), a.attn.dtype = F32;
    refuse(&a, &a100, aligned);
    const struct attn_cuda ada = {89, 128, 99 * 1024, ATTN_FAST}; /* too little shared memory for wide heads */
    const int dims[] = {0, 4, 60, 257, 513, 520};
    for (int i = 0; i < 6; i++) {
        a = good(), a.attn.head_dim = dims[i];
        refuse(&a, &a100, aligned);
    }
    const int values[] = {4, 60, 257, 520};
    for (int i = 0; i < 4; i++) {
        a = good(), a.attn.value_dim = values[i];
        refuse(&a, &a100, aligned);
    }
    a = good(), a.attn.value_dim = 264;
    refuse(&a, &ada, aligned);
    a = good(), a.attn.head_dim = 264;
    refuse(&a, &ada, aligned);
    a.attn.cap = 30.0f;
    refuse(&a, &a100, aligned);
    a = good(), a.attn.hq = 7;
    refuse(&a, &a100, aligned);
    a = good(), a.attn.sq = ((int64_t)1 << 30) + 1;
    refuse(&a, &a100, aligned);
    a = good(), a.attn.sk = 1 << 30, a.attn.hk = a.attn.hq = 128;
    refuse(&a, &a100, aligned);
    a = good(), a.attn.scale = 0;
    refuse(&a, &a100, aligned);
}

/* delta, lse, lo and hi need 4 bytes of alignment, everything else 16. */
static void refuses_addresses(void **state)
{
    (void)state;
    struct op_attrs a = good();
    for (int backward = 0; backward < 2; backward++)
        for (int i = 0; i < (backward ? 12 : 8); i++) {
            void *arg[12] = {0};
            int small = backward ? i == 6 || i == 7 || i == 9 || i == 10 : i == 1 || i == 5 || i == 6;
            for (int step = 0; step < 2; step++) {
                arg[i] = (void *)(uintptr_t)(step ? 1002 : 1004);
                enum status st =
                    backward ? attention_cuda_backward(&a, arg, &a100, NULL) : attention_cuda_forward(&a, arg, &a100, NULL);
                assert_int_equal(st, small && step == 0 ? OK : ERR_INVALID);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chooses),
        cmocka_unit_test(other_orders),
        cmocka_unit_test(refuses),
        cmocka_unit_test(refuses_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
