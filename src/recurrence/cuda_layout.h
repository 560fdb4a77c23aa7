/* Scratch of the CUDA kernels, from attributes alone: plans ask on machines without CUDA. Private to src/recurrence. */
#ifndef LTRAIN_RECURRENCE_CUDA_LAYOUT_H
#define LTRAIN_RECURRENCE_CUDA_LAYOUT_H

#include "base/num.h"
#include "recurrence/cuda_recurrence.h"

enum { CUDA_SCAN_ALIGN = 16 }; /* alignment of all parts of scratch, which kernels see to themselves */

/* Gates of a chunk's rows, of one head: G, beta, f and r of recurrence.h, and the row's document within the chunk. Rows without a token
 * have a beta of 0. SCAN_CHANNELS: without decays, so that f and r are 1 or 0. */
struct chunk_gates {
    double sum[SCAN_CHUNK];
    float beta[SCAN_CHUNK], enter[SCAN_CHUNK], leave[SCAN_CHUNK];
    int32_t document[SCAN_CHUNK]; /* 0: the one that goes on */
};

/* Offsets of the scratch of a scan or its sums in bytes; -1: the op has no such part. Units are heads of chunks, chunk by chunk; columns of
 * keys and values are rounded up to SCAN_CHUNK, and those beyond the head's are zero. */
struct scan_layout {
    int64_t units, key, value; /* units; columns of a key and of a value */
    int64_t gates;             /* struct chunk_gates [units] */
    int64_t norms;             /* float [rows,groups,2]: factors that make k, and q */
    int64_t y, z;              /* float [units,SCAN_CHUNK,columns]: T beta f K, and Z */
    int64_t states;            /* float [units,key,value]: before each chunk */
    int64_t inverse;           /* float [units,SCAN_CHUNK,SCAN_CHUNK]: T */
    int64_t dz;                /* R' dO, then dZ; laid out as z */
    int64_t dstates;           /* gradients after each chunk; laid out as states */
    int64_t dskips;            /* double [units] */
    int64_t sums;              /* double [units,SCAN_CHUNK,key]: G of each channel; SCAN_CHANNELS only, as the next */
    int64_t pairs;             /* float [units,2,SCAN_CHUNK,SCAN_CHUNK]: KK' L and QK' L */
    int64_t bytes;             /* bytes of all parts */
};

static inline int64_t take_bytes(int64_t *at, int64_t bytes)
{
    const int64_t from = *at;
    *at = round_up(from + bytes, CUDA_SCAN_ALIGN);
    return from;
}

/* Takes bytes of a part that only some ops have. */
static inline int64_t take_part(int64_t *at, int is_there, int64_t bytes)
{
    return is_there ? take_bytes(at, bytes) : -1;
}

static inline struct scan_layout scan_layout_of(enum op_kind kind, const struct op_attrs *a)
{
    const int64_t rows = a->scan.rows, side = SCAN_CHUNK;
    const int is_delta = a->scan.kind != SCAN_SSD, gradient = kind == OP_SCAN_GRAD, whole = kind == OP_SCAN || gradient;
    struct scan_layout l;
    l.units = ceil_div(rows, side) * a->scan.heads;
    l.key = round_up(a->scan.key_dim, side);
    l.value = round_up(a->scan.value_dim, side);
    l.bytes = 0;
    l.gates = take_bytes(&l.bytes, l.units * (int64_t)sizeof(struct chunk_gates));
    l.norms = take_bytes(&l.bytes, rows * a->scan.groups * 8);
    l.y = take_part(&l.bytes, is_delta || gradient, l.units * side * l.key * 4);
    l.z = take_part(&l.bytes, kind != OP_SCAN_GRAD_SUM, l.units * side * l.value * 4);
    l.states = take_part(&l.bytes, whole, l.units * l.key * l.value * 4);
    l.inverse = take_part(&l.bytes, is_delta && gradient, l.units * side * side * 4);
    l.dz = take_part(&l.bytes, gradient || kind == OP_SCAN_GRAD_SUM, l.units * side * l.value * 4);
    l.dstates = take_part(&l.bytes, gradient, l.units * l.key * l.value * 4);
    l.dskips = take_part(&l.bytes, gradient, l.units * 8);
    l.sums = take_part(&l.bytes, a->scan.kind == SCAN_CHANNELS, l.units * side * l.key * 8);
    l.pairs = take_part(&l.bytes, a->scan.kind == SCAN_CHANNELS, l.units * 2 * side * side * 4);
    return l;
}

/* Offsets of the scratch of a convolution's gradient in floats, for each block of CUDA_CONV_ROWS rows. */
struct conv_layout {
    int64_t blocks;
    int64_t past;   /* [blocks,width-1,cols]: x of the tokens before a block */
    int64_t carry;  /* [blocks,width-1,cols]: gradient of the tail behind a block */
    int64_t parts;  /* [blocks,width+1,cols]: sums of the weights' gradients, by tap, then the bias's */
    int64_t floats; /* floats of all parts */
};

static inline struct conv_layout conv_layout_of(const struct op_attrs *a)
{
    const int64_t cols = a->conv.cols, width = a->conv.width;
    struct conv_layout l;
    l.blocks = ceil_div(a->conv.rows, CUDA_CONV_ROWS);
    l.past = 0;
    l.carry = l.blocks * (width - 1) * cols;
    l.parts = 2 * l.carry;
    l.floats = l.parts + l.blocks * (width + 1) * cols;
    return l;
}

#endif
