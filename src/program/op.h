/* The vocabulary of ops: their attributes, and from op_table.h an op's meaning, its arguments in order, and its cost.
 *
 * This is the contract between the part that emits instructions (plan) and those that execute them (ops, attention, backends).
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

/* Groups in which a rank's index decides what it computes: its shards, heads and experts. */
enum { RECORD_GROUPS = 6 };

/* Numbers that change from step to step, in one block of host memory that is copied to the device at the start of a program. */
struct step_record {
    float inv_targets; /* 1 / target tokens of the global batch being computed */
    float clip;        /* maximal global gradient norm; 0: no clipping */
    /* hyperparameters of the pending update */
    float lr, weight_decay, beta1, beta2, eps;
    float bias1, bias2; /* 1 - beta^t */
    uint32_t rounding;  /* random word, new for each update, by which moments in bf16 and int8 are rounded */
    /* dropout: key of the run's masks; sequence: number, within the run, of the micro-batch's sequence */
    uint32_t dropout[2], sequence;
    uint16_t member[RECORD_GROUPS]; /* the rank's index in its group of the comm lanes that ops ask for, by lane_in_record */
};

/* Results of OP_CLIP, which the update uses and the user sees. */
struct norm_result {
    double norm;
    float factor; /* factor of all gradients; 1: no clipping */
    int32_t skip; /* 1: the norm is not finite, and the update leaves everything as it is */
};

enum norm_kind { NORM_RMS, NORM_LAYER, NORM_RMS_ONE /* weights are 1 + w */, NORM_NONE /* y = x */, NORM_LAYER_ONE /* 1 + w */ };
/* Function of a gate: attrs.act.kind of OP_SWIGLU. Gates of attention's output use the sigmoid, those of convolutions none.
 * GATE_ALONE: of OP_GATED only: the squared ReLU of a single map, without a second one that it multiplies. */
enum gate_kind { GATE_SILU, GATE_GELU_TANH, GATE_GELU_ERF, GATE_CLAMPED, GATE_SIGMOID, GATE_IDENTITY, GATE_ALONE };
/* The function between the two maps of an MLP without a gate: attrs.act.kind of OP_GELU. */
enum activation_kind { GELU_TANH, GELU_ERF, RELU_SQUARED, RELU };

/* Weights of a token's experts: attrs.route.kind. ROUTE_SOFTMAX: their parts of the softmax over all experts. ROUTE_CHOSEN: the
 * softmax over those that were chosen. ROUTE_SIGMOID: each one's sigmoid. */
enum route_kind { ROUTE_SOFTMAX, ROUTE_CHOSEN, ROUTE_SIGMOID };
/* The argument of OP_EXPERTS_GRAD whose rows are gathered: attrs.experts.gathers. */
enum experts_gather { GATHERS_X, GATHERS_DY };

/* Link of a row of linear attention to the row before it: ROW_FOLLOWS: the same document goes on; ROW_BEGINS: its token is a
 * document's first; ROW_NONE: it has no token. */
enum row_link { ROW_NONE = -1, ROW_FOLLOWS, ROW_BEGINS };
/* Recurrence of OP_SCAN: attrs.scan.kind. SCAN_DELTA: gated delta rule; SCAN_SSD: Mamba-2's; SCAN_CHANNELS: the delta rule with
 * a decay of each channel of a key (Kimi delta attention). */
enum scan_kind { SCAN_DELTA, SCAN_SSD, SCAN_CHANNELS };
/* Most taps of OP_CONV, and tokens that OP_SCAN's products take at a time. */
enum { CONV_TAPS = 8, SCAN_CHUNK = 64 };

/* Effect of a product on its argument c. WRITES: c is written; its columns beside the product are undefined. ADDS: the product is
 * added. KEEPS: the product is written, and the columns beside it keep their values. */
enum gemm_result { GEMM_WRITES, GEMM_ADDS, GEMM_KEEPS };

/* Words of the table of OP_EXPERTS_KEEP: counts, then for each slot the number of its expert plus 1 (0: empty), then for each slot the call that
 * chose it last. Zeros are an empty table. */
