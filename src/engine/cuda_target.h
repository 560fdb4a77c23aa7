/* GPUs as targets of programs: plans ask where no CUDA is. */
#ifndef LTRAIN_ENGINE_CUDA_TARGET_H
#define LTRAIN_ENGINE_CUDA_TARGET_H

#include "program/target.h"

/* What programs for a GPU are made for: the scratch of its kernels. capability: 10 * major + minor; 0: no GPU, and the processor's
 * kernels. processors: streaming multiprocessors. threads: of host lanes. */
struct target cuda_target(int capability, int processors, int threads);
/* Bytes of shared memory that a block may ask for, by capability ("technical specifications" of the CUDA C Programming Guide). */
int64_t cuda_target_shared_bytes(int capability);

#endif
