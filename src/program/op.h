/* The vocabulary of ops: what each computes, its arguments in order, and its attributes.
 *
 * This is the contract between whoever emits instructions (plan) and whoever executes them (ops, attention, backends).
 * "T" marks arguments in the storage dtype given by the attribute `dtype` (F32 or BF16); others have the type stated.
 * Row-major everywhere; rows are tokens. An optional argument may be NULL. `work` is scratch, of as many bytes as
 * the target says (program/target.h).
 * Every kernel's result depends only on its attributes and inputs, never on addresses, alignment, lane or thread timing. */
#ifndef LTRAIN_PROGRAM_OP_H
#define LTRAIN_PROGRAM_OP_H

#include "base/num.h"

#include <stdint.h>

#define OP_MAX_ARGS 14

enum op_kind {
    OP_COPY,  /* [src, dst]: bytes from tier to tier (or within one); executed by copy and I/O lanes */
    OP_FILL,  /* [dst]: zero bytes */
    OP_EMBED, /* [x T[rows,dim] out, table T[vocab,dim], tokens I32[rows], pos_table T[max_pos,dim] opt, positions I32[rows] opt]
               */
    OP_EMBED_GRAD,  /* [dtable F32[vocab,dim], dx T[rows,dim], index I32[rows]]: dtable (+)= scatter-add, in row order */
    OP_NORM,        /* [y T, x T, weight T[dim], bias T[dim] opt]: RMSNorm or LayerNorm of each row */
    OP_NORM_GRAD,   /* [dx T inout, x T, weight T, dy F32[rows,dim], dweight F32[dim] opt, dbias F32[dim] opt, work] : dx += */
    OP_GEMM,        /* [c, a, b, work]: C[m,n] (+)= op(A)[m,k] op(B)[k,n], each F32 or BF16, fp32 accumulation */
    OP_BIAS,        /* [y T[rows,dim] inout, bias T[dim]]: y += bias */
    OP_BIAS_GRAD,   /* [dbias F32[dim], dy T_y[rows,dim]]: dbias (+)= column sums in row order; dy type is attr.bias.y_type */
    OP_ADD,         /* [y T[rows,dim] out, x T[rows,dim], delta F32[rows,dim], bias T[dim] opt]: y = x + delta (+ bias) */
    OP_ROPE,        /* [x inout [rows,heads*head_dim] of attr.rope.x_type, positions I32[rows], inv_freq F32[head_dim/2]] */
    OP_SWIGLU,      /* [y T, gate T, up T]: y = silu(gate) * up, [rows,dim] */
    OP_SWIGLU_GRAD, /* [gate T inout, up T inout, dy T inout]: gate and up become their gradients, dy becomes OP_SWIGLU's y */
    OP_GELU,        /* [y T, x T]; tanh approximation ("gelu_new") or erf */
    OP_GELU_GRAD,   /* [x T inout, dy T inout]: x becomes its gradient, dy becomes OP_GELU's y */
    OP_ATTN_FWD,    /* see attention/attention.h: [o T, lse F32, q T, k T, v T, lo I32, hi I32, work] */
    OP_ATTN_BWD,    /* [dq F32, dk F32, dv F32, q T, k T, v T, delta F32, lse F32, do T, lo I32, hi I32, work]; dk, dv (+)= */
    OP_ATTN_DELTA,  /* [delta F32[rows,heads], o T[rows,heads,head_dim], do T]: delta = sum over head_dim of do * o */
    OP_ATTN_MERGE,  /* [o F32[rows,heads,head_dim], lse F32[heads,rows], o_part T, lse_part F32]: of attention over two disjoint
                     * key  sets, that over their union; o and lse are set to the part, or merged with it if `accumulate` */
    OP_CAST,        /* [y T_y[n], x T_x[n]]: y = x, rounded to nearest even */
    OP_LOSS,        /* [logits F32[rows,vocab] inout, loss F64[1], targets I32[rows], record]: loss (+)= sum of -log p(target);
                     * with gradient: logits become (softmax - onehot) * record->inv_targets; rows whose target is < 0 give 0 */
    OP_ACCUM,       /* [y F32[n] inout, x F32[n]]: y += x */
    OP_SUMSQ,       /* [sum F64[1] out, x F32[n]]: sum of squares in blocks of SUMSQ_BLOCK elements, each block in order,
                     * blocks added in order */
    OP_CLIP,        /* [norm struct norm_result out, sums F64[n], record]: global norm, clip factor, skip if not finite */
    OP_ADAMW,       /* [master F32[n] inout, m T[n] inout, v T[n] inout, grad F32[n], norm, record, param BF16[n] out opt] */
    /* Collectives, on comm lanes; the lane names the group. P members, me = own index in the group, n elements of `type` in all,
     * member r's share of them is [r * share, min((r + 1) * share, n)), which may be empty. */
    OP_ALL_GATHER,     /* [src[share], dst[n]]: dst[share of r] = src of member r */
    OP_REDUCE_SCATTER, /* [src F32[n], dst F32[share], work]: dst = sum over members in order of src[own share], each rounded to
                        * `type` for the way; zero beyond the share */
    OP_ALL_REDUCE,     /* [x F32[n] inout, work]: reduce-scatter, then all-gather */
    OP_ALL_TO_ALL,     /* [src[P][share], dst[P][share]]: dst[r] = src[me] of member r */
    OP_EXCHANGE,       /* [src[n], dst[n]]: src goes to member (me + distance) mod P, dst comes from (me - distance) mod P; either
                        * half only if its predicate holds */
    OP_COUNT
};

