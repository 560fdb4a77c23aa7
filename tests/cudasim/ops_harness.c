/* Runs an op's CUDA kernel and its CPU twin on the same arguments. */
#include "ops_harness.h"

#include "base/rng.h"
#include "device/cpu_stream.h"
#include "recurrence/cuda_recurrence.h"
#include "recurrence/recurrence.h"

#include <cuda_runtime.h>
#include <stdarg.h>
#ifdef CUDASIM_CUDA_RUNTIME_H
#include "cudasim.h"
#endif

enum { GUARD = 256, MAX_ARRAYS = 4096 };

static void *arrays[MAX_ARRAYS];
static int array_count;
static uint64_t stream_number; /* number of the next stream of random numbers */
static int64_t case_count;
static const char *running = "";

_Noreturn void fail(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(stderr, "FAILED: %s: ", running);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    exit(1);
}

int64_t cases_run(void)
{
    return case_count;
}

void *array_new(int64_t bytes)
{
    if (array_count == MAX_ARRAYS)
        fail("more than %d arrays", MAX_ARRAYS);
    void *p = malloc((size_t)bytes + 1);
    if (!p)
        fail("no memory for %lld bytes", (long long)bytes);
    memset(p, 0xff, (size_t)bytes);
    arrays[array_count++] = p;
    return p;
}

void arrays_free(void)
{
    while (array_count > 0)
        free(arrays[--array_count]);
}

void *array_random(int64_t n, enum dtype dtype, double scale)
{
    void *p = array_new(n * dtype_size(dtype));
    float *normal = malloc((size_t)(n + 1) * sizeof *normal);
    rng_normals(11, ++stream_number, 0, n, normal);
    for (int64_t i = 0; i < n; i++) {
        double x = scale * (double)normal[i];
        if (dtype == F32)
            ((float *)p)[i] = (float)x;
        else if (dtype == BF16)
            ((bf16 *)p)[i] = bf16_from_float((float)x);
        else
            ((double *)p)[i] = x;
    }
    free(normal);
    return p;
}

int32_t *array_indices(int64_t n, int32_t first, int32_t count)
{
    int32_t *p = array_new(n * 4);
    float *normal = malloc((size_t)(n + 1) * sizeof *normal);
    rng_normals(13, ++stream_number, 0, n, normal);
    for (int64_t i = 0; i < n; i++) { /* the low bits of a normal random number's mantissa are uniform enough */
        uint32_t u;
        memcpy(&u, normal + i, 4);
        p[i] = first + (int32_t)(u * 2654435761u >> 8) % count;
    }
    free(normal);
    return p;
}

void case_start(struct twin_case *c, enum op_kind kind, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    memset(c, 0, sizeof *c);
    c->kind = kind;
    vsnprintf(c->what, sizeof c->what, format, list);
    va_end(list);
    running = c->what;
}

struct twin_arg *case_arg(struct twin_case *c, void *data, int64_t n, enum dtype dtype, enum arg_mode mode)
{
    struct twin_arg *a = &c->arg[c->args++];
    *a = (struct twin_arg){.data = data, .n = n, .dtype = dtype, .element_bytes = dtype_size(dtype), .mode = mode};
    return a;
}

struct twin_arg *case_bytes(struct twin_case *c, void *data, int64_t bytes, enum arg_mode mode)
{
    struct twin_arg *a = &c->arg[c->args++];
    *a = (struct twin_arg){.data = data, .n = bytes, .dtype = I32, .element_bytes = 1, .mode = mode};
    return a;
}

void case_absent(struct twin_case *c)
{
    memset(&c->arg[c->args++], 0, sizeof c->arg[0]);
}

void case_work(struct twin_case *c)
{
    const int is_recurrent = op_class(c->kind) == OPS_RECURRENT;
    int64_t bytes = is_recurrent ? max_i64(recurrence_workspace_bytes(c->kind, &c->attrs, 1),
                                           recurrence_cuda_workspace_bytes(c->kind, &c->attrs))
                                 : op_workspace_bytes(c->kind, &c->attrs, 1);
    case_arg(c, array_new(bytes), bytes / 4, F32, OUT)->compare = SKIP;
}

void close_to(struct twin_arg *a, double ulps, double absolute)
{
    a->compare = CLOSE;
    /* rounding to bf16 errs by 2^-8 of the power of two below the value */
    a->relative = ulps / 16777216.0 + (a->dtype == BF16 ? 1.0 / 128 : 0.0);
    a->absolute = absolute;
}

static int64_t bytes_of(const struct twin_arg *a)
{
    return a->n * a->element_bytes;
}

static double element(const struct twin_arg *a, const void *data, int64_t i)
{
    return a->dtype == F32    ? (double)((const float *)data)[i]
           : a->dtype == BF16 ? (double)bf16_to_float(((const bf16 *)data)[i])
           : a->dtype == F64  ? ((const double *)data)[i]
                              : (double)((const int32_t *)data)[i];
}

