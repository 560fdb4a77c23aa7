/* Runs programs: one thread per lane, waits as tickets, nothing decided or allocated while a step runs. */
#ifndef LTRAIN_ENGINE_EXECUTOR_H
#define LTRAIN_ENGINE_EXECUTOR_H

#include "comm/comm.h"
#include "device/copy.h"
#include "offload/store.h"
#include "ops/ops.h"
#include "program/program.h"

struct executor;

/* Memory and kernels that programs run on; borrowed. */
struct machine {
    char *device, *host; /* arena bases */
    struct store *store; /* NULL if no program touches nvme */
    struct copy_link link;
    struct comm *comm;         /* NULL or of a single rank: programs have no comm lanes */
    const uint8_t *predicates; /* [k]: predicate k of the micro-batch holds; NULL: no program has any */
    op_kernel *kernels[OP_COUNT];
    int threads; /* OpenMP threads of compute and host lanes */
};

struct lane_stats {
    int64_t bytes, busy_ns, waited_ns;
};

struct trace_event {
    int64_t start_ns, end_ns; /* since the program's start */
};

enum status executor_create(const struct machine *m, struct executor **out);
void executor_destroy(struct executor *e); /* NULL is fine */

/* Runs the program to its end. The calling thread is the compute lane. trace: NULL, or one event per instruction. After a failure
 * the sentence is the first failing lane's, and the executor can run again,
 * unless the store failed: a direction of the store that has failed stays so (offload/store.h). */
enum status executor_run(struct executor *e, const struct program *p, struct trace_event *trace);

/* Accumulated over all runs since the last call. */
void executor_take_stats(struct executor *e, struct lane_stats out[LANES]);

/* What an instruction's argument points to: device or host memory; for nvme operands *offset is the place in the store and NULL
 * is returned. */
void *machine_argument(const struct machine *m, const struct program *p, const struct instr *in, int arg, int64_t *offset,
                       int64_t *bytes);
/* Whether an instruction with this predicate is executed (0: always). */
static inline int machine_holds(const struct machine *m, int predicate)
{
    return predicate == 0 || m->predicates[predicate];
}
/* Executes one instruction, blocking (kernels, copies, and I/O through the given direction's own thread). */
enum status machine_execute(const struct machine *m, const struct program *p, const struct instr *in);

#endif
