/* A machine that errs: linked into ltrain in place of the gate's and the update's kernels and of copies, flips a bit of what one call
 * computes, or leaves out one copy. LTRAIN_ERRS="forward N", "backward N", "update N" or "copy N" says which; "stuck 1": each gate's
 * result at the address of the first one is wrong. calls.txt gets the numbers of forward calls and copies at the end. */
#include "base/status.h"
#include "engine/backend_cpu.h"
#include "program/op.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An exponent's lowest bit in the first fp32 number: twice or half of it. */
#define FLIPPED (UINT32_C(1) << 23)

enum status __real_ops_cpu_swiglu(const struct op_attrs *a, void *const *arg, void *stream);
enum status __real_ops_cpu_swiglu_grad(const struct op_attrs *a, void *const *arg, void *stream);
enum status __wrap_ops_cpu_swiglu(const struct op_attrs *a, void *const *arg, void *stream);
enum status __wrap_ops_cpu_swiglu_grad(const struct op_attrs *a, void *const *arg, void *stream);

enum status __real_ops_cpu_adamw(const struct op_attrs *a, void *const *arg, void *stream);
enum status __wrap_ops_cpu_adamw(const struct op_attrs *a, void *const *arg, void *stream);

static long forward, backward;
static atomic_long update, copies; /* two lanes call */

__attribute__((destructor)) static void write_calls(void)
{
    FILE *f = getenv("LTRAIN_ERRS") ? fopen("calls.txt", "we") : NULL;
    if (f) {
        fprintf(f, "%ld %ld\n", forward, atomic_load(&copies));
        fclose(f);
    }
}

static void err(const char *kind, long call, void *result)
{
    const char *text = getenv("LTRAIN_ERRS");
    const size_t n = strlen(kind);
    uint32_t bits;
    if (!text || strncmp(text, kind, n) != 0 || strtol(text + n, NULL, 10) != call)
        return;
    memcpy(&bits, result, sizeof bits);
    bits ^= FLIPPED;
    memcpy(result, &bits, sizeof bits);
}

enum status __wrap_ops_cpu_swiglu(const struct op_attrs *a, void *const *arg, void *stream)
{
    static const void *stuck;
    const enum status st = __real_ops_cpu_swiglu(a, arg, stream);
    stuck = stuck ? stuck : arg[0];
    err("forward", ++forward, arg[0]);
    err("stuck", arg[0] == stuck, arg[0]);
    return st;
}

enum status __wrap_ops_cpu_swiglu_grad(const struct op_attrs *a, void *const *arg, void *stream)
{
    const enum status st = __real_ops_cpu_swiglu_grad(a, arg, stream);
    err("backward", ++backward, arg[0]);
    return st;
}

enum status __wrap_ops_cpu_adamw(const struct op_attrs *a, void *const *arg, void *stream)
{
    const enum status st = __real_ops_cpu_adamw(a, arg, stream);
    err("update", atomic_fetch_add(&update, 1) + 1, arg[0]);
    return st;
}

enum status __real_backend_cpu_create(const struct backend_cpu_config *c, struct backend **out);
enum status __wrap_backend_cpu_create(const struct backend_cpu_config *c, struct backend **out);

static enum status (*right_copy)(struct backend *b, enum lane lane, void *dst, const void *src, int64_t bytes);

static enum status copy(struct backend *b, enum lane lane, void *dst, const void *src, int64_t bytes)
{
    const char *text = getenv("LTRAIN_ERRS");
    const long call = atomic_fetch_add(&copies, 1) + 1;
    if (text && strncmp(text, "copy", 4) == 0 && strtol(text + 4, NULL, 10) == call)
        return OK;
    return right_copy(b, lane, dst, src, bytes);
}

enum status __wrap_backend_cpu_create(const struct backend_cpu_config *c, struct backend **out)
{
    TRY(__real_backend_cpu_create(c, out));
    right_copy = (*out)->copy;
    (*out)->copy = copy;
    return OK;
}
