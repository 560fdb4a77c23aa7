/* Costs of instructions on a machine: rates as curves, and links whose capacity lanes share. */
#ifndef LTRAIN_MACHINE_COST_H
#define LTRAIN_MACHINE_COST_H

#include "program/program.h"

#define CURVE_POINTS 8

/* A function y(x), given by points: linear in log x between them, constant beyond them. x ascends. n = 0: not given. */
struct curve {
    int n;
    double x[CURVE_POINTS], y[CURVE_POINTS];
};
double curve_at(const struct curve *c, double x);

/* Rates of matrix products by layout and shape: m, n and k of 64, 256, 1024, 4096 each, k fastest. There is one such table for
 * each storage type of the inputs. */
#define GEMM_SIZES 4
#define GEMM_SHAPES (GEMM_SIZES * GEMM_SIZES * GEMM_SIZES)
#define GEMM_SMALLEST 64
enum gemm_layout { GEMM_NN, GEMM_NT, GEMM_TN, GEMM_LAYOUTS };
struct gemm_rates {
    double flops[GEMM_LAYOUTS][GEMM_SHAPES]; /* per second */
};
/* Returns the rate at a shape, interpolated in the logarithms; below the smallest size it is in proportion to the size. */
double gemm_rate(const struct gemm_rates *r, enum gemm_layout layout, double m, double n, double k);

#define ATTENTION_DIMS 4
/* Rates of attention for one head dimension: FLOPs of attended pairs per second, as curves over lengths of causal sequences. */
struct attention_rates {
    int head_dim; /* ascending; 0: this entry and those after it are unused */
    struct curve forward, backward;
};
double attention_rate(const struct attention_rates r[ATTENTION_DIMS], enum op_kind op, double head_dim, double length);
/* Length by which a call of attention is looked up: its queries; or that of the causal sequence with as many pairs for each row of
 * queries and keys. The second one tells calls of few keys from calls of many. */
enum attention_length { BY_QUERIES, BY_PAIRS };
static inline double attention_length(enum attention_length by, double queries, double keys, double pairs)
{
    return by == BY_QUERIES ? queries : 4 * pairs / (queries + keys);
}

#define COST_TYPES 2 /* F32, BF16 storage */

/* Rates of other ops: bytes touched per second, as curves over the bytes that an instruction touches. */
struct op_rates {
    struct curve memory; /* rate of ops that have no curve of their own */
    struct curve op[OP_COUNT][COST_TYPES];
};

/* Rates of a device, or of the processors of a host. */
struct rates {
    struct gemm_rates gemm[COST_TYPES];
    struct attention_rates attention[COST_TYPES][ATTENTION_DIMS];
    int attention_by; /* enum attention_length of attention's curves */
    struct op_rates ops;
};

/* A resource that several lanes use at once. */
enum link { LINK_CORES, LINK_MEMORY, LINK_DRIVES, LINK_INSIDE, LINK_ACROSS, LINK_BETWEEN /* between islands */, LINKS };

/* Costs for one rank. An instruction alone takes lane_seconds + work / rate. Lanes that run together and ask for more than all of
 * a link share it fairly: the lane that asks for least is served first. Drives are shared by bytes in flight. */
struct cost_model {
    struct rates device;
    struct op_rates host;
    double lane_bytes[LANES];   /* bytes per second of copy, I/O and comm lanes */
    double lane_seconds[LANES]; /* fixed part of an instruction of that lane */
    /* further fixed part of an instruction that finds the lane idle; the ones after it are under way when their turn comes */
    double lane_idle[LANES];
    double overhead;             /* fixed part on the compute and host lanes */
    double demand[LANES][LINKS]; /* share of a link's capacity that a lane running alone takes */
    double lane_cores[LANES];    /* seconds of LINK_CORES that an instruction of the lane takes besides, whatever its size */
    int chained;       /* 1: comm lanes share a stream: collectives take place one after the other, in the program's order */
    int pads;          /* 1: attention computes with values as wide as keys (op_wider_dim) */
    int widens;        /* 1: a product of an fp32 and a bf16 matrix has fp32's rate, not bf16's */
    double peak_flops; /* dense peak of the storage type, by which MFU is defined */
    char source[192];  /* source of the figures, for people */
};

/* A product of an op of class MATRIX, and which of the rates it is planned by. */
struct cost_product {
    struct op_product sizes;
    enum dtype type;
    enum gemm_layout layout;
};
struct cost_product cost_product(const struct cost_model *m, enum op_kind op, const struct op_attrs *a);
/* Returns the seconds of an instruction with that call, running alone. */
double cost_seconds(const struct cost_model *m, const struct instr *in, const struct op_call *c);
/* Returns the seconds of an op of class ATTENTION by rates over such lengths, without the fixed part. */
double cost_attention_seconds(const struct cost_model *m, const struct attention_rates r[ATTENTION_DIMS],
                              enum attention_length by, enum op_kind op, const struct op_call *c);
/* Returns the seconds that moving an op's bytes takes, without the fixed part. */
double cost_memory_seconds(const struct cost_model *m, const struct instr *in, const struct op_call *c);
/* Remembers the last seconds of a program's instructions, whose different calls are few. The caller sets m and p, and the rest to
 * 0. */
enum { COST_MEMO = 512 };
struct cost_memo {
    const struct cost_model *m;
    const struct program *p;
    struct {
        uint64_t of; /* key of the entry, made of call, op and lane; 0: empty */
        double seconds;
    } kept[COST_MEMO];
};
double cost_memo_seconds(struct cost_memo *memo, const struct instr *in);
/* Copies the machine with all links `speed` times as fast: copies, drives, messages. */
void cost_with_links(const struct cost_model *m, double speed, struct cost_model *out);

#endif
