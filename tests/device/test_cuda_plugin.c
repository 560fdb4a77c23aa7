/* The CUDA plugin as it was built: it loads where there is no driver, and every op has its kernel but matrix multiplication and
 * the collectives, which are libraries' (cuBLASLt, NCCL). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ops/cuda_ops.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *plugin;

static void *symbol(const char *name)
{
    void *at = dlsym(plugin, name);
    if (!at)
        fail_msg("the plugin has no %s", name);
    return at;
}

static void test_table(void **state)
{
    (void)state;
    op_kernel *table[OP_COUNT] = {0};
    void (*fill)(op_kernel **);
    void *at = symbol("ops_cuda_kernels");
    memcpy(&fill, &at, sizeof fill);
    fill(table);
    for (int i = 0; i < OP_COUNT; i++)
        assert_int_equal(table[i] == NULL, i == OP_GEMM || i == OP_ATTN_FWD || i == OP_ATTN_BWD || i >= OP_ALL_GATHER);
    symbol("attention_cuda_forward");
    symbol("attention_cuda_backward");
    symbol("attention_cuda_workspace_bytes");
}

/* What an entry refuses before it asks for a device. */
static void test_refusal(void **state)
{
    (void)state;
    op_kernel *table[OP_COUNT] = {0};
    void (*fill)(op_kernel **);
    void *at = symbol("ops_cuda_kernels");
    memcpy(&fill, &at, sizeof fill);
    fill(table);
    struct op_attrs attrs = {0};
    void *arg[OP_MAX_ARGS] = {0};
    attrs.act.dtype = F64;
    assert_int_equal(table[OP_SWIGLU](&attrs, arg, NULL), ERR_INVALID);
    attrs.rope.x_type = F32; /* its head_dim is odd */
    attrs.rope.head_dim = 7;
    assert_int_equal(table[OP_ROPE](&attrs, arg, NULL), ERR_INVALID);
    memset(&attrs, 0, sizeof attrs);
    assert_int_equal(table[OP_ADAMW](&attrs, arg, NULL), OK); /* nothing to do */
}

int main(void)
{
    const char *path = getenv("LTRAIN_TEST_PLUGIN");
    if (!path) {
        puts("[  SKIPPED ] cuda_plugin: built without nvcc");
        return 77;
    }
    plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!plugin) {
        printf("FAILED: %s\n", dlerror());
        return 1;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_table), cmocka_unit_test(test_refusal)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
