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
/* The comm lanes are named for their groups: all ranks, ranks that share heads, ranks that pass keys and values on. */
enum lane { LANE_COMPUTE, LANE_H2D, LANE_D2H, LANE_READ, LANE_WRITE, LANE_HOST, LANE_WORLD, LANE_ULYSSES, LANE_RING, LANES };
enum { COMM_LANES = LANES - LANE_WORLD };
_Static_assert((int)COMM_LANES == (int)COMM_GROUPS, "a step_record has the rank's index in each group");
/* Purpose of a part of a step. */
enum phase { PHASE_NONE, PHASE_IO, PHASE_UPDATE, PHASE_FORWARD, PHASE_LOSS, PHASE_BACKWARD, PHASES };
enum tensor_class { CLASS_PARAM, CLASS_GRAD, CLASS_OPTIM, CLASS_ACT, CLASS_WORK, CLASS_IO, CLASSES };

const char *tier_name(enum tier t);
const char *lane_name(enum lane l);
const char *class_name(enum tensor_class c);
/* Returns 'f' forward, 'b' backward, 'u' update, 'l' loss, 'i' input and output; 0: none. */
char phase_letter(enum phase f);

/* Tells whether a lane starts an instruction as soon as its predecessor has started, and retires in order (the I/O lanes). Other
 * lanes start it when the predecessor has retired. */
static inline int lane_is_pipelined(enum lane l)
{
    return l == LANE_READ || l == LANE_WRITE;
}

static inline int lane_is_comm(enum lane l)
{
    return l >= LANE_WORLD;
}

/* Returns a comm lane's number among the comm lanes. */
static inline int lane_comm(enum lane l)
{
    return (int)l - LANE_WORLD;
}

/* A logical value of `rows` rows of `row_bytes` bytes. Flat parameter, gradient and optimizer ranges have one row per element. */
struct tensor {
    char name[48];
    enum tensor_class class;
    int64_t rows, row_bytes;
};

/* A piece of a tier. Persistent buffers have the same index, tier and address in every program of a set; the others live from
 * their first access to their last. */
struct buffer {
    int64_t bytes : 56;
    uint8_t tier : 2, class : 3; /* enum tier, enum tensor_class */
    uint8_t persistent : 1;
    int64_t address; /* in the tier's arena, a multiple of BUFFER_ALIGN; -1 before packing */
    double t0, t1;   /* simulated lifetime */
};

#define BUFFER_ALIGN 4096

enum access { ACCESS_READ = 1, ACCESS_WRITE = 2, ACCESS_UPDATE = 3 /* read, then written in place */ };

/* Contiguous bytes that an instruction touches: rows of a tensor from row0 on, at one version. Several operands with the same
 * `arg` are consecutive segments of that argument; those of an nvme argument are adjacent and together one extent. tensor -1:
 * scratch, undefined before and after. It has 24 bytes, since there are three operands for each instruction; the builders below
 * accept only numbers that fit. */
struct operand {
    int64_t offset : 40;
    int32_t buffer : 24;
    int64_t bytes : 40;
    int32_t tensor : 24;
    int64_t row0 : 38;
    uint32_t
        version : 18; /* version that is read or written; an update in place makes version + 1 of it; copies keep the version */
    uint32_t arg : 6, access : 2; /* enum access */
};

#define PROGRAM_MOST_BYTES ((int64_t)1 << 39) /* bytes of a buffer */
#define PROGRAM_MOST_ROWS ((int64_t)1 << 37)  /* rows of a tensor */
#define PROGRAM_MOST_NAMES (1 << 23)          /* buffers, tensors */
#define PROGRAM_MOST_VERSIONS (1 << 18)
#define PROGRAM_MOST_OPERANDS (1 << 12) /* operands of an instruction */
#define PROGRAM_MOST_CALLS (1 << 20)    /* different calls */

/* The limit that a program exceeds: the size of one buffer or tensor, or the number of parts. */
enum program_excess { EXCESS_NONE, EXCESS_BYTES, EXCESS_PARTS };

struct wait {
    int32_t lane;
    int32_t ticket; /* the wait lasts until the lane has retired its ticket-th instruction (counted from 1) */
};

/* An instruction's work without its operands: instructions that do the same share one. */
struct op_call {
    struct op_attrs attrs;
    double flops;
    int64_t bytes; /* bytes moved (copies) or touched (compute) */
};

