/* Names, argument counts and operation counts of ops. */
#include "program/op.h"

static const struct {
    const char *name;
    int args;
} OPS[OP_COUNT] = {
    [OP_COPY] = {"copy", 2},
    [OP_FILL] = {"fill", 1},
    [OP_EMBED] = {"embed", 5},
    [OP_EMBED_GRAD] = {"embed_grad", 3},
    [OP_NORM] = {"norm", 4},
    [OP_NORM_GRAD] = {"norm_grad", 7},
    [OP_GEMM] = {"gemm", 4},
    [OP_BIAS] = {"bias", 2},
    [OP_BIAS_GRAD] = {"bias_grad", 2},
    [OP_ADD] = {"add", 4},
    [OP_ROPE] = {"rope", 3},
    [OP_SWIGLU] = {"swiglu", 3},
    [OP_SWIGLU_GRAD] = {"swiglu_grad", 3},
    [OP_GELU] = {"gelu", 2},
    [OP_GELU_GRAD] = {"gelu_grad", 2},
    [OP_ATTN_FWD] = {"attn_fwd", 8},
    [OP_ATTN_BWD] = {"attn_bwd", 12},
    [OP_ATTN_DELTA] = {"attn_delta", 3},
    [OP_ATTN_MERGE] = {"attn_merge", 4},
    [OP_CAST] = {"cast", 2},
    [OP_LOSS] = {"loss", 4},
    [OP_ACCUM] = {"accum", 2},
    [OP_SUMSQ] = {"sumsq", 2},
    [OP_CLIP] = {"clip", 3},
    [OP_ADAMW] = {"adamw", 7},
    [OP_ALL_GATHER] = {"all_gather", 2},
    [OP_REDUCE_SCATTER] = {"reduce_scatter", 3},
    [OP_ALL_REDUCE] = {"all_reduce", 2},
    [OP_ALL_TO_ALL] = {"all_to_all", 2},
    [OP_EXCHANGE] = {"exchange", 2},
};

const char *op_name(enum op_kind kind)
{
    return (unsigned)kind < OP_COUNT ? OPS[kind].name : "?";
}

int op_arg_count(enum op_kind kind)
{
    return (unsigned)kind < OP_COUNT ? OPS[kind].args : 0;
}

/* Exact for matrix multiplication and attention. For the rest, the additions and multiplications per element as the CPU kernel
 * does them, an exponential, root or division counting one: memory bandwidth bounds those ops anyway. */
double op_flops(enum op_kind kind, const struct op_attrs *a, double pairs)
{
    switch (kind) {
    case OP_GEMM:
        return 2.0 * (double)a->gemm.m * (double)a->gemm.n * (double)a->gemm.k;
    case OP_ATTN_FWD: /* q k^T and p v */
        return 4.0 * pairs * a->attn.hq * a->attn.head_dim;
    case OP_ATTN_BWD: /* q k^T again, do v^T, and dq, dk, dv */
        return 10.0 * pairs * a->attn.hq * a->attn.head_dim;
    case OP_ATTN_DELTA:
        return 2.0 * (double)a->heads.rows * a->heads.heads * a->heads.head_dim;
    case OP_ATTN_MERGE:
        return 3.0 * (double)a->heads.rows * a->heads.heads * a->heads.head_dim;
    case OP_EMBED_GRAD:
        return (double)a->embed.rows * (double)a->embed.dim;
    case OP_NORM:
        return 5.0 * (double)a->norm.rows * (double)a->norm.dim;
    case OP_NORM_GRAD:
        return 16.0 * (double)a->norm.rows * (double)a->norm.dim;
    case OP_BIAS:
    case OP_BIAS_GRAD:
        return (double)a->bias.rows * (double)a->bias.dim;
    case OP_ADD:
        return 2.0 * (double)a->add.rows * (double)a->add.dim;
    case OP_ROPE:
        return 3.0 * (double)a->rope.rows * a->rope.heads * a->rope.head_dim;
    case OP_SWIGLU:
        return 6.0 * (double)a->act.rows * (double)a->act.dim;
    case OP_SWIGLU_GRAD:
        return 14.0 * (double)a->act.rows * (double)a->act.dim;
    case OP_GELU:
        return 12.0 * (double)a->act.rows * (double)a->act.dim;
    case OP_GELU_GRAD:
        return 19.0 * (double)a->act.rows * (double)a->act.dim;
    case OP_LOSS:
        return (a->loss.gradient ? 6.0 : 4.0) * (double)a->loss.rows * (double)a->loss.vocab;
    case OP_ACCUM:
    case OP_CLIP:
        return (double)a->vec.n;
    case OP_SUMSQ:
        return 2.0 * (double)a->vec.n;
    case OP_ADAMW:
        return 15.0 * (double)a->vec.n;
    case OP_CAST:
    case OP_ALL_GATHER:
    case OP_REDUCE_SCATTER: /* the additions are small beside the messages */
    case OP_ALL_REDUCE:
    case OP_ALL_TO_ALL:
    case OP_EXCHANGE:
    case OP_COPY:
    case OP_FILL:
    case OP_EMBED:
    case OP_COUNT:
        break;
    }
    return 0.0;
}
