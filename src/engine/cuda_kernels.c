/* The kernels of libltrain-cuda.so: those of GPUs, and cuBLASLt. */
#include "engine/cuda_plugin.h"

#include "attention/cuda_attention.h"
#include "ops/cuda_gemm.h"
#include "ops/cuda_ops.h"
#include "recurrence/cuda_recurrence.h"

/* State of the process's one device; sessions that share it are made for one target. */
static struct {
    int backends;
    struct attn_cuda attention;
    enum status (*prepare)(struct backend *b, enum op_kind op, const struct op_attrs *attrs, void *const *arg);
    void (*close)(struct backend *b);
} opened;

static enum status attn_fwd(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    return attention_cuda_forward(attrs, arg, &opened.attention, stream);
}

static enum status attn_bwd(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    return attention_cuda_backward(attrs, arg, &opened.attention, stream);
}

/* Chooses a product's algorithm before the product is run. */
static enum status prepare(struct backend *b, enum op_kind op, const struct op_attrs *attrs, void *const *arg)
{
    if (op == OP_GEMM)
        TRY(cuda_gemm_prepare(attrs));
    return opened.prepare(b, op, attrs, arg);
}

static enum status digest(struct backend *b, uint64_t *out)
{
    (void)b;
    return cuda_gemm_digest(out);
}

static void close_device(struct backend *b)
{
    opened.close(b); /* once the device is closed, no kernel runs any more */
    if (--opened.backends == 0)
        cuda_gemm_close();
}

enum status cuda_plugin_kernels(struct backend *b, const struct target *t)
{
    if (opened.backends == 0)
        TRY(cuda_gemm_open(t->capability));
    opened.backends++;
    opened.attention = (struct attn_cuda){.capability = t->capability,
                                          .processors = t->processors,
                                          .shared_bytes = t->shared_bytes,
                                          .mode = t->fast ? ATTN_FAST : ATTN_DETERMINISTIC};
    opened.prepare = b->prepare;
    opened.close = b->close;
    ops_cuda_kernels(b->kernels);
    recurrence_cuda_kernels(b->kernels);
    b->kernels[OP_GEMM] = ops_cuda_gemm;
    b->kernels[OP_ATTN_FWD] = attn_fwd;
    b->kernels[OP_ATTN_BWD] = attn_bwd;
    b->prepare = prepare;
    b->digest = digest;
    b->close = close_device;
    return OK;
}
