/* The vocabulary of ops: their attributes, and what op_table.h says of each: what it computes, its arguments in order, its cost.
 *
 * This is the contract between whoever emits instructions (plan) and whoever executes them (ops, attention, backends).
 * Every kernel's result depends only on its attributes and inputs, never on addresses, alignment, lane or thread timing. */
#ifndef LTRAIN_PROGRAM_OP_H
#define LTRAIN_PROGRAM_OP_H

#include "base/num.h"

#include <stdint.h>

#define OP_MAX_ARGS 14

enum op_kind {
#define OP(KIND, ...) OP_##KIND,
#include "program/op_table.h"
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
    int32_t place; /* the rank's in the mesh: which shards it holds */
    uint32_t dropout[2], sequence; /* key of the run's masks; number, in the run, of the micro-batch's sequence */
    float reserved[2];
};

/* What OP_CLIP leaves for the update and for people. */
struct norm_result {
    double norm;
    float factor; /* gradients are multiplied by it; 1 if no clipping */
    int32_t skip; /* the norm is not finite: the update leaves everything as it is */
};

enum norm_kind { NORM_RMS, NORM_LAYER, NORM_RMS_ONE /* weights are 1 + w */, NORM_NONE /* y = x */, NORM_LAYER_ONE /* as of RMS_ONE */ };
/* The function of a gate: attrs.act.kind of OP_SWIGLU. Of attention's output it is the sigmoid. */
enum gate_kind { GATE_SILU, GATE_GELU_TANH, GATE_GELU_ERF, GATE_CLAMPED, GATE_SIGMOID };
enum gelu_kind { GELU_TANH, GELU_ERF, RELU_SQUARED, RELU /* in place of a GELU */ };

/* What a product does to c: it writes all that the argument is, of which columns beside it are undefined then; adds; writes while columns
 * beside it stay. */
enum gemm_result { GEMM_WRITES, GEMM_ADDS, GEMM_KEEPS };

