/* Helpers that the tests of ops share. */
#include "ops_test.h"

#include "base/rng.h"
#include "device/cpu_stream.h"
#include "recurrence/recurrence.h"

#include <omp.h>

enum { MAX_TENSORS = 4096, GUARD = 128, THREADS = 8 };

static struct tensor *tensors[MAX_TENSORS];
static int tensor_count;
static uint64_t stream; /* number of the next tensor's random stream: tensors differ, but repeated tests get equal ones */

struct tensor *tensor_new(int64_t n, enum dtype dtype)
{
    struct tensor *t = calloc(1, sizeof *t);
    assert_non_null(t);
    assert_true(tensor_count < MAX_TENSORS);
    t->n = n;
    t->dtype = dtype;
    t->store = malloc((size_t)(n * dtype_size(dtype)) + 1);
    t->val = calloc((size_t)n + 1, sizeof *t->val);
    memset(t->store, 0xff, (size_t)(n * dtype_size(dtype)));
    tensors[tensor_count++] = t;
    tensor_load(t);
    return t;
}

void tensor_set(struct tensor *t, int64_t i, double value)
{
    switch (t->dtype) {
    case F32:
        ((float *)t->store)[i] = (float)value;
        t->val[i] = (float)value;
        break;
    case BF16:
        ((bf16 *)t->store)[i] = bf16_from_float((float)value);
        t->val[i] = bf16_to_float(((bf16 *)t->store)[i]);
        break;
    case I32:
        ((int32_t *)t->store)[i] = (int32_t)value;
        t->val[i] = value;
        break;
    default:
        ((double *)t->store)[i] = t->val[i] = value;
    }
}

void tensor_load(struct tensor *t)
{
    for (int64_t i = 0; i < t->n; i++)
        t->val[i] = t->dtype == F32    ? ((float *)t->store)[i]
                    : t->dtype == BF16 ? bf16_to_float(((bf16 *)t->store)[i])
                    : t->dtype == I32  ? ((int32_t *)t->store)[i]
                                       : ((double *)t->store)[i];
}

struct tensor *tensor_random(int64_t n, enum dtype dtype, double scale)
{
    struct tensor *t = tensor_new(n, dtype);
    float *normals = malloc((size_t)(n + 1) * sizeof *normals);
    rng_normals(7, ++stream, 0, n, normals);
    for (int64_t i = 0; i < n; i++)
        tensor_set(t, i, scale * normals[i]);
    free(normals);
    return t;
}

void tensors_number(uint64_t first)
{
    stream = first;
}

struct tensor *tensor_copy(const struct tensor *t)
{
    struct tensor *copy = tensor_new(t->n, t->dtype);
    memcpy(copy->store, t->store, (size_t)(t->n * dtype_size(t->dtype)));
    tensor_load(copy);
    return copy;
}

int tensors_free(void **state)
{
    (void)state;
    while (tensor_count > 0) {
        struct tensor *t = tensors[--tensor_count];
        free(t->store);
        free(t->val);
        free(t);
    }
    return 0;
}

void case_start(struct op_case *c, enum op_kind kind)
{
    memset(c, 0, sizeof *c);
    c->kind = kind;
}

void case_bytes(struct op_case *c, void *data, int64_t bytes, int64_t align, enum arg_mode mode)
{
    c->arg[c->args].data = data;
    c->arg[c->args].bytes = bytes;
    c->arg[c->args].align = align;
    c->arg[c->args].mode = mode;
    c->args++;
}

void case_tensor(struct op_case *c, struct tensor *t, enum arg_mode mode)
{
    if (t)
        case_bytes(c, t->store, t->n * dtype_size(t->dtype), dtype_size(t->dtype), mode);
    else
        case_bytes(c, NULL, 0, 1, IN);
}

void case_work(struct op_case *c)
{
    const int64_t bytes = op_class(c->kind) == OPS_RECURRENT ? recurrence_workspace_bytes(c->kind, &c->attrs, THREADS)
                                                             : op_workspace_bytes(c->kind, &c->attrs, THREADS);
    struct tensor *work = tensor_new(bytes / 4, F32);
    assert_int_equal(bytes % 4, 0);
    c->work = c->args + 1;
    case_bytes(c, work->n ? work->store : NULL, work->n * 4, 4, OUT);
}

/* A copy of an argument that a run works on, with a guard on each side. */
struct place {
    unsigned char *base, *at;
};

