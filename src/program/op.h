/* The vocabulary of ops: their attributes, and op_table.h's rows: an op's meaning, its arguments in order, its cost.
 *
 * This is the contract between the emitter of instructions (plan) and their executors (ops, attention, backends). Every kernel's
 * result depends only on its attributes and inputs, never on addresses, alignment, lane or thread timing. */
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

enum { COMM_GROUPS = 3 }; /* groups that a rank belongs to: one for each comm lane */

/* Numbers that change from step to step: one block in host memory, copied to the device at the start of a program. */
struct step_record {
    float inv_targets; /* 1 / target tokens of the global batch being computed */
    float clip;        /* maximal global gradient norm; 0: no clipping */
    /* for the pending update */
    float lr, weight_decay, beta1, beta2, eps;
    float bias1, bias2; /* 1 - beta^t */
    uint32_t rounding;  /* random, new for each update; for moments in bf16 */
    uint32_t dropout[2],
        sequence; /* dropout: key of the run's masks; sequence: number, in the run, of the micro-batch's sequence */
    /* the rank's index in its group of each comm lane, which decides its shards and heads; by lane_comm */
    int32_t member[COMM_GROUPS];
};

/* Results of OP_CLIP, for the update and for people. */
struct norm_result {
    double norm;
    float factor; /* factor of all gradients; 1: no clipping */
    int32_t skip; /* 1: the norm is not finite, and the update leaves everything as it is */
};

enum norm_kind { NORM_RMS, NORM_LAYER, NORM_RMS_ONE /* weights are 1 + w */, NORM_NONE /* y = x */, NORM_LAYER_ONE /* 1 + w */ };
/* The function of a gate: attrs.act.kind of OP_SWIGLU. Gates of attention's output have the sigmoid. */
enum gate_kind { GATE_SILU, GATE_GELU_TANH, GATE_GELU_ERF, GATE_CLAMPED, GATE_SIGMOID };
/* The function between the two maps of an MLP without a gate: attrs.act.kind of OP_GELU. */
enum activation_kind { GELU_TANH, GELU_ERF, RELU_SQUARED, RELU };

/* Effect of a product on its argument c. WRITES: all of the argument is written; columns beside the product are undefined. ADDS:
 * the product is added. KEEPS: the product is written, and columns beside it stay. */
enum gemm_result { GEMM_WRITES, GEMM_ADDS, GEMM_KEEPS };

/* Attributes of an instruction's op, zero where unused (value numbers hash them as bytes). */
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
        } embed; /* accumulate: EMBED_GRAD adds; scale: of rows of `table`, 0: 1; by_columns: the table is stored [dim,vocab], as files
                  * store adapters of embeddings, and there are no positions */
        struct {
            int64_t rows, dim;
            float eps;
            int32_t kind, dtype, accumulate, segments;
        } norm; /* accumulate: dweight and dbias are added to; segments: parts of a row, each normalised by itself; 0: 1 */
        struct {
            int64_t m, n, k, lda, ldb, ldc;
            int32_t ta, tb, a_type, b_type, c_type, accumulate; /* enum gemm_result */
            float scale;
            int32_t c_first;
        } gemm; /* ld in elements; scale: factor of the product, 0: 1; c_first: column of c at which the product begins */
        struct {
            int64_t rows, dim;
            int32_t dtype, y_type, accumulate;
            int64_t ld;
        } bias; /* dtype: type of the bias; y_type: type of y or dy; ld: elements from row to row, 0: dim */
        struct {
            int64_t rows, dim;
            int32_t dtype;
            float scale;
        } add; /* scale: factor of delta and bias, 0: 1 */
        struct {
            int64_t rows;
            int32_t heads, head_dim, x_type, inverse, rotated, interleaved;
            float factor, slope;
            int32_t period;
        } rope; /* inverse: backward (rotates by -angle); rotated: elements of a head that are rotated, 0: all; factor: of these, 0: 1;
                 * slope: the factor grows with the position / period, as rope.h says; 0: it does not */
        struct {
            int64_t rows, dim;
            int32_t dtype, kind;
            float limit, alpha;
        } act; /* SWIGLU, GELU; limit, alpha: for GATE_CLAMPED */
        struct {
            int64_t sq, sk, q0, k0;
            int32_t hq, hk, head_dim, dtype, accumulate;
            float scale, cap;
            int32_t value_dim, o_fp32;
        } attn; /* cap: scores are cap * tanh(score / cap); 0: no cap; value_dim: width of v and o, 0: head_dim; o_fp32: o is F32,
                 * whatever dtype is: a part that is merged with others */
        struct {
            int64_t rows, vocab;
            int32_t gradient,
                gradient_bf16; /* the gradient replaces the logits; or it is written in bf16 beside them; or there is none */
            int64_t ld;        /* elements from row to row of the logits and of their gradient; 0: vocab */
            float scale, cap;
        } loss; /* logits are cap * tanh(scale * logit / cap); scale 0: 1; cap 0: none */
        struct {
            int64_t rows;
            int32_t heads, head_dim, dtype;
        } heads; /* ATTN_DELTA; ATTN_MERGE, whose o is F32 */
        struct {
            int64_t rows;
            int32_t heads, head_dim, dtype, first, share, group;
        } sink; /* ATTN_SINK, ATTN_SINK_GRAD: dtype of the sinks; the model's heads from member[group] * share + first on */
        struct {
            int64_t n;
            int32_t y_type, x_type;
            float scale;
        } cast; /* scale: y = scale * x, both of one type; 0: 1 */
        struct {
            int64_t rows, cols, first, ld, n;
            int32_t y_type, form;
            int64_t columns;
        } dequantise; /* elements first + r * ld + c of a matrix of n; form: enum quantised_form; columns: of an int8 matrix */
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
            int32_t low_precision, moments, group;
        } vec; /* ACCUM, SUMSQ, CLIP, ADAMW (ops/adamw.h); group: comm lane of those that share the elements, by lane_comm */
        struct {
            int64_t n, share;
            int32_t type, element, distance, send_if, recv_if;
        } comm; /* element: bytes of one element; send_if, recv_if: as instr.predicate */
        int64_t words[10];
    };
};

