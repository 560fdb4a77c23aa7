/* A training step as a compiled program: a flat list of instructions over tensors, buffers and operands.
 *
 * Built by src/plan, checked by src/verify, executed by src/engine. All tables are plain arrays owned by the program. */
#ifndef LTRAIN_PROGRAM_PROGRAM_H
#define LTRAIN_PROGRAM_PROGRAM_H

#include "base/status.h"
#include "program/op.h"

#include <stdint.h>
#include <stdio.h>

enum tier { TIER_DEVICE, TIER_HOST, TIER_NVME, TIERS };
/* Lanes. Comm lanes are named after their groups: all ranks (world), ranks that share heads (ulysses), ranks that pass keys and
 * values on (ring), ranks that share experts out (ep), ranks with the same experts (experts), ranks with a slice each of the same
 * layers (tp), ranks with the same slices of the same layers (zero), ranks with the same layers (stage), ranks at the same place of
 * all stages (pp), ranks that share a sequence by ulysses and ring (sequence). Lanes of dimensions of degree 1 are idle. */
enum lane {
    LANE_COMPUTE,
    LANE_H2D,
    LANE_D2H,
    LANE_READ,
    LANE_WRITE,
    LANE_HOST,
    LANE_WORLD,
    LANE_ULYSSES,
    LANE_RING,
    LANE_EP,
    LANE_EXPERTS,
    LANE_TP,
    LANE_ZERO,
    LANE_STAGE,
    LANE_PP,
    LANE_SEQUENCE,
    LANES
};
enum { COMM_LANES = LANES - LANE_WORLD };
/* Purpose that an instruction has in the step. */
enum phase { PHASE_NONE, PHASE_IO, PHASE_UPDATE, PHASE_FORWARD, PHASE_LOSS, PHASE_BACKWARD, PHASES };
enum tensor_class { CLASS_PARAM, CLASS_GRAD, CLASS_OPTIM, CLASS_ACT, CLASS_WORK, CLASS_IO, CLASSES };

const char *tier_name(enum tier t);
const char *lane_name(enum lane l);
const char *class_name(enum tensor_class c);
/* Returns 'f' forward, 'b' backward, 'u' update, 'l' loss, 'i' input and output; 0: none. */
char phase_letter(enum phase f);

/* Tells whether a lane starts an instruction as soon as its predecessor has started, and retires them in order (the I/O lanes).
 * Other lanes start an instruction when its predecessor has retired. */
static inline int lane_is_pipelined(enum lane l)
{
    return l == LANE_READ || l == LANE_WRITE;
}

static inline int lane_is_comm(enum lane l)
{
    return l >= LANE_WORLD;
}

/* Returns a comm lane's index among the comm lanes, from 0. */
static inline int lane_comm(enum lane l)
{
    return (int)l - LANE_WORLD;
}

/* Returns the place of the rank's index in a lane's group within a step_record; -1: no op asks for the lane's. */
int lane_in_record(enum lane l);

/* A logical value: `rows` rows of `row_bytes` bytes. Flat ranges of parameters, gradients and optimizer states have one row per
 * element. */
struct tensor {
    char name[48];
    enum tensor_class class;
    int64_t rows, row_bytes;
};

/* A range of bytes of a tier. Persistent buffers have the same index, tier and address in every program of a set; other buffers
 * live from their first access to their last. */
struct buffer {
    int64_t bytes : 56;
    uint8_t tier : 2, class : 3; /* enum tier, enum tensor_class */
    uint8_t persistent : 1;
    int64_t address; /* address in the tier's arena, a multiple of BUFFER_ALIGN; -1: not packed yet */
    double t0, t1;   /* simulated seconds of the lifetime's begin and end */
};

#define BUFFER_ALIGN 4096

enum access { ACCESS_READ = 1, ACCESS_WRITE = 2, ACCESS_UPDATE = 3 /* read, then written in place */ };

/* Contiguous bytes that an instruction touches: rows of a tensor from row0 on, at one version. tensor -1: scratch, undefined
 * before and after.
 *
 * Operands with the same `arg` are consecutive segments of that argument; those of an nvme argument are adjacent and together one
 * extent. The structure has 24 bytes, since an instruction has three operands on average; the builders below accept only numbers
 * that fit. */
struct operand {
    int64_t offset : 40;
    int32_t buffer : 24;
    int64_t bytes : 40;
    int32_t tensor : 24;
    int64_t row0 : 38;
    /* version that is read or written; an update in place turns version v into v + 1; copies have the version of their source */
    uint32_t version : 18;
    uint32_t arg : 6, access : 2; /* enum access */
};

