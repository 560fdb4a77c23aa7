/* Rates of matrix products and of attention. */
#include "profile/calls.h"

#include "attention/attention.h"
#include "base/clock.h"
#include "base/isa.h"
#include "base/sys.h"
#include "device/cpu_stream.h"
#include "ops/ops.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#define REPEATS 5
#define TRIES 4 /* tries of a rate far below that of a smaller shape: another process was in the way */

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Returns the seconds of one run: the median of up to REPEATS, until `seconds` have passed, after one to warm up. If that one
 * takes as long as `seconds`, its time counts. */
static double profile_time(void (*run)(void *), void *user, double seconds)
{
    double t[REPEATS], began = clock_seconds();
    int n = 0;
    run(user);
    double once = clock_seconds() - began;
    if (once >= seconds)
        return once;
    int inner = once < 1e-4 ? (int)(1e-4 / (once + 1e-7)) + 1 : 1; /* longer than the clock's grain */
    began = clock_seconds();
    while (n < REPEATS && (n == 0 || clock_seconds() - began < seconds)) {
        double start = clock_seconds();
        for (int i = 0; i < inner; i++)
            run(user);
        t[n++] = (clock_seconds() - start) / inner;
    }
    qsort(t, (size_t)n, sizeof *t, compare_double);
    return t[n / 2];
}

/* A kernel's call. */
struct call {
    op_kernel *kernel;
    struct op_attrs attrs;
    void *arg[OP_MAX_ARGS];
    struct cpu_stream stream;
};

static void run_call(void *user)
{
    struct call *c = user;
    (void)c->kernel(&c->attrs, c->arg, &c->stream);
}

/* Most multiplications of a product that is measured (5 ms on two cores). A larger shape gets the rate of the shape whose largest
 * size is one step smaller. */
#define GEMM_LIMIT (1ll << 29)
#define GEMM_LIMIT_AMX (1ll << 32) /* the same limit for AMX, whose product of that size takes about as long */

enum { SLOW = 4096 * 4096 };

/* A byte that repeated is 0.0115 in both types: memory must be written once, or all its pages are one page of zeros. */
#define SMALL 0x3c

/* Sets m, n and k of a grid point; returns 0 if it is too large to measure. */
static int gemm_shape(int index, enum dtype type, int64_t size[3])
{
    static const int64_t grid[GEMM_SIZES] = {64, 256, 1024, 4096};
    for (int d = 2; d >= 0; d--, index /= GEMM_SIZES)
        size[d] = grid[index % GEMM_SIZES];
    return size[0] * size[1] * size[2] <= (type == BF16 && isa_has_amx() ? GEMM_LIMIT_AMX : GEMM_LIMIT);
}

static int smaller(int index)
{
    int step[3] = {index / 16, index / 4 % 4, index % 4}, d = 0;
    for (int i = 1; i < 3; i++)
        d = step[i] > step[d] ? i : d;
    return index - (d == 0 ? 16 : d == 1 ? 4 : 1);
}

void profile_gemm_attrs(enum dtype type, enum gemm_layout layout, const int64_t size[3], struct op_attrs *a)
{
    const int64_t m = size[0], n = size[1], k = size[2];
    *a = (struct op_attrs){.gemm = {.m = m, .n = n, .k = k, .ldc = n, .c_type = F32}};
    a->gemm.ta = layout == GEMM_TN;
    a->gemm.tb = layout == GEMM_NT;
    a->gemm.lda = layout == GEMM_TN ? m : k;
    a->gemm.ldb = layout == GEMM_NT ? k : n;
    a->gemm.a_type = a->gemm.b_type = type;
    a->gemm.accumulate = layout == GEMM_TN;
}

static double gemm_flops(op_kernel *kernel, enum dtype type, enum gemm_layout layout, const int64_t size[3], char *memory,
                         void **work, int64_t *work_bytes)
{
    struct call c = {.kernel = kernel, .stream = {omp_get_max_threads()}};
    profile_gemm_attrs(type, layout, size, &c.attrs);
    int64_t bytes = op_workspace_bytes(OP_GEMM, &c.attrs, c.stream.threads);
    if (bytes > *work_bytes) {
        free(*work);
        *work = sys_malloc((size_t)bytes);
        *work_bytes = *work ? bytes : 0;
        if (!*work)
            return 0;
    }
    c.arg[0] = memory;
    c.arg[1] = memory + SLOW * 4;
    c.arg[2] = memory + 2 * SLOW * 4ll;
    c.arg[3] = *work;
    double flops = 2.0 * (double)size[0] * (double)size[1] * (double)size[2];
    return flops / profile_time(run_call, &c, 2e-3);
}

