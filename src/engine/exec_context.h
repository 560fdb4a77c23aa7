/* The context of executing instructions: memory, kernels, store, communicator. */
#ifndef LTRAIN_ENGINE_EXEC_CONTEXT_H
#define LTRAIN_ENGINE_EXEC_CONTEXT_H

#include "comm/comm.h"
#include "device/backend.h"
#include "offload/store.h"

struct bounce; /* engine/bounce.h */
struct scrub;  /* engine/scrub.h */
struct again;  /* engine/again.h */

/* Memory and kernels that programs run on; all borrowed. */
struct exec_context {
    struct backend *backend;           /* owner of the device arena */
    char *host;                        /* host arena */
    struct store *store;               /* NULL if no program touches nvme */
    struct comm *comm;                 /* NULL or of a single rank: programs have no comm lanes */
    struct bounce *bounce;             /* NULL: messages are sent from device memory, or there are none */
    void *counts;                      /* host memory for the counts of a collective that the library carries (op_is_counted) */
    int carried;                       /* 1: the backend's library carries messages, and comm watches over the ranks */
    const uint8_t *predicates;         /* [k]: predicate k of the micro-batch holds; NULL: no program has any */
    op_kernel *host_kernels[OP_COUNT]; /* kernels of the host lane */
    struct cpu_stream *host_stream;    /* stream of the host lane */
    void *staging;                     /* host memory of a group, for the read lane */
    struct scrub *scrub;               /* checksums of the state in host memory; NULL: there are none */
    struct again *again;               /* an update that is computed twice; NULL: none ever is */
};

/* Returns the device or host address of an instruction's argument, with its bytes. For nvme operands it returns NULL and sets
 * *offset to the place in the store. */
void *exec_argument(const struct exec_context *x, const struct program *p, const struct instr *in, int arg, int64_t *offset,
                    int64_t *bytes);
/* Tells whether an instruction with this predicate is executed (0: always). */
static inline int exec_holds(const struct exec_context *x, int predicate)
{
    return predicate == 0 || x->predicates[predicate];
}
/* Halves of a comm instruction that take place: those of an exchange have predicates. */
struct exec_halves {
    int send, receive;
};
struct exec_halves exec_halves(const struct exec_context *x, const struct program *p, const struct instr *in);
/* Submits an instruction of COMPUTE, H2D or D2H, or a collective that the backend carries, to its lane's stream. */
enum status exec_submit(const struct exec_context *x, const struct program *p, const struct instr *in);
/* Returns the largest size of the counts of the program's collectives (op_is_counted), in bytes. */
int64_t exec_count_bytes(const struct program *p);
/* Lets the backend prepare each kernel call of the program, which must not be running. Memory that COMPUTE instructions touch
 * holds zeros or garbage afterwards. */
enum status exec_prepare(const struct exec_context *x, const struct program *p);
/* Executes one instruction and waits for its end (kernels, copies, and I/O through the given direction's own thread). */
enum status exec_instr(const struct exec_context *x, const struct program *p, const struct instr *in);

/* Fills, reads or writes bytes of the device's or the host's arena from `at` on; only between instructions. */
enum status exec_fill(const struct exec_context *x, enum tier t, int64_t at, int byte, int64_t bytes);
enum status exec_read(const struct exec_context *x, enum tier t, int64_t at, void *to, int64_t bytes);
enum status exec_write(const struct exec_context *x, enum tier t, int64_t at, const void *from, int64_t bytes);

#endif
