/* GPUs as targets of programs, for plans made on machines without CUDA. */
#ifndef LTRAIN_ENGINE_CUDA_TARGET_H
#define LTRAIN_ENGINE_CUDA_TARGET_H

#include "program/target.h"

/* Returns the target of programs for a GPU: the scratch of its kernels. capability: 10 * major + minor; 0: no GPU, CPU kernels.
 * processors: streaming multiprocessors. threads: of host lanes. */
struct target cuda_target(int capability, int processors, int threads);
/* Returns the shared memory that a block may ask for, in bytes, by capability ("technical specifications" of the CUDA C
 * Programming Guide). */
int64_t cuda_target_shared_bytes(int capability);

#endif
