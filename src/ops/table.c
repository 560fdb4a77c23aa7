/* The kernel table: unpacks attributes and arguments (program/op.h) into typed calls. */
#include "ops/ops.h"

#include "ops/adamw.h"
#include "ops/add.h"
#include "ops/bias.h"
#include "ops/cast.h"
#include "ops/clip.h"
#include "ops/embed.h"
#include "ops/gelu.h"
#include "ops/gemm.h"
#include "ops/heads.h"
#include "ops/loss.h"
#include "ops/memory.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "ops/swiglu.h"

#pragma GCC diagnostic ignored "-Wunused-parameter" /* these kernels run on the caller's threads, whatever the stream */

static struct norm_shape norm_shape_of(const struct op_attrs *a)
{
    return (struct norm_shape){.rows = a->norm.rows,
                               .dim = a->norm.dim,
                               .eps = a->norm.eps,
                               .kind = (enum norm_kind)a->norm.kind,
                               .dtype = a->norm.dtype,
                               .accumulate = a->norm.accumulate};
}

static struct embed_shape embed_shape_of(const struct op_attrs *a)
{
    return (struct embed_shape){.rows = a->embed.rows,
                                .dim = a->embed.dim,
                                .vocab = a->embed.vocab,
                                .max_pos = a->embed.max_pos,
                                .dtype = a->embed.dtype,
                                .accumulate = a->embed.accumulate};
}

static struct gemm_shape gemm_shape_of(const struct op_attrs *a)
{
    return (struct gemm_shape){.m = a->gemm.m,
                               .n = a->gemm.n,
                               .k = a->gemm.k,
                               .lda = a->gemm.lda,
                               .ldb = a->gemm.ldb,
                               .ldc = a->gemm.ldc,
                               .ta = a->gemm.ta,
                               .tb = a->gemm.tb,
                               .a_type = a->gemm.a_type,
                               .b_type = a->gemm.b_type,
                               .c_type = a->gemm.c_type,
                               .accumulate = a->gemm.accumulate};
}

static enum status run_copy(const struct op_attrs *a, void *const *arg, void *stream)
{
    ops_copy(arg[1], arg[0], a->copy.bytes);
    return OK;
}

static enum status run_fill(const struct op_attrs *a, void *const *arg, void *stream)
{
    ops_zero(arg[0], a->fill.bytes);
    return OK;
}

static enum status run_embed(const struct op_attrs *a, void *const *arg, void *stream)
{
    struct embed_shape s = embed_shape_of(a);
    ops_embed(&s, arg[0], arg[1], arg[2], arg[3], arg[4]);
    return OK;
}

static enum status run_embed_grad(const struct op_attrs *a, void *const *arg, void *stream)
{
    struct embed_shape s = embed_shape_of(a);
    ops_embed_grad(&s, arg[0], arg[1], arg[2]);
    return OK;
}

static enum status run_norm(const struct op_attrs *a, void *const *arg, void *stream)
{
    struct norm_shape s = norm_shape_of(a);
    ops_norm(&s, arg[0], arg[1], arg[2], arg[3]);
    return OK;
}

static enum status run_norm_grad(const struct op_attrs *a, void *const *arg, void *stream)
{
    struct norm_shape s = norm_shape_of(a);
    ops_norm_grad(&s, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5], arg[6]);
    return OK;
}

static enum status run_gemm(const struct op_attrs *a, void *const *arg, void *stream)
{
    struct gemm_shape s = gemm_shape_of(a);
    ops_gemm(&s, arg[0], arg[1], arg[2], arg[3]);
    return OK;
}

static enum status run_bias(const struct op_attrs *a, void *const *arg, void *stream)
{
    ops_bias(arg[0], arg[1], a->bias.rows, a->bias.dim, a->bias.dtype);
    return OK;
}

static enum status run_bias_grad(const struct op_attrs *a, void *const *arg, void *stream)
{
    ops_bias_grad(arg[0], arg[1], a->bias.rows, a->bias.dim, a->bias.y_type, a->bias.accumulate);
    return OK;
}

static enum status run_add(const struct op_attrs *a, void *const *arg, void *stream)
{
    ops_add(arg[0], arg[1], arg[2], arg[3], a->add.rows, a->add.dim, a->add.dtype);
    return OK;
}

static enum status run_rope(const struct op_attrs *a, void *const *arg, void *stream)
{
    ops_rope(arg[0], arg[1], arg[2], a->rope.rows, a->rope.heads, a->rope.head_dim, a->rope.x_type, a->rope.inverse);
    return OK;
}

static enum status run_swiglu(const struct op_attrs *a, void *const *arg, void *stream)
{
    ops_swiglu(arg[0], arg[1], arg[2], a->act.rows * a->act.dim, a->act.dtype);
    return OK;
}

