/* What instructions are executed with: memory, kernels, store, communicator. */
#ifndef LTRAIN_ENGINE_EXEC_CONTEXT_H
#define LTRAIN_ENGINE_EXEC_CONTEXT_H

#include "comm/comm.h"
#include "device/copy.h"
#include "offload/store.h"
#include "ops/ops.h"
#include "program/program.h"

/* Memory and kernels that programs run on; borrowed. */
struct exec_context {
    char *device, *host; /* arena bases */
    struct store *store; /* NULL if no program touches nvme */
    struct copy_link link;
    struct comm *comm;         /* NULL or of a single rank: programs have no comm lanes */
    const uint8_t *predicates; /* [k]: predicate k of the micro-batch holds; NULL: no program has any */
    op_kernel *kernels[OP_COUNT];
    int threads; /* OpenMP threads of compute and host lanes */
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
/* Executes one instruction, blocking (kernels, copies, and I/O through the given direction's own thread). */
enum status exec_instr(const struct exec_context *x, const struct program *p, const struct instr *in);

#endif