/* Returns the width of attention's v and o. */
static inline int64_t op_value_dim(const struct op_attrs *a)
{
    return a->attn.value_dim > 0 ? a->attn.value_dim : a->attn.head_dim;
}

/* Returns the wider of q's and v's widths. GPUs' kernels compute both with that width, with zeros beside the narrower one. */
static inline int64_t op_wider_dim(const struct op_attrs *a)
{
    return op_value_dim(a) > a->attn.head_dim ? op_value_dim(a) : a->attn.head_dim;
}

/* Class of an op: its rates and its kernels. Elementwise stands for all ops that memory bounds. Only collectives are executed by
 * comm lanes: the classes before OPS_COMPUTED share the time of the compute lane. */
enum op_class { OPS_MATRIX, OPS_ATTENTION, OPS_ELEMENTWISE, OPS_COMPUTED, OPS_COLLECTIVE = OPS_COMPUTED };

/* May a predicate leave the op out? Its outputs are then undefined, and arguments that it would update stay as they were. */
enum op_omission { OMITTED_NEVER, OMITTED_FREELY };

/* Use of an argument by an op. */
enum op_use {
    ARG_NONE, /* there is no such argument */
    ARG_IN,
    ARG_OUT,
    ARG_INOUT,
    ARG_SUM,         /* ARG_OUT, or ARG_INOUT if the attribute at flag_at is set */
    ARG_IN_OR_INOUT, /* ARG_IN, or ARG_INOUT if that attribute is set */
    ARG_WORK         /* scratch; may be absent */
};

struct op_arg {
    uint8_t use; /* enum op_use */
    uint8_t optional;
    uint8_t addend;                     /* 1: without this argument the op adds nothing to its updated arguments */
    uint8_t element_bytes;              /* 0: the attribute at type_at gives the type */
    uint16_t flag_at, type_at, fp32_at; /* bytes into op_attrs; fp32_at: attribute that makes the type F32; 0: none */
};

/* A product of an m by k matrix and a k by n matrix, of these types; ta, tb: 1: stored transposed. */
struct op_product {
    double m, n, k;
    int ta, tb;
    enum dtype a_type, b_type;
};

const char *op_name(enum op_kind kind);
/* Hashes all rows of the table as text, and the size of struct op_attrs: kernels with an equal digest belong to this table. */
uint64_t op_table_digest(void);
enum op_class op_class(enum op_kind kind);
/* Returns the product by whose rate an op of class MATRIX is priced. */
struct op_product op_product(enum op_kind kind, const struct op_attrs *a);
/* Returns the number of arguments of the kernel signature (optional ones and work included). */
int op_arg_count(enum op_kind kind);
/* Returns argument `arg` of an op that exists; ARG_NONE beyond its arguments. arg < OP_MAX_ARGS. */
const struct op_arg *op_arg(enum op_kind kind, int arg);
/* Returns the argument's use under these attributes: neither ARG_SUM nor ARG_IN_OR_INOUT. */
enum op_use op_arg_use(enum op_kind kind, int arg, const struct op_attrs *a);
/* Returns the bytes of one element of the argument. */
int64_t op_arg_element_bytes(enum op_kind kind, int arg, const struct op_attrs *a);
/* Tells whether an instruction with this op may have a predicate. */
int op_may_be_omitted(enum op_kind kind);
/* Returns the storage type whose rates the op has: F32 or BF16. */
enum dtype op_storage_type(enum op_kind kind, const struct op_attrs *a);
/* Returns floating point operations (a multiply-add counts two). Attention: `pairs` attended (query, key) pairs, per query head. */
double op_flops(enum op_kind kind, const struct op_attrs *a, double pairs);

#endif
