/* The one type of all kernels, on CPUs and GPUs. */
#ifndef LTRAIN_DEVICE_KERNEL_H
#define LTRAIN_DEVICE_KERNEL_H

#include "base/status.h"
#include "program/op.h"

/* A kernel. attrs, arg: as of program/op.h; NULL for absent optional arguments. stream: where it runs, a handle of the backend's
 * own kind (device/backend.h; on CPUs device/cpu_stream.h). A CPU kernel returns when it is done; it fails only with
 * ERR_CORRUPT, for indices that do not exist. A GPU kernel checks its shape, enqueues and returns. Neither allocates. */
typedef enum status op_kernel(const struct op_attrs *attrs, void *const *arg, void *stream);

#endif