static void check_result(const struct twin_arg *a, int number, const void *got, const void *want)
{
    int bytewise = a->element_bytes == 1 || a->dtype == I32;
    if (a->compare == SKIP)
        return;
    if (bytewise) {
        if (memcmp(got, want, (size_t)bytes_of(a)) != 0)
            fail("argument %d differs from the CPU twin's", number);
        return;
    }
    for (int64_t i = 0; i < a->n; i++) {
        double g = element(a, got, i), w = element(a, want, i);
        if (isnan(g) && isnan(w))
            continue;
        int same = memcmp((const char *)got + i * a->element_bytes, (const char *)want + i * a->element_bytes,
                          (size_t)a->element_bytes) == 0;
        if (!same && (a->compare == EXACT || !(fabs(g - w) <= a->absolute + a->relative * fabs(w))))
            fail("argument %d, element %lld of %lld: %.9g instead of %.9g", number, (long long)i, (long long)a->n, g, w);
    }
}

/* --- device -------------------------------------------------------------------------------------------------------------------
 */

static void check_device(cudaError_t error, const char *what)
{
#ifdef CUDASIM_CUDA_RUNTIME_H
    if (sim_report()[0])
        fail("%s: %s", what, sim_report());
#endif
    if (error != cudaSuccess)
        fail("%s: %s", what, cudaGetErrorString(error));
}

/* An argument in device memory with guard bytes before and after it (none after it in the simulator, which checks bounds itself,
 * also of reads). */
struct place {
    unsigned char *base, *at;
    int64_t bytes, before, behind;
};