#define PROGRAM_MOST_BYTES ((int64_t)1 << 39) /* most bytes of a buffer */
#define PROGRAM_MOST_ROWS ((int64_t)1 << 37)  /* most rows of a tensor */
#define PROGRAM_MOST_NAMES (1 << 23)          /* most buffers, and most tensors */
#define PROGRAM_MOST_VERSIONS (1 << 18)
#define PROGRAM_MOST_OPERANDS (1 << 12) /* most operands of an instruction */
#define PROGRAM_MOST_CALLS (1 << 20)    /* most different calls */

/* Limit that a program exceeds: the size of a buffer or tensor, or the number of parts (buffers, tensors, operands, calls). */
enum program_excess { EXCESS_NONE, EXCESS_BYTES, EXCESS_PARTS };

struct wait {
    int32_t lane;
    int32_t ticket; /* number, from 1, of the awaited instruction on its lane; the wait ends when that instruction has retired */
};

/* An instruction's work without its operands, shared by all instructions with equal work. */
struct op_call {
    struct op_attrs attrs;
    double flops;
    int64_t bytes; /* bytes moved (copies) or touched (compute) */
};

/* An instruction. Programs have millions of these, so it has only 40 bytes. */
struct instr {
    uint8_t op; /* enum op_kind */
    /* lane: enum lane; depth: how far ahead of use: 0: not a prefetch; 1: prefetch to the device; 2: from nvme to host, or an
     * update; 3: an instruction on which those of depth 2 wait */
    uint8_t lane : 5, depth : 3;
    uint8_t phase; /* enum phase; recomputation belongs to the backward pass */
    uint8_t n_waits;
    int16_t unit; /* unit of the model whose parameters, gradients or values the instruction works on; -1: none */
    /* 0: always executed; else executed only if that bit of the micro-batch's predicates is set. An instruction that is not
     * executed retires all the same, and leaves its outputs as they were. So only ops that may be left out have predicates:
     * nothing reads the results then, or the op would have added nothing */
    int16_t predicate;
    uint32_t call : 20, n_operands : 12;
    int32_t ticket; /* number of the instruction on its lane, from 1 */
    int32_t first_operand, first_wait;
    double start, end; /* simulated seconds */
};

/* Part of a unit's state in a persistent buffer. A gradient's sum over the ranks has a kind of its own, as a rank may keep its
 * own gradient beside it. */
enum binding_kind {
    BINDING_OTHER,
    BINDING_PARAM,
    BINDING_MASTER,
    BINDING_M,
    BINDING_V,
    BINDING_GRAD,
    BINDING_GRAD_SUM,
    BINDING_PACKED,
    BINDING_CACHE_K,
    BINDING_CACHE_V,
    BINDING_TAIL_K,
    BINDING_TAIL_V, /* keys and values of earlier tokens */
    BINDING_STATE,  /* numbers that summarise the text so far */
    BINDING_EXPERTS /* experts in slots on the device: which these are (OP_EXPERTS_KEEP) */
};

/* Contents of a persistent buffer when a program starts (version 0) or ends (the last version). kind, sharded and unit follow
 * from the tensor's name, so that digests hash only the name. */
struct binding {
    uint8_t kind;    /* enum binding_kind */
    uint8_t sharded; /* 1: only the rank's shard; 0: the whole */
    int16_t unit;    /* unit of the model; -1: none, as for BINDING_OTHER */
    int32_t buffer, tensor;
    int32_t version;
    int64_t offset, row0, row1;
    /* nvme only: extent of the buffer that contains the rows (the store checks whole extents) */
    int64_t extent_offset, extent_bytes;
};

/* Consecutive persistent buffers of which there are several copies, one behind another; the buffers' addresses are the first copy's,
 * and a run moves them (engine/session.h: session_run_half). count 0: there are none. bytes: those of a copy. */
struct copies {
    int first, n, count;
    int64_t bytes[TIERS];
};
/* COPIES_SAVED: what a half leaves for the other (plan/lower/halves.h), of each piece in flight. COPIES_KEYS: keys and values of each
 * sequence in flight. COPIES_OUTPUT: the last stage's output, of each piece that has yet to go backward (plan/lower/stage.h). */
enum copies_kind { COPIES_SAVED, COPIES_KEYS, COPIES_OUTPUT, COPIES };

