/* The CPU backends: `cpu`, whose device memory is ordinary memory, and `cpu:discrete`, which behaves like a GPU.
 *
 * On `cpu:discrete`, host lanes must not touch device memory. Copies land late, poison their target until they do, and take as
 * long as a link would. */
#ifndef LTRAIN_ENGINE_BACKEND_CPU_H
#define LTRAIN_ENGINE_BACKEND_CPU_H

#include "device/backend.h"
#include "program/target.h"

struct backend_cpu_config {
    int discrete;
    double link_bytes_per_second; /* bandwidth of cpu:discrete's link, per direction; 0: memory speed */
    int threads;                  /* OpenMP threads of each lane that computes */
};

/* Returns the target to plan for so that programs run on either backend with `threads` threads. Its scratch is that of the CPU
 * kernels and of the communicator's collectives. */
struct target backend_cpu_target(int threads);

/* Opens a CPU backend; the caller ends *out with its own `close`. ERR_NOMEM, or the error of opening BLAS. */
enum status backend_cpu_create(const struct backend_cpu_config *c, struct backend **out);
/* Fills in the kernels of host lanes, which run on the CPU whatever the device: ops and attention. */
enum status backend_cpu_kernels(op_kernel *table[OP_COUNT]);

#endif