static void place_make(struct place *p, const struct twin_arg *a, int64_t shift)
{
    memset(p, 0, sizeof *p);
    if (!a->data)
        return;
    p->bytes = bytes_of(a);
    p->before = GUARD + shift;
#ifndef CUDASIM_CUDA_RUNTIME_H
    p->behind = GUARD;
#endif
    size_t all = (size_t)(p->before + p->bytes + p->behind);
    void *base = NULL;
    check_device(cudaMalloc(&base, all), "cudaMalloc");
    p->base = base;
    p->at = p->base + p->before;
    check_device(cudaMemset(base, 0xa5, all), "cudaMemset");
    if (a->mode == OUT)
        check_device(cudaMemset(p->at, 0xff, (size_t)p->bytes), "cudaMemset");
    else
        check_device(cudaMemcpy(p->at, a->data, (size_t)p->bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
}

/* Returns the argument's bytes after the run and frees the place. */
static unsigned char *place_take(struct place *p, int number)
{
    if (!p->base)
        return NULL;
    int64_t all = p->before + p->bytes + p->behind;
    unsigned char *host = malloc((size_t)all + 1);
    check_device(cudaMemcpy(host, p->base, (size_t)all, cudaMemcpyDeviceToHost), "cudaMemcpy");
    check_device(cudaFree(p->base), "cudaFree");
    for (int64_t i = 0; i < all; i++)
        if ((i < p->before || i >= p->before + p->bytes) && host[i] != 0xa5)
            fail("byte %lld beside argument %d was written", (long long)(i - p->before), number);
    memmove(host, host + p->before, (size_t)p->bytes);
    return host;
}

struct run {
    unsigned seed;
    int shifted;   /* number of the argument that is not aligned to 16 bytes; -1: none */
    int64_t shift; /* number of bytes by which that argument is shifted */
};

static enum status call_table(void *const *arg, void *stream, void *context)
{
    const struct twin_case *c = context;
    op_kernel *table[OP_COUNT] = {0};
    ops_cuda_kernels(table);
    recurrence_cuda_kernels(table);
    if (!table[c->kind])
        fail("no CUDA kernel for %s", op_name(c->kind));
    return table[c->kind](&c->attrs, arg, stream);
}

/* Runs the op once on a new stream; results[i] is malloc'ed. Two arguments with the same host memory get the same device memory. */
static void run_once(const struct twin_case *c, const struct run *run, device_call *call, void *context,
                     unsigned char *results[OP_MAX_ARGS])
{
    struct place place[OP_MAX_ARGS];
    void *arg[OP_MAX_ARGS];
    int first[OP_MAX_ARGS];
    cudaStream_t stream;
#ifdef CUDASIM_CUDA_RUNTIME_H
    sim_reset(run->seed);
    sim_checks(!c->few || run->seed == 1);
#endif
    check_device(cudaStreamCreate(&stream), "cudaStreamCreate");
    for (int i = 0; i < c->args; i++) {
        first[i] = i;
        for (int j = 0; j < i; j++)
            if (c->arg[i].data && c->arg[j].data == c->arg[i].data)
                first[i] = first[j];
        if (first[i] == i)
            place_make(&place[i], &c->arg[i], run->shifted == i ? run->shift : 0);
        arg[i] = place[first[i]].at;
    }
    if (call(arg, stream, context) != OK)
        fail("seed %u, argument %d shifted by %lld bytes: %s", run->seed, run->shifted, (long long)run->shift, status_message());
    check_device(cudaDeviceSynchronize(), "kernel");
#ifdef CUDASIM_CUDA_RUNTIME_H
    if (sim_enqueued(stream) != sim_counted().enqueued)
        fail("%llu of %llu launches and fills are on another stream", sim_counted().enqueued - sim_enqueued(stream),
             sim_counted().enqueued);
#endif
    check_device(cudaStreamDestroy(stream), "cudaStreamDestroy");
    for (int i = 0; i < c->args; i++)
        results[i] = first[i] == i ? place_take(&place[i], i) : NULL;
}

static void compare_run(const struct twin_case *c, void *const *want, unsigned char *const *got)
{
    for (int i = 0; i < c->args; i++) {
        if (!got[i])
            continue;
        if (c->arg[i].mode == IN) {
            int shared = 0; /* 1: a later output has the same memory */
            for (int j = i + 1; j < c->args; j++)
                shared |= c->arg[j].data == c->arg[i].data && c->arg[j].mode != IN;
            if (!shared && memcmp(got[i], c->arg[i].data, (size_t)bytes_of(&c->arg[i])) != 0)
                fail("input %d was changed", i);
        } else {
            check_result(&c->arg[i], i, got[i], want[i]);
        }
    }
}

/* Lists the runs: two with all arguments aligned to 16 bytes, with an odd and an even seed; then, for each argument, a run in
 * which it is shifted by one element or by half a vector (cases alternate; with LTRAIN_LONG one run with each). */
static int runs_of(const struct twin_case *c, struct run runs[2 + 2 * OP_MAX_ARGS])
{
    const int64_t half = 8;
    int n = 0;
    runs[n++] = (struct run){1, -1, 0};
    runs[n++] = (struct run){2, -1, 0};
    for (int i = 0; i < c->args; i++) {
        const int64_t element = c->arg[i].element_bytes < 2 ? 2 : c->arg[i].element_bytes;
        int again = !c->arg[i].data;
        for (int j = 0; j < i; j++)
            again |= c->arg[j].data == c->arg[i].data;
        for (int k = 0; k < 2 && !again; k++)
            if (getenv("LTRAIN_LONG") || ((case_count + i) % 2 == k && (!c->few || n == 2)))
                runs[n++] = (struct run){(unsigned)(3 + i), i, k ? half : element};
    }
    return n;
}

/* Makes all runs; want[i]: expected value of output i. */
static void run_all(const struct twin_case *c, device_call *call, void *context, void *const *want)
{
    unsigned char *first[OP_MAX_ARGS] = {0};
    struct run runs[2 + 2 * OP_MAX_ARGS];
    case_count++;
    const int n = runs_of(c, runs);
    for (int r = 0; r < n; r++) {
        unsigned char *got[OP_MAX_ARGS] = {0};
        run_once(c, &runs[r], call, context, got);
        compare_run(c, want, got);
        for (int i = 0; i < c->args; i++) {
            if (r > 0 && runs[r].shifted < 0 && got[i] && memcmp(got[i], first[i], (size_t)bytes_of(&c->arg[i])) != 0)
                fail("argument %d: other bits in another run", i);
            if (r == 0)
                first[i] = got[i];
            else
                free(got[i]);
        }
    }
    for (int i = 0; i < c->args; i++)
        free(first[i]);
}

void case_run_call(struct twin_case *c, device_call *call, void *context, int out, const void *want_out)
{
    void *want[OP_MAX_ARGS] = {0};
    want[out] = (void *)(uintptr_t)want_out;
    run_all(c, call, context, want);
}

void case_run(struct twin_case *c)
{
    op_kernel *table[OP_COUNT] = {0};
    void *want[OP_MAX_ARGS] = {0}, *own[OP_MAX_ARGS] = {0};
    if (ops_cpu_kernels(table) != OK)
        fail("%s", status_message());
    recurrence_cpu_kernels(table);
    if (c->args != op_arg_count(c->kind))
        fail("%d arguments, %s has %d", c->args, op_name(c->kind), op_arg_count(c->kind));
    for (int i = 0; i < c->args; i++) {
        const struct twin_arg *a = &c->arg[i];
        for (int j = 0; j < i && a->data && !want[i]; j++)
            if (c->arg[j].data == a->data)
                want[i] = want[j];
        if (!a->data || want[i])
            continue;
        want[i] = own[i] = malloc((size_t)bytes_of(a) + 1);
        memcpy(own[i], a->data, (size_t)bytes_of(a));
    }
    if (table[c->kind](&c->attrs, want, &(struct cpu_stream){.threads = 1}) != OK)
        fail("%s", status_message());
    run_all(c, call_table, c, want);
    for (int i = 0; i < c->args; i++)
        free(own[i]);
}