enum { KEEP_CALLS, KEEP_HITS, KEEP_MISSES, KEEP_SLOTS };
enum { KEEP_PIECES = 8 }; /* most stacks of one home: two of matrices, their biases, and two for each one's adapter */
static inline int64_t experts_keep_words(int64_t slots)
{
    return KEEP_SLOTS + 2 * slots;
}

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
            int32_t by_columns, over;
            /* accumulate: EMBED_GRAD adds to dtable; scale: factor of rows of `table`, 0: 1; by_columns: the table is stored
             * [dim,vocab], as in files of adapters of embeddings, and there are no positions; over: EMBED leaves rows of x whose
             * token is negative as they are */
        } embed;
        struct {
            int64_t rows, dim;
            float eps;
            int32_t kind, dtype, accumulate, segments;
        } norm; /* accumulate: dweight and dbias are added to; segments: number of parts of a row that are normalised separately; 0: 1 */
        struct {
            int64_t m, n, k, lda, ldb, ldc;
            uint32_t ta : 1, a_first : 31;
            int32_t tb, a_type, b_type, c_type, accumulate; /* enum gemm_result */
            float scale;
            int32_t c_first;
            /* lda, ldb, ldc: elements from row to row; scale: factor of the product, 0: 1; c_first, a_first: columns of c and of a as
             * stored at which the product begins */
        } gemm;
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
            int32_t period, first;
            /* inverse: 1: backward, rotates by -angle; rotated: elements of a head that are rotated, 0: all; factor: of the rotated
             * elements, 0: 1; slope: growth of the factor with position / period, as rope.h says; 0: none; first: element of a head
             * at which the rotated ones begin */
        } rope;
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
            /* cap: scores are cap * tanh(score / cap); 0: no cap; value_dim: width of v and o, 0: head_dim; o_fp32: 1: o is F32
             * whatever dtype is, as a part that will be merged with others */
        } attn;
        struct {
            int64_t rows, vocab;
            /* gradient: 1: the gradient replaces the logits; gradient_bf16: 1: it is written to dlogits in bf16 instead; both 0:
             * no gradient */
            int32_t gradient, gradient_bf16;
            int64_t ld; /* elements from row to row of the logits and of their gradient; 0: vocab */
            float scale, cap;
        } loss; /* logits are cap * tanh(scale * logit / cap); scale 0: 1; cap 0: none */
        struct {
            int64_t rows;
            int32_t heads, head_dim, dtype;
        } heads; /* ATTN_DELTA; ATTN_MERGE, whose o is F32 */
        struct {
            int64_t rows;
            int32_t heads, own, shared, dtype, accumulate;
        } join; /* HEADS_JOIN, HEADS_SPLIT. own, shared: a head's elements of its own, and those that all heads of a row have */
        struct {
            int64_t rows;
            int32_t heads, head_dim, dtype, first, share, group;
            /* ATTN_SINK, ATTN_SINK_GRAD. dtype: type of the sinks. The rank has `heads` heads. The first one is the model's head
             * first + share * i, i being the rank's index in the group */
        } sink;
        struct {
            int64_t rows;
            int32_t experts, k, kind, normalise, groups, group_k, accumulate, parts;
            float scale, eps, least, aux, logit_factor;
            int32_t ranked;
            /* ROUTE, PERMUTE, ROUTE_GRAD. k: experts of a token; normalise: 1: weights are divided by their sum, to which eps is
             * added and which is at least `least`; scale: factor of weights, 0: 1; groups: number of groups, of which the group_k best
             * are chosen from, 0: there are none; ranked: greatest scores whose sum ranks a group, 1 or 2, 0: two; parts: rows of `plain`, which are added up, 0: one; aux: factor of the balancing loss;
             * logit_factor: factor of logits before anything else, 0: 1 */
        } route;
        struct {
            int64_t rows, in, out;
            int32_t experts, first, count, per, transposed, x_type, w_type, y_type, result, gathers, padded;
            /* EXPERTS, EXPERTS_GRAD. rows: of all experts; matrices are those of experts [first, first + count); per: rows that are
             * made of a gathered one; transposed: 1: matrices are stored [out,in], else [in,out]; result: enum gemm_result;
             * y_type: of y or dy; gathers: enum experts_gather; padded: as of GATED */
        } experts;
        struct {
            int64_t rows, extent;
            int32_t experts, slots, bytes[KEEP_PIECES];
            /* EXPERTS_KEEP. rows: of ids; bytes: of an expert's matrix or vector in each stack, 0: there are no more stacks; extent: bytes
             * that a drive reads as one, from the home's first byte on; the last ones may be fewer */
        } keep;
        struct {
            int64_t rows, dim, width;
            int32_t k, experts, dtype, kind, interleaved;
            float limit, alpha;
            int32_t padded;
            /* GATED, GATED_GRAD. rows: tokens, each with k pairs; width: of dy; interleaved: 1: columns of gate and up alternate;
             * padded: 0, or room in percent of the rows that equally busy experts would fill; a pair whose place is negative is none */
        } gated;
        struct {
            int64_t rows, n, y_ld, x_ld;
            int32_t dtype;
        } picked; /* n: columns that are moved; y_ld, x_ld: elements from row to row */
        struct {
            int64_t rows;
            int32_t experts, members, group;
        } arrive; /* rows: room for those that arrive; members: ranks that share the experts out; group: their lane, by lane_in_record */
        struct {
            int64_t rows, x_rows, cols;
            int32_t per, dtype, padded;
        } spread; /* x_rows: rows of x; per: indices of a row of x; padded: as of GATED */
        struct {
            int64_t rows, dim;
            int32_t k, experts, y_type, dtype, accumulate;
        } combine; /* rows: tokens; dtype: type of the bias */
        struct {
            int64_t rows;
            int32_t cols, ld, first, width, silu, dtype, accumulate;
        } conv; /* CONV, CONV_GRAD. x has rows of ld elements, of which `cols` from `first` on are taken; width: taps */
        struct {
            int64_t rows;
            int32_t heads, ld, a_first, b_first, x_type, dtype, accumulate, per;
            float least, factor, rate;
            /* DECAY, DECAY_GRAD. a_first, b_first: columns of x at which a and b begin, b_first < 0: there is no b; dtype: type of
             * a_log and dt_bias; per: decays of a head, 0: 1 */
        } decay;
        struct {
            int64_t rows;
            int32_t kind, heads, groups, key_dim, value_dim, q_first, k_first, v_first, ld, dtype, accumulate;
            float scale, eps;
            /* SCAN, SCAN_GRAD and their sums. kind: enum scan_kind; groups: key heads; q_first, k_first, v_first: columns of qkv at which q, k and v
             * begin; eps: of the norm of q and k, 0: none */
        } scan;
        struct {
            int64_t pieces;
            int32_t heads, key_dim, value_dim, transposed;
        } fold; /* SCAN_FOLD */
        struct {
            int64_t n;
            int32_t y_type, x_type;
            float scale;
        } cast; /* scale: y = scale * x, both of one type; 0: 1 */
        struct {
            int64_t rows, cols, first, ld, n;
            int32_t y_type, form;
            int64_t columns, stride;
            /* takes elements first + r * ld + c of a matrix of n elements; form: enum quantised_form; columns: row length of an int8
             * matrix; stride: row r is that of the r-th of `rows` matrices, which lie as many bytes apart, 0: all are one matrix's */
        } dequantise;
        struct {
            int64_t rows, cols, y_first, x_first, y_ld, x_ld;
            int32_t y_type, x_type, keep;
        } columns; /* keep: 1: the other columns of y keep their values; 0: they are undefined */
        struct {
            int64_t rows, cols, y_ld, x_ld;
            uint32_t first, module, threshold, share, slices;
            float scale;
            int32_t dtype, accumulate;
        } dropout; /* ops/dropout.h */
        struct {
            int64_t n, n_decay, first, share;
            int32_t low_precision, moments, group;
        } vec; /* ACCUM, SUMSQ (share: ranks with the same elements, by which the sum is divided; 0: one), CLIP, ADAMW (ops/adamw.h); group: comm lane, by lane_in_record, whose members share the elements */
        struct {
            int64_t n, share;
            int32_t type, element, distance, send_if, recv_if, root;
        } comm; /* element: bytes of an element, or of a row; send_if, recv_if: predicates of sending and receiving, as
                 * instr.predicate; root: the member that deals or collects. DISPATCH and RETURN: n: room for rows that arrive, share: rows of all pairs; type: experts */
        int64_t words[10];
    };
};