/* One of these per instruction, zero where unused (hashed as bytes by value numbers). */
struct op_attrs {
    union {
        struct {
            int64_t bytes;
        } copy, fill;
        struct {
            int64_t rows, dim, vocab, max_pos;
            int32_t dtype, accumulate;
            float scale;
            int32_t by_columns;
        } embed; /* accumulate: EMBED_GRAD adds; else writes; scale: of what is looked up in `table`, 0: 1; by_columns: the table is stored
                  * [dim,vocab], as adapters of embeddings are in files, and there are no positions */
        struct {
            int64_t rows, dim;
            float eps;
            int32_t kind, dtype, accumulate, segments;
        } norm; /* accumulate: dweight, dbias; segments of a row, each normalised by itself; 0: 1 */
        struct {
            int64_t m, n, k, lda, ldb, ldc;
            int32_t ta, tb, a_type, b_type, c_type, accumulate; /* accumulate: enum gemm_result */
            float scale;
            int32_t c_first;
        } gemm; /* ld in elements; scale: of the product, 0: 1; c_first: the column of c at which the product begins */
        struct {
            int64_t rows, dim;
            int32_t dtype, y_type, accumulate;
            int64_t ld;
        } bias; /* dtype: of the bias, y_type: of what it is added to or the sum of; ld: elements from row to row, 0: dim */
        struct {
            int64_t rows, dim;
            int32_t dtype;
            float scale;
        } add; /* scale: of delta and bias, 0: 1 */
        struct {
            int64_t rows;
            int32_t heads, head_dim, x_type, inverse, rotated, interleaved;
            float factor, slope;
            int32_t period;
        } rope; /* inverse: backward (rotates by -angle); rotated: elements of a head, 0: all; factor: of what is rotated, 0: 1;
                 * slope: the factor grows with the position / period, as rope.h says; 0: it does not */
        struct {
            int64_t rows, dim;
            int32_t dtype, kind;
            float limit, alpha;
        } act; /* SWIGLU, GELU; limit, alpha: of GATE_CLAMPED */
        struct {
            int64_t sq, sk, q0, k0;
            int32_t hq, hk, head_dim, dtype, accumulate;
            float scale, cap;
            int32_t value_dim, o_fp32;
        } attn; /* cap: scores are cap * tanh(score / cap); 0: as they are; value_dim: width of v and o, 0: head_dim; o_fp32: o is F32,
                 * whatever dtype: a part that is merged with others */
        struct {
            int64_t rows, vocab;
            int32_t gradient, gradient_bf16; /* in place of the logits; in bf16 beside them; or none */
            int64_t ld; /* elements from row to row of the logits and of their gradient; 0: vocab */
            float scale, cap;
        } loss; /* logits are cap * tanh(scale * logit / cap); scale 0: 1; cap 0: none */
        struct {
            int64_t rows;
            int32_t heads, head_dim, dtype;
        } heads; /* ATTN_DELTA; ATTN_MERGE, whose o is F32 */
        struct {
            int64_t rows;
            int32_t heads, head_dim, dtype, first, share, members;
        } sink; /* ATTN_SINK, ATTN_SINK_GRAD: dtype of the sinks; heads [place % members * share + first, + heads) of the model's members * share */
        struct {
            int64_t n;
            int32_t y_type, x_type;
            float scale;
        } cast; /* scale: y = scale * x, both of one type; 0: 1 */
        struct {
            int64_t rows, cols, first, ld, n;
            int32_t y_type, form;
            int64_t columns;
        } dequantise; /* elements first + r * ld + c of a matrix of n; form: enum quantised_form; columns of the matrix, of int8 */
        struct {
            int64_t rows, cols, y_first, x_first, y_ld, x_ld;
            int32_t y_type, x_type, keep;
        } columns; /* keep: the other columns of y stay; else they are undefined */
        struct {
            int64_t rows, cols, y_ld, x_ld;
            uint32_t first, module, threshold;
            float scale;
            int32_t dtype, accumulate;
        } dropout; /* ops/dropout.h */
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

/* The width of attention's v and o. */
static inline int64_t op_value_dim(const struct op_attrs *a)
{
    return a->attn.value_dim > 0 ? a->attn.value_dim : a->attn.head_dim;
}

/* The wider of q's and v's: GPUs' kernels compute with both of that width, zeros beside what is narrower. */
static inline int64_t op_wider_dim(const struct op_attrs *a)
{
    return op_value_dim(a) > a->attn.head_dim ? op_value_dim(a) : a->attn.head_dim;
}

/* Whose rates an op has, and whose kernels. Elementwise stands for all that memory bounds. Collectives alone are executed by comm
 * lanes: the classes before OPS_COMPUTED are what the compute lane spends its time on. */
enum op_class { OPS_MATRIX, OPS_ATTENTION, OPS_ELEMENTWISE, OPS_COMPUTED, OPS_COLLECTIVE = OPS_COMPUTED };

/* May a predicate leave the op out? What it would have written is then undefined, what it would have updated stays as it was. */
enum op_omission { OMITTED_NEVER, OMITTED_FREELY };

/* What an op does with an argument. */
enum op_use {
    ARG_NONE, /* there is no such argument */
    ARG_IN,
    ARG_OUT,
    ARG_INOUT,
    ARG_SUM,         /* ARG_OUT, or ARG_INOUT if the attribute at flag_at is set */
    ARG_IN_OR_INOUT, /* ARG_IN, or ARG_INOUT if it is set */
    ARG_WORK         /* scratch; may be absent */
};

struct op_arg {
    uint8_t use; /* enum op_use */
    uint8_t optional;
    uint8_t addend;            /* without it the op adds nothing to what it updates */
    uint8_t element_bytes;     /* 0: those of the type that the attribute at type_at says */
    uint16_t flag_at, type_at, fp32_at; /* bytes into op_attrs; fp32_at: of what makes F32 of the type; 0: nothing */
};

const char *op_name(enum op_kind kind);
/* Of all rows as they are written, and of the size of struct op_attrs: whether kernels are those of this table. */
uint64_t op_table_digest(void);
enum op_class op_class(enum op_kind kind);
/* Number of arguments of the kernel signature (optional ones and work included). */
int op_arg_count(enum op_kind kind);
/* Argument `arg` of an op that exists; one of ARG_NONE beyond its arguments. arg < OP_MAX_ARGS. */
const struct op_arg *op_arg(enum op_kind kind, int arg);
/* What the op does with it under these attributes: neither ARG_SUM nor ARG_IN_OR_INOUT. */
enum op_use op_arg_use(enum op_kind kind, int arg, const struct op_attrs *a);
/* Bytes of an element of it. */
int64_t op_arg_element_bytes(enum op_kind kind, int arg, const struct op_attrs *a);
/* May an instruction have a predicate? */
int op_may_be_omitted(enum op_kind kind);
/* The storage type whose rates the op has: F32 or BF16. */
enum dtype op_storage_type(enum op_kind kind, const struct op_attrs *a);
/* Floating point operations (a multiply-add counts two). Attention: `pairs` attended (query, key) pairs, per query head. */
double op_flops(enum op_kind kind, const struct op_attrs *a, double pairs);

#endif
