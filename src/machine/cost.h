/* What an instruction costs on a machine: rates as curves, and links whose capacity lanes share. */
#ifndef LTRAIN_MACHINE_COST_H
#define LTRAIN_MACHINE_COST_H

#include "program/program.h"

#define CURVE_POINTS 8

/* y over x, linear in log x between the points, constant beyond them. x ascends. n = 0: not given. */
struct curve {
    int n;
    double x[CURVE_POINTS], y[CURVE_POINTS];
};
double curve_at(const struct curve *c, double x);

/* Matrix products by storage type of the inputs, layout and shape: m, n and k of 64, 256, 1024, 4096 each, k fastest. */
#define GEMM_SIZES 4
#define GEMM_SHAPES (GEMM_SIZES * GEMM_SIZES * GEMM_SIZES)
#define GEMM_SMALLEST 64
enum gemm_layout { GEMM_NN, GEMM_NT, GEMM_TN, GEMM_LAYOUTS };
struct gemm_rates {
    double flops[GEMM_LAYOUTS][GEMM_SHAPES]; /* per second */
};
/* The rate at a shape, interpolated in the logarithms; in proportion to what is below the smallest size. */
double gemm_rate(const struct gemm_rates *r, enum gemm_layout layout, double m, double n, double k);

#define ATTENTION_DIMS 4
/* FLOPs of attended pairs per second over the number of queries, for one head dimension. */
struct attention_rates {
    int head_dim; /* ascending; 0: this entry and those after it are unused */
    struct curve forward, backward;
};
double attention_rate(const struct attention_rates r[ATTENTION_DIMS], enum op_kind op, double head_dim, double queries);

#define COST_TYPES 2 /* F32, BF16 storage */

/* Bytes touched per second over the bytes an instruction touches. */
struct op_rates {
    struct curve memory; /* of an op that has no curve of its own */
    struct curve op[OP_COUNT][COST_TYPES];
};

/* A device, or the processors of a host. */
struct rates {
    struct gemm_rates gemm[COST_TYPES];
    struct attention_rates attention[COST_TYPES][ATTENTION_DIMS];
    struct op_rates ops;
};

/* What several lanes use at once. */
enum link { LINK_CORES, LINK_MEMORY, LINK_DRIVES, LINK_INSIDE, LINK_ACROSS, LINKS };

/* Of one rank. An instruction alone takes lane_seconds + work / rate. Lanes that run together and ask for more than all of a link
 * share it fairly: who asks for least is served first; the drives by bytes in flight. */
struct cost_model {
    struct rates device;
    struct op_rates host;
    double lane_bytes[LANES];   /* bytes per second of copy, I/O and comm lanes */
    double lane_seconds[LANES]; /* fixed part of an instruction there */
    double lane_idle[LANES]; /* and of one there that finds the lane idle: those after it are under way when their turn comes */
    double overhead;         /* the fixed part on the compute and host lanes */
    double demand[LANES][LINKS]; /* share of a link's capacity that a lane running alone takes */
    double lane_cores[LANES];    /* seconds of LINK_CORES that an instruction there takes besides, whatever its size */
    int chained;                 /* comm lanes share a stream: collectives take place one after the other, in the program's order */
    int pads;                    /* attention computes with values as wide as keys (op_wider_dim) */
    int widens;                  /* a product of an fp32 and a bf16 matrix has fp32's rate, not bf16's */
    double peak_flops;           /* dense peak of the storage type: what MFU refers to */
    char source[192];            /* for people */
};

/* Seconds of an instruction with that call, running alone. */
double cost_seconds(const struct cost_model *m, const struct instr *in, const struct op_call *c);
/* The same of a program's instructions, whose calls are few: the seconds of the last ones are kept. To begin with m and p are set, the
 * rest is 0. */
enum { COST_MEMO = 512 };
struct cost_memo {
    const struct cost_model *m;
    const struct program *p;
    struct {
        uint64_t of; /* call, op and lane; 0: nothing */
        double seconds;
    } kept[COST_MEMO];
};
double cost_memo_seconds(struct cost_memo *memo, const struct instr *in);
/* The same machine with all links `speed` times as fast: copies, drives, messages. */
void cost_with_links(const struct cost_model *m, double speed, struct cost_model *out);

/* A program's lanes over its simulated time, all in seconds. */
struct lane_times {
    double total;
    double busy[LANES];
    double exposed[LANES]; /* of transfer lanes: time during which the lane is busy and compute is not */
    double stall;          /* time during which compute is not busy */
    double exposed_any;    /* time during which compute is not busy and some transfer lane is */
};
void program_lane_times(const struct program *p, struct lane_times *out);

#endif