struct program {
    char name[48];
    int masks; /* number of attention masks of the model, each with predicates of its own; 0: one */
    /* number of predicates of a program with a cache on one rank, numbered from 1; each says whether a block of the cache is
     * attended; 0: none */
    int predicates;
    struct tensor *tensors;
    struct buffer *buffers;
    struct operand *operands;
    struct op_call *calls;
    struct wait *waits;
    struct instr *instrs;
    struct binding *live_in, *live_out;
    int n_tensors, n_buffers, n_operands, n_calls, n_waits, n_instrs, n_live_in, n_live_out;
    int cap_tensors, cap_buffers, cap_operands, cap_calls, cap_waits, cap_instrs, cap_live_in, cap_live_out;
    int32_t *call_index;  /* hash table of shared calls, open addressing; -1: free slot */
    int cap_call_index;   /* slots of call_index, a power of 2; 0: not made yet */
    int n_persistent;     /* number of persistent buffers, which come first */
    int64_t arena[TIERS]; /* bytes of each arena: all addresses lie below */
    /* by tier, least bytes that any packing needs: persistent bytes, and the most transient bytes live at one moment */
    int64_t lower_bound[TIERS];
    /* by tier, lower_bound for instructions in the order of lowering, in which nothing is fetched ahead */
    int64_t serial_bound[TIERS];
    int64_t peak[TIERS][CLASSES]; /* most bytes of each class at one moment, of each tier */
    double seconds;               /* simulated seconds of the whole program */
    int write_depth;              /* most blocks of drive writes in flight while reads are in flight, too; 0: DRIVE_DEPTH */
    int writes_queued; /* most blocks of drive writes that simulations have counted in flight: a depth from that on changes nothing */
    struct copies copies[COPIES]; /* pipelines only */
    int discrete;                 /* 1: READ, WRITE and HOST lanes cannot reach the device tier */
    int group_size[LANES];        /* number of members of each comm lane's group; 1 or 0: the lane is not used */
    int out_of_memory;            /* 1, and stays so: a table could not grow */
    enum program_excess excess;   /* limit PROGRAM_MOST_* that a number exceeded, and stays so: operands may be wrong */
};

enum status program_create(const char *name, struct program **out);
/* Returns the error that a built program's out_of_memory and excess stand for: ERR_NOMEM, or ERR_NOFIT if a limit PROGRAM_MOST_*
 * was exceeded. */
enum status program_built(const struct program *p);
void program_destroy(struct program *p); /* NULL is fine */

/* Builders return the index of the new entry. If memory is short they set out_of_memory, and the index is not valid; beyond
 * PROGRAM_MOST_* they set excess. */
int program_add_tensor(struct program *p, const char *name, enum tensor_class class, int64_t rows, int64_t row_bytes);
int program_add_buffer(struct program *p, enum tier tier, int64_t bytes, enum tensor_class class, int persistent);
/* Appends an instruction with a new call, no operands, and zero in all fields but op and lane. */
int program_add_instr(struct program *p, enum op_kind op, enum lane lane);
/* Completes the last instruction's call. If an equal call was completed before, the instruction uses that one. */
void program_share_call(struct program *p);
/* Adds another wait of instruction i. */
void program_add_wait(struct program *p, int i, struct wait w);
/* Appends an operand to the last instruction. If it continues the previous operand (bytes, rows, arg, access and version), both
 * become one. */
void program_add_operand(struct program *p, struct operand o);
void program_add_binding(struct program *p, int live_out, struct binding b);
/* Makes the persistent buffers from `first` on those of which there are `count` copies, and adds room for the others behind them. They
 * lie on the device. */
void program_add_copies(struct program *p, enum copies_kind kind, int first, int count);

/* Returns the row behind an operand's last one. The operand must have a tensor. */
static inline int64_t operand_row1(const struct program *p, const struct operand *o)
{
    return o->row0 + o->bytes / p->tensors[o->tensor].row_bytes;
}

/* Returns the version of the rows after the instruction. */
static inline int32_t operand_version_after(const struct operand *o)
{
    return (int32_t)o->version + (o->access == ACCESS_UPDATE);
}

static inline struct op_call *program_call(const struct program *p, const struct instr *in)
{
    return &p->calls[in->call];
}

static inline struct wait *program_waits(const struct program *p, const struct instr *in)
{
    return &p->waits[in->first_wait];
}

/* Sets all tickets from the order of the instructions. */
void program_number(struct program *p);
/* Reorders the instructions: order[i], a permutation of 0 .. n_instrs-1, is the former index of the i-th. Sets tickets. Returns 0
 * if memory is short. */
int program_permute(struct program *p, const int *order);

/* Predicates of messages between stages, numbered behind the masks': outputs are sent, are received; gradients are sent, are received. */
enum { STAGE_PREDICATES = 4 };
/* Returns the number of the predicate that sends a stage's outputs (gradients: 0) or its gradients (1); the next one receives. */
static inline int program_stage_predicate(int ring, int masks, int gradients)
{
    return 1 + (ring > 1 ? 2 * (ring - 1) * (masks > 1 ? masks : 1) : 0) + 2 * gradients;
}

/* Prints the program as text, one instruction a line. */
void program_print(const struct program *p, FILE *f);

#endif