static enum status run_swiglu_grad(const struct op_attrs *a, void *const *arg, void *stream)
{
    ops_swiglu_grad(arg[0], arg[1], arg[2], a->act.rows * a->act.dim, a->act.dtype);
    return OK;
}

static enum status run_gelu(const struct op_attrs *a, void *const *arg, void *stream)
{
    ops_gelu(arg[0], arg[1], a->act.rows * a->act.dim, (enum gelu_kind)a->act.kind, a->act.dtype);
    return OK;
}

static enum status run_gelu_grad(const struct op_attrs *a, void *const *arg, void *stream)
{
    ops_gelu_grad(arg[0], arg[1], a->act.rows * a->act.dim, (enum gelu_kind)a->act.kind, a->act.dtype);
    return OK;
}

static struct heads_shape heads_shape_of(const struct op_attrs *a)
{
    return (struct heads_shape){.rows = a->heads.rows,
                                .heads = a->heads.heads,
                                .head_dim = a->heads.head_dim,
                                .dtype = a->heads.dtype,
                                .accumulate = a->heads.accumulate};
}

static enum status run_attn_delta(const struct op_attrs *a, void *const *arg, void *stream)
{
    struct heads_shape s = heads_shape_of(a);
    ops_attn_delta(&s, arg[0], arg[1], arg[2]);
    return OK;
}

static enum status run_attn_merge(const struct op_attrs *a, void *const *arg, void *stream)
{
    struct heads_shape s = heads_shape_of(a);
    ops_attn_merge(&s, arg[0], arg[1], arg[2], arg[3]);
    return OK;
}

static enum status run_cast(const struct op_attrs *a, void *const *arg, void *stream)
{
    ops_cast(arg[0], arg[1], a->cast.n, a->cast.y_type, a->cast.x_type);
    return OK;
}

static enum status run_loss(const struct op_attrs *a, void *const *arg, void *stream)
{
    struct loss_shape s = {
        .rows = a->loss.rows, .vocab = a->loss.vocab, .gradient = a->loss.gradient, .accumulate = a->loss.accumulate};
    const struct step_record *record = arg[3];
    ops_loss(&s, arg[0], arg[1], arg[2], record ? record->inv_targets : 0.0f);
    return OK;
}

static enum status run_accum(const struct op_attrs *a, void *const *arg, void *stream)
{
    ops_accum(arg[0], arg[1], a->vec.n);
    return OK;
}

static enum status run_sumsq(const struct op_attrs *a, void *const *arg, void *stream)
{
    ops_sumsq(arg[0], arg[1], a->vec.n);
    return OK;
}

static enum status run_clip(const struct op_attrs *a, void *const *arg, void *stream)
{
    const struct step_record *record = arg[2];
    ops_clip(arg[0], arg[1], a->vec.n, record->clip);
    return OK;
}

static enum status run_adamw(const struct op_attrs *a, void *const *arg, void *stream)
{
    struct adamw_shape s = {.n = a->vec.n,
                            .n_decay = a->vec.n_decay,
                            .first = a->vec.first,
                            .share = a->vec.share,
                            .moments = (enum dtype)a->vec.moments};
    ops_adamw(&s, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5], arg[6]);
    return OK;
}

int64_t op_workspace_bytes(enum op_kind kind, const struct op_attrs *attrs)
{
    if (kind == OP_NORM_GRAD) {
        struct norm_shape s = norm_shape_of(attrs);
        return ops_norm_grad_workspace(&s);
    }
    if (kind == OP_GEMM) {
        struct gemm_shape s = gemm_shape_of(attrs);
        return ops_gemm_workspace(&s);
    }
    return 0;
}

enum status ops_cpu_kernels(op_kernel *table[OP_COUNT])
{
    table[OP_COPY] = run_copy;
    table[OP_FILL] = run_fill;
    table[OP_EMBED] = run_embed;
    table[OP_EMBED_GRAD] = run_embed_grad;
    table[OP_NORM] = run_norm;
    table[OP_NORM_GRAD] = run_norm_grad;
    table[OP_GEMM] = run_gemm;
    table[OP_BIAS] = run_bias;
    table[OP_BIAS_GRAD] = run_bias_grad;
    table[OP_ADD] = run_add;
    table[OP_ROPE] = run_rope;
    table[OP_SWIGLU] = run_swiglu;
    table[OP_SWIGLU_GRAD] = run_swiglu_grad;
    table[OP_GELU] = run_gelu;
    table[OP_GELU_GRAD] = run_gelu_grad;
    table[OP_ATTN_DELTA] = run_attn_delta;
    table[OP_ATTN_MERGE] = run_attn_merge;
    table[OP_CAST] = run_cast;
    table[OP_LOSS] = run_loss;
    table[OP_ACCUM] = run_accum;
    table[OP_SUMSQ] = run_sumsq;
    table[OP_CLIP] = run_clip;
    table[OP_ADAMW] = run_adamw;
    return OK;
}