/* An instruction. There are millions of these: 40 bytes. */
struct instr {
    uint8_t op; /* enum op_kind */
    /* enum lane; prefetch depth: 0 none; 1 to the device; 2 nvme to host, or an update; 3 an instruction that precedes those of
     * depth 2 */
    uint8_t lane : 4, depth : 4;
    uint8_t phase; /* enum phase; recomputation belongs to the backward pass */
    uint8_t n_waits;
    int16_t unit; /* the model's unit whose parameters, gradients or values it works on; -1: none */
    /* 0: always executed; else only if that bit of the micro-batch's predicates is set. An instruction that is not executed
     * retires all the same, and its results are as they were. So only an op that may be left out has a predicate: nothing reads
     * its results, or it would have added nothing */
    int16_t predicate;
    uint32_t call : 20, n_operands : 12;
    int32_t ticket; /* its number on its lane, from 1 */
    int32_t first_operand, first_wait;
    double start, end; /* simulated */
};

/* Part of a unit's state that a binding holds. A gradient's sum over the ranks has a role beside each rank's own gradient, for
 * cases in which both are kept. */
enum binding_role {
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
    BINDING_STATE   /* numbers that stand for a whole text */
};

/* Contents of a persistent buffer when a program starts (version 0) or ends (its last version there). Role, sharded and unit
 * follow from the tensor's name, and digests hash the name alone. */
struct binding {
    uint8_t role;    /* enum binding_role */
    uint8_t sharded; /* 1: the rank's shards, not the whole */
    int16_t unit;    /* unit of the model; -1: none, as for all bindings without a role */
    int32_t buffer, tensor;
    int32_t version;
    int64_t offset, row0, row1;
    int64_t extent_offset,
        extent_bytes; /* nvme: the extent of the buffer that contains the rows (the store checks whole extents) */
};

struct program {
    char name[48];
    int masks; /* masks of the model, each with predicates of its own; 0: one */
    /* programs with a cache, on one rank: number of predicates, from 1 on; each says whether a block of a cache is attended; 0:
     * none */
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
    int32_t *call_index;          /* shared calls by hash, open addressing; -1: free */
    int cap_call_index;           /* a power of 2; 0: none yet */
    int n_persistent;             /* number of persistent buffers, which come first */
    int64_t arena[TIERS];         /* bytes of each tier below which all addresses lie */
    int64_t lower_bound[TIERS];   /* persistent bytes + maximum of simultaneously live transient bytes */
    int64_t serial_bound[TIERS];  /* the same in lowering order, in which nothing is fetched ahead */
    int64_t peak[TIERS][CLASSES]; /* most bytes of each class at one moment */
    double seconds;               /* simulated */
    int write_depth;              /* most blocks of drive writes in flight while there are reads; 0: DRIVE_DEPTH */
    int discrete;                 /* 1: READ, WRITE and HOST lanes cannot reach the device tier */
    int group_size[LANES];        /* members of each comm lane's group; 1 or 0: no such lane */
    int out_of_memory;            /* sticky: a table could not grow */
    enum program_excess excess;   /* sticky: a number exceeds PROGRAM_MOST_*, so that operands may be nonsense */
};

enum status program_create(const char *name, struct program **out);
/* Returns the error that the sticky flags of a built program stand for: ERR_NOMEM, or ERR_NOFIT if it exceeds PROGRAM_MOST_*. */
enum status program_built(const struct program *p);
void program_destroy(struct program *p); /* NULL is fine */

/* Builders return the new index. If memory is short they set a sticky flag, and the index is not valid; beyond PROGRAM_MOST_*
 * they set the other one. */
int program_add_tensor(struct program *p, const char *name, enum tensor_class class, int64_t rows, int64_t row_bytes);
int program_add_buffer(struct program *p, enum tier tier, int64_t bytes, enum tensor_class class, int persistent);
/* Appends an instruction with a call of its own, zero in all other fields and without operands. */
int program_add_instr(struct program *p, enum op_kind op, enum lane lane);
/* Ends the last instruction's call: an equal call that was shared before takes its place. */
void program_share_call(struct program *p);
/* Adds another wait of instruction i. */
void program_add_wait(struct program *p, int i, struct wait w);
/* Appends an operand to the last instruction. Merges it with the previous operand if bytes, rows, arg, access and versions
 * continue. */
void program_add_operand(struct program *p, struct operand o);
void program_add_binding(struct program *p, int live_out, struct binding b);

/* Returns the end of an operand's rows. The operand has a tensor. */
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

/* Sets tickets from the order of instrs. */
void program_number(struct program *p);
/* Puts instrs into the order `order` (a permutation of 0..n_instrs-1), and numbers them; 0: out of memory. */
int program_permute(struct program *p, const int *order);

/* Prints the program as text, one instruction a line. */
void program_print(const struct program *p, FILE *f);

#endif