static struct place place_make(const struct op_case *c, int i, int shift)
{
    struct place p = {0};
    int64_t bytes = c->arg[i].bytes, before = GUARD + shift * c->arg[i].align;
    if (!c->arg[i].data)
        return p;
    p.base = aligned_alloc(64, (size_t)round_up(bytes + before + GUARD, 64));
    assert_non_null(p.base);
    memset(p.base, 0xa5, (size_t)(bytes + before + GUARD));
    p.at = p.base + before;
    if (c->arg[i].mode == OUT)
        memset(p.at, 0xff, (size_t)bytes);
    else
        memcpy(p.at, c->arg[i].data, (size_t)bytes);
    return p;
}

static void check_guards(const struct op_case *c, int i, struct place p)
{
    for (unsigned char *q = p.base; p.base && q < p.at; q++)
        assert_int_equal(*q, 0xa5);
    for (int64_t j = 0; p.base && j < GUARD; j++)
        assert_int_equal(p.at[c->arg[i].bytes + j], 0xa5);
}

void case_run(struct op_case *c)
{
    static const struct {
        int threads, shift[3];
    } runs[] = {{2, {0, 0, 0}}, {1, {1, 3, 2}}, {3, {7, 1, 5}}, {8, {0, 0, 0}}};
    op_kernel *table[OP_COUNT] = {0};
    struct place first[OP_MAX_ARGS];
    assert_int_equal(ops_cpu_kernels(table), OK);
    recurrence_cpu_kernels(table);
    assert_int_equal(c->args, op_arg_count(c->kind));
    for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
        struct place place[OP_MAX_ARGS];
        void *arg[OP_MAX_ARGS];
        for (int i = 0; i < c->args; i++) {
            place[i] = place_make(c, i, runs[r].shift[i % 3]);
            arg[i] = place[i].at;
            for (int j = 0; j < i; j++) /* arguments that share memory share it in the copies, too */
                if (c->arg[i].data && c->arg[j].data == c->arg[i].data)
                    arg[i] = arg[j];
        }
        omp_set_num_threads(runs[r].threads);
        const int threads = op_class(c->kind) == OPS_RECURRENT ? runs[r].threads : THREADS; /* scans take the stream's number */
        if (table[c->kind](&c->attrs, arg, &(struct cpu_stream){.threads = threads}) != OK)
            fail_msg("%s", status_message());
        for (int i = 0; i < c->args; i++) {
            check_guards(c, i, place[i]);
            int aliased = arg[i] != place[i].at;
            if (c->arg[i].data && c->arg[i].mode == IN && !aliased)
                assert_memory_equal(arg[i], c->arg[i].data, (size_t)c->arg[i].bytes);
            else if (r > 0 && c->arg[i].data && i != c->work - 1 && !aliased)
                assert_memory_equal(arg[i], first[i].at, (size_t)c->arg[i].bytes);
            if (r == 0)
                first[i] = place[i];
            else
                free(place[i].base);
        }
    }
    for (int i = 0; i < c->args; i++) {
        if (c->arg[i].data && c->arg[i].mode != IN)
            memcpy(c->arg[i].data, first[i].at, (size_t)c->arg[i].bytes);
        free(first[i].base);
    }
    for (int i = 0; i < tensor_count; i++)
        tensor_load(tensors[i]);
}

double norm_error(const double *a, const double *b, int64_t n)
{
    double diff = 0.0, size = 0.0;
    for (int64_t i = 0; i < n; i++) {
        diff += (a[i] - b[i]) * (a[i] - b[i]);
        size += b[i] * b[i];
    }
    return sqrt(diff / (size > 0.0 ? size : 1.0));
}

void check_error(const char *what, const double *got, const double *want, int64_t n, double limit)
{
    double error = norm_error(got, want, n);
    if (!(error <= limit))
        fail_msg("%s: error %.3e above %.1e (n = %lld)", what, error, limit, (long long)n);
}

void finite_difference(double (*f)(const double *x, void *ctx), void *ctx, double *x, int64_t n, double *grad)
{
    const double h = 1e-3;
    for (int64_t i = 0; i < n; i++) {
        double x0 = x[i], v[4];
        static const double step[4] = {-2.0, -1.0, 1.0, 2.0};
        for (int k = 0; k < 4; k++) {
            x[i] = x0 + step[k] * h;
            v[k] = f(x, ctx);
        }
        x[i] = x0;
        grad[i] = (v[0] - 8.0 * v[1] + 8.0 * v[2] - v[3]) / (12.0 * h);
    }
}
