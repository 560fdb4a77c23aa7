/* Kernels of the twin device: each enqueues the CPU kernel, which the GPU's thread runs on device memory. Results have the bits
 * of cpu:discrete. */
#include "device/cpu_stream.h"
#include "engine/backend_cpu.h"
#include "engine/cuda_plugin.h"
#include "fake.h"
#include "twin.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_KINDS = 4096 };

static op_kernel *cpu[OP_COUNT];
static struct cpu_stream cpu_stream;
static uint64_t loaded[MOST_KINDS];
static int n_loaded;
static enum status (*allocate_device)(struct backend *b, int64_t bytes);

struct launch {
    enum op_kind op;
    struct op_attrs attrs;
    void *arg[OP_MAX_ARGS]; /* addresses of the GPU's thread, which may touch them */
};

static void start_kernel(void *closure)
{
    struct launch *l = closure;
    twin_poison(l->op, &l->attrs, l->arg);
}

static cudaError_t end_kernel(void *closure)
{
    struct launch *l = closure;
    omp_set_num_threads(cpu_stream.threads);
    return cpu[l->op](&l->attrs, l->arg, &cpu_stream) == OK ? cudaSuccess : cudaErrorLaunchFailure;
}

/* Identifies what a first launch loads or chooses: the op's kernel; for products a plan that also depends on the attributes. */
static uint64_t kind_of(enum op_kind op, const struct op_attrs *a)
{
    uint64_t hash = 1469598103934665603u + (uint64_t)op;
    for (int i = 0; op == OP_GEMM && i < 10; i++)
        hash = (hash ^ (uint64_t)a->words[i]) * 1099511628211u;
    return hash;
}

void twin_reset(void)
{
    n_loaded = 0;
}

static int is_first(enum op_kind op, const struct op_attrs *a)
{
    const uint64_t kind = kind_of(op, a);
    for (int i = 0; i < n_loaded; i++)
        if (loaded[i] == kind)
            return 0;
    if (n_loaded == MOST_KINDS)
        abort();
    loaded[n_loaded++] = kind;
    return 1;
}

static cudaError_t launch(enum op_kind op, const struct op_attrs *attrs, void *const *arg, cudaStream_t stream)
{
    cudaError_t error = fake_enter();
    if (error != cudaSuccess)
        return error;
    if (is_first(op, attrs)) {
        if (fake_is_busy())
            return fake_misuse(cudaErrorInvalidValue, "%s is launched for the first time while streams run: it is loaded now",
                               op_name(op));
        error = fake_take_kernel();
        if (error != cudaSuccess)
            return error;
    }
    struct launch *l = calloc(1, sizeof *l);
    if (!l)
        abort();
    l->op = op;
    l->attrs = *attrs;
    for (int i = 0; i < op_arg_count(op); i++) {
        l->arg[i] = arg[i] ? fake_alias(arg[i]) : NULL;
        if (arg[i] && !l->arg[i]) {
            free(l);
            return fake_misuse(cudaErrorIllegalAddress, "argument %d of %s is not on the device", i, op_name(op));
        }
    }
    return fake_enqueue(stream, &(struct fake_work){.start = start_kernel, .end = end_kernel, .closure = l});
}

static enum status launch_kernel(enum op_kind op, const struct op_attrs *attrs, void *const *arg, void *stream)
{
    pthread_mutex_lock(&fake_lock);
    cudaError_t error = launch(op, attrs, arg, stream);
    pthread_mutex_unlock(&fake_lock);
    return error == cudaSuccess ? OK
                                : status_fail(error == cudaErrorMemoryAllocation ? ERR_NOMEM : ERR_IO, "kernel %s: %s (%s)",
                                              op_name(op), cudaGetErrorString(error), cudaGetErrorName(error));
}

#define KERNEL_MATRIX(KIND, name) KERNEL(KIND, name)
#define KERNEL_ELEMENTWISE(KIND, name) KERNEL(KIND, name)
#define KERNEL_ATTENTION(KIND, name) KERNEL(KIND, name)
#define KERNEL_RECURRENT(KIND, name) KERNEL(KIND, name)
#define KERNEL_COLLECTIVE(KIND, name)
#define KERNEL(KIND, name)                                                                       \
    static enum status twin_##name(const struct op_attrs *attrs, void *const *arg, void *stream) \
    {                                                                                            \
        return launch_kernel(OP_##KIND, attrs, arg, stream);                                     \
    }
#define OP(KIND, name, class, ...) KERNEL_##class(KIND, name)
#include "program/op_table.h"

/* Allocates device memory of the twin, which is memory of this process and counts as such. */
static enum status allocate(struct backend *b, int64_t bytes)
{
    TRY(allocate_device(b, bytes));
    b->host_bytes = bytes;
    return OK;
}

/* Returns a number that stands for the algorithms of products; the real device's digest is of the algorithms that cuBLASLt chose. */
static enum status digest(struct backend *b, uint64_t *out)
{
    (void)b;
    *out = (uint64_t)fake_config.algorithms;
    return OK;
}

enum status cuda_plugin_kernels(struct backend *b, const struct target *t)
{
    TRY(backend_cpu_kernels(cpu));
    cpu_stream.threads = t->threads;
    allocate_device = b->allocate;
    b->allocate = allocate;
    b->digest = digest;
#undef KERNEL
#define KERNEL(KIND, name) b->kernels[OP_##KIND] = twin_##name;
#define OP(KIND, name, class, ...) KERNEL_##class(KIND, name)
#include "program/op_table.h"
    return OK;
}