/* Returns the width of attention's v and o. */
static inline int64_t op_value_dim(const struct op_attrs *a)
{
    return a->attn.value_dim > 0 ? a->attn.value_dim : a->attn.head_dim;
}

/* Returns the wider of q's and v's widths. GPU kernels compute both with that width, padding the narrower with zeros. */
static inline int64_t op_wider_dim(const struct op_attrs *a)
{
    return op_value_dim(a) > a->attn.head_dim ? op_value_dim(a) : a->attn.head_dim;
}

/* Returns the bytes of all matrices and vectors of an expert. */
static inline int64_t experts_keep_bytes(const struct op_attrs *a)
{
    int64_t bytes = 0;
    for (int i = 0; i < KEEP_PIECES; i++)
        bytes += a->keep.bytes[i];
    return bytes;
}

/* Class of an op, which decides its rates and its kernels. Elementwise stands for all ops limited by memory bandwidth; recurrent
 * are those of linear attention. Classes before OPS_COMPUTED take the compute lane's time; collectives run on comm lanes. */
enum op_class { OPS_MATRIX, OPS_ATTENTION, OPS_RECURRENT, OPS_ELEMENTWISE, OPS_COMPUTED, OPS_COLLECTIVE = OPS_COMPUTED };

/* Permission to leave an op out by a predicate. The outputs of an op left out are undefined; arguments that it would update keep
 * their values. */
