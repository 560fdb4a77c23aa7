/* The backends of the processor: `cpu`, whose device memory is ordinary memory, and `cpu:discrete`, which behaves like a GPU:
 * host lanes are not to reach its memory, copies land late, poison their target until they do, and take as long as a link would.
 */
#ifndef LTRAIN_ENGINE_BACKEND_CPU_H
#define LTRAIN_ENGINE_BACKEND_CPU_H

#include "device/backend.h"
#include "program/target.h"

struct backend_cpu_config {
    int discrete;
    double link_bytes_per_second; /* of cpu:discrete, each way; 0: as fast as memory allows */
    int threads;                  /* OpenMP's, of each lane that computes */
};

/* What to plan for so that programs run on either of them with that many threads: the scratch of this processor's kernels and of
 * the communicator's collectives. */
struct target backend_cpu_target(int threads);

/* ERR_NOMEM; what opening BLAS says. *out is ended with its own close. */
enum status backend_cpu_create(const struct backend_cpu_config *c, struct backend **out);
/* The kernels of host lanes, whatever the device: ops and attention of the processor. */
enum status backend_cpu_kernels(op_kernel *table[OP_COUNT]);

#endif
