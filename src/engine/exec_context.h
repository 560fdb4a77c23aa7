/* What instructions are executed with: memory, kernels, store, communicator. */
#ifndef LTRAIN_ENGINE_EXEC_CONTEXT_H
#define LTRAIN_ENGINE_EXEC_CONTEXT_H

#include "comm/comm.h"
#include "device/backend.h"
#include "offload/store.h"

struct bounce; /* engine/bounce.h */

/* Memory and kernels that programs run on; borrowed. */
struct exec_context {
    struct backend *backend;           /* with the device arena */
    char *host;                        /* the host arena */
    struct store *store;               /* NULL if no program touches nvme */
    struct comm *comm;                 /* NULL or of a single rank: programs have no comm lanes */
    struct bounce *bounce;             /* NULL: messages are sent from device memory, or none are */
    int carried;                       /* the backend's library carries messages; comm watches over the ranks */
    const uint8_t *predicates;         /* [k]: predicate k of the micro-batch holds; NULL: no program has any */
    op_kernel *host_kernels[OP_COUNT]; /* of the host lane */
    struct cpu_stream *host_stream;    /* its */
};

/* What an instruction's argument points to: device or host memory; for nvme operands *offset is the place in the store and NULL
 * is returned. */
void *exec_argument(const struct exec_context *x, const struct program *p, const struct instr *in, int arg, int64_t *offset,
                    int64_t *bytes);
/* Whether an instruction with this predicate is executed (0: always). */
static inline int exec_holds(const struct exec_context *x, int predicate)
{
    return predicate == 0 || x->predicates[predicate];
}
/* Which halves of an instruction of a comm lane take place: an exchange's have predicates. */
struct exec_halves {
    int send, receive;
};
struct exec_halves exec_halves(const struct exec_context *x, const struct program *p, const struct instr *in);
/* Gives an instruction of COMPUTE, H2D or D2H, or a collective that the backend carries, to its lane's stream. */
enum status exec_submit(const struct exec_context *x, const struct program *p, const struct instr *in);
/* Lets the backend prepare each kernel call of the program, which must not be running: what instructions of COMPUTE read and
 * write holds zeros or nothing afterwards. */
enum status exec_prepare(const struct exec_context *x, const struct program *p);
/* Executes one instruction, blocking (kernels, copies, and I/O through the given direction's own thread). */
enum status exec_instr(const struct exec_context *x, const struct program *p, const struct instr *in);

/* Bytes of the device's or the host's arena from `at` on, between instructions. */
enum status exec_fill(const struct exec_context *x, enum tier t, int64_t at, int byte, int64_t bytes);
enum status exec_read(const struct exec_context *x, enum tier t, int64_t at, void *to, int64_t bytes);
enum status exec_write(const struct exec_context *x, enum tier t, int64_t at, const void *from, int64_t bytes);

#endif
