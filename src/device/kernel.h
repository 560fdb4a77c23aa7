/* The one type of all kernels, on processors and GPUs. */
#ifndef LTRAIN_DEVICE_KERNEL_H
#define LTRAIN_DEVICE_KERNEL_H

#include "base/status.h"
#include "program/op.h"

/* attrs, arg: as program/op.h says; NULL for absent optional arguments. stream: where it runs, the backend's own kind of handle
 * (device/backend.h; of the CPU device/cpu_stream.h). A kernel of the CPU returns when it is done, and never fails; one of a GPU
 * checks its shape, enqueues and returns. Neither allocates. */
typedef enum status op_kernel(const struct op_attrs *attrs, void *const *arg, void *stream);

#endif