#define SUMSQ_BLOCK 4096

/* The numbers that change from step to step; one block in host memory, copied to the device at the start of a program. */
struct step_record {
    float inv_targets; /* 1 / target tokens of the global batch being computed */
    float clip;        /* maximal global gradient norm; 0: no clipping */
    /* of the pending update */
    float lr, weight_decay, beta1, beta2, eps;
    float bias1, bias2; /* 1 - beta^t */
    uint32_t rounding;  /* random, new for each update, of moments in bf16 */
    int32_t rank;
    float reserved[5];
};

/* What OP_CLIP leaves for the update and for people. */
struct norm_result {
    double norm;
    float factor; /* gradients are multiplied by it; 1 if no clipping */
    int32_t skip; /* the norm is not finite: the update leaves everything as it is */
};

enum norm_kind { NORM_RMS, NORM_LAYER };
enum gelu_kind { GELU_TANH, GELU_ERF };

/* One of these per instruction, zero where unused (hashed as bytes by value numbers). */
struct op_attrs {
    union {
        struct {
            int64_t bytes;
        } copy, fill;
        struct {
            int64_t rows, dim, vocab, max_pos;
            int32_t dtype, accumulate;
        } embed; /* accumulate: EMBED_GRAD adds; else writes */
        struct {
            int64_t rows, dim;
            float eps;
            int32_t kind, dtype, accumulate;
        } norm; /* accumulate: dweight, dbias */
        struct {
            int64_t m, n, k, lda, ldb, ldc;
            int32_t ta, tb, a_type, b_type, c_type, accumulate;
        } gemm; /* ld in elements */
        struct {
            int64_t rows, dim;
            int32_t dtype, y_type, accumulate;
        } bias;
        struct {
            int64_t rows, dim;
            int32_t dtype;
        } add;
        struct {
            int64_t rows;
            int32_t heads, head_dim, x_type, inverse;
        } rope; /* inverse: backward (rotates by -angle) */
        struct {
            int64_t rows, dim;
            int32_t dtype, kind;
        } act; /* SWIGLU, GELU */
        struct {
            int64_t sq, sk, q0, k0;
            int32_t hq, hk, head_dim, dtype, accumulate;
            float scale;
        } attn;
        struct {
            int64_t rows, vocab;
            int32_t gradient, accumulate;
        } loss;
        struct {
            int64_t rows;
            int32_t heads, head_dim, dtype, accumulate;
        } heads; /* ATTN_DELTA, ATTN_MERGE */
        struct {
            int64_t n;
            int32_t y_type, x_type;
        } cast;
        struct {
            int64_t n, n_decay, first, share;
            int32_t low_precision, moments;
        } vec; /* ACCUM, SUMSQ, CLIP, ADAMW (ops/adamw.h) */
        struct {
            int64_t n, share;
            int32_t type, element, distance, send_if, recv_if;
        } comm; /* element: bytes of one; *_if: see
                 * instr.predicate */
        int64_t words[10];
    };
};

const char *op_name(enum op_kind kind);
/* Number of arguments of the kernel signature (optional ones and work included). */
int op_arg_count(enum op_kind kind);
/* Floating point operations (a multiply-add counts two). Attention: `pairs` attended (query, key) pairs, per query head. */
double op_flops(enum op_kind kind, const struct op_attrs *a, double pairs);

#endif