static enum status gemms(op_kernel *kernel, struct hardware *h, int *disturbed)
{
    void *work = NULL;
    int64_t work_bytes = 0, size[3];
    char *memory = sys_malloc(3 * SLOW * 4ll);
    if (!memory)
        return status_fail(ERR_NOMEM, "out of memory for measuring matrix products");
    memset(memory, SMALL, 3 * SLOW * 4ll);
    enum status st = OK;
    for (int t = 0; t < COST_TYPES; t++) {
        h->peak_flops[t] = 0;
        for (int l = 0; l < GEMM_LAYOUTS; l++) {
            double *rate = h->device.gemm[t].flops[l];
            for (int i = 0; i < GEMM_SHAPES && st == OK; i++) {
                rate[i] = i > 0 ? rate[smaller(i)] : 0;
                if (!gemm_shape(i, (enum dtype)t, size))
                    continue;
                double floor = i > 0 ? rate[0] / 3 : 0;
                rate[i] = 0;
                for (int n = 0; n < TRIES && rate[i] <= floor && st == OK; n++) {
                    double r = gemm_flops(kernel, (enum dtype)t, (enum gemm_layout)l, size, memory, &work, &work_bytes);
                    rate[i] = r > rate[i] ? r : rate[i];
                    if (!(r > 0))
                        st = status_fail(ERR_NOMEM, "out of memory for measuring matrix products");
                }
                *disturbed += rate[i] <= floor;
                h->peak_flops[t] = rate[i] > h->peak_flops[t] ? rate[i] : h->peak_flops[t];
            }
        }
    }
    free(work);
    free(memory);
    return st;
}

void profile_attention_attrs(const struct attention_case *x, struct op_attrs *a)
{
    *a = (struct op_attrs){.attn = {.scale = 0.1f}};
    a->attn.sq = a->attn.sk = x->S;
    a->attn.hq = x->hq;
    a->attn.hk = x->hk;
    a->attn.head_dim = x->head_dim;
    a->attn.dtype = x->type;
}

int profile_attention_bytes(enum op_kind op, const struct attention_case *x, int64_t bytes[OP_MAX_ARGS])
{
    const int64_t rows = x->S * x->hq * x->head_dim, kv = x->S * x->hk * x->head_dim, e = dtype_size(x->type);
    const int64_t forward[] = {rows * e, x->S * x->hq * 4, rows * e, kv * e, kv * e, x->S * 4, x->S * 4, 0};
    const int64_t backward[] = {rows * 4,         kv * 4,           kv * 4,   rows * e, kv * e,   kv * e,
                                x->S * x->hq * 4, x->S * x->hq * 4, rows * e, x->S * 4, x->S * 4, 0};
    const int n = op_arg_count(op);
    memcpy(bytes, op == OP_ATTN_FWD ? forward : backward, (size_t)n * sizeof *bytes);
    return n;
}

static double attention_flops(op_kernel *kernel, enum op_kind op, const struct attention_case *x)
{
    struct call c = {.kernel = kernel, .stream = {omp_get_max_threads()}};
    int64_t bytes[OP_MAX_ARGS], total = 0;
    const int n = profile_attention_bytes(op, x, bytes);
    profile_attention_attrs(x, &c.attrs);
    bytes[n - 1] = attention_workspace_bytes(op, &c.attrs, c.stream.threads);
    for (int i = 0; i < n; i++)
        total += bytes[i] = round_up(bytes[i], 64);
    char *memory = sys_malloc((size_t)total), *at = memory;
    if (!memory)
        return 0;
    memset(memory, SMALL, (size_t)total);
    for (int i = 0; i < n; i++, at += bytes[i - 1])
        c.arg[i] = at;
    int32_t *lo = c.arg[n - 3], *hi = c.arg[n - 2];
    for (int64_t i = 0; i < x->S; i++) {
        lo[i] = 0;
        hi[i] = (int32_t)i;
    }
    double flops = op_flops(op, &c.attrs, (double)x->S * (double)(x->S + 1) / 2);
    double rate = flops / profile_time(run_call, &c, 4e-3);
    free(memory);
    return rate;
}

static double best_attention(op_kernel *kernel, enum op_kind op, const struct attention_case *x, double shorter)
{
    double best = 0;
    for (int n = 0; n < TRIES && best <= shorter / 2; n++) {
        double r = attention_flops(kernel, op, x);
        best = r > best ? r : best;
    }
    return best;
}

static enum status attentions(op_kernel *const kernels[OP_COUNT], struct hardware *h)
{
    static const int dims[] = {32, 64, 128};
    static const int64_t lengths[] = {256, 1024, 4096};
    for (int t = 0; t < COST_TYPES; t++) {
        memset(h->device.attention[t], 0, sizeof h->device.attention[t]);
        for (int d = 0; d < 3; d++) {
            struct attention_rates *a = &h->device.attention[t][d];
            a->head_dim = dims[d];
            a->forward.n = a->backward.n = 3;
            for (int i = 0; i < 3; i++) {
                struct attention_case x = {.S = lengths[i], .head_dim = dims[d], .hq = 4, .hk = 2, .type = (enum dtype)t};
                a->forward.x[i] = a->backward.x[i] = (double)lengths[i];
                a->forward.y[i] = best_attention(kernels[OP_ATTN_FWD], OP_ATTN_FWD, &x, i ? a->forward.y[i - 1] : 0);
                a->backward.y[i] = best_attention(kernels[OP_ATTN_BWD], OP_ATTN_BWD, &x, i ? a->backward.y[i - 1] : 0);
                if (!(a->forward.y[i] > 0 && a->backward.y[i] > 0))
                    return status_fail(ERR_NOMEM, "out of memory for measuring attention");
            }
        }
    }
    return OK;
}

enum status profile_kernels(struct hardware *h, int *disturbed)
{
    *disturbed = 0;
    op_kernel *kernels[OP_COUNT] = {NULL};
    ops_cpu_kernels(kernels);
    attention_cpu_kernels(kernels);
    TRY(gemms(kernels[OP_GEMM], h, disturbed));
    return attentions(kernels, h);
}