enum op_omission { OMITTED_NEVER, OMITTED_FREELY };

/* Use of an argument by an op. */
enum op_use {
    ARG_NONE, /* there is no such argument */
    ARG_IN,
    ARG_OUT,
    ARG_INOUT,
    ARG_SUM,         /* ARG_OUT, or ARG_INOUT if the attribute at flag_at is not 0 */
    ARG_IN_OR_INOUT, /* ARG_IN, or ARG_INOUT if the attribute at flag_at is not 0 */
    ARG_WORK         /* scratch; may be absent */
};

struct op_arg {
    uint8_t use; /* enum op_use */
    uint8_t optional;
    uint8_t addend;        /* 1: this argument is what the op adds: without it, updated arguments keep their values */
    uint8_t element_bytes; /* 0: the attribute at type_at gives the type */
    /* byte offsets in op_attrs; fp32_at: of an attribute that makes the type F32 if not 0; 0: none */
    uint16_t flag_at, type_at, fp32_at;
};

/* A product of an m by k and a k by n matrix of these types. ta, tb: 1: the operand is stored transposed. */
struct op_product {
    double m, n, k;
    int ta, tb;
    enum dtype a_type, b_type;
};

const char *op_name(enum op_kind kind);
/* Hashes all rows of the table as text, and the size of struct op_attrs. Kernels compiled with an equal digest fit this table. */
uint64_t op_table_digest(void);
enum op_class op_class(enum op_kind kind);
/* Tells whether an op passes over a scan's rows. */
int op_is_scan(enum op_kind kind);
/* Tells whether the sizes of an op's messages are numbers of its third argument. */
int op_is_counted(enum op_kind kind);
/* Returns the matrix product from which the cost of an op of class MATRIX is estimated: of experts, one's, with an equal part of the
 * rows. For scans, one head's products with its state. */
struct op_product op_product(enum op_kind kind, const struct op_attrs *a);
/* Returns the number of arguments of the op's kernels, optional and scratch arguments included. */
int op_arg_count(enum op_kind kind);
/* Returns argument `arg` (< OP_MAX_ARGS) of an op; an entry with ARG_NONE beyond the op's last one. */
const struct op_arg *op_arg(enum op_kind kind, int arg);
/* Returns the argument's use under these attributes, with ARG_SUM and ARG_IN_OR_INOUT resolved. */
enum op_use op_arg_use(enum op_kind kind, int arg, const struct op_attrs *a);
/* Returns the bytes of one element of the argument. */
int64_t op_arg_element_bytes(enum op_kind kind, int arg, const struct op_attrs *a);
/* Tells whether an instruction with this op may have a predicate. */
int op_may_be_omitted(enum op_kind kind);
/* Tells whether GPUs have a kernel of the op, or take part in the collective. */
int op_runs_on_gpus(enum op_kind kind);
/* Returns the storage type that decides the op's rates: F32 or BF16. */
enum dtype op_storage_type(enum op_kind kind, const struct op_attrs *a);
/* Returns floating point operations (a multiply-add counts two). Attention: `pairs` attended (query, key) pairs, per query head. */
double op_flops(enum op_kind kind, const struct op_attrs *a, double pairs);

#endif
